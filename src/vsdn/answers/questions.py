"""Questions to a forecaster: a request split into chunks that fit into memory, and the answers gathered.

Nothing here depends on a model: the function that answers is given grids, queries and keys.
"""

import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from vsdn.answers.requests import Request
from vsdn.batches import Batches
from vsdn.grids.branching import QuerySet, make_queries
from vsdn.grids.grid import Grid, Queries
from vsdn.grids.marching import GridSet, Marching, make_grids
from vsdn.tables.table import Scaler

MEMORY = 2**28  # bytes of latent states held at once
NUM_BUCKETS = 2  # padded lengths; each is compiled separately


class Frame(NamedTuple):
    """How to interpret a model's numbers: its scaler and how its grids are built."""

    scaler: Scaler
    marching: Marching
    num_buckets: int = NUM_BUCKETS


class Chunk(NamedTuple):
    """Some series that are answered at once, with a leading batch axis."""

    grid: Grid
    queries: Queries
    keys: PRNGKeyArray
    places: np.ndarray  # positions of the queries in the request
    real: np.ndarray  # False for padding


def ask(
    answer: Callable[[Chunk], Sequence[Array]],
    frame: Frame,
    request: Request,
    *,
    num_samples: int,
    seed: int,
    in_pairs: bool = False,
) -> list[np.ndarray]:
    """The results of `answer` for every query, in the order of the request; series are processed in chunks to bound
    memory. `in_pairs`: the samples of a series are compared pairwise."""
    table, scaler, marching = request.table, frame.scaler, frame.marching
    queries = make_queries(table, scaler, marching, request.series, request.times)
    grids = make_grids(table, scaler, marching, tail=queries.tail)
    answers: list[np.ndarray] = []
    width = num_samples * (num_samples if in_pairs else 1)
    for chunk in _chunks(grids, queries, series_keys(table.ids, seed), frame.num_buckets, num_samples, width):
        parts = answer(chunk)
        if not answers:
            answers = [np.empty((len(request.times), *part.shape[2:])) for part in parts]
        for whole, part in zip(answers, parts, strict=True):
            whole[chunk.places[chunk.real]] = np.asarray(part)[chunk.real]
    return answers


def _chunks(
    grids: GridSet, queries: QuerySet, keys: PRNGKeyArray, num_buckets: int, num_samples: int, at_once: int
) -> Iterator[Chunk]:
    """The series that are asked about, one chunk at a time."""
    counts = np.diff(queries.starts)
    asked = np.flatnonzero(counts)
    longest = int(grids.num_points[asked].max() + counts.max())
    size = chunk_size(len(asked), max(num_samples * longest, at_once))
    batches = Batches.make(grids, size, num_buckets)
    for number in range(len(batches.num_points)):
        mine = asked[batches.bucket[asked] == number]
        for chunk in np.split(mine, range(size, len(mine), size)) if len(mine) else []:
            filled = np.concatenate([chunk, np.full(size - len(chunk), chunk[0])])
            num_queries = int(counts[mine].max())
            grid = grids.pad(filled, int(batches.num_points[number]), int(batches.num_rows[number]))
            padded, places = queries.pad(filled, num_queries), queries.places(filled, num_queries)
            yield Chunk(grid, padded, keys[filled], *places)


def chunk_size(num_series: int, states: int) -> int:
    """How many series fit into memory at once, each with this many latent states."""
    return max(1, min(num_series, 1024, MEMORY // (4 * 64 * states)))


def chunks_of(num_series: int, size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The series in chunks of `size`, and each chunk also padded to that size."""
    for chunk in np.split(np.arange(num_series), range(size, num_series, size)):
        yield chunk, np.concatenate([chunk, np.full(size - len(chunk), chunk[0])])


def series_keys(ids: np.ndarray, seed: int) -> PRNGKeyArray:
    """A random key for each series, derived from its id alone: other series and their order do not matter."""
    codes = np.array([zlib.crc32(str(name).encode()) for name in ids.tolist()], np.uint32)
    return jax.vmap(lambda code: jr.fold_in(jr.key(seed), code))(codes)
