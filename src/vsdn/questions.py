"""Questions to a forecaster: which times of which series are asked for, a chunk at a time, and the answers as a frame.

Nothing here knows a model: whoever answers is handed grids, queries and keys.
"""

import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from vsdn.batches import Batches
from vsdn.data import Layout, Scaler, Table, TimeAxis
from vsdn.errors import DataError, SettingsError
from vsdn.frames import Columns, parse_times, read_queries, time_column, to_frame
from vsdn.grids import Grid, GridSet, Marching, Queries, QuerySet, make_grids, make_queries

QUANTILES = (0.05, 0.5, 0.95)
DRAWS = 128
MOST_QUERIES = 10**8
MEMORY = 2**28  # bytes of latent states held at once
NUM_BUCKETS = 2  # padded lengths, each of which is compiled


class Forecast(NamedTuple):
    """One row a query, one column a variable, in the user's units."""

    mean: np.ndarray
    std: np.ndarray
    quantiles: np.ndarray  # (query, channel, level)
    size: np.ndarray  # (query,) the effective number of particles; NaN where none were weighed


class Request(NamedTuple):
    """What is asked: queries (series number, time) of a table that holds all that may be seen."""

    table: Table
    series: np.ndarray
    times: np.ndarray


class Frame(NamedTuple):
    """What a model's numbers mean: its scaler and how its grids march."""

    scaler: Scaler
    marching: Marching
    num_buckets: int = NUM_BUCKETS


class Chunk(NamedTuple):
    """Some series that are asked about at once, with a leading batch axis."""

    grid: Grid
    queries: Queries
    keys: PRNGKeyArray
    places: np.ndarray  # of the queries in the request


def make_request(
    table: Table, axis: TimeAxis, times: Any, *, every: float | None, until: Any, at: Any, columns: Columns = Columns()
) -> Request:
    """The request for `times` of each series, or `every` step after its last observation `until` a time, or the id,
    time rows of the table `at`."""
    if sum(choice is not None for choice in (times, every, at)) != 1:
        raise SettingsError("say when: times, or every with until, or at (a table of id and time)")
    if until is not None and every is None:
        raise SettingsError("until goes with every, and with neither times nor at")
    if at is not None:
        ids, moments = read_queries(at, axis=axis, columns=columns)
        return Request(table, _find_series(table, ids, len(moments)), moments)
    if times is not None:
        moments = parse_times(times, axis)
        series = np.repeat(np.arange(table.num_series), len(moments))
        return Request(table, series, np.tile(moments, table.num_series))
    return _steps_ahead(table, axis, every, until)


def _steps_ahead(table: Table, axis: TimeAxis, every: float | None, until: Any) -> Request:
    """The request for every step after the last observation of each series."""
    if until is None or every is None or not every > 0:
        raise SettingsError("every wants a step above 0, and until a time to go to")
    last = table.times[table.starts[1:] - 1]
    with np.errstate(over="ignore"):
        counts = np.maximum(np.floor((parse_times([until], axis)[0] - last) / every + 1e-9), 0)
    if counts.max() < 1:
        raise DataError(f"until {until} leaves no step of {every} after the last observation of any series")
    if counts.sum() > MOST_QUERIES:
        raise SettingsError(f"every {every} until {until} asks for more than {MOST_QUERIES:,} times in all")
    counts = counts.astype(int)
    series = np.repeat(np.arange(table.num_series), counts)
    place = np.arange(len(series)) - np.repeat(np.cumsum(counts) - counts, counts)
    return Request(table, series, last[series] + every * (place + 1))


def _find_series(table: Table, ids: np.ndarray | None, count: int) -> np.ndarray:
    """The number of each id; an id that the table does not have is refused."""
    if ids is None:
        if table.num_series > 1:
            raise DataError("the table of times has no id column, but the data has more than one series")
        return np.zeros(count, np.int64)
    number = {str(name): place for place, name in enumerate(table.ids.tolist())}
    try:
        return np.array([number[str(name)] for name in ids.tolist()], np.int64)
    except KeyError as missing:
        raise DataError(f"series {missing.args[0]} is asked for, but the data has no observation of it") from None


