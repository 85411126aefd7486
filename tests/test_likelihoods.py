"""A family a variable; the Gaussian against scipy."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array
from scipy.stats import kstest, norm

from vsdn.likelihoods import AbstractFamily, Gaussian, Likelihood

pytestmark = pytest.mark.usefixtures("x64")


class Exponential(AbstractFamily):
    """Another family, with another number of parameters."""

    num_params: ClassVar[int] = 1

    def log_prob(self, params: Array, y: Array) -> Array:
        return params[..., 0] - jnp.exp(params[..., 0]) * y

    def mean(self, params: Array) -> Array:
        return jnp.exp(-params[..., 0])

    def variance(self, params: Array) -> Array:
        return jnp.exp(-2 * params[..., 0])

    def cdf(self, params: Array, y: Array) -> Array:
        return -jnp.expm1(-jnp.exp(params[..., 0]) * y)

    def sample(self, params: Array, *, key: Array) -> Array:
        return jr.exponential(key, params.shape[:-1]) / jnp.exp(params[..., 0])

    def with_moments(self, mean: Array, variance: Array) -> Array:
        return -jnp.log(mean)[..., None]


def test_the_gaussian_is_scipys():
    family, params, y = Gaussian(1e-3), jnp.asarray([[0.3, -0.5], [-1.0, 0.7]]), jnp.asarray([0.1, 2.0])
    scale = np.asarray(family.scale(params))
    np.testing.assert_allclose(scale, np.exp([-0.5, 0.7]), rtol=1e-2)
    np.testing.assert_allclose(family.log_prob(params, y), norm.logpdf(y, params[:, 0], scale), rtol=1e-12)
    np.testing.assert_allclose(family.cdf(params, y), norm.cdf(y, params[:, 0], scale), rtol=1e-12)
    np.testing.assert_allclose(family.variance(params), scale**2, rtol=1e-12)


def test_the_scale_never_falls_below_its_floor():
    raw = jnp.linspace(-200.0, 3.0, 50)
    scale = np.asarray(Gaussian(0.02).scale(jnp.stack([raw, raw], axis=-1)))
    assert np.all(np.diff(scale) >= 0)
    assert np.all(scale >= 0.02)
    assert np.isfinite(np.asarray(jax.grad(lambda r: Gaussian(0.02).scale(jnp.stack([r, r])))(-200.0)))


def test_parameters_of_a_mean_and_a_variance_give_them_back():
    params = Gaussian(1e-3).with_moments(jnp.asarray([1.0, 2.0]), jnp.asarray([0.3, 4.0]))
    np.testing.assert_allclose(Gaussian(1e-3).mean(params), [1.0, 2.0])
    np.testing.assert_allclose(Gaussian(1e-3).variance(params), [0.3, 4.0], rtol=1e-9)


def test_samples_follow_their_law(key):
    params = jnp.broadcast_to(jnp.asarray([0.4, -0.3]), (20_000, 2))
    draws = np.asarray(Gaussian().sample(params, key=key))
    assert kstest(draws, "norm", (0.4, float(Gaussian().scale(params)[0]))).pvalue > 1e-3


def test_variables_of_different_families_stand_side_by_side(key):
    mixed = Likelihood((Gaussian(), Exponential(), Gaussian()))
    params, y = jr.normal(key, (4, 3, 2)), jnp.full((4, 3), 0.7)
    for name in ("log_prob", "cdf"):
        got = jax.jit(lambda params, y, name=name: getattr(mixed, name)(params, y))(params, y)
        for channel, family in enumerate(mixed.families):
            wanted = getattr(family, name)(params[:, channel, : family.num_params], y[:, channel])
            np.testing.assert_allclose(got[:, channel], wanted, rtol=1e-12)
    np.testing.assert_allclose(mixed.mean(params)[:, 1], np.exp(-params[:, 1, 0]), rtol=1e-12)
    assert mixed.sample(params, key=key).shape == (4, 3)
