"""Each series on its own exact grid: where the solver stops, what was seen there, and where queries branch off.

From each observation the grid marches in steps of Δt (`max_step`) until the next one, where a last step of its own
length arrives; a remainder shorter than Δt/2 is merged with the step before it. A gap's steps depend on its own two
ends alone, so nothing in the future moves a point of the past, and a query at t is answered as if t ended a gap.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray

from vsdn.data import Scaler, Table
from vsdn.errors import DataError


class Grid(NamedTuple):
    """One series on its grid, in the model's units. Padding repeats the last point: dt = 0 and nothing seen."""

    dt: Float[Array, " point"]  # from the point before; 0 at the first
    values: Float[Array, "point channel"]
    mask: Bool[Array, "point channel"]
    clock: Float[Array, "point clock"]  # known functions of time
    rows: Int[Array, " row"]  # the points at which something was seen; padding names the last, where nothing was
    told: Bool[Array, " point"] | None = None  # whether the forward memory may take what was seen; None: everywhere


class Queries(NamedTuple):
    """Where forecasts of one series branch off: `length` after grid point `point`."""

    point: Int[Array, " query"]
    length: Float[Array, " query"]
    max_step: Float[Array, ""]
    clock: Float[Array, "query clock"]  # known functions of time, at the query itself


def at_rows(points: Float[Array, "point *any"], grid: Grid) -> Float[Array, "row *any"]:
    """The entries at the points where something was seen.

    Its gradient is a gather by the inverse map: XLA's own, a scatter, took a fifth of a training step.
    """
    seen = grid.mask.any(axis=1)
    return _gather(points, grid.rows, jnp.maximum(jnp.cumsum(seen) - 1, 0), seen)


def last_seen(grid: Grid) -> Int[Array, "point channel"]:
    """The last point, up to and with each, at which the variable was seen; −1 if there is none."""
    number = jnp.arange(grid.dt.shape[0])[:, None]
    return jax.lax.cummax(jnp.where(grid.mask, number, -1), axis=0)


def since_row(grid: Grid) -> Float[Array, " point"]:
    """The time at each point since the row before it, or since the start: steps summed, never times subtracted."""
    after_row = jnp.concatenate([jnp.zeros(1, bool), grid.mask.any(axis=1)[:-1]])  # where counting begins anew

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
    """The grid as it ends at a point: what comes later is padding."""
    later = jnp.arange(grid.dt.shape[0], dtype=jnp.int32) > point
    return grid._replace(dt=jnp.where(later, 0.0, grid.dt), mask=grid.mask & ~later[:, None])


def since(grid: Grid, row: Int[Array, ""]) -> Grid:
    """The grid as it begins at a row, by its number: what came before is gone, and there is more padding at the end."""
    last_point, last_number, first = grid.dt.shape[0] - 1, grid.rows.shape[0] - 1, grid.rows[row]
    point = jnp.minimum(jnp.arange(last_point + 1, dtype=jnp.int32) + first, last_point)  # the last one is padding
    number = jnp.arange(last_number + 1, dtype=jnp.int32) + row
    old = grid.rows[jnp.minimum(number, last_number)]
    rows = jnp.where((number <= last_number) & (old < last_point), old - first, last_point)
    told = None if grid.told is None else grid.told[point]
    dt = grid.dt[point].at[0].set(0.0)
    return Grid(dt, grid.values[point], grid.mask[point], grid.clock[point], rows, told)


def last_row(grid: Grid) -> Int[Array, " point"]:
    """The last point up to and with each one at which something was seen; −1 before the first."""
    return _last(grid.mask.any(axis=1))


def last_told(grid: Grid) -> Int[Array, " point"]:
    """The last point up to and with each one at which something was seen that may be told; −1 before the first."""
    seen = grid.mask.any(axis=1)
    return _last(seen if grid.told is None else seen & grid.told)


def _last(marked: Bool[Array, " point"]) -> Int[Array, " point"]:
    """The last marked point up to and with each one; −1 before the first."""
    return jax.lax.cummax(jnp.where(marked, jnp.arange(marked.shape[0], dtype=jnp.int32), -1))


