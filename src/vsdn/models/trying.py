"""Importance-sampled interpolation for models with a memory: proposes a value, weights it by the likelihood of the next
rows.

For online models whose memory holds the dependence over time. The first proposal is the prediction; where the later
rows (the next five) are much more informative, the proposal moves in a few pilot rounds to where the weight is.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from vsdn.grids.grid import Grid, Queries, last_row, query_keys, within
from vsdn.likelihoods import Likelihood
from vsdn.models.base import AbstractOnline, Answer
from vsdn.particles import effective_size, either

QUERIES_AT_ONCE = 32
LATER_ROWS = 5  # how many later rows weight a value; these tell more than it does about those beyond
PILOTS = 2  # pilot rounds, each of half as many draws
ENOUGH = 0.1  # a pilot's weights are flattened until this share of its draws is effective


def try_values(model: AbstractOnline, grid: Grid, queries: Queries, *, num_samples: int, key: PRNGKeyArray) -> Answer:
    """The distribution of a measurement at each query, given every row. Each draw has a latent path of its own."""
    path_key, value_key = jr.split(key)
    count = num_samples if model.has_paths else 1  # without paths all draws share one state
    states = jax.vmap(lambda key: along(model, grid, key))(jr.split(path_key, count))
    places, everything = within(grid, queries), jnp.ones(len(model.likelihood.families), bool)

    def one(key: PRNGKeyArray, point: Array, length: Array, clock: Array) -> tuple[Array, Array]:
        def stand(path: Array) -> tuple[Any, Array]:
            before = jax.tree.map(lambda part: part[path, point], states)
            here = either(length > 0, model.branch(before, grid.clock[point], length, queries.max_step), before)
            return here, model.look(here, clock)[0]

        many = lambda part: jnp.broadcast_to(part, (num_samples, *part.shape[1:]))
        here, foretold = jax.tree.map(many, jax.vmap(stand)(jnp.arange(count)))

        def weigh(y: Array) -> Array:
            go_on = lambda here, y: foretell_later(model, grid, model.take(here, y, everything, clock), point, length)
            return jax.vmap(go_on)(jax.tree.map(lambda part: part[: len(y)], here), y)

        values, log_weights = seek(model.likelihood, foretold, weigh, key=key)
        return mixture_of(model.likelihood, values, log_weights), effective_size(log_weights)

    asked = (query_keys(queries, value_key), places.point, places.length, places.clock)
    params, size = some_at_once(one, asked)
    return Answer(params.swapaxes(0, 1), size=size)


def some_at_once(one: Callable, asked: tuple[Array, ...]) -> Any:
    """The results of `one` for each query, QUERIES_AT_ONCE at a time; padded, so that only one shape is compiled."""
    count = len(asked[0])
    size = min(count, QUERIES_AT_ONCE)
    filled = jnp.minimum(jnp.arange(-(-count // size) * size), count - 1)
    answers = jax.lax.map(lambda at: one(*at), tuple(part[filled] for part in asked), batch_size=size)
    return jax.tree.map(lambda part: part[:count], answers)


def look_again(
    model: AbstractOnline, grid: Grid, *, num_samples: int, key: PRNGKeyArray
) -> Float[Array, "sample row channel param"]:
    """The distribution of a repeated measurement at each row, by the memory updated with that row."""
    states = jax.tree.map(lambda part: part[grid.rows], along(model, grid, key, num_samples=num_samples))
    return jax.vmap(model.look, out_axes=1)(states, grid.clock[grid.rows])


def seek(
    likelihood: Likelihood, foretold: Float[Array, "sample channel param"], weigh: Any, *, key: PRNGKeyArray
) -> tuple[Float[Array, "sample channel"], Float[Array, " sample"]]:
    """Draws and log-weights for the density `foretold` times `weigh`; pilot rounds adapt the proposal."""
    half = -(-len(foretold) // 2)

    def draw(proposal: Array, key: PRNGKeyArray) -> tuple[Array, Array]:
        y = likelihood.sample(proposal, key=key)
        log_ratio = likelihood.log_prob(foretold[: len(y)], y) - likelihood.log_prob(proposal, y)
        return y, jax.nn.log_softmax(weigh(y) + jnp.sum(log_ratio, axis=1))

    def pilot(proposal: Array, key: PRNGKeyArray) -> tuple[Array, None]:
        return _follow(likelihood, *draw(proposal, key)), None

    key, pilot_key = jr.split(key)
    proposal = jax.lax.scan(pilot, foretold[:half], jr.split(pilot_key, PILOTS))[0]
    return draw(jnp.broadcast_to(proposal[0], foretold.shape), key)


def _follow(
    likelihood: Likelihood, y: Float[Array, "sample channel"], log_weights: Float[Array, " sample"]
) -> Float[Array, "sample channel param"]:
    """A proposal with the mean and the (widened) variance of draws whose weights are flattened until enough count."""

    def halve(_, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        power = 0.5 * (low + high)
        enough = effective_size(jax.nn.log_softmax(power * log_weights)) >= ENOUGH * len(y)
        return jnp.where(enough, power, low), jnp.where(enough, high, power)

    one = jnp.ones((), log_weights.dtype)
    power = jax.lax.fori_loop(0, 12, halve, (0 * one, 2 * one))[0]
    weights = jax.nn.softmax(jnp.minimum(power, 1.0) * log_weights)[:, None]
    mean = jnp.sum(weights * y, axis=0)
    variance = 1.5 * jnp.sum(weights * (y - mean) ** 2, axis=0)
    many = lambda part: jnp.broadcast_to(part, y.shape)
    return likelihood.with_moments(many(mean), many(variance))


def along(model: AbstractOnline, grid: Grid, key: PRNGKeyArray, *, num_samples: int = 1) -> Any:
    """The state at each point, updated with the observation there."""

    def step(state, at):
        dt, before, clock, y, mask = at
        moved = either(dt > 0, model.advance(state, before, dt), state)
        state = either(mask.any(), model.take(moved, y, mask, clock), moved)
        return state, state

    before = jnp.concatenate([grid.clock[:1], grid.clock[:-1]])
    inputs = (grid.dt, before, grid.clock, grid.values, grid.mask)
    return jax.lax.scan(step, model.begin(num_samples=num_samples, key=key), inputs)[1]


def foretell_later(
    model: AbstractOnline, grid: Grid, state: Any, point: Int[Array, ""], length: Float[Array, ""]
) -> Float[Array, ""]:
    """The log-density of the next LATER_ROWS rows after a point, from a state `length` after it."""

    def add(total: Array, _: Array, said: Array, y: Array, mask: Array) -> Array:
        return total + jnp.sum(jnp.where(mask, model.likelihood.log_prob(said[0], y), 0.0))

    return visit_later(model, grid, state, point, length, jnp.zeros((), grid.dt.dtype), add)


def visit_later(
    model: AbstractOnline,
    grid: Grid,
    state: Any,
    point: Int[Array, ""],
    length: Float[Array, ""],
    begin: Any,
    visit: Callable[[Any, Array, Array, Array, Array], Any],
    is_enough: Callable[[Any], Bool[Array, ""]] = lambda _: jnp.zeros((), bool),
) -> Any:
    """`begin` folded by `visit` over the points after `point`, from a state `length` after it, until LATER_ROWS rows
    were observed or `is_enough`. `visit` is given the row's number, its prediction, and the observation."""
    last = last_row(grid)[-1]

    def is_on(at: tuple) -> Bool[Array, ""]:
        number, row, _, made = at
        return (number <= last) & (row < LATER_ROWS) & ~is_enough(made)

    def step(at: tuple) -> tuple:
        number, row, state, made = at
        dt = grid.dt[number] - jnp.where(number == point + 1, length, 0.0)
        moved = either(dt > 0, model.advance(state, grid.clock[number - 1], dt), state)
        y, mask, clock = grid.values[number], grid.mask[number], grid.clock[number]
        made = visit(made, row, model.look(moved, clock), jnp.where(mask, y, 0.0), mask)
        taken = either(mask.any(), model.take(moved, y, mask, clock), moved)
        return number + 1, row + mask.any().astype(row.dtype), taken, made

    return jax.lax.while_loop(is_on, step, (point + 1, jnp.zeros_like(point), state, begin))[3]


def mixture_of(
    likelihood: Likelihood, values: Float[Array, "sample channel"], log_weights: Float[Array, " sample"]
) -> Float[Array, "sample channel param"]:
    """Weighted values as an equally weighted mixture of the same size, mean and variance (Liu & West 2001)."""
    weights, count = jnp.exp(log_weights)[:, None], len(values)
    mean = jnp.sum(weights * values, axis=0)
    variance = jnp.sum(weights * (values - mean) ** 2, axis=0)
    places = (jnp.arange(count, dtype=values.dtype) + 0.5) / count
    chosen = values[jnp.clip(jnp.searchsorted(jnp.cumsum(jnp.exp(log_weights)), places), 0, count - 1)]
    keep = (1 - effective_size(log_weights) ** -0.4) ** 0.5  # Silverman's rule for the width
    centre = mean + keep * (chosen - mean)
    return likelihood.with_moments(centre, jnp.broadcast_to(variance * (1 - keep**2), centre.shape))
