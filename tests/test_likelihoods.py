"""A family a variable; the Gaussian and Student's t against scipy."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array
from scipy.stats import kstest, norm, t

from vsdn.likelihoods import AbstractFamily, Gaussian, Likelihood, Student

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

    def reach(self, params: Array) -> Array:
        return 20 * jnp.exp(-params[..., 0])

    def cdf(self, params: Array, y: Array) -> Array:
        return -jnp.expm1(-jnp.exp(params[..., 0]) * y)

    def sample(self, params: Array, *, key: Array) -> Array:
        return jr.exponential(key, params.shape[:-1]) / jnp.exp(params[..., 0])

    def with_moments(self, mean: Array, variance: Array) -> Array:
        return -jnp.log(mean)[..., None]


FAMILIES = pytest.mark.parametrize(
    ("family", "law"), [(Gaussian(1e-3), norm), (Student(1e-3), t(4))], ids=["gaussian", "student"]
)


@FAMILIES
def test_a_family_is_scipys(family, law):
    params, y = jnp.asarray([[0.3, -0.5], [-1.0, 0.7], [2.0, 0.0]]), jnp.asarray([0.1, 2.0, -60.0])
    scale = np.asarray(family.scale(params))
    np.testing.assert_allclose(scale, np.exp([-0.5, 0.7, 0.0]), rtol=1e-2)
    z = (np.asarray(y) - np.asarray(params[:, 0])) / scale
    np.testing.assert_allclose(family.log_prob(params, y), law.logpdf(z) - np.log(scale), rtol=1e-12)
    np.testing.assert_allclose(family.cdf(params, y), law.cdf(z), rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(family.mean(params), params[:, 0])
    np.testing.assert_allclose(family.variance(params), law.var() * scale**2, rtol=1e-12)
    assert np.all(law.sf(np.asarray(family.reach(params)) / scale) < 1e-5)


def test_students_t_forgives_what_nothing_announced():
    params, far = jnp.asarray([0.0, -200.0]), jnp.asarray(5.0)  # foretold as narrowly as can be
    assert Gaussian().log_prob(params, far) < -1e7
    assert Student().log_prob(params, far) > -40
    assert np.isfinite(jax.grad(lambda params: Student().log_prob(params, far))(params)).all()


def test_the_scale_never_falls_below_its_floor():
    raw = jnp.linspace(-200.0, 3.0, 50)
    scale = np.asarray(Gaussian(0.02).scale(jnp.stack([raw, raw], axis=-1)))
    assert np.all(np.diff(scale) >= 0)
    assert np.all(scale >= 0.02)
    assert np.isfinite(np.asarray(jax.grad(lambda r: Gaussian(0.02).scale(jnp.stack([r, r])))(-200.0)))


@FAMILIES
def test_parameters_of_a_mean_and_a_variance_give_them_back(family, law):
    params = family.with_moments(jnp.asarray([1.0, 2.0]), jnp.asarray([0.3, 4.0]))
    np.testing.assert_allclose(family.mean(params), [1.0, 2.0])
    np.testing.assert_allclose(family.variance(params), [0.3, 4.0], rtol=1e-9)


@FAMILIES
def test_moving_and_widening_is_that_of_the_value(family, law):
    params, y = jnp.asarray([[0.4, 1.0], [-0.2, 0.3]]), jnp.asarray([0.7, 1.9])
    moved = family.moved(params, jnp.full(2, 3.0), jnp.full(2, np.log(2.0)))
    np.testing.assert_allclose(family.cdf(moved, 3.0 + 2.0 * y), family.cdf(params, y), rtol=1e-3)  # but for the floor
    np.testing.assert_allclose(family.cdf(family.moved(params, jnp.full(2, 3.0)), 3.0 + y), family.cdf(params, y))


@FAMILIES
def test_samples_follow_their_law(family, law, key):
    params = jnp.broadcast_to(jnp.asarray([0.4, -0.3]), (20_000, 2))
    draws = np.asarray(family.sample(params, key=key))
    assert kstest((draws - 0.4) / float(family.scale(params)[0]), law.cdf).pvalue > 1e-3


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


@FAMILIES
@pytest.mark.parametrize("even_pull", [0.0, 0.5, 1.0])
def test_values_pull_as_evenly_as_is_asked(family, law, even_pull, key):
    likelihood, plain = Likelihood((family,) * 2, even_pull), Likelihood((family,) * 2)
    params, y = jr.normal(key, (3, 2, 2)) * jnp.asarray([1.0, 3.0]), jnp.full((3, 2), 0.7)
    total = lambda params: jnp.sum(likelihood.log_prob(likelihood.pulled(params), y))
    found, pull = jax.value_and_grad(total)(params)
    assert found == jnp.sum(plain.log_prob(params, y))  # what is maximised stays what it was
    own = jax.grad(lambda params: jnp.sum(plain.log_prob(params, y)))(params)
    np.testing.assert_allclose(pull, own * plain.variance(params)[..., None] ** even_pull, rtol=1e-12)


def test_all_even_a_gaussian_mean_is_pulled_as_by_squared_errors(key):
    likelihood, params = Likelihood((Gaussian(),) * 2, 1.0), jr.normal(key, (3, 2, 2))
    y = jnp.full((3, 2), 0.7)
    pull = jax.grad(lambda params: jnp.sum(likelihood.log_prob(likelihood.pulled(params), y)))(params)
    np.testing.assert_allclose(pull[..., 0], y - params[..., 0], rtol=1e-12)
