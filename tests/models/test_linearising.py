"""A linear look is exact where a model is linear and its variables go their own ways, and near where it bends."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples import make_model

from vsdn.answers import inference
from vsdn.answers.methods import by_linearising, by_prior
from vsdn.grids.marching import Marching
from vsdn.likelihoods import Gaussian, Likelihood
from vsdn.models import linearising
from vsdn.models.linearising import Later, Moments
from vsdn.tables.table import Scaler, Table

pytestmark = pytest.mark.usefixtures("x64")


def test_between_values_the_last_value_is_a_bridge():
    """N(last, v₁) is foretold, and from a value there the next one as N(value, v₂): Bayes' rule in closed form. The
    second variable is seen next only two rows later; beyond the last row a forecast is left as it is."""
    table = Table(
        ids=np.arange(1),
        starts=np.array([0, 4]),
        times=np.array([0.0, 1.0, 2.0, 3.5]),
        values=np.array([[-1.0, 0.5], [0.3, 0.0], [1.5, 0.0], [2.0, -2.0]]),
        mask=np.array([[True, True], [True, False], [True, False], [True, True]]),
        variables=("a", "b"),
    )
    model = make_model("last-value", clock_size=0)
    model = eqx.tree_at(lambda m: m.raw, model, np.array([[-3.0, 0.5], [-3.0, 0.2]]))
    frame = inference.Frame(Scaler(np.zeros(2), np.ones(2), 1.0), Marching(0.3))
    request = inference.Request(table, np.zeros(2, int), np.array([1.4, 4.0]))
    ask = lambda method: inference.forecast(model, frame, request, levels=(0.5,), num_samples=1, seed=0, method=method)
    found, foretold = ask(by_linearising), ask(by_prior)
    start, slope = np.log1p(np.exp(np.asarray(model.raw))).T
    before, after = start + slope * np.array([0.4, 1.4]), start + slope * np.array([0.6, 2.1])
    variance = 1 / (1 / before + 1 / after)
    mean = variance * (np.array([0.3, 0.5]) / before + np.array([1.5, -2.0]) / after)
    np.testing.assert_allclose(found.mean[0], mean, rtol=1e-9)
    np.testing.assert_allclose(found.std[0], np.sqrt(variance), rtol=1e-9)
    np.testing.assert_allclose(found.mean[1], foretold.mean[1], rtol=1e-12)
    np.testing.assert_allclose(found.std[1], foretold.std[1], rtol=1e-9)


def test_a_second_look_finds_what_a_bent_model_says():
    """One value, one later row whose mean bends: Gauss–Newton comes near to the peak of the posterior density."""
    bent = lambda y: y + 0.3 * jnp.sin(2 * y)
    row = lambda y: Later(Moments(bent(y)[None], jnp.full((1, 1), 0.01)), jnp.array([[1.0]]), jnp.array([[True]]))
    found = linearising.update(Moments(jnp.zeros(1), jnp.ones(1)), row)
    grid = jnp.linspace(-3.0, 3.0, 60_001)
    density = jnp.exp(-0.5 * grid**2 - 0.5 * (1.0 - bent(grid)) ** 2 / 0.01)
    peak = float(grid[jnp.argmax(density)])
    spread = float(jnp.sqrt(jnp.sum(density * (grid - peak) ** 2) / jnp.sum(density)))
    assert float(found.mean[0]) == pytest.approx(peak, abs=0.3 * spread)
    assert float(jnp.sqrt(found.variance[0])) == pytest.approx(spread, rel=0.25)


def test_a_later_value_that_nothing_announced_moves_a_value_no_farther_than_one_that_is_far():
    """One later value, N(value, 1), so that it was foretold with a deviation of √2: half of the way is Bayes' rule."""
    row = lambda y, seen: Later(Moments(y[None], jnp.ones((1, 1))), jnp.array([[seen]]), jnp.array([[True]]))
    for seen, moved in ((3.0, 1.5), (1e6, 0.5 * linearising.FAR * 2**0.5)):
        found = linearising.update(Moments(jnp.zeros(1), jnp.ones(1)), lambda y, seen=seen: row(y, seen))
        assert float(found.mean[0]) == pytest.approx(moved)
        assert float(found.variance[0]) == pytest.approx(0.5)


def test_a_mixture_gets_the_moments_that_it_is_given(key):
    likelihood = Likelihood((Gaussian(1e-6),) * 2)
    params = jax.random.normal(key, (7, 2, 2))
    before = linearising.moments_of(likelihood, params)
    after = Moments(before.mean + 1.0, before.variance / jnp.array([4.0, 9.0]))
    found = linearising.moments_of(likelihood, linearising.reshape(likelihood, params, before, after))
    np.testing.assert_allclose(found.mean, after.mean, rtol=1e-6)
    np.testing.assert_allclose(found.variance, after.variance, rtol=1e-6)
