"""Scores of a mixture against scipy and scoringrules."""

import jax.numpy as jnp
import numpy as np
import pytest
import scoringrules
from scipy.stats import norm

from vsdn import metrics
from vsdn.likelihoods import Gaussian, Likelihood, Student

pytestmark = pytest.mark.usefixtures("x64")
LIKELIHOOD = Likelihood((Gaussian(),) * 2)


@pytest.fixture
def mixture():
    rng = np.random.default_rng(5)
    params = rng.normal(size=(9, 6, 2, 2)) * [1.0, 0.7]  # sample, query, channel, (mean, raw scale)
    scale = np.asarray(Gaussian().scale(jnp.asarray(params)))
    return jnp.asarray(params), params[..., 0], scale, rng.normal(size=(6, 2))


def test_density_and_distribution_function(mixture):
    params, mean, scale, y = mixture
    np.testing.assert_allclose(
        metrics.log_prob(LIKELIHOOD, params, jnp.asarray(y)), np.log(norm.pdf(y, mean, scale).mean(0)), rtol=1e-9
    )
    np.testing.assert_allclose(
        metrics.cdf(LIKELIHOOD, params, jnp.asarray(y)), norm.cdf(y, mean, scale).mean(0), rtol=1e-9
    )


def test_mean_and_deviation(mixture):
    params, mean, scale, _ = mixture
    np.testing.assert_allclose(metrics.mean(LIKELIHOOD, params), mean.mean(0), rtol=1e-12)
    square = (mean**2 + scale**2).mean(0) - mean.mean(0) ** 2
    np.testing.assert_allclose(metrics.std(LIKELIHOOD, params), square**0.5, rtol=1e-9)


def test_quantiles_are_where_the_distribution_function_says(mixture):
    params, mean, scale, _ = mixture
    levels = (0.05, 0.5, 0.99)
    quantiles = np.asarray(metrics.quantiles(LIKELIHOOD, params, levels))
    for level, quantile in zip(levels, quantiles, strict=True):
        np.testing.assert_allclose(norm.cdf(quantile, mean, scale).mean(0), level, rtol=1e-8)


def test_crps_is_that_of_the_mixture(mixture):
    params, mean, scale, y = mixture
    weights = np.full(mean.shape, 1 / 9)
    truth = scoringrules.crps_mixnorm(y, mean, scale, weights, m_axis=0)
    np.testing.assert_allclose(metrics.crps(LIKELIHOOD, params, jnp.asarray(y)), truth, rtol=1e-4)


def test_crps_far_out_and_narrow():
    params = jnp.asarray([[[0.0, -5.0]]])
    narrow = Likelihood((Gaussian(),))
    scale = float(Gaussian().scale(params)[0, 0])
    for y in (0.0, 0.003, 4.0, -30.0):
        truth = float(scoringrules.crps_normal(y, 0.0, scale))
        assert float(metrics.crps(narrow, params, jnp.asarray([y]))[0]) == pytest.approx(truth, rel=1e-3)


def test_crps_of_students_t():
    params, student = jnp.asarray([[[0.3, -1.0]]]), Likelihood((Student(),))
    scale = float(Student().scale(params)[0, 0])
    for y in (0.3, 0.1, 4.0, -30.0):
        truth = float(scoringrules.crps_t(y, 4.0, 0.3, scale))
        assert float(metrics.crps(student, params, jnp.asarray([y]))[0]) == pytest.approx(truth, rel=1e-3)
