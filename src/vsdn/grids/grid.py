"""The exact grid of each series, as models receive it: the solver's points, the observations at them, and where queries
branch off. `marching` and `branching` build grids from tables."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray


class Grid(NamedTuple):
    """One series on its grid, in the model's units. Padding repeats the last point: dt = 0 and nothing observed."""

    dt: Float[Array, " point"]  # step from the point before; 0 at the first
    values: Float[Array, "point channel"]
    mask: Bool[Array, "point channel"]
    clock: Float[Array, "point clock"]  # known periodic functions of time
    rows: Int[Array, " row"]  # the points with an observation; padding names the last, without one
    told: Bool[Array, " point"] | None = None  # where observations are visible to the memory; None: everywhere


class Queries(NamedTuple):
    """Where forecasts of one series branch off: `length` after grid point `point`."""

    point: Int[Array, " query"]
    length: Float[Array, " query"]
    max_step: Float[Array, ""]
    clock: Float[Array, "query clock"]  # known functions of time, at the query itself


def at_rows(points: Float[Array, "point *any"], grid: Grid) -> Float[Array, "row *any"]:
    """The entries at the rows: the points where something was observed or is asked for.

    Its gradient is a gather by the inverse map; XLA's own, a scatter, took a fifth of a training step.
    """
    number = jnp.arange(grid.rows.shape[0], dtype=jnp.int32)
    row_of_point = jnp.full(grid.dt.shape[0], -1, jnp.int32).at[grid.rows].max(number)
    return _gather(points, grid.rows, jnp.maximum(row_of_point, 0), row_of_point >= 0)


def last_seen(grid: Grid) -> Int[Array, "point channel"]:
    """The last point, up to and including each, at which the variable was observed; −1 if there is none."""
    number = jnp.arange(grid.dt.shape[0])[:, None]
    return jax.lax.cummax(jnp.where(grid.mask, number, -1), axis=0)


def since_row(grid: Grid) -> Float[Array, " point"]:
    """The time at each point since the previous row, or since the start; sums of steps, never differences of times."""
    after_row = jnp.concatenate([jnp.zeros(1, bool), grid.mask.any(axis=1)[:-1]])  # where the sum restarts

    def add(since: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        dt, anew = step
        since = jnp.where(anew, dt, since + dt)
        return since, since

    return jax.lax.scan(add, jnp.zeros_like(grid.dt[0]), (grid.dt, after_row))[1]


@jax.custom_vjp
def _gather(points: Array, rows: Array, row_of_point: Array, seen: Array) -> Array:
    return points[rows]


def _gather_forward(points: Array, rows: Array, row_of_point: Array, seen: Array) -> tuple[Array, tuple[Array, Array]]:
    return points[rows], (row_of_point, seen)


def _gather_backward(inverse: tuple[Array, Array], cotangent: Array) -> tuple[Array, None, None, None]:
    row_of_point, seen = inverse
    back = cotangent[row_of_point]
    return jnp.where(jnp.expand_dims(seen, range(1, back.ndim)), back, 0.0), None, None, None


_gather.defvjp(_gather_forward, _gather_backward)


def until(grid: Grid, point: Int[Array, ""]) -> Grid:
    """The grid truncated after a point: everything later becomes padding."""
    later = jnp.arange(grid.dt.shape[0], dtype=jnp.int32) > point
    return grid._replace(dt=jnp.where(later, 0.0, grid.dt), mask=grid.mask & ~later[:, None])


def since(grid: Grid, row: Int[Array, ""]) -> Grid:
    """The grid from this row (by number) on: earlier points are dropped and padding is added at the end."""
    last_point, last_number, first = grid.dt.shape[0] - 1, grid.rows.shape[0] - 1, grid.rows[row]
    point = jnp.minimum(jnp.arange(last_point + 1, dtype=jnp.int32) + first, last_point)  # the last one is padding
    number = jnp.arange(last_number + 1, dtype=jnp.int32) + row
    old = grid.rows[jnp.minimum(number, last_number)]
    rows = jnp.where((number <= last_number) & (old < last_point), old - first, last_point)
    told = None if grid.told is None else grid.told[point]
    dt = grid.dt[point].at[0].set(0.0)
    return Grid(dt, grid.values[point], grid.mask[point], grid.clock[point], rows, told)


def last_row(grid: Grid) -> Int[Array, " point"]:
    """The last point, up to and including each, with an observation; −1 before the first."""
    return _last(grid.mask.any(axis=1))


def last_told(grid: Grid) -> Int[Array, " point"]:
    """The last point, up to and including each, with an observation visible to the memory; −1 before the first."""
    seen = grid.mask.any(axis=1)
    return _last(seen if grid.told is None else seen & grid.told)


def _last(marked: Bool[Array, " point"]) -> Int[Array, " point"]:
    """The last marked point, up to and including each; −1 before the first."""
    return jax.lax.cummax(jnp.where(marked, jnp.arange(marked.shape[0], dtype=jnp.int32), -1))


def query_keys(queries: Queries, key: PRNGKeyArray) -> Key[Array, " query"]:
    """A random key for each query, derived from its position alone: other queries and their order do not matter."""
    bits = jax.lax.bitcast_convert_type(queries.length.astype(jnp.float32), jnp.uint32)
    return jax.vmap(lambda point, bits: jr.fold_in(jr.fold_in(key, point), bits))(queries.point, bits)


def within(grid: Grid, queries: Queries) -> Queries:
    """The queries moved to the last grid point at or before them, if it lies before the last row; others unchanged. A
    forecast branches off as if nothing came later, which may be a point or two earlier."""
    last, final = last_row(grid)[-1], grid.dt.shape[0] - 1

    def hop(_, at: tuple[Array, Array]) -> tuple[Array, Array]:
        point, length = at
        step = grid.dt[jnp.minimum(point + 1, final)]
        over = (point < last) & (length >= step * (1 - 1e-6))
        return jnp.where(over, point + 1, point), jnp.where(over, jnp.maximum(length - step, 0.0), length)

    point, length = jax.lax.fori_loop(0, 4, hop, (queries.point, queries.length))
    return queries._replace(point=point, length=length)
