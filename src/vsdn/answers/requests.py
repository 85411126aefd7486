"""Requests: which times of which series are asked for, and the checks of what a caller gives."""

import datetime as dt
import math
import re
import warnings
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np

from vsdn.errors import DataError, LeftOutWarning, SettingsError
from vsdn.settings import LAST_SEED, MOST_PATHS
from vsdn.tables.files import listing, shorten
from vsdn.tables.frames import Columns, parse_times, read_queries
from vsdn.tables.table import Table, TimeAxis

QUANTILES = (0.05, 0.5, 0.95)
DRAWS = 128
MOST_QUERIES = 10**8
STEP_WANTED = "every wants a step above 0, and until a time to go to"

Step = float | dt.timedelta | np.timedelta64


class Request(NamedTuple):
    """What is asked: queries (series number, time) of a table that holds everything that may be seen."""

    table: Table
    series: np.ndarray
    times: np.ndarray


def make_request(
    table: Table,
    axis: TimeAxis,
    times: Any,
    *,
    every: Step | None,
    until: Any,
    at: Any,
    columns: Columns = Columns(),
    known: Columns = Columns(),
    within: bool = False,
) -> Request:
    """The request for `times` of each series, or for every `every` after its last observation (`within`: from its first
    on) `until` a time, or for the (id, time) rows of the table `at`."""
    if sum(choice is not None for choice in (times, every, at)) != 1:
        raise SettingsError("say when: times, or every with until, or at (a table of id and time)")
    if until is not None and every is None:
        raise SettingsError("until goes with every, and with neither times nor at")
    if at is not None:
        ids, moments = read_queries(at, axis=axis, columns=columns, known=known)
        return Request(table, find_series(table, ids, len(moments)), moments)
    if times is not None:
        moments = parse_times(times, axis)
        if not len(moments):
            raise DataError("at least one time was expected, but the list of times is empty")
        series = np.repeat(np.arange(table.num_series), len(moments))
        return Request(table, series, np.tile(moments, table.num_series))
    assert every is not None
    step, end = _read_step(every, axis), None if until is None else float(parse_times([until], axis)[0])
    request = _steps_within(table, step, end) if within else _steps_ahead(table, step, end)
    if not len(request.times):
        since = "from the first observation of any series on" if within else "after the last observation of any series"
        raise DataError(f"until {until} leaves no step of {every} {since}")
    _warn_of_left_out(request, until)
    return request


def _read_step(every: Any, axis: TimeAxis) -> float:
    """A step in the axis' unit, from a number or, where times are dates, from a time difference."""
    if isinstance(every, np.timedelta64):
        every = every.astype("timedelta64[us]").item()
    if isinstance(every, dt.timedelta):  # includes pandas.Timedelta
        if axis.kind == "number":
            raise SettingsError(f"every wants a number, as the model's times are numbers, but got {shorten(every)}")
        every = every.total_seconds() / axis.seconds
    if not isinstance(every, Real) or not float(every) > 0:
        raise SettingsError(STEP_WANTED)
    return float(every)


def _warn_of_left_out(request: Request, until: Any) -> None:
    """Warns if some series have none of the requested steps."""
    table = request.table
    out = np.setdiff1d(np.arange(table.num_series), request.series)
    if len(out):
        have, are = ("have", "are") if len(out) > 1 else ("has", "is")
        said = f"{len(out)} series {have} no step up to {until} and {are} left out: {listing(table.ids[out].tolist())}"
        warnings.warn(said, LeftOutWarning, stacklevel=2)


def _steps_ahead(table: Table, every: float, end: float | None) -> Request:
    """Every step after the last observation of each series, up to a time."""
    if end is None:
        raise SettingsError(STEP_WANTED)
    return _steps(table, table.times[table.starts[1:] - 1], np.full(table.num_series, end), every, first=1)


def _steps_within(table: Table, every: float, end: float | None) -> Request:
    """Every step from the first observation of each series to its last, or up to a time."""
    first, last = table.times[table.starts[:-1]], table.times[table.starts[1:] - 1]
    return _steps(table, first, last if end is None else np.full(table.num_series, end), every, first=0)


def _steps(table: Table, begin: np.ndarray, end: np.ndarray, every: float, *, first: int) -> Request:
    with np.errstate(over="ignore"):
        counts = np.maximum(np.floor((end - begin) / every + 1e-9) + 1 - first, 0)
    if counts.sum() > MOST_QUERIES:
        raise SettingsError(f"a step of {every} asks for more than {MOST_QUERIES:,} times in all")
    counts = counts.astype(int)
    series = np.repeat(np.arange(table.num_series), counts)
    place = np.arange(len(series)) - np.repeat(np.cumsum(counts) - counts, counts)
    return Request(table, series, begin[series] + every * (place + first))


def find_series(table: Table, ids: np.ndarray | None, count: int = 1) -> np.ndarray:
    """The number of each id, 3.0 and 3 being the same; refuses an id that the table does not have."""
    if ids is None:
        if table.num_series > 1:
            raise DataError("the table of times has no id column, but the data has more than one series")
        return np.zeros(count, np.int64)
    names = [str(name) for name in table.ids.tolist()]
    number = {_whole(name): place for place, name in enumerate(names)}
    number |= {name: place for place, name in enumerate(names)}
    asked = [name if (name := str(id)) in number else _whole(name) for id in ids.tolist()]
    try:
        return np.array([number[name] for name in asked], np.int64)
    except KeyError as missing:
        raise DataError(f"series {missing.args[0]} is asked for, but the data has no observation of it") from None


def _whole(name: str) -> str:
    """The id 3 for 3.0, which pandas makes of whole numbers; any other unchanged."""
    return name[:-2] if re.fullmatch(r"-?\d+\.0", name) else name


def as_list(values: Any) -> list[Any]:
    """The argument, one value or many, as a list."""
    alone = isinstance(values, str) or not isinstance(values, Iterable) or getattr(values, "shape", None) == ()
    return [values] if alone else list(values)


def read_levels(levels: Any) -> tuple[float, ...]:
    """One or many quantile levels, checked; refuses levels outside (0, 1) and two that would share a column name."""
    names: dict[str, Any] = {}
    for level in as_list(levels):
        if not isinstance(level, Real) or not 0 < float(level) < 1:
            raise SettingsError(f"a quantile lies between 0 and 1, but {shorten(level)} was given")
        name = level_name(float(level))
        if name in names:
            raise SettingsError(f"quantiles {names[name]} and {level} were given, but both would be called {name}")
        names[name] = level
    return tuple(map(float, names.values()))


def level_name(level: float) -> str:
    """The column name of a quantile: q05 for 0.05, q50 for 0.5, q2.5 for 0.025."""
    percent = round(100 * level, 6)
    return f"q{percent:02.0f}" if percent == round(percent) else f"q{percent:g}"


def check_draws(draws: Any, seed: Any = 0) -> None:
    """Refuses an invalid number of draws or seed."""
    check_whole("draws", draws, most=MOST_PATHS)
    check_whole("seed", seed, least=0, most=LAST_SEED)


def check_whole(name: str, value: Any, *, least: int = 1, most: float = math.inf) -> None:
    """Refuses a setting that is not a whole number or is out of bounds."""
    if not isinstance(value, Integral) or isinstance(value, bool) or not least <= int(value) <= most:
        bounds = f"from {least} to {most:,}" if most < math.inf else f"of {least} or more"
        raise SettingsError(f"{name} wants a whole number {bounds}, but {shorten(value)} was given")
