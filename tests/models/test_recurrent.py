"""The deterministic memories, against plain loops over a table's rows in exact time."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from examples import make_batch, make_grid, make_model, make_scaler, make_table
from scipy.integrate import solve_ivp

from vsdn.answers import inference
from vsdn.grids.grid import Grid
from vsdn.grids.marching import Marching
from vsdn.tables.table import Table

pytestmark = pytest.mark.usefixtures("x64")
flowing = pytest.mark.parametrize("name", ["ode-rnn", "gru-ode"])


def memory_of(model):
    return getattr(model, "memory", model)  # GRU-ODE-Bayes is its own memory


def rows_of(table: Table, series: int, start: float | None):
    """Each row of a series in the model's units: the gap before it, its values and its mask."""
    scaler, own = make_scaler(table), slice(table.starts[series], table.starts[series + 1])
    times = table.times[own]
    gaps = np.diff(times, prepend=times[0] if start is None else start)
    return list(zip(gaps, scaler.scale(table.values[own]), table.mask[own], strict=True))


def predict_all(model, table: Table, marching: Marching, key):
    """The parameters at each row of each series, all of them padded to one shape."""
    keys = jr.split(key, table.num_series)
    params = jax.jit(lambda grids: model.batch_predict(grids, num_samples=1, keys=keys))(make_batch(table, marching))
    return [own[0, :count] for own, count in zip(params, np.diff(table.starts), strict=True)]


@flowing
@pytest.mark.parametrize("start", [None, -0.7])
def test_a_memory_flows_in_steps_and_jumps_at_rows(name, start, key):
    table, marching, model = make_table(), Marching(0.3, start), make_model(name, clock_size=0)
    memory, scale, clock = memory_of(model), make_scaler(table).time_scale, jnp.zeros(0)
    flow, jump = (jax.jit(lambda *at, move=move: move(*at)) for move in (memory.flow, memory.jump))
    got = predict_all(model, table, marching, key)
    for series in range(table.num_series):
        h, wanted = memory.initial, []
        for gap, y, mask in rows_of(table, series, start):
            steps = int(marching.num_steps(np.array(gap)))
            for length in [0.3] * (steps - 1) + [gap - 0.3 * (steps - 1)] * (steps > 0):
                h = h + flow(h, clock) * length / scale
            wanted.append(h)
            h = jump(h, jnp.asarray(y), jnp.asarray(mask))
        np.testing.assert_allclose(got[series], jax.vmap(model.decode)(jnp.stack(wanted)), rtol=1e-9, atol=1e-12)


@flowing
def test_between_observations_h_follows_its_ode(name):
    """Euler's error halves with the step."""
    model, length = make_model(name, clock_size=0), 2.0
    memory = memory_of(model)
    flow = jax.jit(lambda h: memory.flow(h, jnp.zeros(0)))
    velocity = lambda _, h: np.asarray(flow(jnp.asarray(h)))
    exact = solve_ivp(velocity, (0, length), np.asarray(memory.initial), rtol=1e-10, atol=1e-12).y[:, -1]

    def error(num_steps: int) -> float:
        dt = jnp.full(num_steps + 1, length / num_steps).at[0].set(0.0)
        nothing = jnp.zeros((num_steps + 1, 2))
        grid = Grid(dt, nothing, nothing > 0, jnp.zeros((num_steps + 1, 0)), jnp.array([num_steps]))
        end = jax.jit(lambda grid: memory.forward(grid).pre[-1])(grid)
        return float(np.linalg.norm(np.asarray(end) - exact))

    coarse, fine = error(64), error(128)
    assert 1e-6 < fine < 0.01 * np.linalg.norm(exact)
    assert coarse / fine == pytest.approx(2.0, abs=0.05)


def fading_loop(memory, rows):
    """h before each row and its fade, the paper's equations for one row after another."""
    rate, bias = np.asarray(memory.hidden_rate.weight), np.asarray(memory.hidden_rate.bias)
    h, last, unseen_for = np.asarray(memory.initial), np.zeros(2), np.zeros(2)
    cell = jax.jit(lambda inputs, h: memory.cell(inputs, h))
    for gap, y, mask in rows:
        unseen_for = unseen_for + gap
        faded = np.exp(-np.maximum(0, rate @ unseen_for + bias)) * h
        yield faded
        keeps = np.exp(-np.maximum(0, np.asarray(memory.value_rate) * unseen_for + np.asarray(memory.value_bias)))
        last = np.where(mask, y, last)
        inputs = np.concatenate([np.where(mask, y, keeps * last), mask])
        h, unseen_for = np.asarray(cell(inputs, faded)), np.where(mask, 0.0, unseen_for)


@pytest.mark.parametrize("start", [None, -0.7])
def test_gru_decay_is_its_equations(start, key):
    table, marching, model = make_table(), Marching(0.3, start), make_model("gru-decay", clock_size=0)
    scale = make_scaler(table).time_scale
    got = predict_all(model, table, marching, key)
    for series in range(table.num_series):
        rows = [(gap / scale, y, mask) for gap, y, mask in rows_of(table, series, start)]
        wanted = jax.vmap(model.decode)(jnp.stack([*fading_loop(model.memory, rows)]))
        np.testing.assert_allclose(got[series], wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("start", [None, -0.7])
def test_gru_decay_knows_exact_time_and_no_grid(start):
    table, model = make_table(), make_model("gru-decay", clock_size=0)
    times = table.times[: table.starts[1]]
    when = np.concatenate([times, times + 0.013, [times[-1] + 40.0]])
    request = inference.Request(table, np.zeros(len(when), int), when)
    frames = [inference.Frame(make_scaler(table), Marching(step, start)) for step in (0.1, 7.0)]
    ask = lambda frame: inference.forecast(model, frame, request, levels=(0.1, 0.9), num_samples=1, seed=0)
    fine, coarse = map(ask, frames)
    for one, two in zip(fine[:3], coarse[:3], strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-12)
    assert len(np.unique(fine.mean[:, 0])) == len(when)


def test_gru_decay_forecasts_a_row_as_it_predicts_it(key):
    """A query at a row's time, and the row itself, are foretold alike: two ways through the same memory."""
    table, marching, model = make_table(), Marching(0.3, -0.7), make_model("gru-decay", clock_size=0)
    scaler, own = make_scaler(table), slice(0, table.starts[1])
    request = inference.Request(table, np.zeros(table.starts[1], int), table.times[own])
    frame = inference.Frame(scaler, marching)
    asked = inference.forecast(model, frame, request, levels=(0.5,), num_samples=1, seed=0)
    params = jax.jit(lambda grid: model.predict(grid, num_samples=1, key=key)[0])(make_grid(table, 0, marching))
    np.testing.assert_allclose(asked.mean, scaler.mean + scaler.std * model.likelihood.mean(params), rtol=1e-9)
