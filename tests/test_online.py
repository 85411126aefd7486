"""Online equals offline, step by step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples import make_model, make_scaler, make_table

from vsdn.grids.branching import make_queries
from vsdn.grids.marching import Marching, make_grids
from vsdn.online import filtering as online

pytestmark = pytest.mark.usefixtures("x64")
MARCHING = Marching(0.3, start=-0.5, periods=(2.5,))


def make_gap(marching, scaler, begin, end):
    """The gap from one time to another, in the model's units."""
    whole = max(int(marching.num_steps(np.array(end - begin))) - 1, 0)
    phase = 2 * np.pi * begin / np.array(marching.periods)
    parts = (
        whole,
        (end - begin - whole * marching.max_step) / scaler.time_scale,
        marching.max_step / scaler.time_scale,
    )
    return online.Gap(
        *map(jnp.asarray, parts),
        jnp.asarray(phase),
        jnp.asarray(2 * np.pi * marching.max_step / np.array(marching.periods)),
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vsdn-f", "gru-decay"])  # the others: test_tracking.py
def test_online_equals_offline_after_every_update(name, key):
    table, model, samples = make_table(3, max_rows=14), make_model(name), 3
    scaler, series = make_scaler(table), 1
    rows = range(table.starts[series], table.starts[series + 1])
    update = jax.jit(lambda state, gap, y, mask: online.update(model, state, gap, y, mask))
    ahead = jax.jit(lambda state, gap: online.forecast(model, state, gap))
    state, now = model.begin(num_samples=samples, key=key), MARCHING.start
    values = scaler.scale(table.values)
    offline = jax.jit(lambda grid, queries: model.forecast(grid, queries, num_samples=samples, key=key))
    first = lambda batch: jax.tree.map(lambda part: part[0], batch)
    for row in rows:
        gap = make_gap(MARCHING, scaler, now, table.times[row])
        state = update(state, gap, jnp.asarray(values[row]), jnp.asarray(table.mask[row]))
        now = table.times[row]
        before_next = table.times[row + 1] if row + 1 in rows else now + 3.0
        asked = np.array([now + 0.05, 0.5 * (now + before_next), before_next])
        got = np.stack([ahead(state, make_gap(MARCHING, scaler, now, time)) for time in asked], axis=1)
        queries = make_queries(table, scaler, MARCHING, np.full(3, series), asked)
        grids = make_grids(table, scaler, MARCHING, tail=queries.tail)
        grid = first(grids.pad(np.array([series]), 60, len(rows)))
        wanted = offline(grid, first(queries.pad(np.array([series]), 3)))
        np.testing.assert_allclose(got, wanted, rtol=1e-8, atol=1e-9)


def test_the_clock_at_a_gaps_end_is_that_of_the_grids():
    scaler = make_scaler(make_table())
    for begin, end in ((0.0, 0.0), (0.25, 0.3), (-0.5, 7.7)):
        gap = make_gap(MARCHING, scaler, begin, end)
        gap = gap._replace(whole=gap.whole.astype(jnp.int32))  # as compiled steps pass it on
        np.testing.assert_allclose(gap.end, MARCHING.clock(np.array([end]))[0], rtol=1e-12, atol=1e-12)
