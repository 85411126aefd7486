"""Where queries branch off the grids, on the host: a query at t is answered as if a gap ended at t."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from vsdn.errors import DataError
from vsdn.grids.grid import Queries
from vsdn.grids.marching import Marching, gaps_of, windows
from vsdn.tables.table import Scaler, Table


@dataclass(frozen=True, eq=False)
class QuerySet:
    """The queries of a table, one series after another: entries `starts[i]:starts[i + 1]` belong to series i."""

    starts: np.ndarray
    order: np.ndarray  # the place of each entry in the caller's own order
    point: np.ndarray
    length: np.ndarray
    max_step: float
    clock: np.ndarray
    tail: np.ndarray  # steps by which each series' grid must be extended

    def pad(self, series: np.ndarray, num_queries: int) -> Queries:
        """These series' queries with a leading batch axis; padding repeats a query."""
        index, _ = windows(self.starts, series, num_queries)
        point, length = jnp.asarray(self.point[index], jnp.int32), jnp.asarray(self.length[index])
        return Queries(point, length, jnp.full(len(series), self.max_step), jnp.asarray(self.clock[index]))

    def places(self, series: np.ndarray, num_queries: int) -> tuple[np.ndarray, np.ndarray]:
        """The positions, in the caller's order, of the queries that `pad` returns, and which are not padding."""
        index, real = windows(self.starts, series, num_queries)
        return self.order[index], real


def make_queries(table: Table, scaler: Scaler, marching: Marching, series: np.ndarray, times: np.ndarray) -> QuerySet:
    """The points where queries (series number, time) branch off the grids built from the observations before them."""
    order = np.argsort(series, kind="stable")
    series, times = series[order], times[order]
    origin = marching.origins(table)[series]
    _check_queries(table, series, times, origin)
    row = _last_row_before(table, series, times)
    anchor, point = origin.copy(), np.zeros(len(series), np.int64)
    seen = row >= table.starts[series]  # something was observed before
    anchor[seen], point[seen] = table.times[row[seen]], gaps_of(table, marching).point[row[seen]]
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
        worst, spell = early[0], table.axis.spell
        raise DataError(
            f"time {spell(float(times[worst]))} was asked for series {table.ids[series[worst]]!s}, which starts at "
            f"{spell(float(origin[worst]))}: every time must be at the start or after it"
        )