def query_keys(queries: Queries, key: PRNGKeyArray) -> Key[Array, " query"]:
    """A key for each query that follows from where it lies: others, and their order, change nothing."""
    bits = jax.lax.bitcast_convert_type(queries.length.astype(jnp.float32), jnp.uint32)
    return jax.vmap(lambda point, bits: jr.fold_in(jr.fold_in(key, point), bits))(queries.point, bits)


def within(grid: Grid, queries: Queries) -> Queries:
    """The queries from the point at or before them, where later rows tell which points there are; the others as they
    are. A forecast branches off as if nothing came later, which may be a point or two before."""
    last, final = last_row(grid)[-1], grid.dt.shape[0] - 1

    def hop(_, at: tuple[Array, Array]) -> tuple[Array, Array]:
        point, length = at
        step = grid.dt[jnp.minimum(point + 1, final)]
        over = (point < last) & (length >= step * (1 - 1e-6))
        return jnp.where(over, point + 1, point), jnp.where(over, jnp.maximum(length - step, 0.0), length)

    point, length = jax.lax.fori_loop(0, 4, hop, (queries.point, queries.length))
    return queries._replace(point=point, length=length)


@dataclass(frozen=True)
class Marching:
    """What shapes a grid, in the user's units of time."""

    max_step: float
    start: float | None = None  # None: each series starts at its first observation
    periods: tuple[float, ...] = ()  # known periods: their sine and cosine enter the networks

    def num_steps(self, gap: np.ndarray) -> np.ndarray:
        """Steps of each gap: 0 for none, else gap/Δt rounded, and at least 1. A tie within rounding goes up."""
        return np.where(gap > 0, np.maximum(np.floor(gap / self.max_step + 0.5 + 1e-6), 1), 0).astype(np.int64)

    def clock(self, times: np.ndarray) -> np.ndarray:
        """sin and cos of 2πt/P for each period P, side by side."""
        angle = 2 * np.pi * times[:, None] / np.asarray(self.periods, float)
        return np.concatenate([np.sin(angle), np.cos(angle)], axis=1)

    def origins(self, table: Table) -> np.ndarray:
        """The time at which each series starts; NaN for an empty series without a given start."""
        if self.start is not None:
            return np.full(table.num_series, self.start)
        first = np.minimum(table.starts[:-1], max(len(table.times) - 1, 0))
        empty = np.diff(table.starts) == 0
        return np.where(empty, np.nan, table.times[first] if len(table.times) else np.nan)


@dataclass(frozen=True, eq=False)
class GridSet:
    """The grids of a table, unpadded: points `starts[i]:starts[i + 1]` are those of series i."""

    starts: np.ndarray
    dt: np.ndarray
    clock: np.ndarray
    row_of_point: np.ndarray  # -1 where nothing was seen
    point_of_row: np.ndarray  # counted from the series' first point
    row_starts: np.ndarray
    values: np.ndarray
    mask: np.ndarray
    scored: np.ndarray  # bool, one a row: whether it counts for the validation score

    @property
    def num_points(self) -> np.ndarray:
        return np.diff(self.starts)

    @property
    def num_rows(self) -> np.ndarray:
        return np.diff(self.row_starts)

    def pad(self, series: np.ndarray, num_points: int, num_rows: int) -> Grid:
        """These series with a leading batch axis, padded to `num_points` (one more than the longest at least)."""
        index, real = _windows(self.starts, series, num_points)
        row = np.where(real, self.row_of_point[index], -1)
        row_index, row_real = _windows(self.row_starts, series, num_rows)
        return Grid(
            dt=jnp.asarray(np.where(real, self.dt[index], 0.0)),
            values=jnp.asarray(np.where((row >= 0)[..., None], self.values[row], 0.0)),
            mask=jnp.asarray((row >= 0)[..., None] & self.mask[row]),
            clock=jnp.asarray(self.clock[index]),
            rows=jnp.asarray(np.where(row_real, self.point_of_row[row_index], num_points - 1), jnp.int32),
        )

    def pad_scored(self, series: np.ndarray, num_rows: int) -> np.ndarray:
        """Which of the rows that `pad` names count for the validation score."""
        index, real = _windows(self.row_starts, series, num_rows)
        return real & self.scored[index]


