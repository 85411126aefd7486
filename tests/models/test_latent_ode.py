"""Latent ODE's own truths: the order of its flow, the law of its start, and its bounds against the exact likelihood."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples import make_grid, make_model, make_table
from linear import NOISE, RATES, READOUT, Linear, Readout
from scipy.integrate import solve_ivp
from scipy.stats import multivariate_normal
from truths import assert_bounds_climb, assert_mean

from vsdn.grids.marching import Marching

pytestmark = pytest.mark.usefixtures("x64")


def test_the_flow_is_of_second_order():
    model = make_model("latent-ode", clock_size=0)
    z0, nothing = jnp.asarray([0.7, -1.2, 0.4]), jnp.zeros(0)
    flow = jax.jit(lambda z: model.velocity(z, model.velocity.embed(nothing)))
    velocity = lambda _, z: np.asarray(flow(jnp.asarray(z)))
    truth = solve_ivp(velocity, (0.0, 2.0), np.asarray(z0), rtol=1e-12, atol=1e-12).y[:, -1]

    def end(num_steps):
        grid = make_grid(make_table(), marching=Marching(0.3))
        dt = jnp.full(num_steps + 1, 2.0 / num_steps).at[0].set(0.0)
        grid = grid._replace(dt=dt, clock=jnp.zeros((num_steps + 1, 0)))
        return jax.jit(lambda grid: model.flow(grid, z0)[-1])(grid)

    counts = 2 ** np.arange(2, 7)
    errors = [np.linalg.norm(end(int(count)) - truth) for count in counts]
    order = -np.polyfit(np.log(counts), np.log(errors), 1)[0]
    assert 1.8 < order < 2.2


def test_a_branch_is_a_step_of_the_flow(key):
    model, grid = make_model("latent-ode"), make_grid(make_table())
    z0 = jnp.asarray([0.7, -1.2, 0.4])
    step = model.branch(z0, grid.clock[0], grid.dt[1], jnp.full(3, 1e9))  # no noise moves it
    np.testing.assert_allclose(step, model.flow(grid, z0)[1], rtol=1e-12)


def test_ratio_and_kl_of_the_start_agree(key):
    model, grid = make_model("latent-ode"), make_grid(make_table())
    evidence = jax.jit(lambda key: model.evidence(grid, num_samples=100_000, key=key))(key)
    assert np.ptp(evidence.kl) == 0
    assert np.asarray(evidence.log_ratio).std() > 0.05
    assert_mean(np.exp(-np.asarray(evidence.log_ratio)), 1.0)
    assert_mean(evidence.log_ratio - evidence.kl, 0.0)


def exact_log_lik(grid, push):
    """Of z₀ ~ N(0, I) carried by the midpoint rule of ż = A z + b, dense: y is Gaussian."""
    mean, loading, means, loadings = np.zeros(2), np.eye(2), [], []
    for dt in np.asarray(grid.dt):
        move = np.eye(2) + RATES * dt + RATES @ RATES * dt**2 / 2
        mean = move @ mean + (np.eye(2) * dt + RATES * dt**2 / 2) @ push
        loading = move @ loading
        means.append(READOUT @ mean)
        loadings.append(READOUT @ loading)
    seen = np.asarray(grid.mask)
    rows = np.stack(loadings)[seen]
    cov = rows @ rows.T + NOISE**2 * np.eye(len(rows))
    return float(multivariate_normal(np.stack(means)[seen], cov).logpdf(np.asarray(grid.values)[seen]))


@pytest.mark.slow
def test_bounds_climb_to_the_exact_likelihood(key):
    push = np.array([0.3, -0.2])
    model = make_model("latent-ode", clock_size=0, latent_size=2)
    model = eqx.tree_at(lambda m: (m.velocity, m.decoder), model, (Linear(push), Readout()))
    grid = make_grid(make_table(max_rows=7), 1, Marching(0.3))
    evidence = jax.jit(lambda key: model.evidence(grid, num_samples=2**15, key=key))(key)
    assert_bounds_climb(evidence, exact_log_lik(grid, push))
