"""Particles against the exact filter and smoother of a linear model, in standard errors over independent runs."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from examples import make_grid, make_table, thorough
from linear import linear_vsdn

from vsdn import particles
from vsdn.grids.grid import Queries, last_row
from vsdn.grids.marching import Marching
from vsdn.sde import embed

pytestmark = pytest.mark.usefixtures("x64")
models = pytest.mark.parametrize("name", ["vsdn-f", *thorough("vsdn-s")])


@pytest.fixture
def grid():
    """A series with gaps of several steps, missing entries and a last row before the end."""
    return make_grid(make_table(max_rows=8), 1, Marching(0.4))


def run(model, grid, count, runs, key):
    """So many independent runs of the filter."""
    one = lambda key: model.particles(grid, num_samples=count, key=key)[1]
    return jax.jit(jax.vmap(one))(jr.split(key, runs))


def assert_means(estimates, exact, allowance=0.0):
    """The mean over runs (leading axis) is the exact value."""
    estimates = np.asarray(estimates)
    error = estimates.std(axis=0) / len(estimates) ** 0.5
    assert np.all(np.abs(estimates.mean(axis=0) - exact) < 4 * error + allowance + 1e-9)


@models
def test_the_filter_is_kalmans(name, grid, key):
    model, oracle = linear_vsdn(name)
    known, values = run(model, grid, 1024, 64, key), np.asarray(grid.values)
    weights = np.exp(np.asarray(known.cloud.log_weights))
    states = np.asarray(known.cloud.states)
    means = np.einsum("rpn,rpnl->rpl", weights, states)
    squares = np.einsum("rpn,rpnl->rpl", weights, states**2)
    for point in range(len(values)):
        exact, cov = oracle(grid).given(values, point + 1)
        variance = np.einsum("pipi->pi", cov)[point]
        assert_means(means[:, point], exact[point], allowance=1e-3)
        assert_means(squares[:, point], variance + exact[point] ** 2, allowance=2e-3)
        seen_before = last_row(grid)[point] + 1  # between rows, of no row to come
        exact, cov = oracle(grid).given(values, int(seen_before))
        assert_means(np.asarray(known.ahead).mean(axis=2)[:, point], exact[point], allowance=1e-3)


@models
def test_the_likelihood_is_unbiased(name, grid, key):
    model, oracle = linear_vsdn(name)
    log_lik = np.asarray(run(model, grid, 64, 2048, key).log_lik)
    ratio = np.exp(log_lik - oracle(grid).log_lik(np.asarray(grid.values)))
    assert_means(ratio, 1.0)
    assert ratio.std() < 0.7


@pytest.mark.slow
@models
def test_the_smoother_is_exact(name, grid, key):
    model, oracle = linear_vsdn(name)

    def one(key):
        walk, known = model.particles(grid, num_samples=256, key=key)
        steps = embed(model.drift, walk.steps)
        return particles.smooth_particles(model.drift, known, steps, last_row(grid)[-1], key=key)

    paths = np.asarray(jax.jit(jax.vmap(one))(jr.split(key, 64)))  # (run, path, point, latent)
    exact, cov = oracle(grid).given(np.asarray(grid.values), len(grid.dt))
    assert_means(paths.mean(axis=1), exact, allowance=4e-3)
    variance = np.einsum("pipi->pi", cov)
    assert_means((paths**2).mean(axis=1), variance + exact**2, allowance=8e-3)
    middle = len(grid.dt) // 2  # and how two times go together
    together = (paths[:, :, middle - 2] * paths[:, :, middle + 1]).mean(axis=1)
    shared = np.einsum("ii->i", cov[middle - 2][:, middle + 1])
    assert_means(together, shared + exact[middle - 2] * exact[middle + 1], allowance=8e-3)
    assert np.all(variance[3:-2] < 0.9 * np.einsum("pipi->pi", oracle(grid).states()[1])[3:-2])  # the rows say much


@pytest.mark.thorough
def test_the_error_falls_with_the_root_of_the_particles(grid, key):
    model, oracle = linear_vsdn("vsdn-f")
    exact = np.stack(
        [oracle(grid).given(np.asarray(grid.values), point + 1)[0][point] for point in range(len(grid.dt))]
    )
    counts, errors = 4 ** np.arange(2, 7), []
    for count in counts:
        cloud = run(model, grid, int(count), 128, key).cloud
        means = np.einsum("rpn,rpnl->rpl", np.exp(np.asarray(cloud.log_weights)), np.asarray(cloud.states))
        errors.append(np.sqrt(np.mean((means - exact) ** 2)))
    slope = np.polyfit(np.log(counts), np.log(errors), 1)[0]
    assert -0.58 < slope < -0.42


def test_systematic_draws_follow_the_weights(key):
    log_weights = jax.nn.log_softmax(jr.normal(key, (50,)))
    draw = jax.vmap(
        lambda key: jnp.sum(
            particles.systematic(log_weights, key=key)[:, None] == jnp.arange(50, dtype=jnp.int32), axis=0
        )
    )
    counts, expected = np.asarray(draw(jr.split(key, 4000))), 50 * np.exp(np.asarray(log_weights))
    assert np.all(np.abs(counts - expected) < 1)  # each as often as its weight says, within one
    assert_means(counts, expected)


@pytest.mark.slow
@models
def test_interpolation_between_points_has_the_law_of_the_bridge(name, grid, key):
    """Inside a step, given both of its ends, a state is a Brownian bridge; the whole is linear, so its law is known."""
    model, oracle = linear_vsdn(name)
    point = int(np.flatnonzero(np.asarray(grid.dt[1:]) > 0.25)[1])
    dt = grid.dt[point + 1]
    queries = Queries(jnp.array([point, point], jnp.int32), jnp.stack([0.3 * dt, 0.8 * dt]), dt, jnp.zeros((2, 0)))
    one = lambda key: model.particle_interpolate(grid, queries, num_samples=128, key=key).states
    states = np.asarray(jax.jit(jax.vmap(one))(jr.split(key, 128)))  # (run, path, query, latent)
    exact, cov = oracle(grid).given(np.asarray(grid.values), len(grid.dt))
    share = np.array([0.3, 0.8])[:, None]
    mean = (1 - share) * exact[point] + share * exact[point + 1]
    assert_means(states.mean(axis=1), mean, allowance=4e-3)
    diffusion = oracle(grid).diffusion[point]
    ends = np.stack([np.einsum("ii->i", cov[p][:, q]) for p in (point, point + 1) for q in (point, point + 1)])
    lever = lambda s, t: np.array([(1 - s) * (1 - t), (1 - s) * t, s * (1 - t), s * t]) @ ends
    between = lever(0.3, 0.8) + diffusion**2 * float(dt) * 0.3 * 0.2
    together = (states[:, :, 0] * states[:, :, 1]).mean(axis=1)
    assert_means(together, between + mean[0] * mean[1], allowance=8e-3)
