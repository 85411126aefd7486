"""Lessons: what of a batch a step or a score is shown, and what of it is to be foretold."""

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from vsdn.batches import Batch
from vsdn.grids.grid import Grid, since, until


def cut(batch: Batch, share: float, *, key: PRNGKeyArray) -> Batch:
    """The batch with each series, by a coin of this `share`, ended after one of its rows."""
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
    """The batch with each series, by a coin of this `share`, begun at a row that leaves so many at `least`."""
    if share == 0:
        return batch

    def start(grid: Grid, key: PRNGKeyArray) -> Grid:
        coin_key, row_key = jr.split(key)
        num_rows = jnp.sum(grid.mask.any(axis=1))
        row = jr.randint(row_key, (), 0, jnp.maximum(num_rows - least + 1, 1))
        return since(grid, jnp.where(jr.bernoulli(coin_key, share), row, 0))

    return batch._replace(grid=jax.vmap(start)(batch.grid, jr.split(key, batch.weight.shape[0])))


def hide(batch: Batch, share: float, *, key: PRNGKeyArray) -> Batch:
    """The batch with rows that the memory is not told of, this `share` of them: from none of a series to twice as many.

    What the memory knows, a latent path need not carry. Rows that it is not told of are explained by the path alone.
    """
    if share == 0:
        return batch
    rate_key, row_key = jr.split(key)
    rate = jr.uniform(rate_key, (batch.weight.shape[0], 1), maxval=2 * share)
    told = jr.uniform(row_key, batch.grid.dt.shape) >= rate
    return batch._replace(grid=batch.grid._replace(told=told))


def give(batch: Batch, num_rows: int | None) -> Batch:
    """The batch with no more than the first rows of each series told, so many; from them all others are foretold."""
    if num_rows is None:
        return batch
    first = jnp.cumsum(batch.grid.mask.any(axis=2), axis=1, dtype=jnp.int32) <= num_rows
    told = first if batch.grid.told is None else first & batch.grid.told
    return batch._replace(grid=batch.grid._replace(told=told))


def shift(batch: Batch, deviation: float, *, key: PRNGKeyArray) -> Batch:
    """The batch with its series shifted, each variable of a series by as much in all of its rows."""
    return _shift(batch, batch.grid.mask, deviation, key=key)


def shift_given(batch: Batch, deviation: float, *, key: PRNGKeyArray) -> Batch:
    """The batch with the rows that are told shifted, each variable of a series by as much in all of them."""
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
    """The batch with each series run at a pace of its own, whose logarithm has this `deviation`.

    `rest` is what each variable that is a rate would be if nothing moved, NaN for the others: as a series runs faster,
    so its rates grow.
    """
    if deviation == 0:
        return batch
    dt, values = batch.grid.dt, batch.grid.values
    pace = jnp.exp(deviation * jr.normal(key, (values.shape[0], 1), values.dtype))
    grown = rest + (values - rest) * pace[..., None]
    values = jnp.where(batch.grid.mask & ~jnp.isnan(rest), grown, values)
    return batch._replace(grid=batch.grid._replace(dt=dt / pace, values=values))


def known(batch: Batch) -> Batch:
    """The batch with each series ended before the first of its rows that count for the validation score."""

    def end(grid: Grid, scored: Bool[Array, " row"]) -> Grid:
        is_known = grid.mask[grid.rows].any(axis=1) & ~scored
        return until(grid, jnp.max(jnp.where(is_known, grid.rows, -1)))

    return batch._replace(grid=jax.vmap(end)(batch.grid, batch.scored))


def thinned(batch: Batch, num_rows: int | None) -> Batch:
    """The batch with so many rows a series, evenly spread, to be foretold; all is still seen."""
    if num_rows is None or num_rows >= batch.scored.shape[1]:
        return batch

    def some(grid: Grid, scored: Array) -> tuple[Array, Array]:
        last = jnp.maximum(jnp.sum(grid.mask.any(axis=1)) - 1, 0)
        number = jnp.arange(num_rows) * last // max(num_rows - 1, 1)
        first = jnp.diff(number, prepend=-1) > 0  # of a short series no row counts twice
        return grid.rows[number], scored[number] & first

    rows, scored = jax.vmap(some)(batch.grid, batch.scored)
    return batch._replace(grid=batch.grid._replace(rows=rows), scored=scored)
