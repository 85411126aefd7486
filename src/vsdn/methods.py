"""The ways to answer a question, by name: what is foretold, filtered or interpolated, for a batch of series."""

from collections.abc import Callable

import jax
from jaxtyping import Array, Key

from vsdn.errors import SettingsError
from vsdn.grids import Grid, Queries
from vsdn.models import AbstractModel, Answer
from vsdn.models.vsdn import VSDN

Method = Callable[..., Answer]  # (model, grids, queries, *, num_samples, keys), all with a leading batch axis


def by_prior(model: AbstractModel, grids: Grid, queries: Queries, *, num_samples: int, keys: Key[Array, " batch"]):
    """Each query from the rows before it, as they are in memory; the latent paths take no other account of them."""
    return Answer(model.batch_forecast(grids, queries, num_samples=num_samples, keys=keys))


def by_filter(model: AbstractModel, grids: Grid, queries: Queries, *, num_samples: int, keys: Key[Array, " batch"]):
    """Each row given itself and those before; the queries are the rows, every one."""
    one = lambda grid, key: model.filter(grid, num_samples=num_samples, key=key)
    answer, count = jax.vmap(one)(grids, keys), queries.point.shape[1]
    many = lambda part: None if part is None else part[:, :, :count]
    size = None if answer.size is None else answer.size[:, :count]
    return Answer(answer.params[:, :, :count], many(answer.states), size)


def _one_by_one(name: str) -> Method:
    """The method of a model that answers the queries of one series."""

    def ask(model: AbstractModel, grids: Grid, queries: Queries, *, num_samples: int, keys: Key[Array, " batch"]):
        one = lambda grid, queries, key: getattr(model, name)(grid, queries, num_samples=num_samples, key=key)
        return jax.vmap(one)(grids, queries, keys)

    return ask


by_particles = _one_by_one("particle_forecast")
by_interpolation = _one_by_one("interpolate")
by_smoothing = _one_by_one("particle_interpolate")
by_posterior = _one_by_one("posterior_interpolate")

FORECASTS: dict[str, Method] = {"prior": by_prior, "particles": by_particles}
INTERPOLATIONS: dict[str, Method] = {"particles": by_smoothing, "posterior": by_posterior}


def find_forecast(model: AbstractModel, name: str | None) -> Method:
    """The way to forecast that is asked for; by the prior if none is."""
    return _find(FORECASTS, model, name or "prior")


def find_interpolation(model: AbstractModel, name: str | None) -> Method:
    """The way to interpolate that is asked for; the model's own if none is."""
    return by_interpolation if name is None else _find(INTERPOLATIONS, model, name)


def _find(methods: dict[str, Method], model: AbstractModel, name: str) -> Method:
    if name not in methods:
        raise SettingsError(f"the methods are {' and '.join(methods)}, but not {name!r}")
    if methods[name] is not by_prior and not isinstance(model, VSDN):
        raise SettingsError(f"method {name!r} is for vsdn-f and vsdn-s, which have a latent SDE with a posterior")
    return methods[name]
