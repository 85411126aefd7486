"""VSDN's own truths: its bounds against exact likelihoods, what each posterior may see."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from examples import make_grid, make_model, make_scaler, make_table, thorough
from linear import linear_vsdn
from scipy.special import logsumexp
from truths import assert_bounds_climb

from vsdn.grids.marching import Marching
from vsdn.models.base import Evidence
from vsdn.training.objectives import iwae, mixed, vae

pytestmark = pytest.mark.usefixtures("x64")
remember = eqx.filter_jit(lambda model, grid: model.memory.forward(grid))
encode = eqx.filter_jit(lambda model, grid: model.encoder(grid, model.memory.forward(grid), model.encoder.beyond()))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vsdn-f", *thorough("vsdn-s")])
def test_bounds_climb_to_the_exact_likelihood(name, key):
    model, oracle = linear_vsdn(name)
    grid = make_grid(make_table(max_rows=7), 1, Marching(0.3))
    evidence = jax.jit(lambda key: model.evidence(grid, num_samples=2**15, key=key))(key)
    assert_bounds_climb(evidence, oracle(grid).log_lik(np.asarray(grid.values)))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vsdn-f", *thorough("vsdn-s")])
def test_posterior_and_prior_paths_agree_on_the_likelihood(name, key):
    """E_Q[w Π Φ] = E_P[Π Φ], for the nonlinear model as it is."""
    model, grid = make_model(name), make_grid(make_table(max_rows=6), 2)
    posterior_key, prior_key = jr.split(key)
    evidence = jax.jit(lambda key: model.evidence(grid, num_samples=40_000, key=key))(posterior_key)
    params = jax.jit(lambda key: model.predict(grid, num_samples=40_000, key=key))(prior_key)
    mask = grid.mask[grid.rows]
    log_prior = jnp.where(
        mask, model.likelihood.log_prob(params, jnp.broadcast_to(grid.values[grid.rows], params.shape[:-1])), 0.0
    )
    log_weights = (np.asarray(evidence.log_lik - evidence.log_ratio), np.asarray(log_prior.sum(axis=(1, 2))))
    shift = max(part.max() for part in log_weights)
    means, errors = zip(
        *((np.exp(p - shift).mean(), np.exp(p - shift).std() / p.size**0.5) for p in log_weights), strict=True
    )
    assert abs(means[0] - means[1]) < 4 * np.hypot(*errors)


def test_filtering_posterior_follows_the_prior_between_observations(key):
    model, grid = make_model("vsdn-f"), make_grid(make_table())
    memory = remember(model, grid)
    steps = model.steps(grid, memory, model.encoder(grid, memory, ()))
    arrives = np.asarray(grid.mask[1:].any(axis=1))
    same = np.all(np.asarray(steps.prior == steps.posterior), axis=1)
    assert np.all(same[~arrives])
    assert not np.any(same[arrives])


@pytest.mark.parametrize(("name", "sees"), [("vsdn-f", False), ("vsdn-s", True)])
def test_only_the_smoother_sees_the_future(name, sees):
    table = make_table()
    last = table.starts[1] - 1
    values = table.values.copy()
    values[last] += 3.0
    model = make_model(name)
    grids = [make_grid(t, scaler=make_scaler(table)) for t in (table, dataclasses.replace(table, values=values))]
    contexts = [np.asarray(encode(model, grid)) for grid in grids]
    before = int(grids[0].rows[-1]) - 1  # the step that arrives at the changed row
    assert np.array_equal(contexts[0][:before], contexts[1][:before]) is not sees


def test_the_decoder_does_not_see_what_it_scores(key):
    table = make_table()
    values = table.values.copy()
    values[table.starts[1] - 1] += 3.0
    model, changed = make_model("vsdn-f"), dataclasses.replace(table, values=values)
    predict = jax.jit(lambda grid: model.predict(grid, num_samples=4, key=key))
    one, two = (predict(make_grid(t, scaler=make_scaler(table))) for t in (table, changed))
    np.testing.assert_array_equal(one, two)  # the last row is the one that changed: nothing comes after it


@pytest.mark.parametrize("name", ["vsdn-f", "vsdn-s", "ode-rnn", "gru-ode"])
def test_a_row_that_the_memory_is_not_told_of_changes_no_memory_but_is_scored(name, key):
    model, grid = make_model(name), make_grid(make_table())
    row = int(grid.rows[1])
    others = jnp.arange(len(grid.dt)) != row
    without = grid._replace(mask=grid.mask & others[:, None])
    untold = [grid._replace(told=others, values=grid.values.at[row].add(shift)) for shift in (0.0, 3.0)]
    expected, hidden = remember(model, without), [remember(model, grid) for grid in untold]
    for memory in hidden:
        np.testing.assert_allclose(memory.pre, expected.pre, rtol=1e-12)
        np.testing.assert_allclose(memory.post, expected.post, rtol=1e-12)
    assert not np.array_equal(hidden[0].arrived[row], hidden[1].arrived[row])  # for the posterior of that step alone
    np.testing.assert_allclose(hidden[0].arrived[row + 1 :], expected.post[row + 1 :], rtol=1e-12)
    evidence = jax.jit(lambda grid: model.evidence(grid, num_samples=2, key=key))
    log_lik = [evidence(grid).log_lik for grid in untold]
    assert not np.any(np.isclose(*log_lik))


@pytest.mark.parametrize("name", ["vsdn-f", "vsdn-s"])
def test_the_posterior_reads_what_the_memory_is_not_told_of(name):
    model, grid = make_model(name), make_grid(make_table())
    row = int(grid.rows[1])
    contexts = []
    for shift in (0.0, 3.0):
        changed = grid._replace(told=jnp.arange(len(grid.dt)) != row, values=grid.values.at[row].add(shift))
        contexts.append(encode(model, changed))
    differs = np.any(np.asarray(contexts[0] != contexts[1]), axis=1)
    assert differs[row - 1]  # the step that arrives there
    assert not differs[row:].any()


def test_objectives_are_their_formulas(key):
    log_lik, kl, log_ratio = jr.normal(key, (3, 7))
    evidence = Evidence(log_lik, kl**2, log_ratio)
    assert vae(evidence, 0.3) == pytest.approx(float(np.mean(log_lik - 0.3 * kl**2)))
    weight = logsumexp(np.asarray(log_lik - log_ratio)) - np.log(7)
    assert iwae(evidence) == pytest.approx(float(weight))
    assert mixed(evidence, 0.25, 0.3) == pytest.approx(float(0.75 * vae(evidence, 0.3) + 0.25 * weight))
