"""A model's answers for the series of a table: statistics of the mixture over paths, in the user's units."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from vsdn import metrics
from vsdn.answers.methods import Method, by_prior
from vsdn.answers.questions import Chunk, Frame, ask, chunk_size, chunks_of, series_keys
from vsdn.answers.replies import Forecast, in_units
from vsdn.answers.requests import Request
from vsdn.grids.grid import Grid, Queries, query_keys
from vsdn.grids.marching import make_grids
from vsdn.likelihoods import Likelihood
from vsdn.models import AbstractModel, Answer
from vsdn.models.base import AbstractOnline
from vsdn.tables.table import Table

MEASUREMENT = 0xFFFF_FFFD  # fold-in number that no path uses


class Scores(NamedTuple):
    """The scores of each query and variable, in the user's units."""

    nll: np.ndarray
    square: np.ndarray
    crps: np.ndarray
    pit: np.ndarray


def forecast(
    model: AbstractModel,
    frame: Frame,
    request: Request,
    *,
    levels: Sequence[float],
    num_samples: int,
    seed: int,
    method: Method = by_prior,
    latent: bool = False,
) -> Forecast:
    """Mean, standard deviation and quantiles of the mixture over paths at each query; or, with `latent`, of the latent
    state in the model's own units."""
    asked = Asked(method, _state_statistics if latent else _statistics, num_samples, tuple(levels))
    parts = _answer(model, frame, request, _no_truth(request), asked, seed=seed)
    return Forecast(*parts) if latent else in_units(frame.scaler, *parts)


def _no_truth(request: Request) -> np.ndarray:
    """A placeholder for the truth where nothing is scored."""
    return np.zeros((len(request.times), len(request.table.variables)))


def draws(
    model: AbstractModel, frame: Frame, request: Request, *, num_samples: int, seed: int, method: Method
) -> np.ndarray:
    """(query, draw, channel): joint draws along whole paths."""
    values, *_ = _answer(
        model, frame, request, _no_truth(request), Asked(method, _measurements, num_samples), seed=seed
    )
    return frame.scaler.unscale(values)


def paths(
    model: AbstractModel, frame: Frame, request: Request, *, num_samples: int, seed: int, method: Method
) -> np.ndarray:
    """(query, draw, latent): latent states along whole paths, in the model's own units."""
    return _answer(model, frame, request, _no_truth(request), Asked(method, _states, num_samples), seed=seed)[0]


def coupled(
    model: AbstractModel, frame: Frame, request: Request, together: np.ndarray, *, seed: int, method: Method
) -> np.ndarray:
    """(query, draw, channel): joint draws with the marginals of `method` at each query and the dependence of
    `together`, by its ranks (ensemble copula coupling; Schefzik, Thorarinsdottir and Gneiting, 2013)."""
    random = np.random.default_rng(seed)
    order = np.lexsort((random.random(together.shape), together), axis=1)  # ties are broken at random
    levels = (order.argsort(axis=1) + random.random(together.shape)) / together.shape[1]
    asked = Asked(method, _at_levels, together.shape[1])
    return frame.scaler.unscale(_answer(model, frame, request, levels, asked, seed=seed)[0])


def row_draws(
    model: AbstractOnline, frame: Frame, table: Table, *, num_samples: int, num_particles: int = 1, seed: int
) -> np.ndarray:
    """(row, draw, channel): joint draws at every row of a table, including rows with nothing observed."""
    grids, keys = make_grids(table, frame.scaler, frame.marching), series_keys(table.ids, seed)
    values = np.empty((len(table.times), num_samples, len(table.variables)))
    most_points, most_rows = int(grids.num_points.max()) + 1, int(grids.num_rows.max())
    size = chunk_size(table.num_series, most_points * num_samples * num_particles)
    for chunk, filled in chunks_of(table.num_series, size):
        padded = grids.pad(filled, most_points, most_rows)
        parts = np.asarray(_row_draws(model, padded, keys[filled], num_samples, num_particles))
        for series, part in zip(chunk, parts, strict=False):
            rows = slice(table.starts[series], table.starts[series + 1])
            values[rows] = part[:, : rows.stop - rows.start].swapaxes(0, 1)
    return frame.scaler.unscale(values)


@eqx.filter_jit
def _row_draws(model: AbstractOnline, grids: Grid, keys: PRNGKeyArray, num_samples: int, num_particles: int) -> Array:
    many = {"num_samples": num_samples, "num_particles": num_particles}
    return jax.vmap(lambda grid, key: model.sample_rows(grid, **many, key=key))(grids, keys)


