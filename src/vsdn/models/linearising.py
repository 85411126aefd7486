"""Linearised interpolation for models with a memory: an update of a value by how it would change later predictions.

For online models whose memory holds the dependence over time, in any number of dimensions: an iterated extended Kalman
update of the prediction by the next rows, exact where the model is linear and Gaussian.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from vsdn.grids.grid import Grid, Queries, within
from vsdn.likelihoods import Likelihood
from vsdn.models.base import AbstractOnline, Answer
from vsdn.models.trying import LATER_ROWS, along, some_at_once, visit_later
from vsdn.particles import either

MOST_PATHS = 4  # latent paths; they differ little where the memory holds the dependence
ROUNDS = 2  # linearisations, each at the result of the one before
FAR = 30.0  # standard deviations of the prediction, beyond which linearising is useless


class Moments(NamedTuple):
    """The mean and variance of each variable."""

    mean: Float[Array, "*any channel"]
    variance: Float[Array, "*any channel"]


class Later(NamedTuple):
    """The predictions of the next rows, each from all rows before it; unobserved or missing entries are masked."""

    moments: Moments  # (row, channel)
    values: Float[Array, "row channel"]
    mask: Bool[Array, "row channel"]


def linearise(model: AbstractOnline, grid: Grid, queries: Queries, *, num_samples: int, key: PRNGKeyArray) -> Answer:
    """The distribution of a measurement at each query, given every row before it and the next rows after it."""
    states = along(model, grid, key, num_samples=min(num_samples, MOST_PATHS))
    places, everything = within(grid, queries), jnp.ones(len(model.likelihood.families), bool)

    def one(point: Array, length: Array, clock: Array) -> Array:
        before = jax.tree.map(lambda part: part[point], states)
        here = either(length > 0, model.branch(before, grid.clock[point], length, queries.max_step), before)
        foretold = model.look(here, clock)
        go_on = lambda y: foretell_rows(model, grid, model.take(here, y, everything, clock), point, length)
        prior = moments_of(model.likelihood, foretold)
        return reshape(model.likelihood, foretold, prior, update(prior, go_on))

    params = some_at_once(one, (places.point, places.length, places.clock))
    return Answer(params.swapaxes(0, 1))


def update(prior: Moments, go_on: Callable[[Float[Array, " channel"]], Later]) -> Moments:
    """The distribution of a value predicted as `prior`, given later rows; `go_on` predicts these from the value.

    Everything is measured in standard deviations of the prior, so that no precision is below one. A later value with a
    residual above FAR moves it no more than one with a residual of FAR.
    """
    spread = jnp.sqrt(prior.variance)
    identity = jnp.eye(len(spread), dtype=spread.dtype)

    def foretell(z: Float[Array, " channel"]) -> tuple[Float[Array, "row channel"], Later]:
        later = go_on(prior.mean + spread * z)
        return later.moments.mean, later

    def look(_, found: tuple[Array, Array]) -> tuple[Array, Array]:
        z, _ = found
        slope, later = jax.jacfwd(foretell, has_aux=True)(z)
        weight = jnp.where(later.mask, later.moments.variance**-0.5, 0.0)
        error = (weight * (later.values - later.moments.mean)).ravel()
        slope = (weight[..., None] * slope).reshape(len(error), len(z))
        far = FAR * jnp.sqrt(1.0 + jnp.sum(slope**2, axis=1))  # by the prediction made before the value
        precision = identity + slope.T @ slope
        return jnp.linalg.solve(precision, slope.T @ jnp.clip(error + slope @ z, -far, far)), precision

    z, precision = jax.lax.fori_loop(0, ROUNDS, look, (jnp.zeros_like(spread), identity))
    return Moments(prior.mean + spread * z, prior.variance * jnp.diagonal(jnp.linalg.inv(precision)))


def foretell_rows(
    model: AbstractOnline, grid: Grid, state: Any, point: Int[Array, ""], length: Float[Array, ""]
) -> Later:
    """Predictions of the next rows from a state `length` after a point, until all variables were observed, but of no
    more than LATER_ROWS."""
    empty = jnp.zeros((LATER_ROWS, grid.values.shape[1]), grid.values.dtype)
    nothing = Later(Moments(empty, jnp.ones_like(empty)), empty, empty > 0)

    def note(later: Later, row: Array, said: Array, y: Array, mask: Array) -> Later:
        one = Later(moments_of(model.likelihood, said), y, mask)
        return jax.tree.map(lambda all, one: all.at[row].set(one), later, one)  # unseen: the next overwrites it

    return visit_later(
        model, grid, state, point, length, nothing, note, is_enough=lambda later: later.mask.any(axis=0).all()
    )


def moments_of(likelihood: Likelihood, params: Float[Array, "sample channel param"]) -> Moments:
    """The moments of a mixture of equal components."""
    means = likelihood.mean(params)
    return Moments(jnp.mean(means, axis=0), jnp.mean(likelihood.variance(params), axis=0) + jnp.var(means, axis=0))


def reshape(
    likelihood: Likelihood, params: Float[Array, "sample channel param"], before: Moments, after: Moments
) -> Float[Array, "sample channel param"]:
    """The mixture with new moments: its components are shifted and scaled together."""
    narrower = after.variance / before.variance
    mean = after.mean + jnp.sqrt(narrower) * (likelihood.mean(params) - before.mean)
    return likelihood.with_moments(mean, narrower * likelihood.variance(params))
