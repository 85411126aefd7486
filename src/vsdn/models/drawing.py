"""Draws whole series from an online model: each predicted value is sampled and taken in as if it had been observed."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from vsdn.grids.grid import Grid
from vsdn.likelihoods import Likelihood
from vsdn.particles import POOR, effective_size, either, systematic


@runtime_checkable
class Stepping(Protocol):
    """The methods that a model must offer; `vsdn.models.base.AbstractOnline` documents them."""

    likelihood: Any

    def begin(self, *, num_samples: int, key: PRNGKeyArray) -> Any: ...
    def advance(self, state: Any, clock: Array, dt: Array) -> Any: ...
    def take(self, state: Any, y: Array, mask: Array, clock: Array) -> Any: ...
    def look(self, state: Any, clock: Array) -> Array: ...


class _Point(NamedTuple):
    """A point of the grid, with the clock of the one before it."""

    number: Int[Array, "*point"]
    dt: Float[Array, "*point"]
    before: Float[Array, "*point clock"]
    clock: Float[Array, "*point clock"]
    y: Float[Array, "*point channel"]
    mask: Bool[Array, "*point channel"]
    asked: Bool[Array, "*point"]


def draw_series(model: Stepping, grid: Grid, *, num_particles: int, key: PRNGKeyArray) -> Float[Array, "row channel"]:
    """Joint values at every row, including rows with nothing observed: those of one of many particles, which are
    weighted by the observed rows and resampled when few of them carry most of the weight."""
    level = jnp.full(num_particles, -jnp.log(num_particles), grid.dt.dtype)
    begin_key, step_key, last_key = jr.split(key, 3)

    def step(carry: tuple[Any, Array], point: _Point) -> tuple[tuple[Any, Array], tuple[Array, Array]]:
        states, log_weights = carry
        draw_key, choice_key = jr.split(jr.fold_in(step_key, point.number))
        one = lambda state, key: _cross(model, state, point, key)
        states, values, log_prob = jax.vmap(one)(states, jr.split(draw_key, num_particles))
        log_weights = jax.nn.log_softmax(log_weights + log_prob)
        poor = effective_size(log_weights) < POOR * num_particles
        chosen = jnp.where(poor, systematic(log_weights, key=choice_key), jnp.arange(num_particles, dtype=jnp.int32))
        states = jax.tree.map(lambda part: part[chosen], states)
        return (states, jnp.where(poor, level, log_weights)), (values, chosen)

    begin = jax.vmap(lambda key: model.begin(num_samples=1, key=key))(jr.split(begin_key, num_particles))
    (_, log_weights), history = jax.lax.scan(step, (begin, level), _points(grid))
    last = jr.categorical(last_key, log_weights).astype(jnp.int32)
    return _trace(*history, last)[grid.rows]


def _points(grid: Grid) -> _Point:
    number = jnp.arange(grid.dt.shape[0])
    before = jnp.concatenate([grid.clock[:1], grid.clock[:-1]])
    asked = jnp.zeros(number.shape, bool).at[grid.rows].set(True)
    return _Point(number, grid.dt, before, grid.clock, grid.values, grid.mask, asked)


def _cross(
    model: Stepping, state: Any, point: _Point, key: PRNGKeyArray
) -> tuple[Any, Float[Array, " channel"], Float[Array, ""]]:
    """One particle at the next point: its state, the values it draws there, and the log-density of the observation."""
    likelihood: Likelihood = model.likelihood
    moved = either(point.dt > 0, model.advance(state, point.before, point.dt), state)
    params = model.look(moved, point.clock)[0]
    seen = point.mask.any()
    log_prob = jnp.sum(jnp.where(point.mask, likelihood.log_prob(params, point.y), 0.0))
    told = model.take(moved, point.y, point.mask, point.clock)
    values = likelihood.sample(jnp.where(seen, model.look(told, point.clock)[0], params), key=key)
    drawn = model.take(moved, values, jnp.ones_like(point.mask), point.clock)
    return either(seen, told, either(point.asked, drawn, moved)), values, log_prob


def _trace(
    values: Float[Array, "point particle channel"], chosen: Int[Array, "point particle"], last: Int[Array, ""]
) -> Float[Array, "point channel"]:
    """The values along the ancestry of one of the final particles."""

    def step(later: Array, at: tuple[Array, Array]) -> tuple[Array, Array]:
        values, chosen = at
        return chosen[later], values[chosen[later]]

    return jax.lax.scan(step, last, (values, chosen), reverse=True)[1]