def log_likelihoods(
    model: AbstractModel, frame: Frame, table: Table, *, num_samples: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Each series' log-likelihood in the user's units, and the smallest effective number of paths (NaN: exact)."""
    grids, keys = make_grids(table, frame.scaler, frame.marching), series_keys(table.ids, seed)
    most_points, most_rows = int(grids.num_points.max()) + 1, int(grids.num_rows.max())
    size, parts = chunk_size(table.num_series, most_points * num_samples), []
    for chunk, filled in chunks_of(table.num_series, size):
        pair = _log_likelihoods(model, grids.pad(filled, most_points, most_rows), keys[filled], num_samples)
        parts.append(np.stack(pair)[:, : len(chunk)])
    log_lik, least = np.concatenate(parts, axis=1)
    unit = np.bincount(table.series_of_row, table.mask @ np.log(frame.scaler.std), minlength=table.num_series)
    return log_lik - unit, least


@eqx.filter_jit
def _log_likelihoods(model: AbstractModel, grids: Grid, keys: PRNGKeyArray, num_samples: int) -> tuple[Array, Array]:
    return jax.vmap(lambda grid, key: model.log_likelihood(grid, num_samples=num_samples, key=key))(grids, keys)


def score(
    model: AbstractModel,
    frame: Frame,
    request: Request,
    truth: np.ndarray,
    *,
    num_samples: int,
    seed: int,
    method: Method = by_prior,
) -> Scores:
    """The scores of each query's predictive distribution against the truth (query, channel)."""
    asked = Asked(method, _scores, num_samples)
    nll, square, crps, pit, *_ = _answer(model, frame, request, frame.scaler.scale(truth), asked, seed=seed)
    spread = frame.scaler.std
    return Scores(nll + np.log(spread), square * spread**2, crps * spread, pit)


class Asked(NamedTuple):
    """Static arguments of a question: method, statistic, samples, levels. Each distinct value compiles once."""

    method: Method
    summarise: Callable[["Said", "Asked"], tuple[Array, ...]]
    num_samples: int
    levels: tuple[float, ...] = ()


class Said(NamedTuple):
    """The answer for one series, and the truth it is compared with."""

    likelihood: Likelihood
    answer: Answer
    truth: Array
    keys: PRNGKeyArray  # one per query


def _statistics(said: Said, asked: Asked) -> tuple[Array, ...]:
    return statistics(said.likelihood, said.answer.params, levels=asked.levels)


def statistics(likelihood: Likelihood, params: Array, *, levels: tuple[float, ...]) -> tuple[Array, Array, Array]:
    """Mean, standard deviation and quantiles (query, channel, level) of the mixtures, in the model's units."""
    quantiles = metrics.quantiles(likelihood, params, levels)
    return metrics.mean(likelihood, params), metrics.std(likelihood, params), jnp.moveaxis(quantiles, 0, -1)


def _state_statistics(said: Said, asked: Asked) -> tuple[Array, ...]:
    states = said.answer.states
    assert states is not None
    quantiles = jnp.quantile(states, jnp.asarray(asked.levels, states.dtype), axis=0)
    return states.mean(axis=0), states.std(axis=0), jnp.moveaxis(quantiles, 0, -1)


def _scores(said: Said, asked: Asked) -> tuple[Array, ...]:
    likelihood, params, y = said.likelihood, said.answer.params, said.truth
    square = (metrics.mean(likelihood, params) - y) ** 2
    density, pit = metrics.log_prob(likelihood, params, y), metrics.cdf(likelihood, params, y)
    return -density, square, metrics.crps(likelihood, params, y), pit


def _at_levels(said: Said, asked: Asked) -> tuple[Array, ...]:
    """Quantiles (query, draw, channel) at the levels that are passed in place of the truth."""
    levels = said.truth.swapaxes(0, 1)
    return (metrics.quantiles_at(said.likelihood, said.answer.params, levels).swapaxes(0, 1),)


def _states(said: Said, asked: Asked) -> tuple[Array, ...]:
    assert said.answer.states is not None
    return (said.answer.states.swapaxes(0, 1),)


def _measurements(said: Said, asked: Asked) -> tuple[Array, ...]:
    draw = lambda params, key: said.likelihood.sample(params, key=key)
    return (jax.vmap(draw, (1, 0))(said.answer.params, said.keys),)


@eqx.filter_jit
def _summaries(
    model: AbstractModel, grid: Grid, queries: Queries, truth: Array, keys: PRNGKeyArray, asked: Asked
) -> tuple[Array, ...]:
    """The requested statistics for each query of each series; compiled once per shape, whoever the caller."""
    answer = asked.method(model, grid, queries, num_samples=asked.num_samples, keys=keys)
    keys = jax.vmap(lambda queries, key: query_keys(queries, jr.fold_in(key, MEASUREMENT)))(queries, keys)
    one = lambda answer, truth, keys: asked.summarise(Said(model.likelihood, answer, truth, keys), asked)
    parts = jax.vmap(one)(answer._replace(size=None), truth, keys)
    return parts if answer.size is None else (*parts, answer.size)


def _answer(
    model: AbstractModel, frame: Frame, request: Request, truth: np.ndarray, asked: Asked, *, seed: int
) -> list[np.ndarray]:
    """The requested statistics for every query, in the order of the request."""

    def answer(chunk: Chunk) -> tuple[Array, ...]:
        own = jnp.asarray(truth[chunk.places])
        return _summaries(model, chunk.grid, chunk.queries, own, chunk.keys, asked)

    in_pairs = asked.method is not by_prior
    return ask(answer, frame, request, num_samples=asked.num_samples, seed=seed, in_pairs=in_pairs)
