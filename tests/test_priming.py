"""Before training, a memory begins as the table tells."""

import dataclasses
import itertools

import equinox as eqx
import jax
import numpy as np
import pytest
from examples import make_table as example_table
from examples import thorough

import vsdn
from vsdn.memories.keepers import AbstractKeeper, Last, Linear, Trend, Usual
from vsdn.memories.memory import AbstractODERNN
from vsdn.tables.table import Scaler, Table
from vsdn.training.planning import hold_out
from vsdn.training.priming import fit_keeper, lay_out, loss

pytestmark = pytest.mark.usefixtures("lenient")


def make_table(channels, num_series=100, num_rows=60, time_scale=2.0):
    """Series whose values are made by `channels`, functions of the times of a series, in the model's units."""
    rng = np.random.default_rng(5)
    times = np.cumsum(rng.uniform(0.05, 3.0, (num_series, num_rows)), axis=1)
    values = np.stack([[make(row / time_scale, rng) for row in times] for make in channels], axis=-1)
    flat = values.reshape(-1, len(channels))
    names = tuple(f"v{number}" for number in range(len(channels)))
    starts = np.arange(num_series + 1) * num_rows
    table = Table(np.arange(num_series), starts, times.ravel(), flat, np.ones(flat.shape, bool), names)
    return table, Scaler(np.zeros(len(channels)), np.ones(len(channels)), time_scale)


def ornstein_uhlenbeck(rate, noise=0.0):
    """Stationary with variance 1 and, at each row, noise of so much more variance."""

    def make(times, rng):
        state = [rng.normal()]
        for gap in np.diff(times):
            left = np.exp(-rate * gap)
            state.append(left * state[-1] + np.sqrt(1 - left**2) * rng.normal())
        return np.array(state) + np.sqrt(noise) * rng.normal(size=len(times))

    return make


def test_the_best_linear_forecast_of_an_ornstein_uhlenbeck_process_is_found():
    """1 / (1 + noise) of the last value, times exp(−rate·gap)."""
    table, scaler = make_table([ornstein_uhlenbeck(1.5), ornstein_uhlenbeck(0.5, noise=1.0)])
    keeper = fit_keeper(Last(2), lay_out(table, scaler))
    gap = 0.75  # the usual one; share and rate alone are told less well than what is left after it
    left = keeper.share * np.exp(-np.exp(keeper.log_rate) * gap)
    np.testing.assert_allclose(left, [np.exp(-1.5 * gap), 0.5 * np.exp(-0.5 * gap)], atol=0.04)


def test_what_is_usual_in_each_series_is_used():
    """A mean and a swing of one's own, plus noise: foretold with little more error than the noise's."""
    noise, speed = 0.3, 2.0

    def make(times, rng):
        mean, size, phase = rng.normal(), rng.normal(), rng.uniform(0, 6)
        return mean + size * np.cos(speed * times + phase) + noise * rng.normal(size=len(times))

    rows = lay_out(*make_table([make]))
    last, usual = fit_keeper(Last(1), rows), fit_keeper(Usual(1, (speed,)), rows)
    assert loss(usual, rows) < 3 * noise**2 < 0.6 * loss(last, rows)


def test_a_trend_that_was_made_is_found():
    """Slopes of deviation 1 that last for 0.5, seen through noise of 0.1: forecasts are nearly the best there are."""

    def make(times, rng):
        inner = 40
        level, slope, values = rng.normal(), rng.normal(), []
        for gap in np.diff(times, prepend=times[0]):
            for _ in range(inner):
                level += slope * gap / inner
                slope += -2.0 * slope * gap / inner + 2.0 * np.sqrt(gap / inner) * rng.normal()
            values.append(level + 0.1 * rng.normal())
        return np.array(values)

    rows = lay_out(*make_table([make], num_series=60, time_scale=8.0))
    found = fit_keeper(Trend(1), rows)
    truth = {"log_rate": 2.0, "log_speed": 1.0, "log_roughness": 1e-3, "log_noise": 0.1}
    truth |= {"log_range": 1e3, "log_gain": 1e-6}
    names = list(truth)
    known = [np.full(1, np.log(number), np.float32) for number in truth.values()]
    best = eqx.tree_at(lambda keeper: [getattr(keeper, name) for name in names], Trend(1), known)
    assert loss(best, rows) - 0.02 < loss(found, rows) < loss(best, rows) + 0.03  # nats a value


@pytest.mark.slow
def test_the_belief_that_made_the_data_is_found():
    """A mean of each series, weather that both variables share and that fades, and noise: foretold as well as by the
    model that made them, however far the descent begins from it."""
    shared = []

    def first(times, rng):
        shared.append(ornstein_uhlenbeck(0.8)(times, rng))
        return rng.normal() + 0.7 * shared[-1] + 0.3 * rng.normal(size=len(times))

    def second(times, rng):
        return 2.0 * rng.normal() - 0.5 * shared.pop(0) + 0.1 * rng.normal(size=len(times))

    rows = lay_out(*make_table([first, second]))
    loads = np.zeros((3, 2, 2), np.float32)  # a mean, and two departures, of which the second is not there
    loads[0], loads[1, :, 0] = np.diag([1.0, 2.0]), [0.7, -0.5]
    rates, noises = np.log([0.8, 0.1]).astype(np.float32), np.log([0.3, 0.1]).astype(np.float32)
    numbers = lambda keeper: [keeper.loads, keeper.log_rate, keeper.log_noise]
    best = eqx.tree_at(numbers, Linear(2, ()), [loads, rates, noises])
    assert loss(fit_keeper(Linear(2, ()), rows), rows) < loss(best, rows) + 0.005  # nats a value


