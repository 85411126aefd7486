"""Methods by name: how a batch of series is forecast, filtered or interpolated."""

from collections.abc import Callable
from typing import NamedTuple

import jax
from jaxtyping import Array, Key

from vsdn.errors import SettingsError
from vsdn.grids.grid import Grid, Queries
from vsdn.models import AbstractModel, Answer
from vsdn.models.base import AbstractOnline
from vsdn.models.linearising import linearise
from vsdn.models.trying import try_values
from vsdn.models.vsdn import VSDN

Method = Callable[..., Answer]  # (model, grids, queries, *, num_samples, keys), all with a leading batch axis


def by_prior(model: AbstractModel, grids: Grid, queries: Queries, *, num_samples: int, keys: Key[Array, " batch"]):
    """Predicts each query by the prior: only the memory, not the latent paths, is conditioned on the rows before it."""
    return Answer(model.batch_forecast(grids, queries, num_samples=num_samples, keys=keys))


def _row_by_row(answer_rows: Callable[..., Answer]) -> Method:
    """A method that answers each row given that row and those before; the queries are the rows."""

    def ask(model: AbstractModel, grids: Grid, queries: Queries, *, num_samples: int, keys: Key[Array, " batch"]):
        one = lambda grid, key: answer_rows(model, grid, num_samples=num_samples, key=key)
        answer, count = jax.vmap(one)(grids, keys), queries.point.shape[1]
        many = lambda part: None if part is None else part[:, :, :count]
        size = None if answer.size is None else answer.size[:, :count]
        return Answer(answer.params[:, :, :count], many(answer.states), size)

    return ask


def _one_by_one(answer_queries: Callable[..., Answer]) -> Method:
    """A method that answers the queries of one series at a time, mapped over the batch."""

    def ask(model: AbstractModel, grids: Grid, queries: Queries, *, num_samples: int, keys: Key[Array, " batch"]):
        one = lambda grid, queries, key: answer_queries(model, grid, queries, num_samples=num_samples, key=key)
        return jax.vmap(one)(grids, queries, keys)

    return ask


by_filter = _row_by_row(lambda model, grid, **how: model.filter(grid, **how))
by_memory = _row_by_row(VSDN.memory_filter)
by_particles = _one_by_one(VSDN.particle_forecast)
by_interpolation = _one_by_one(lambda model, grid, queries, **how: model.interpolate(grid, queries, **how))
by_smoothing = _one_by_one(VSDN.particle_interpolate)
by_posterior = _one_by_one(VSDN.posterior_interpolate)
by_linearising = _one_by_one(linearise)
by_trying = _one_by_one(try_values)

FORECASTS: dict[str, Method] = {"prior": by_prior, "particles": by_particles}
INTERPOLATIONS: dict[str, Method] = {
    "particles": by_smoothing,
    "posterior": by_posterior,
    "linearised": by_linearising,
    "tried": by_trying,
}


OF_MEMORY = (by_linearising, by_trying)  # marginals only: answers at several times are not joint


class Ways(NamedTuple):
    """The default methods, used when none is named."""

    forecast: Method
    filter: Method
    interpolate: Method


def own_ways(model: AbstractModel, *, by_memory_alone: bool) -> Ways:
    """The default methods of a model. Those of a VSDN depend on its training: if its memory was given every row and its
    epoch was selected by forecasts of single values, the memory carries everything and the latent paths nothing, so the
    memory answers, as in other models."""
    if not isinstance(model, VSDN):
        return Ways(by_prior, by_filter, by_interpolation)
    if by_memory_alone:
        return Ways(by_prior, by_memory, by_linearising)
    return Ways(by_particles, by_filter, by_interpolation)


def find_forecast(model: AbstractModel, name: str | None, own: Method = by_prior) -> Method:
    """The forecasting method of this name; the default if None."""
    return own if name is None else _find(FORECASTS, model, name)


def find_interpolation(model: AbstractModel, name: str | None, own: Method = by_interpolation) -> Method:
    """The interpolation method of this name; the default if None."""
    return own if name is None else _find(INTERPOLATIONS, model, name)


def _find(methods: dict[str, Method], model: AbstractModel, name: str) -> Method:
    if name not in methods:
        raise SettingsError(f"the methods are {', '.join(methods)}, but not {name!r}")
    method = methods[name]
    if method in OF_MEMORY and not isinstance(model, AbstractOnline):
        raise SettingsError(f"method {name!r} asks a memory that goes along with the data: latent-* have none")
    if method is not by_prior and method not in OF_MEMORY and not isinstance(model, VSDN):
        raise SettingsError(f"method {name!r} is for vsdn-f and vsdn-s, which have a latent SDE with a posterior")
    return method
