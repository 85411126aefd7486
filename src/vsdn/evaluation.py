"""What is hidden, what is scored: a table becomes what a model may see, and the truth it is asked for."""

from typing import Any, NamedTuple

import numpy as np

from vsdn.data import Table
from vsdn.errors import DataError


class Task(NamedTuple):
    """Queries (series number, time) with their truth, and a table that holds all that may be seen."""

    visible: Table
    series: np.ndarray
    times: np.ndarray
    truth: np.ndarray  # (query, channel)
    mask: np.ndarray


def prediction(table: Table, *, after: float | None = None, num_rows: int | None = None, from_start: bool) -> Task:
    """Each row from the rows before it; or, given everything up to `after`, the next `num_rows` rows.

    A row with nothing visible before it is scored only if its series has a given start (`from_start`).
    """
    if after is None:
        visible, scored = table, np.ones(len(table.times), bool)
    else:
        late = table.times > after
        visible = table.keep_rows(~late)
        scored = late & (_count_in_series(table, late) <= (num_rows or len(table.times)))
    return _task(table, visible, scored, from_start)


def interpolation(table: Table, *, share: float = 0.5, seed: int = 0, from_start: bool) -> Task:
    """Each of a random `share` of the rows, which are hidden, from the visible rows before it (as in the paper)."""
    hidden = np.random.default_rng(seed).random(len(table.times)) < share
    return _task(table, table.keep_rows(~hidden), hidden, from_start)


def _task(table: Table, visible: Table, scored: np.ndarray, from_start: bool) -> Task:
    if not from_start:
        scored = scored & _has_past(table, visible)
    rows = np.flatnonzero(scored)
    if not len(rows):
        raise DataError("there is nothing to score: no row has a visible row of its series before it")
    return Task(visible, table.series_of_row[rows], table.times[rows], table.values[rows], table.mask[rows])


def _count_in_series(table: Table, flags: np.ndarray) -> np.ndarray:
    """How many rows of the series up to and with this one have the flag."""
    total = np.concatenate([[0], np.cumsum(flags)])
    return total[1:] - total[table.starts[:-1]][table.series_of_row]


def _has_past(table: Table, visible: Table) -> np.ndarray:
    """Whether a visible row of the same series lies before each row."""
    first = np.full(table.num_series, np.inf)
    filled = np.flatnonzero(np.diff(visible.starts))
    first[filled] = visible.times[visible.starts[filled]]
    return table.times > first[table.series_of_row]


def summary(nll: np.ndarray, square: np.ndarray, crps: np.ndarray, pit: np.ndarray, mask: np.ndarray) -> dict[str, Any]:
    """Means over the observed values, the coverage of central intervals, and the PIT in ten bins."""
    mean = lambda scores: float(scores[mask].mean())
    inside = lambda level: float((np.abs(pit[mask] - 0.5) <= level / 2).mean())
    histogram = np.histogram(pit[mask], bins=10, range=(0, 1))[0] / mask.sum()
    return {
        "nll": mean(nll),
        "mse": mean(square),
        "crps": mean(crps),
        "coverage_50": inside(0.5),
        "coverage_90": inside(0.9),
        "num_values": int(mask.sum()),
        "pit": [round(float(share), 4) for share in histogram],
    }