@pytest.mark.parametrize("model", ["vsdn-s", "latent-ode"])
def test_a_fit_with_a_spread_memory_begins_with_units_that_hold_as_long_as_series_are(model, tmp_path):
    """Of the training part's series that have more than one row, the middle one."""
    table = example_table()
    size = {"hidden_size": 4, "latent_size": 2, "width": 4, "init_width": 4, "batch_size": 2, "time_scale": 2.0}
    settings = {"spread_memory": True, "epochs": 0, **size}
    vsdn.fit(table, model=model, valid=table, settings=settings, out=tmp_path / "run", progress=False)
    is_memory = lambda part: isinstance(part, AbstractODERNN)
    parts = jax.tree.leaves(vsdn.load(tmp_path / "run").model, is_leaf=is_memory)
    memories = [part for part in parts if is_memory(part)]
    assert len(memories) == (2 if model == "vsdn-s" else 1)
    long = [slice(*ends) for ends in itertools.pairwise(table.starts) if ends[1] - ends[0] > 1]
    num_rows = np.median([own.stop - own.start for own in long])
    span = np.median([table.times[own.stop - 1] - table.times[own.start] for own in long]) / 2.0
    for memory in memories:
        np.testing.assert_allclose(memory.cell.bias[4:8], np.linspace(0, np.log(num_rows), 4), rtol=1e-5)
        np.testing.assert_allclose(memory.flow.gate.bias, -np.linspace(0, np.log(span), 4), rtol=1e-5)


def test_series_are_laid_out_as_they_are():
    table = example_table()
    scaler = Scaler.fit(table, 2.0)
    rows = lay_out(table, scaler)
    for number in range(table.num_series):
        own = slice(table.starts[number], table.starts[number + 1])
        count = own.stop - own.start
        np.testing.assert_array_equal(rows.mask[number, :count], table.mask[own])
        assert not rows.mask[number, count:].any()
        np.testing.assert_allclose(np.cumsum(rows.gap[number, :count]) * 2.0, table.times[own] - table.times[own.start])
        values = np.where(table.mask[own], scaler.scale(table.values[own]), 0.0)
        np.testing.assert_allclose(rows.values[number, :count], values, rtol=1e-5, atol=1e-6)


FRESH = {"keep_last": Last, "keep_usual": Usual, "keep_trend": Trend, "keep_linear": Linear}
KEPT = [*thorough("keep_last", "keep_trend"), "keep_usual", "keep_linear"]


@pytest.mark.parametrize("kept", KEPT)
def test_a_fit_begins_with_what_foretells_best(kept, tmp_path):
    table = example_table()
    size = {"hidden_size": 4, "latent_size": 2, "width": 4, "init_width": 4, "batch_size": 2, "periods": (5.0,)}
    settings = {kept: True, "epochs": 0, **size}
    vsdn.fit(table, model="vsdn-s", settings=settings, out=tmp_path / "run", progress=False)
    fitted = vsdn.load(tmp_path / "run")
    is_keeper = lambda part: isinstance(part, AbstractKeeper)
    keepers = [part for part in jax.tree.leaves(fitted.model, is_leaf=is_keeper) if is_keeper(part)]
    rows = lay_out(table, fitted.scaler, keepers[0].clocks)
    speeds = ((2 * np.pi * fitted.scaler.time_scale / 5.0,),) if kept in ("keep_usual", "keep_linear") else ()
    fresh = FRESH[kept](2, *speeds)
    assert len(keepers) == 2  # of both memories
    for keeper in keepers:
        assert jax.tree.structure(keeper) == jax.tree.structure(fresh)
        assert loss(keeper, rows) < loss(fresh, rows)


def test_what_is_held_out_primes_nothing():
    """Other values in the series that a fit holds out itself leave what is kept as it was."""
    table = example_table(12, max_rows=6)
    held = hold_out(table, None, 0.2, seed=0).valid.ids
    elsewhere = np.isin(table.ids, held)[table.series_of_row]
    changed = dataclasses.replace(table, values=np.where(elsewhere[:, None] & table.mask, 9.0, table.values))
    settings = {"keep_usual": True, "epochs": 0, "hidden_size": 4, "latent_size": 2, "width": 4, "valid_share": 0.2}
    fits = [vsdn.fit(each, model="ode-rnn", settings=settings, progress=False) for each in (table, changed)]
    assert eqx.tree_equal(*(fitted.model.memory.keeper for fitted in fits))


@pytest.mark.slow
def test_training_leaves_a_settled_keeper_alone(tmp_path):
    """Weights move and decay, its numbers do neither."""
    table = example_table()
    size = {"hidden_size": 4, "latent_size": 2, "width": 4, "init_width": 4, "batch_size": 2, "periods": (5.0,)}

    def leaves(epochs):
        settings = {"keep_linear": True, "epochs": epochs, "weight_decay": 0.5, "learning_rate": 0.1, **size}
        model = vsdn.fit(table, model="ode-rnn", valid=table, settings=settings, progress=False).model
        return jax.tree.leaves(model.memory.keeper), jax.tree.leaves(eqx.filter(model.memory.cell, eqx.is_array))

    (keeper, cell), (kept, moved) = leaves(0), leaves(3)
    assert all(np.array_equal(one, other) for one, other in zip(keeper, kept, strict=True))
    assert not any(np.array_equal(one, other) for one, other in zip(cell, moved, strict=True))
