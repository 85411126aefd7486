"""Answers of a model for the series of a table: statistics of the mixture over paths, in the user's units."""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from vsdn import metrics
from vsdn.grids import Grid, Queries
from vsdn.likelihoods import Likelihood
from vsdn.models import AbstractModel
from vsdn.questions import Chunk, Forecast, Frame, Request, ask, in_units


class Scores(NamedTuple):
    """Of each query and variable, in the user's units."""

    nll: np.ndarray
    square: np.ndarray
    crps: np.ndarray
    pit: np.ndarray


def forecast(
    model: AbstractModel, frame: Frame, request: Request, *, levels: Sequence[float], num_samples: int, seed: int
) -> Forecast:
    """Mean, deviation and quantiles of the mixture over paths, at each query."""
    truth = np.zeros((len(request.times), len(request.table.variables)))
    summarise = functools.partial(_statistics, levels=tuple(levels))
    parts = _answer(model, frame, request, truth, summarise, num_samples=num_samples, seed=seed)
    return in_units(frame.scaler, *parts)


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
    """`summarise` of every query, in the order asked."""

    def answer(chunk: Chunk) -> tuple[Array, ...]:
        own = jnp.asarray(truth[chunk.places])
        return _summaries(model, chunk.grid, chunk.queries, own, chunk.keys, num_samples, summarise)

    return ask(answer, frame, request, num_samples=num_samples, seed=seed)
