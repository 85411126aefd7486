"""Particles: the exact filter and smoother of a latent SDE, as well as one pays for.

Forward, weighted states follow a guide that may know the next row, and path weights take back what the guide added.
Backward, whole paths are drawn through them (Godsill et al. 2004), each step by how likely the prior was to take it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jax.nn import logsumexp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from vsdn.sde import Drift, Steps, noise_at, path_noise, path_seed, prior_path

POOR = 0.5  # below this share of effective particles they are drawn anew
FORWARD, BACKWARD = 0xFFFF_FFFF, 0xFFFF_FFFE  # where a key's tree of paths has none


class Cloud(NamedTuple):
    """States with weights that sum to one; their logarithms are kept."""

    states: Float[Array, "*point particle latent"]
    log_weights: Float[Array, "*point particle"]


class Filtered(NamedTuple):
    """What particles know at each point, of the rows up to and with it."""

    cloud: Cloud
    ahead: Float[Array, "point particle latent"]  # equally likely states that know nothing of the next row
    log_lik: Float[Array, ""]  # an estimate; its exponential is unbiased
    size: Float[Array, " point"]  # the effective number of particles at the last row


class _Going(NamedTuple):
    cloud: Cloud
    ahead: Float[Array, "particle latent"]
    size: Float[Array, ""]


Score = Callable[[Float[Array, " latent"], Any], Float[Array, ""]]  # log-density of a row, given the state


def either(which: Bool[Array, ""], new: Any, old: Any) -> Any:
    """One of two states."""
    return jax.tree.map(lambda new, old: jnp.where(which, new, old), new, old)


def effective_size(log_weights: Float[Array, " particle"]) -> Float[Array, ""]:
    """1 / Σw²."""
    return jnp.exp(-logsumexp(2 * log_weights))


def systematic(log_weights: Float[Array, " particle"], *, key: PRNGKeyArray) -> Int[Array, " particle"]:
    """As many indices as weights, each as often as its weight says, within one: one uniform number places them all."""
    count = log_weights.shape[0]
    places = (jnp.arange(count, dtype=log_weights.dtype) + jr.uniform(key, dtype=log_weights.dtype)) / count
    total = jnp.cumsum(jnp.exp(log_weights))
    return jnp.clip(jnp.searchsorted(total / total[-1], places), 0, count - 1)


def equal(cloud: Cloud, *, key: PRNGKeyArray) -> Float[Array, "particle latent"]:
    """As many states, each as likely as the other."""
    return cloud.states[systematic(cloud.log_weights, key=key)]


def _weigh(cloud: Cloud, gain: Float[Array, " particle"]) -> tuple[Cloud, Float[Array, ""]]:
    """The cloud after what was seen, and the logarithm of how likely that was."""
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
    """Particles along the points of one series; `rows` is what `score` wants of each, `steps` are embedded.

    The guide is the posterior of the steps. It may know the next row, so that `ahead` goes without it.
    """
    count, choice_key = x0.shape[0], jr.fold_in(key, FORWARD)
    seed, path = path_seed(key), jnp.arange(count)
    level = jnp.full(count, -jnp.log(count), x0.dtype)
    noise = jax.vmap(lambda path, number: noise_at(seed, path, number, x0.shape[1]).astype(x0.dtype), (0, None))

    def look(going: _Going, row: Any, seen: Array, number: Array) -> tuple[_Going, Filtered]:
        """What goes on, and what is known, once a row was weighed (if there is one)."""
        gain = jnp.where(seen, jax.vmap(score, (0, None))(going.cloud.states, row), 0.0)
        weighed, total = _weigh(going.cloud, gain)
        size = effective_size(weighed.log_weights)
        chosen = equal(weighed, key=jr.fold_in(choice_key, number))
        after = _Going(either(size < POOR * count, Cloud(chosen, level), weighed), chosen, size)
        going = either(seen, after, going)  # between rows weights are not normalised, so that none is lost
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
    _, known = jax.lax.scan(step, going, (jnp.arange(len(steps.dt)), steps, rest, seen[1:]))
    whole = jax.tree.map(lambda one, more: jnp.concatenate([one[None], more]), start, known)
    return whole._replace(log_lik=jnp.sum(whole.log_lik))


def smooth_particles(
    drift: Drift, filtered: Filtered, steps: Steps, last: Int[Array, ""], *, key: PRNGKeyArray
) -> Float[Array, "particle point latent"]:
    """Whole paths that know every row, of which `last` is the point of the last (−1: there is none); after it they go
    on by the prior. As many as there are particles."""
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

    inputs = (jnp.arange(cloud.states.shape[0]), *cloud, arrive, spread)
    past = jax.lax.scan(step, cloud.states[0], inputs, reverse=True)[1].swapaxes(0, 1)
    return go_on(drift, past, steps, last, key=key)


def go_on(
    drift: Drift, past: Float[Array, "particle point latent"], steps: Steps, last: Int[Array, ""], *, key: PRNGKeyArray
) -> Float[Array, "particle point latent"]:
    """Paths as they are up to the point `last`, and by the prior from there; from their start if it is −1."""
    number, seed = jnp.arange(past.shape[1]), path_seed(key)
    beyond = steps._replace(dt=jnp.where(number[1:] > last, steps.dt, 0.0))

    def one(path: Array, states: Float[Array, "point latent"]) -> Float[Array, "point latent"]:
        start = states[jnp.maximum(last, 0)]
        future = prior_path(drift, start, beyond, path_noise(seed, path, start))
        return jnp.where((number <= last)[:, None], states, future)

    return jax.vmap(one)(jnp.arange(past.shape[0]), past)
