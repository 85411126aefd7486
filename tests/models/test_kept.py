"""A memory that keeps things as they were seen: the decoder foretells the change, everything else is as before."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from examples import SPEED, ask, make_grid, make_model, make_scaler, make_table, thorough

from vsdn.likelihoods import Gaussian, Likelihood
from vsdn.memories.memory import AbstractFlowingMemory

pytestmark = pytest.mark.usefixtures("x64")
keepers = pytest.mark.parametrize("name", ["vsdn-s", *thorough("vsdn-f", "ode-rnn")])


def still(name, kept="keep_last"):
    """A model whose decoder foretells no change, with a scale of one."""
    model = make_model(name, **{kept: True})
    zeros = jax.tree.map(jnp.zeros_like, eqx.filter(model.decoder, eqx.is_inexact_array))
    return eqx.tree_at(lambda model: model.decoder, model, eqx.combine(zeros, model.decoder))


@keepers
def test_no_change_is_what_is_left_of_the_last_value_seen_of_each_variable(name):
    table = make_table()
    rows = slice(table.starts[0], table.starts[1])
    times, values, mask = table.times[rows], table.values[rows], table.mask[rows]
    when = np.append(times, times[-1] + 3.0)
    share, rate = np.array([0.9, 0.4]), np.array([0.2, 1.5])
    keeper = lambda model: (model.memory.keeper.share, model.memory.keeper.log_rate)
    model = eqx.tree_at(keeper, still(name), (jnp.asarray(share), jnp.log(rate)))
    scaler = make_scaler(table)
    mean = scaler.scale(ask(model, table, np.zeros(len(when), int), when, scaler=scaler).mean)
    times, when, values = times / scaler.time_scale, when / scaler.time_scale, scaler.scale(values)
    for time, foretold in zip(when, mean, strict=True):
        for channel in range(2):
            seen = np.flatnonzero((times < time) & mask[:, channel])
            if len(seen):
                left = share[channel] * np.exp(-rate[channel] * (time - times[seen[-1]]))
                assert foretold[channel] == pytest.approx(left * values[seen[-1], channel], abs=1e-9)


@keepers
@pytest.mark.parametrize("kept", ["keep_last", "keep_usual", "keep_trend", "keep_linear", "tell_error"])
def test_unseen_values_are_never_read(name, kept, key):
    grid, model = make_grid(make_table()), make_model(name, **{kept: True})
    poisoned = grid._replace(values=jnp.where(grid.mask, grid.values, 1e9))
    for ask_model in (model.evidence, model.predict):
        answer = jax.jit(lambda grid, ask=ask_model: ask(grid, num_samples=2, key=key))
        assert eqx.tree_equal(answer(grid), answer(poisoned))


def test_what_is_kept_fades_alone(key):
    memory = make_model("ode-rnn", keep_last=True).memory
    h, clock = jr.normal(key, memory.initial.shape), jnp.zeros(2)
    left = memory.kept(h).mean * np.exp(-1e-3 * 0.3)  # as it begins: all of a value, which hardly fades
    np.testing.assert_allclose(memory.kept(memory.drift(h, clock, jnp.asarray(0.3))).mean, left, rtol=1e-9)
    taken = memory.jump(h, jnp.array([5.0, 7.0]), jnp.array([True, False]))
    np.testing.assert_allclose(memory.kept(taken).mean, [5.0, memory.kept(h).mean[1]], rtol=1e-12)
    assert make_model("ode-rnn").memory.kept(h) is None


@keepers
def test_no_change_is_what_the_memory_guesses(name):
    """With a decoder that tells of no change, forecasts are what h foretells itself, with its own deviation."""
    grid, model = make_grid(make_table()), still(name, "tell_error")
    pre = model.memory.forward(grid).pre[grid.rows]
    mean, log_scale = jax.vmap(model.memory.guess)(pre)
    params = model.predict(grid, num_samples=2, key=jr.key(0))
    for path in params:
        np.testing.assert_allclose(model.likelihood.mean(path), mean, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(model.likelihood.variance(path), np.exp(2 * log_scale), rtol=5e-3)  # its floor


def test_moved_parameters_are_those_of_the_moved_variable(key):
    likelihood = Likelihood((Gaussian(1e-3), Gaussian(1e-2), Gaussian(1e-3)))
    params, by = jr.normal(key, (4, 3, 2)), jnp.array([1.0, -2.0, 0.5])
    moved = likelihood.moved(params, by)
    np.testing.assert_allclose(likelihood.mean(moved), likelihood.mean(params) + by)
    np.testing.assert_allclose(likelihood.variance(moved), likelihood.variance(params))


def test_scaled_parameters_are_those_of_the_scaled_variable(key):
    """Where the scale is well above its floor, which stays where it is."""
    likelihood = Likelihood((Gaussian(1e-9), Gaussian(1e-8), Gaussian(1e-9)))
    params, by, log_scale = jr.normal(key, (4, 3, 2)), jnp.array([1.0, -2.0, 0.5]), jnp.array([0.3, -1.0, 2.0])
    moved = likelihood.moved(params, by, log_scale)
    np.testing.assert_allclose(likelihood.mean(moved), by + np.exp(log_scale) * likelihood.mean(params), rtol=1e-12)
    np.testing.assert_allclose(
        likelihood.variance(moved), np.exp(2 * log_scale) * likelihood.variance(params), rtol=1e-6
    )


@keepers
@pytest.mark.parametrize("kind", ["keep_trend", "keep_linear"])
def test_no_change_is_what_the_keeper_foretells_with_its_own_deviation(name, kind):
    """With a decoder that tells of no change, forecasts are the keeper's, whatever a path does."""
    table, model = make_table(), still(name, kind)
    rows, scaler = slice(table.starts[0], table.starts[1]), make_scaler(make_table())
    times, values, mask = table.times[rows] / scaler.time_scale, scaler.scale(table.values[rows]), table.mask[rows]
    when, keeper = times[-1] + np.array([0.2, 2.0]), model.memory.keeper
    answer = ask(model, table, np.zeros(2, int), when * scaler.time_scale, scaler=scaler)
    clock = jnp.array([np.sin(SPEED * times[0]), np.cos(SPEED * times[0])])
    kept, last = keeper.timed(model.memory.begin()[-keeper.size :], clock), times[0]
    for time, y, seen in zip(times, values, mask, strict=True):
        kept, last = keeper.take(keeper.after(kept, jnp.asarray(time - last)), jnp.asarray(y), jnp.asarray(seen)), time
    for number, time in enumerate(when):
        foretold = keeper.foretell(keeper.after(kept, jnp.asarray(time - last)))
        np.testing.assert_allclose(scaler.scale(answer.mean[number]), foretold.mean, rtol=1e-6)
        np.testing.assert_allclose(answer.std[number] / scaler.std, np.exp(foretold.log_scale), rtol=5e-3)  # its floor