def _windows(starts: np.ndarray, series: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Flat indices of each series' first `size` entries, clipped to its own, and which of them are real."""
    position = np.arange(size)
    length = (starts[series + 1] - starts[series])[:, None]
    index = starts[series][:, None] + np.minimum(position, np.maximum(length - 1, 0))
    return np.minimum(index, max(starts[-1] - 1, 0)), position < length


class _Gaps(NamedTuple):
    """The stretch that ends in each row: where it begins, its length, its steps, and the point that it reaches."""

    left: np.ndarray
    length: np.ndarray
    steps: np.ndarray
    point: np.ndarray


def _gaps(table: Table, marching: Marching) -> _Gaps:
    origin = marching.origins(table)
    left = _previous_times(table, origin)
    length = table.times - left
    _check_starts(table, length, origin)
    steps = marching.num_steps(length)
    reached = np.cumsum(steps)
    base = np.concatenate([[0], reached])[table.starts[:-1]]
    return _Gaps(left, length, steps, reached - base[table.series_of_row])


def make_grids(
    table: Table,
    scaler: Scaler,
    marching: Marching,
    *,
    tail: np.ndarray | None = None,
    scored: np.ndarray | None = None,
) -> GridSet:
    """The grids of all series; `tail[i]` steps of Δt go on after the last observation of series i."""
    gaps, origin, step = _gaps(table, marching), marching.origins(table), marching.max_step
    tail = np.zeros(table.num_series, np.int64) if tail is None else tail

    # A series' points come in segments: its start, one segment a row, its tail.
    series, number = table.series_of_row, np.arange(table.num_series)
    at_start, at_tail = table.starts[:-1] + 2 * number, table.starts[1:] + 2 * number + 1
    at_row = np.arange(len(series)) + 2 * series + 1
    count = np.empty(len(series) + 2 * table.num_series, np.int64)
    count[at_start], count[at_row], count[at_tail] = 1, gaps.steps, tail
    left, row = np.empty(len(count)), np.full(len(count), -1)
    left[at_start], left[at_row], left[at_tail] = origin, gaps.left, _last_times(table, origin)
    row[at_row] = np.arange(len(series))

    segment, end = np.repeat(np.arange(len(count)), count), np.cumsum(count)
    place = np.arange(len(segment)) - (end - count)[segment]  # of the point in its segment
    arrives = (place == count[segment] - 1) & (row[segment] >= 0)
    dt = np.where(arrives, gaps.length[row[segment]] - place * step if len(series) else 0.0, step)
    first = end[at_start] - 1
    dt[first] = 0.0
    row_of_point = np.where(arrives, row[segment], -1)
    on_start = np.flatnonzero(gaps.steps == 0)
    row_of_point[first[series[on_start]]] = on_start
    return GridSet(
        starts=np.concatenate([[0], end[at_tail]]),
        dt=dt / scaler.time_scale,
        clock=marching.clock(left[segment] + place * step + dt),
        row_of_point=row_of_point,
        point_of_row=gaps.point,
        row_starts=table.starts,
        values=np.where(table.mask, scaler.scale(table.values), 0.0),
        mask=table.mask,
        scored=np.ones(len(series), bool) if scored is None else scored,
    )


def _last_times(table: Table, origin: np.ndarray) -> np.ndarray:
    """The time of each series' last row, or its start."""
    last = origin.copy()
    filled = np.flatnonzero(np.diff(table.starts))
    last[filled] = table.times[table.starts[filled + 1] - 1]
    return last


def _previous_times(table: Table, origin: np.ndarray) -> np.ndarray:
    """For each row the time of the row before it, or its series' start."""
    before = np.concatenate([[0.0], table.times[:-1]])[: len(table.times)]
    filled = np.flatnonzero(np.diff(table.starts))
    before[table.starts[filled]] = origin[filled]
    return before


def _check_starts(table: Table, gap: np.ndarray, origin: np.ndarray) -> None:
    early = np.flatnonzero(gap < 0)
    if early.size:
        series = table.series_of_row[early[0]]
        raise DataError(
            f"series {table.ids[series]!s} has a row at time {table.times[early[0]]:g}, "
            f"before the given start {origin[series]:g}: every row must come at the start or after it"
        )


@dataclass(frozen=True, eq=False)
class QuerySet:
    """The queries of a table, one series after another: entries `starts[i]:starts[i + 1]` belong to series i."""

    starts: np.ndarray
    order: np.ndarray  # the place of each entry in the caller's own order
    point: np.ndarray
    length: np.ndarray
    max_step: float
    clock: np.ndarray
    tail: np.ndarray  # how far each series' grid must march on

    def pad(self, series: np.ndarray, num_queries: int) -> Queries:
        """These series' queries with a leading batch axis; padding repeats one."""
        index, _ = _windows(self.starts, series, num_queries)
        point, length = jnp.asarray(self.point[index], jnp.int32), jnp.asarray(self.length[index])
        return Queries(point, length, jnp.full(len(series), self.max_step), jnp.asarray(self.clock[index]))

    def places(self, series: np.ndarray, num_queries: int) -> np.ndarray:
        """Where in the caller's order the queries that `pad` gives belong."""
        return self.order[_windows(self.starts, series, num_queries)[0]]


def make_queries(table: Table, scaler: Scaler, marching: Marching, series: np.ndarray, times: np.ndarray) -> QuerySet:
    """Where queries (series number, time) branch off the grids of what was observed before them."""
    order = np.argsort(series, kind="stable")
    series, times = series[order], times[order]
    origin = marching.origins(table)[series]
    _check_queries(table, series, times, origin)
    row = _last_row_before(table, series, times)
    anchor, point = origin.copy(), np.zeros(len(series), np.int64)
    seen = row >= table.starts[series]  # something was observed before
    anchor[seen], point[seen] = table.times[row[seen]], _gaps(table, marching).point[row[seen]]
    gap = times - anchor
    whole = np.maximum(marching.num_steps(gap) - 1, 0)  # steps of Δt before the branch
    after = row == table.starts[series + 1] - 1
    tail = np.zeros(table.num_series, np.int64)
    np.maximum.at(tail, series[after], whole[after])
    return QuerySet(
        starts=np.concatenate([[0], np.cumsum(np.bincount(series, minlength=table.num_series))]),
        order=order,
        point=point + whole,
        length=(gap - whole * marching.max_step) / scaler.time_scale,
        max_step=marching.max_step / scaler.time_scale,
        clock=marching.clock(times),
        tail=tail,
    )


def _last_row_before(table: Table, series: np.ndarray, times: np.ndarray) -> np.ndarray:
    """The last row of each query's series that lies strictly before it (or the one before the series)."""
    moments, rank = np.unique(np.concatenate([table.times, times]), return_inverse=True)
    rows = table.series_of_row * len(moments) + rank[: len(table.times)]
    return np.searchsorted(rows, series * len(moments) + rank[len(table.times) :], side="left") - 1


def _check_queries(table: Table, series: np.ndarray, times: np.ndarray, origin: np.ndarray) -> None:
    early = np.flatnonzero(~(times >= origin))
    if early.size:
        worst = early[0]
        raise DataError(
            f"time {times[worst]:g} was asked for series {table.ids[series[worst]]!s}, which starts at "
            f"{origin[worst]:g}: a forecast needs a time at the start or after it"
        )


def bucket_lengths(lengths: np.ndarray, num_buckets: int) -> np.ndarray:
    """At most `num_buckets` padded lengths, ascending, that cost the fewest padded points in all."""
    sizes, counts = np.unique(lengths, return_counts=True)
    if len(sizes) > 128:  # candidates enough: the best cut between neighbours is lost, no more
        pick = np.unique(np.quantile(lengths, np.linspace(0, 1, 128), method="higher"))
        counts = np.diff(np.searchsorted(np.sort(lengths), pick, side="right"), prepend=0)
        sizes = pick
    before = np.concatenate([[0], np.cumsum(counts)])
    cost = (before[None, 1:] - before[:-1, None]) * sizes[None, :]  # cost[i, j]: sizes i..j padded to sizes[j]
    cost = np.where(np.triu(np.ones_like(cost, bool)), cost, np.iinfo(np.int64).max // 4)
    best, cuts = cost[0], []
    for _ in range(min(num_buckets, len(sizes)) - 1):
        total = np.concatenate([[0], best[:-1]])[:, None] + cost
        total[0] = cost[0]
        cuts.append(total.argmin(axis=0))
        best = total.min(axis=0)
    ends, last = [], len(sizes) - 1
    for cut in reversed(cuts):
        ends.append(last)
        last = cut[last] - 1
        if last < 0:
            break
    else:
        ends.append(last)
    return sizes[sorted(ends)]
