"""Builds grids from tables, on the host: the times at which the solver stops, and the observations at them.

From each observation the grid advances in steps of Δt (`max_step`) to the next one, where a last step of its own length
arrives; a remainder shorter than Δt/2 is merged into the step before it. The steps of a gap depend only on its two
ends, so nothing in the future moves a point of the past.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from vsdn.errors import DataError
from vsdn.grids.grid import Grid
from vsdn.tables.table import Scaler, Table

MOST_STEPS = 10**8  # of the grids of a table in all: more would not fit into memory


@dataclass(frozen=True)
class Marching:
    """The parameters of a grid, in the user's units of time."""

    max_step: float
    start: float | None = None  # None: each series starts at its first observation
    periods: tuple[float, ...] = ()  # known periods: their sine and cosine enter the networks

    def num_steps(self, gap: np.ndarray) -> np.ndarray:
        """The number of steps of each gap: 0 if empty, else gap/Δt rounded, at least 1. Near-ties go up."""
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
    row_of_point: np.ndarray  # -1 where nothing was observed
    point_of_row: np.ndarray  # counted from the series' first point
    row_starts: np.ndarray
    values: np.ndarray
    mask: np.ndarray
    scored: np.ndarray  # bool, one per row: whether it counts for the validation score

    @property
    def num_points(self) -> np.ndarray:
        return np.diff(self.starts)

    @property
    def num_rows(self) -> np.ndarray:
        return np.diff(self.row_starts)

    def pad(self, series: np.ndarray, num_points: int, num_rows: int) -> Grid:
        """These series with a leading batch axis, padded to `num_points` (at least one more than the longest has)."""
        index, real = windows(self.starts, series, num_points)
        row = np.where(real, self.row_of_point[index], -1)
        row_index, row_real = windows(self.row_starts, series, num_rows)
        return Grid(
            dt=jnp.asarray(np.where(real, self.dt[index], 0.0)),
            values=jnp.asarray(np.where((row >= 0)[..., None], self.values[row], 0.0)),
            mask=jnp.asarray((row >= 0)[..., None] & self.mask[row]),
            clock=jnp.asarray(self.clock[index]),
            rows=jnp.asarray(np.where(row_real, self.point_of_row[row_index], num_points - 1), jnp.int32),
        )

    def pad_scored(self, series: np.ndarray, num_rows: int) -> np.ndarray:
        """Which of the rows that `pad` returns count for the validation score."""
        index, real = windows(self.row_starts, series, num_rows)
        return real & self.scored[index]


def windows(starts: np.ndarray, series: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Flat indices of each series' first `size` entries, clipped to its own, and which of them are not padding."""
    position = np.arange(size)
    length = (starts[series + 1] - starts[series])[:, None]
    index = starts[series][:, None] + np.minimum(position, np.maximum(length - 1, 0))
    return np.minimum(index, max(starts[-1] - 1, 0)), position < length


class Gaps(NamedTuple):
    """The interval that ends in each row: its start, length, number of steps, and the grid point at its end."""

    left: np.ndarray
    length: np.ndarray
    steps: np.ndarray
    point: np.ndarray


def gaps_of(table: Table, marching: Marching) -> Gaps:
    """The gap before each row, from the row before it or from its series' start."""
    origin = marching.origins(table)
    left = _previous_times(table, origin)
    length = table.times - left
    _check_starts(table, length, origin)
    steps = marching.num_steps(length)
    reached = np.cumsum(steps)
    base = np.concatenate([[0], reached])[table.starts[:-1]]
    return Gaps(left, length, steps, reached - base[table.series_of_row])


def make_grids(
    table: Table,
    scaler: Scaler,
    marching: Marching,
    *,
    tail: np.ndarray | None = None,
    scored: np.ndarray | None = None,
) -> GridSet:
    """The grids of all series; `tail[i]` more steps of Δt follow the last observation of series i."""
    gaps, origin, step = gaps_of(table, marching), marching.origins(table), marching.max_step
    tail = np.zeros(table.num_series, np.int64) if tail is None else tail

    # A series' points come in segments: its start, one segment per row, its tail.
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


def check_steps(
    table: Table, marching: Marching, series: np.ndarray | None = None, times: np.ndarray | None = None
) -> None:
    """Refuses grids with more steps than fit in memory, up to the last row of each series or its last query."""
    origin = marching.origins(table)
    end = origin.copy()
    filled = np.flatnonzero(np.diff(table.starts))
    end[filled] = table.times[table.starts[filled + 1] - 1]
    if series is not None and times is not None:
        np.maximum.at(end, series, times)
    with np.errstate(over="ignore"):
        steps = np.nansum((end - origin) / marching.max_step)  # NaN: a series without a row or a start
    if steps > MOST_STEPS:
        raise DataError(
            f"with a max_step of {marching.max_step:g}, {steps:.3g} steps were needed to reach every time, "
            f"but {MOST_STEPS:,} are the most: choose a longer max_step, or times that are less far apart"
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