@pytest.mark.parametrize("telling", ["all", "some"])
def test_what_is_settled_comes_first_and_is_what_it_is_step_by_step(telling, key):
    """Along the grid at once, and point by point; with rows that the memory is not told of, too."""
    grid, memory = make_grid(make_table()), make_model("ode-rnn", keep_linear=True).memory
    if telling == "some":
        grid = grid._replace(told=jr.bernoulli(key, 0.5, grid.dt.shape))
    along, wanted = memory.forward(grid), AbstractFlowingMemory.forward(memory, grid)
    assert (along.untold is None) == (telling == "all")
    shown = jax.tree.map(memory.show, wanted)._replace(whole=wanted.post)
    jax.tree.map(lambda got, wanted: np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=1e-12), along, shown)
    assert along.pre.shape[1] < along.onward.shape[1]  # networks are not handed what only the filter needs


def test_a_memory_that_runs_back_knows_the_time():
    grid, memory = make_grid(make_table()), make_model("vsdn-s", keep_linear=True).encoder.backward
    keeper = memory.keeper
    later = memory.backward(grid, memory.begin())
    clock = keeper.read(later[:, -keeper.size :])[:, 2:4]  # after the deviations of two variables
    last = int(grid.rows[-1])
    np.testing.assert_allclose(clock[:last], grid.clock[:last], atol=1e-12)
