"""Evaluation tasks: splits a table into what a model may see and the hidden truth that it is scored on."""

from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from vsdn.answers.requests import check_whole, find_series
from vsdn.errors import DataError, SettingsError
from vsdn.tables.files import shorten
from vsdn.tables.table import Table

SHARE = 0.5  # default share of rows that interpolation hides


class Task(NamedTuple):
    """Queries (series number, time) with their true values, and a table of everything that may be seen."""

    visible: Table
    series: np.ndarray
    times: np.ndarray
    truth: np.ndarray  # (query, channel)
    mask: np.ndarray


def make_task(
    table: Table,
    name: str,
    *,
    after: ArrayLike | None,
    num_rows: int | None,
    share: float | None,
    hidden: Table | None,
    seed: int,
    from_start: bool,
) -> Task:
    """The task of this name; refuses options that do not apply to it."""
    if num_rows is not None:
        check_whole("next", num_rows)
    if num_rows is not None and after is None:
        raise SettingsError("next goes with after: so many rows are scored after that time")
    if share is not None and (name == "prediction" or hidden is not None):
        raise SettingsError("share goes with the task interpolation, where no hidden rows are given")
    if share is not None and not (isinstance(share, Real) and 0 <= float(share) <= 1):
        raise SettingsError(f"share wants a number from 0 to 1, but {shorten(share)} was given")
    if name == "interpolation" and after is not None:
        raise SettingsError("after and next go with the task prediction, not with interpolation")
    if name == "prediction" and hidden is not None:
        raise SettingsError("hidden rows go with the task interpolation, not with prediction")
    if name == "prediction":
        return prediction(table, after=after, num_rows=num_rows, from_start=from_start)
    if name != "interpolation":
        raise SettingsError(f"the tasks are prediction and interpolation, but not {name!r}")
    if hidden is not None:
        return held_out(table, hidden, from_start=from_start)
    return interpolation(table, share=SHARE if share is None else share, seed=seed, from_start=from_start)


def prediction(table: Table, *, after: ArrayLike | None = None, num_rows: int | None = None, from_start: bool) -> Task:
    """Predicts each row from the rows before it; or, given everything up to `after`, the next `num_rows` rows. With
    several such times, each series is asked once for each of them.

    A row with nothing visible before it is scored only if its series has a given start (`from_start`).
    """
    if after is None:
        return _task(table, table, np.ones(len(table.times), bool), from_start)
    cuts = np.unique(after)
    each = table.select(np.tile(np.arange(table.num_series), len(cuts)))  # one copy of each series per cut
    late = each.times > np.repeat(cuts, table.num_series)[each.series_of_row]
    scored = late & (_count_in_series(each, late) <= (num_rows or len(each.times)))
    return _task(each, each.keep_rows(~late), scored, from_start)


def interpolation(table: Table, *, share: float = SHARE, seed: int = 0, from_start: bool) -> Task:
    """Hides a random `share` of the rows and predicts each from the visible rows before it (as in the paper)."""
    hidden = np.random.default_rng(seed).random(len(table.times)) < share
    return _task(table, table.keep_rows(~hidden), hidden, from_start)


def held_out(visible: Table, hidden: Table, *, from_start: bool) -> Task:
    """Predicts each row of the table `hidden`; the model sees only the table `visible`."""
    series = find_series(visible, hidden.ids)[hidden.series_of_row]
    _check_unseen(visible, hidden, series)
    scored = hidden.mask.any(axis=1) & (from_start | _has_past(visible, series, hidden.times))
    return _gather(visible, hidden, series, scored)


def _task(table: Table, visible: Table, scored: np.ndarray, from_start: bool) -> Task:
    series = table.series_of_row
    return _gather(visible, table, series, scored & (from_start | _has_past(visible, series, table.times)))


def _gather(visible: Table, table: Table, series: np.ndarray, scored: np.ndarray) -> Task:
    """The task of predicting the scored rows of a table; `series` gives the series of each row in the visible table."""
    rows = np.flatnonzero(scored)
    if not len(rows):
        raise DataError("there is nothing to score: no row has a visible row of its series before it")
    return Task(visible, series[rows], table.times[rows], table.values[rows], table.mask[rows])


def _check_unseen(visible: Table, hidden: Table, series: np.ndarray) -> None:
    """Refuses a hidden value that is present in the visible table."""
    shown = {
        key: row for row, key in enumerate(zip(visible.series_of_row.tolist(), visible.times.tolist(), strict=True))
    }
    for row, key in enumerate(zip(series.tolist(), hidden.times.tolist(), strict=True)):
        if key in shown and np.any(visible.mask[shown[key]] & hidden.mask[row]):
            who, when = visible.ids[key[0]], visible.axis.spell(key[1])
            raise DataError(f"series {who} at time {when} is to be hidden, but the data shows it")


def _count_in_series(table: Table, flags: np.ndarray) -> np.ndarray:
    """For each row, how many rows of its series up to and including it have the flag."""
    total = np.concatenate([[0], np.cumsum(flags)])
    return total[1:] - total[table.starts[:-1]][table.series_of_row]


def _has_past(visible: Table, series: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Whether the same series has a visible row before each of these times."""
    first = np.full(visible.num_series, np.inf)
    filled = np.flatnonzero(np.diff(visible.starts))
    first[filled] = visible.times[visible.starts[filled]]
    return times > first[series]


def summary(nll: np.ndarray, square: np.ndarray, crps: np.ndarray, pit: np.ndarray, mask: np.ndarray) -> dict[str, Any]:
    """Mean scores over the observed values, the coverage of central intervals, and the PIT in ten bins."""
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
        "num_rows": int(mask.any(axis=1).sum()),
        "pit": [round(float(share), 4) for share in histogram],
    }
