"""Particle filter and smoother of a latent SDE: exact in the limit of many particles.

Forward, weighted states follow a proposal that may see the next row; the weights correct for the proposal. Backward,
whole paths are drawn through them (Godsill et al. 2004), each step by its likelihood under the prior.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jax.nn import logsumexp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from vsdn.sde import Drift, Steps, noise_at, path_noise, path_seed, prior_path

POOR = 0.5  # particles are resampled below this effective share
FORWARD, BACKWARD = 0xFFFF_FFFF, 0xFFFF_FFFE  # fold-in numbers that no path uses


class Cloud(NamedTuple):
    """Weighted states; the weights sum to one, and their logarithms are stored."""

    states: Float[Array, "*point particle latent"]
    log_weights: Float[Array, "*point particle"]


class Filtered(NamedTuple):
    """The particles at each point, given the rows up to and including it."""

    cloud: Cloud
    ahead: Float[Array, "point particle latent"]  # equally likely states that have not seen the next row
    log_lik: Float[Array, ""]  # an estimate whose exponential is unbiased
    size: Float[Array, " point"]  # the effective number of particles at the last row


class _Going(NamedTuple):
    cloud: Cloud
    ahead: Float[Array, "particle latent"]
    size: Float[Array, ""]


Score = Callable[[Float[Array, " latent"], Any], Float[Array, ""]]  # log-density of a row, given the state


def either(which: Bool[Array, ""], new: Any, old: Any) -> Any:
    """The state `new` if `which`, else `old`, leaf by leaf."""
    return jax.tree.map(lambda new, old: jnp.where(which, new, old), new, old)


def effective_size(log_weights: Float[Array, " particle"]) -> Float[Array, ""]:
    """The effective number of particles, 1 / Σw²."""
    return jnp.exp(-logsumexp(2 * log_weights))


def systematic(log_weights: Float[Array, " particle"], *, key: PRNGKeyArray) -> Int[Array, " particle"]:
    """Indices by systematic resampling: each as often as its weight says, to within one; one uniform number in all."""
    count = log_weights.shape[0]
    places = (jnp.arange(count, dtype=log_weights.dtype) + jr.uniform(key, dtype=log_weights.dtype)) / count
    total = jnp.cumsum(jnp.exp(log_weights))
    return jnp.clip(jnp.searchsorted(total / total[-1], places), 0, count - 1)


def equal(cloud: Cloud, *, key: PRNGKeyArray) -> Float[Array, "particle latent"]:
    """Equally likely states resampled from the cloud, as many as it has."""
    return cloud.states[systematic(cloud.log_weights, key=key)]


def _weigh(cloud: Cloud, gain: Float[Array, " particle"]) -> tuple[Cloud, Float[Array, ""]]:
    """The cloud updated with the log-densities of an observation, and the log of their weighted mean."""
    log_weights = cloud.log_weights + gain
    total = logsumexp(log_weights)
    return Cloud(cloud.states, log_weights - total), total


def filter_particles(
    drift: Drift,
    score: Score,
    x0: Float[Array, "particle latent"],
    steps: Steps,
    rows: Any,
    seen: Bool[Array, " point"],
    *,
    key: PRNGKeyArray,
) -> Filtered:
    """Particles along the points of one series; `rows` holds what `score` takes at each, `steps` are embedded.

    The proposal is the posterior of the steps. Since it may see the next row, `ahead` does not use it.
    """
    count, choice_key = x0.shape[0], jr.fold_in(key, FORWARD)
    seed, path = path_seed(key), jnp.arange(count)
    level = jnp.full(count, -jnp.log(count), x0.dtype)
    noise = jax.vmap(lambda path, number: noise_at(seed, path, number, x0.shape[1]).astype(x0.dtype), (0, None))

    def look(going: _Going, row: Any, seen: Array, number: Array) -> tuple[_Going, Filtered]:
        """The state to continue from, and the particles, after weighting by a row (if there is one)."""
        gain = jnp.where(seen, jax.vmap(score, (0, None))(going.cloud.states, row), 0.0)
        weighed, total = _weigh(going.cloud, gain)
        size = effective_size(weighed.log_weights)
        chosen = equal(weighed, key=jr.fold_in(choice_key, number))
        after = _Going(either(size < POOR * count, Cloud(chosen, level), weighed), chosen, size)
        going = either(seen, after, going)  # not normalised between rows, so that no factor is lost
        return going, Filtered(weighed, going.ahead, jnp.where(seen, total, 0.0), going.size)

    def step(going: _Going, at: tuple) -> tuple[_Going, Filtered]:
        (cloud, ahead, size), (number, (dt, prior, posterior, diffusion), row, seen) = going, at
        dw = jnp.sqrt(dt) * noise(path, number)
        along = jax.vmap(drift, (0, None))
        drift_q, drift_g = along(cloud.states, posterior), along(cloud.states, prior)
        u = (drift_q - drift_g) / diffusion
        correction = -jnp.sum(0.5 * u**2 * dt + u * dw, axis=1)
        moved = Cloud(cloud.states + drift_q * dt + diffusion * dw, cloud.log_weights + correction)
        ahead = ahead + along(ahead, prior) * dt + diffusion * dw
        return look(_Going(moved, ahead, size), row, seen, number + 1)

    first, rest = jax.tree.map(lambda part: part[0], rows), jax.tree.map(lambda part: part[1:], rows)
    begin = _Going(Cloud(x0, level), x0, jnp.asarray(count, x0.dtype))
    going, start = look(begin, first, seen[0], jnp.zeros((), jnp.int32))
    _, known = jax.lax.scan(step, going, (jnp.arange(len(steps.dt), dtype=jnp.int32), steps, rest, seen[1:]))
    whole = jax.tree.map(lambda one, more: jnp.concatenate([one[None], more]), start, known)
    return whole._replace(log_lik=jnp.sum(whole.log_lik))


def smooth_particles(
    drift: Drift, filtered: Filtered, steps: Steps, last: Int[Array, ""], *, key: PRNGKeyArray
) -> Float[Array, "particle point latent"]:
    """Whole paths given every row, as many as there are particles; `last` is the point of the last row (−1: none),
    after which paths follow the prior."""
    cloud, choice_key = filtered.cloud, jr.fold_in(key, BACKWARD)
    along = jax.vmap(drift, (0, None))
    arrive = jax.vmap(lambda x, at: x + along(x, at.prior) * at.dt)(cloud.states[:-1], steps)
    arrive = jnp.concatenate([arrive, cloud.states[-1:]])
    pad = lambda part: jnp.concatenate([part, jnp.ones_like(part[:1])])
    spread = pad(steps.diffusion * jnp.sqrt(jnp.maximum(steps.dt, jnp.finfo(steps.dt.dtype).tiny))[:, None])

    def step(later: Float[Array, "particle latent"], at: tuple) -> tuple[Array, Array]:
        number, states, log_weights, arrive, spread = at
        apart = jnp.sum(((later[:, None] - arrive) / spread) ** 2, axis=-1)
        logits = log_weights - jnp.where(number < last, 0.5 * apart, 0.0)
        chosen = states[jr.categorical(jr.fold_in(choice_key, number), logits)]
        x = jnp.where(number > last, later, chosen)
        return x, x

    inputs = (jnp.arange(cloud.states.shape[0], dtype=jnp.int32), *cloud, arrive, spread)
    past = jax.lax.scan(step, cloud.states[0], inputs, reverse=True)[1].swapaxes(0, 1)
    return go_on(drift, past, steps, last, key=key)


def go_on(
    drift: Drift, past: Float[Array, "particle point latent"], steps: Steps, last: Int[Array, ""], *, key: PRNGKeyArray
) -> Float[Array, "particle point latent"]:
    """Paths unchanged up to the point `last`, and simulated by the prior from there; from their start if it is −1."""
    number, seed = jnp.arange(past.shape[1], dtype=jnp.int32), path_seed(key)
    beyond = steps._replace(dt=jnp.where(number[1:] > last, steps.dt, 0.0))

    def one(path: Array, states: Float[Array, "point latent"]) -> Float[Array, "point latent"]:
        start = states[jnp.maximum(last, 0)]
        future = prior_path(drift, start, beyond, path_noise(seed, path, start))
        return jnp.where((number <= last)[:, None], states, future)

    return jax.vmap(one)(jnp.arange(past.shape[0]), past)
