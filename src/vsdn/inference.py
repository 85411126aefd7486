"""Answers of a model for the series of a table: statistics of the mixture over paths, in the user's units."""

import functools
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from vsdn import metrics
from vsdn.batches import Batches
from vsdn.data import Layout, Scaler, Table, TimeAxis
from vsdn.errors import SettingsError
from vsdn.frames import time_column, to_frame
from vsdn.grids import Grid, GridSet, Marching, Queries, QuerySet, make_grids, make_queries
from vsdn.likelihoods import Likelihood
from vsdn.models import AbstractModel

MEMORY = 2**28  # bytes of latent states held at once


class Forecast(NamedTuple):
    """One row a query, one column a variable, in the user's units."""

    mean: np.ndarray
    std: np.ndarray
    quantiles: np.ndarray  # (query, channel, level)


class Scores(NamedTuple):
    """Of each query and variable, in the user's units."""

    nll: np.ndarray
    square: np.ndarray
    crps: np.ndarray
    pit: np.ndarray


class Request(NamedTuple):
    """What is asked: queries (series number, time) of a table that holds all that may be seen."""

    table: Table
    series: np.ndarray
    times: np.ndarray


class Frame(NamedTuple):
    """What a model's numbers mean: its scaler and how its grids march."""

    scaler: Scaler
    marching: Marching
    num_buckets: int = 3


def forecast(
    model: AbstractModel, frame: Frame, request: Request, *, levels: Sequence[float], num_samples: int, seed: int
) -> Forecast:
    """Mean, deviation and quantiles of the mixture over paths, at each query."""
    truth = np.zeros((len(request.times), len(request.table.variables)))
    summarise = functools.partial(_statistics, levels=tuple(levels))
    parts = _answer(model, frame, request, truth, summarise, num_samples=num_samples, seed=seed)
    return in_units(frame.scaler, *parts)


def in_units(scaler: Scaler, mean: np.ndarray, std: np.ndarray, quantiles: np.ndarray) -> Forecast:
    """The forecast in the user's units."""
    centre, spread = scaler.mean, scaler.std
    return Forecast(centre + spread * mean, spread * std, centre[:, None] + spread[:, None] * quantiles)


def score(
    model: AbstractModel, frame: Frame, request: Request, truth: np.ndarray, *, num_samples: int, seed: int
) -> Scores:
    """How well each query is foretold, against the truth (query, channel)."""
    scaled = frame.scaler.scale(truth)
    nll, square, crps, pit = _answer(model, frame, request, scaled, _scores, num_samples=num_samples, seed=seed)
    spread = frame.scaler.std
    return Scores(nll + np.log(spread), square * spread**2, crps * spread, pit)


def _statistics(likelihood: Likelihood, params: Array, _: Array, *, levels: tuple[float, ...]) -> tuple[Array, ...]:
    return statistics(likelihood, params, levels=levels)


def statistics(likelihood: Likelihood, params: Array, *, levels: tuple[float, ...]) -> tuple[Array, Array, Array]:
    """Mean, deviation and quantiles (query, channel, level) of a mixture at each query, in the model's units."""
    quantiles = metrics.quantiles(likelihood, params, levels)
    return metrics.mean(likelihood, params), metrics.std(likelihood, params), jnp.moveaxis(quantiles, 0, -1)


def _scores(likelihood: Likelihood, params: Array, y: Array) -> tuple[Array, ...]:
    square = (metrics.mean(likelihood, params) - y) ** 2
    density, pit = metrics.log_prob(likelihood, params, y), metrics.cdf(likelihood, params, y)
    return -density, square, metrics.crps(likelihood, params, y), pit


@eqx.filter_jit
def _summaries(
    model: AbstractModel,
    grid: Grid,
    queries: Queries,
    truth: Array,
    keys: PRNGKeyArray,
    num_samples: int,
    summarise: Callable[[Likelihood, Array, Array], tuple[Array, ...]],
) -> tuple[Array, ...]:
    """`summarise` of the mixture at each query of each series; compiled once a shape, whoever asks."""

    mixtures = model.batch_forecast(grid, queries, num_samples=num_samples, keys=keys)
    return jax.vmap(lambda mixture, y: summarise(model.likelihood, mixture, y))(mixtures, truth)


