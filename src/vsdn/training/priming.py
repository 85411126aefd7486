"""Initialisation before training: fits keepers and memory spans to the table."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float

from vsdn.memories.keepers import AbstractKeeper, Foretold
from vsdn.memories.memory import AbstractFlowingMemory
from vsdn.models import AbstractModel
from vsdn.tables.table import Scaler, Table

MOST_SERIES = 128  # series that are used, evenly spread
MOST_ROWS = 256  # rows of each that are used, from the first on
NUM_STEPS = 40
MOST_TRIES = 6  # of the line search


class Rows(NamedTuple):
    """Rows of series side by side, in the model's units; beyond the end of a series nothing is observed."""

    gap: Float[Array, "series row"]  # since the row before
    clock: Float[Array, "series clock"]  # at the first row
    values: Float[Array, "series row channel"]
    mask: Bool[Array, "series row channel"]


def prime(model: AbstractModel, table: Table, scaler: Scaler, *, spread: bool = False) -> AbstractModel:
    """The model with its keepers fitted to predict the table's next values and, with `spread`, its memories' time spans
    spread up to the length of its series; other models are unchanged."""
    return prime_keepers(spread_memories(model, table, scaler) if spread else model, table, scaler)


def spread_memories(model: AbstractModel, table: Table, scaler: Scaler) -> AbstractModel:
    """The model with its memories' spans spread from one row up to the length of a median series."""
    long = np.flatnonzero(np.diff(table.starts) > 1)
    if not len(long):
        return model
    first, last = table.starts[long], table.starts[long + 1] - 1
    num_rows = float(np.median(last - first + 1))
    span = float(np.median(table.times[last] - table.times[first])) / scaler.time_scale
    is_memory = lambda part: isinstance(part, AbstractFlowingMemory)
    longer = lambda part: part.spread(num_rows, span) if is_memory(part) else part
    return jax.tree.map(longer, model, is_leaf=is_memory)


def prime_keepers(model: AbstractModel, table: Table, scaler: Scaler) -> AbstractModel:
    """The model with its keepers fitted to predict the table's next values."""
    is_keeper = lambda part: isinstance(part, AbstractKeeper)
    keepers = [part for part in jax.tree.leaves(model, is_leaf=is_keeper) if is_keeper(part)]
    if not keepers:
        return model
    best = fit_keeper(keepers[0], lay_out(table, scaler, keepers[0].clocks))
    return jax.tree.map(lambda part: best if is_keeper(part) else part, model, is_leaf=is_keeper)


def lay_out(table: Table, scaler: Scaler, speeds: tuple[float, ...] = ()) -> Rows:
    """The first rows of some of the series, with clocks of these speeds."""
    count = min(table.num_series, MOST_SERIES)
    some = table.select(np.linspace(0, table.num_series - 1, count).astype(int))
    lengths = np.minimum(np.diff(some.starts), MOST_ROWS)
    number = np.arange(max(1, lengths.max(initial=0)))
    inside = number < lengths[:, None]
    row = np.where(inside, some.starts[:-1, None] + number, 0)
    gap = np.diff(some.times[row], axis=1, prepend=some.times[row[:, :1]]) / scaler.time_scale
    mask = some.mask[row] & inside[..., None]
    values = np.where(mask, scaler.scale(some.values)[row], 0.0)
    precision = jnp.result_type(float)
    gap = jnp.asarray(np.where(inside, gap, 0.0), precision)
    angle = some.times[row[:, :1]] / scaler.time_scale * np.asarray(speeds, float)
    clock = jnp.asarray(np.concatenate([np.sin(angle), np.cos(angle)], axis=1), precision)
    return Rows(gap, clock, jnp.asarray(values, precision), jnp.asarray(mask))


def fit_keeper(keeper: AbstractKeeper, rows: Rows) -> AbstractKeeper:
    """The keeper fitted by L-BFGS, starting from rates that suit the usual gap between rows."""
    descent = optax.lbfgs(linesearch=optax.scale_by_zoom_linesearch(max_linesearch_steps=MOST_TRIES))

    @eqx.filter_jit
    def run(keeper: AbstractKeeper, rows: Rows) -> AbstractKeeper:
        begin, fixed = eqx.partition(keeper, eqx.is_inexact_array)
        cost = lambda numbers: loss(eqx.combine(numbers, fixed), rows)
        look = optax.value_and_grad_from_state(cost)

        def step(carry, _):
            numbers, state = carry
            value, slope = look(numbers, state=state)
            change, state = descent.update(slope, state, numbers, value=value, grad=slope, value_fn=cost)
            return (optax.apply_updates(numbers, change), state), None

        numbers, _ = jax.lax.scan(step, (begin, descent.init(begin)), length=NUM_STEPS)[0]
        better = cost(numbers) < cost(begin)  # False if something was NaN
        return eqx.combine(jax.tree.map(lambda new, old: jnp.where(better, new, old), numbers, begin), fixed)

    usual_gap = jnp.nanmedian(jnp.where(rows.gap > 0, rows.gap, jnp.nan))
    return run(keeper.paced(jnp.where(usual_gap > 0, usual_gap, 1.0)), rows)


def loss(keeper: AbstractKeeper, rows: Rows) -> Float[Array, ""]:
    """The mean loss over observed values, each predicted from the rows before it: the squared error, or minus the
    log-density (up to a constant) if standard deviations are predicted too."""
    foretold = jax.vmap(lambda rows: foretell_rows(keeper, rows))(rows)
    each, seen = foretold.error(rows.values) ** 2, rows.mask.astype(rows.values.dtype)
    each = each if foretold.log_scale is None else 0.5 * each + foretold.log_scale
    return jnp.sum(seen * each) / jnp.maximum(jnp.sum(seen), 1.0)


def foretell_rows(keeper: AbstractKeeper, rows: Rows) -> Foretold:
    """The keeper's prediction of each row of one series, given the rows before it."""

    @jax.checkpoint
    def step(kept, row):
        gap, y, mask = row
        before = keeper.after(kept, gap)
        return keeper.take(before, y, mask), keeper.foretell(before)

    begin = keeper.timed(keeper.begin(rows.values.dtype), rows.clock)
    return jax.lax.scan(step, begin, (rows.gap, rows.values, rows.mask))[1]
