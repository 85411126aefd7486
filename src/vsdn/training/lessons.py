"""Augmentation: which part of a batch a training step or a score sees, and which part it must predict."""

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from vsdn.batches import Batch
from vsdn.grids.grid import Grid, since, until


def cut(batch: Batch, share: float, *, key: PRNGKeyArray) -> Batch:
    """The batch with each series, with probability `share`, truncated after a random one of its rows."""
    if share == 0:
        return batch

    def end(grid: Grid, key: PRNGKeyArray) -> Grid:
        coin_key, row_key = jr.split(key)
        num_rows = jnp.sum(grid.mask.any(axis=1))
        row = jr.randint(row_key, (), 0, jnp.maximum(num_rows, 1))
        last = jnp.where(jr.bernoulli(coin_key, share), grid.rows[row], grid.dt.shape[0])
        return until(grid, last)

    return batch._replace(grid=jax.vmap(end)(batch.grid, jr.split(key, batch.weight.shape[0])))


def begin(batch: Batch, share: float, least: int, *, key: PRNGKeyArray) -> Batch:
    """The batch with each series, with probability `share`, started at a random row with at least `least` rows left."""
    if share == 0:
        return batch

    def start(grid: Grid, key: PRNGKeyArray) -> Grid:
        coin_key, row_key = jr.split(key)
        num_rows = jnp.sum(grid.mask.any(axis=1))
        row = jr.randint(row_key, (), 0, jnp.maximum(num_rows - least + 1, 1))
        return since(grid, jnp.where(jr.bernoulli(coin_key, share), row, 0))

    return batch._replace(grid=jax.vmap(start)(batch.grid, jr.split(key, batch.weight.shape[0])))


def hide(batch: Batch, share: float, *, key: PRNGKeyArray) -> Batch:
    """The batch with this `share` of the rows hidden from the memory, varying by series from none to twice as many.

    What the memory knows, a latent path need not carry; hidden rows must be explained by the path alone.
    """
    if share == 0:
        return batch
    rate_key, row_key = jr.split(key)
    rate = jr.uniform(rate_key, (batch.weight.shape[0], 1), maxval=2 * share)
    told = jr.uniform(row_key, batch.grid.dt.shape) >= rate
    return batch._replace(grid=batch.grid._replace(told=told))


def give(batch: Batch, num_rows: int | None) -> Batch:
    """The batch with only the first `num_rows` rows of each series visible to the memory; the others are predicted."""
    if num_rows is None:
        return batch
    first = jnp.cumsum(batch.grid.mask.any(axis=2), axis=1, dtype=jnp.int32) <= num_rows
    told = first if batch.grid.told is None else first & batch.grid.told
    return batch._replace(grid=batch.grid._replace(told=told))


def shift(batch: Batch, deviation: float, *, key: PRNGKeyArray) -> Batch:
    """The batch with its series shifted, each variable of a series by the same amount in all of its rows."""
    return _shift(batch, batch.grid.mask, deviation, key=key)


def shift_given(batch: Batch, deviation: float, *, key: PRNGKeyArray) -> Batch:
    """The batch with the visible rows shifted, each variable of a series by the same amount in all of them."""
    if batch.grid.told is None:
        return batch
    return _shift(batch, batch.grid.told[..., None] & batch.grid.mask, deviation, key=key)


def _shift(batch: Batch, shifted: Bool[Array, "batch point channel"], deviation: float, *, key: PRNGKeyArray) -> Batch:
    if deviation == 0:
        return batch
    values = batch.grid.values
    by = deviation * jr.normal(key, (values.shape[0], 1, values.shape[2]), values.dtype)
    return batch._replace(grid=batch.grid._replace(values=jnp.where(shifted, values + by, values)))


def stretch(batch: Batch, deviation: float, rest: Float[Array, " channel"], *, key: PRNGKeyArray) -> Batch:
    """The batch with each series run at a random pace, whose logarithm has this standard deviation.

    `rest` is the value at rest of each variable that is a rate, NaN for the others: rates scale with the pace.
    """
    if deviation == 0:
        return batch
    dt, values = batch.grid.dt, batch.grid.values
    pace = jnp.exp(deviation * jr.normal(key, (values.shape[0], 1), values.dtype))
    grown = rest + (values - rest) * pace[..., None]
    values = jnp.where(batch.grid.mask & ~jnp.isnan(rest), grown, values)
    return batch._replace(grid=batch.grid._replace(dt=dt / pace, values=values))


def known(batch: Batch) -> Batch:
    """The batch with each series truncated before the first of its rows that count for the validation score."""

    def end(grid: Grid, scored: Bool[Array, " row"]) -> Grid:
        is_known = grid.mask[grid.rows].any(axis=1) & ~scored
        return until(grid, jnp.max(jnp.where(is_known, grid.rows, -1)))

    return batch._replace(grid=jax.vmap(end)(batch.grid, batch.scored))


def thinned(batch: Batch, num_rows: int | None) -> Batch:
    """The batch with `num_rows` evenly spread rows per series to be predicted; all rows remain visible."""
    if num_rows is None or num_rows >= batch.scored.shape[1]:
        return batch

    def some(grid: Grid, scored: Array) -> tuple[Array, Array]:
        last = jnp.maximum(jnp.sum(grid.mask.any(axis=1)) - 1, 0)
        number = jnp.arange(num_rows) * last // max(num_rows - 1, 1)
        first = jnp.diff(number, prepend=-1) > 0  # in a short series no row counts twice
        return grid.rows[number], scored[number] & first

    rows, scored = jax.vmap(some)(batch.grid, batch.scored)
    return batch._replace(grid=batch.grid._replace(rows=rows), scored=scored)