def _answer(
    model: AbstractModel,
    frame: Frame,
    request: Request,
    truth: np.ndarray,
    summarise: Callable[..., tuple[Array, ...]],
    *,
    num_samples: int,
    seed: int,
) -> list[np.ndarray]:
    """`summarise` of every query, in the order asked; few series at a time bound the memory."""
    table, scaler, marching = request.table, frame.scaler, frame.marching
    queries = make_queries(table, scaler, marching, request.series, request.times)
    grids = make_grids(table, scaler, marching, tail=queries.tail)
    keys = series_keys(table.ids, seed)
    answers: list[np.ndarray] = []
    for series, grid, own, places in _chunks(grids, queries, frame.num_buckets, num_samples):
        parts = _summaries(model, grid, own, jnp.asarray(truth[places]), keys[series], num_samples, summarise)
        if not answers:
            answers = [np.empty((len(request.times), *part.shape[2:])) for part in parts]
        for answer, part in zip(answers, parts, strict=True):
            answer[places.ravel()] = np.asarray(part).reshape(-1, *part.shape[2:])
    return answers


def _chunks(
    grids: GridSet, queries: QuerySet, num_buckets: int, num_samples: int
) -> Iterator[tuple[np.ndarray, Grid, Queries, np.ndarray]]:
    """Series numbers, grids, queries and the queries' places in the caller's order, a chunk at a time."""
    counts = np.diff(queries.starts)
    asked = np.flatnonzero(counts)
    longest = int(grids.num_points[asked].max() + counts.max())
    size = max(1, min(len(asked), 1024, MEMORY // (4 * 64 * num_samples * longest)))
    batches = Batches.make(grids, size, num_buckets)
    for number in range(len(batches.num_points)):
        mine = asked[batches.bucket[asked] == number]
        for chunk in np.split(mine, range(size, len(mine), size)) if len(mine) else []:
            filled = np.concatenate([chunk, np.full(size - len(chunk), chunk[0])])
            num_queries = int(counts[mine].max())
            grid = grids.pad(filled, int(batches.num_points[number]), int(batches.num_rows[number]))
            yield filled, grid, queries.pad(filled, num_queries), queries.places(filled, num_queries)


def series_keys(ids: np.ndarray, seed: int) -> PRNGKeyArray:
    """A key for each series that follows from its id: other series, and their order, change nothing."""
    codes = np.array([zlib.crc32(str(name).encode()) for name in ids.tolist()], np.uint32)
    return jax.vmap(lambda code: jr.fold_in(jr.key(seed), code))(codes)


def check_levels(levels: Sequence[float]) -> None:
    """Nothing, or an error: one is no level of a quantile."""
    for level in levels:
        if not 0 < level < 1:
            raise SettingsError(f"a quantile lies between 0 and 1, but {level} was given")


def level_name(level: float) -> str:
    """q05 of 0.05, q50 of 0.5, q2.5 of 0.025."""
    percent = round(100 * level, 6)
    return f"q{percent:02.0f}" if percent == round(percent) else f"q{percent:g}"


def forecast_frame(
    layout: Layout,
    axis: TimeAxis,
    variables: tuple[str, ...],
    ids: np.ndarray,
    times: np.ndarray,
    answer: Forecast,
    levels: Sequence[float],
) -> Any:
    """The forecast as a long frame, queries in the order asked, whose ids and times are given."""
    columns = {} if layout.id is None else {layout.id: np.repeat(ids, len(variables))}
    columns[layout.time] = np.repeat(time_column(times, axis), len(variables))
    columns["variable"] = np.tile(np.array(variables, object), len(times))
    columns["mean"], columns["std"] = answer.mean.ravel(), answer.std.ravel()
    for number, level in enumerate(levels):
        columns[level_name(level)] = answer.quantiles[..., number].ravel()
    return to_frame(columns, layout.backend, timezone=axis.timezone)