def ask(
    answer: Callable[[Chunk], Sequence[Array]],
    frame: Frame,
    request: Request,
    *,
    num_samples: int,
    seed: int,
    longest: int = 0,
) -> list[np.ndarray]:
    """What `answer` says of every query, in the order asked; few series at a time bound the memory, each counted as
    `longest` points at least."""
    table, scaler, marching = request.table, frame.scaler, frame.marching
    queries = make_queries(table, scaler, marching, request.series, request.times)
    grids = make_grids(table, scaler, marching, tail=queries.tail)
    answers: list[np.ndarray] = []
    for chunk in _chunks(grids, queries, series_keys(table.ids, seed), frame.num_buckets, num_samples, longest):
        parts = answer(chunk)
        if not answers:
            answers = [np.empty((len(request.times), *part.shape[2:])) for part in parts]
        for whole, part in zip(answers, parts, strict=True):
            whole[chunk.places.ravel()] = np.asarray(part).reshape(-1, *part.shape[2:])
    return answers


def _chunks(
    grids: GridSet, queries: QuerySet, keys: PRNGKeyArray, num_buckets: int, num_samples: int, longest: int
) -> Iterator[Chunk]:
    """The series that are asked about, a chunk at a time."""
    counts = np.diff(queries.starts)
    asked = np.flatnonzero(counts)
    longest = max(longest, int(grids.num_points[asked].max() + counts.max()))
    size = chunk_size(len(asked), longest, num_samples)
    batches = Batches.make(grids, size, num_buckets)
    for number in range(len(batches.num_points)):
        mine = asked[batches.bucket[asked] == number]
        for chunk in np.split(mine, range(size, len(mine), size)) if len(mine) else []:
            filled = np.concatenate([chunk, np.full(size - len(chunk), chunk[0])])
            num_queries = int(counts[mine].max())
            grid = grids.pad(filled, int(batches.num_points[number]), int(batches.num_rows[number]))
            yield Chunk(grid, queries.pad(filled, num_queries), keys[filled], queries.places(filled, num_queries))


def chunk_size(num_series: int, longest: int, num_samples: int) -> int:
    """How many series fit into memory at once."""
    return max(1, min(num_series, 1024, MEMORY // (4 * 64 * num_samples * longest)))


def series_keys(ids: np.ndarray, seed: int) -> PRNGKeyArray:
    """A key for each series that follows from its id: other series, and their order, change nothing."""
    codes = np.array([zlib.crc32(str(name).encode()) for name in ids.tolist()], np.uint32)
    return jax.vmap(lambda code: jr.fold_in(jr.key(seed), code))(codes)


def in_units(scaler: Scaler, mean: np.ndarray, std: np.ndarray, quantiles: np.ndarray, size: np.ndarray) -> Forecast:
    """The forecast in the user's units, of numbers in the model's."""
    centre, spread = scaler.mean, scaler.std
    return Forecast(centre + spread * mean, spread * std, centre[:, None] + spread[:, None] * quantiles, size)


def answer_frame(request: Request, axis: TimeAxis, answer: Forecast, levels: Sequence[float]) -> Any:
    """The answer to a request as a long frame of the user's kind, in the order asked."""
    table, ids = request.table, request.table.ids[request.series]
    return forecast_frame(table.layout, axis, table.variables, ids, request.times, answer, levels)


def forecast_frame(
    layout: Layout,
    axis: TimeAxis,
    variables: tuple[str, ...],
    ids: np.ndarray,
    times: np.ndarray,
    answer: Forecast,
    levels: Sequence[float],
) -> Any:
    """The forecast as a long frame of the user's kind, queries in the order asked, whose ids and times are given."""
    columns = {} if layout.id is None else {layout.id: np.repeat(ids, len(variables))}
    columns[layout.time] = np.repeat(time_column(times, axis), len(variables))
    columns["variable"] = np.tile(np.array(variables, object), len(times))
    columns["mean"], columns["std"] = answer.mean.ravel(), answer.std.ravel()
    for number, level in enumerate(levels):
        columns[level_name(level)] = answer.quantiles[..., number].ravel()
    return to_frame(columns, layout.backend, timezone=axis.timezone)


def level_name(level: float) -> str:
    """q05 of 0.05, q50 of 0.5, q2.5 of 0.025."""
    percent = round(100 * level, 6)
    return f"q{percent:02.0f}" if percent == round(percent) else f"q{percent:g}"


def check_levels(levels: Sequence[float]) -> None:
    """Nothing, or an error: one is no level of a quantile."""
    for level in levels:
        if not 0 < level < 1:
            raise SettingsError(f"a quantile lies between 0 and 1, but {level} was given")
