"""The Euler–Maruyama loop: latent paths, their KL and their log-ratio to the prior."""

import functools
from collections.abc import Callable
from statistics import NormalDist
from typing import NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.extend.random import threefry_2x32
from jaxtyping import Array, Float, Int, PRNGKeyArray, UInt32

Drift = Callable[[Float[Array, " latent"], Float[Array, " context"]], Float[Array, " latent"]]
Number = int | Int[Array, ""]
Noise = Callable[[Int[Array, ""]], Float[Array, " latent"]]  # the noise of the step with this number
TREE_DEPTH = 10  # halvings of a step, beyond which two query times share their noise


class Steps(NamedTuple):
    """The steps along which paths of one series are simulated; the same for all of its paths."""

    dt: Float[Array, " step"]
    prior: Float[Array, "step context"]  # the context of the prior drift
    posterior: Float[Array, "step context"]  # the context of the posterior drift
    diffusion: Float[Array, "step latent"]


class Path(NamedTuple):
    states: Float[Array, "point latent"]
    kl: Float[Array, ""]  # ½∫|u|² dt, the cost in the ELBO
    log_ratio: Float[Array, ""]  # log dQ/dP of this path, for the IWAE weights


def posterior_path(
    drift: Drift, x0: Float[Array, " latent"], steps: Steps, noise: Noise, *, prior_drift: Drift | None = None
) -> Path:
    """A path of the posterior SDE with its KL and log-ratio to the prior SDE; both share `drift` by default."""
    prior_drift = drift if prior_drift is None else prior_drift

    @jax.checkpoint  # the backward pass stores only states: no activations, no noise
    def step(carry, at):
        x, kl, log_ratio = carry
        number, (dt, prior, posterior, diffusion) = at
        dw = jnp.sqrt(dt) * noise(number)
        drift_q, drift_g = drift(x, posterior), prior_drift(x, prior)
        u = (drift_q - drift_g) / diffusion  # Girsanov kernel
        cost = 0.5 * jnp.sum(u**2) * dt
        x = x + drift_q * dt + diffusion * dw
        return (x, kl + cost, log_ratio + cost + jnp.sum(u * dw)), x

    zero = jnp.zeros((), x0.dtype)
    (_, kl, log_ratio), states = jax.lax.scan(step, (x0, zero, zero), (jnp.arange(steps.dt.shape[0]), steps))
    return Path(jnp.concatenate([x0[None], states]), kl, log_ratio)


def prior_path(drift: Drift, x0: Float[Array, " latent"], steps: Steps, noise: Noise) -> Float[Array, "point latent"]:
    """The states of a path of the prior SDE."""

    @jax.checkpoint
    def step(x, at):
        number, (dt, prior, _, diffusion) = at
        x = x + drift(x, prior) * dt + diffusion * jnp.sqrt(dt) * noise(number)
        return x, x

    states = jax.lax.scan(step, x0, (jnp.arange(steps.dt.shape[0]), steps))[1]
    return jnp.concatenate([x0[None], states])


@runtime_checkable
class SplitDrift(Protocol):
    """A drift whose context part can be computed before the path is simulated."""

    def embed(self, context: Float[Array, " context"]) -> Float[Array, " width"]: ...

    def __call__(self, x: Float[Array, " latent"], embedded: Float[Array, " width"]) -> Float[Array, " latent"]: ...


def posterior_paths(
    drift: SplitDrift, x0: Float[Array, "path latent"], steps: Steps, *, key: PRNGKeyArray, first_step: Number = 0
) -> Path:
    """Independent paths of the posterior SDE, each from its own x0; noise is numbered from `first_step` on."""
    seed, embedded = path_seed(key), embed(drift, steps)
    walk = lambda x0, path: posterior_path(drift, x0, embedded, path_noise(seed, path, x0, first_step))
    return jax.vmap(walk)(x0, jnp.arange(x0.shape[0]))


def prior_paths(
    drift: SplitDrift, x0: Float[Array, "path latent"], steps: Steps, *, key: PRNGKeyArray
) -> Float[Array, "path point latent"]:
    """The states of independent paths of the prior SDE, each from its own x0."""
    seed, embedded = path_seed(key), embed(drift, steps._replace(posterior=steps.prior))
    walk = lambda x0, path: prior_path(drift, x0, embedded, path_noise(seed, path, x0))
    return jax.vmap(walk)(x0, jnp.arange(x0.shape[0]))


def embed(drift: SplitDrift, steps: Steps) -> Steps:
    """The steps with embedded contexts: one matrix product for all steps, outside the loop and once per series."""
    prior = jax.vmap(drift.embed)(steps.prior)
    posterior = prior if steps.posterior is steps.prior else jax.vmap(drift.embed)(steps.posterior)
    return steps._replace(prior=prior, posterior=posterior)


def path_seed(key: PRNGKeyArray) -> UInt32[Array, "2"]:
    """The seed from which `noise_at` draws, for any kind of key."""
    return jr.bits(key, (2,), jnp.uint32)


def path_noise(
    seed: UInt32[Array, "2"], path: Int[Array, ""], like: Float[Array, " latent"], first_step: Number = 0
) -> Noise:
    """The noise of one of a series' paths, by step number."""
    return lambda number: noise_at(seed, path, first_step + number, like.shape[0]).astype(like.dtype)


def noise_at(
    seed: UInt32[Array, "2"], path: Int[Array, ""], number: Int[Array, ""], latent_size: int
) -> Float[Array, " latent"]:
    """Standard normals for one step of one path: a function of its numbers, so that more steps, paths or series do not
    change it. Rounded to 2¹⁶ levels, four per 64 random bits: six times faster on a CPU than exact normals."""
    groups = -(-latent_size // 4)
    step, place = jnp.full(groups, number, jnp.uint32), path * groups + jnp.arange(groups)
    bits = threefry_2x32(seed, jnp.concatenate([step, place.astype(jnp.uint32)]))
    levels = jnp.stack([bits >> 16, bits & 0xFFFF], axis=1).reshape(2, groups, 2).transpose(0, 2, 1)
    return quantile_table()[levels.ravel()[:latent_size]]


def quantile_table() -> Float[Array, "65536"]:
    """The normal quantiles that `noise_at` chooses from."""
    return jnp.asarray(_quantiles())


@functools.cache
def _quantiles() -> np.ndarray:
    """The normal quantiles at the midpoints of 2¹⁶ equal parts, scaled to variance one."""
    levels = (np.arange(2**16) + 0.5) / 2**16
    quantiles = np.array([NormalDist().inv_cdf(level) for level in levels.tolist()])
    return (quantiles / quantiles.std()).astype(np.float32)


def brownian(
    length: Float[Array, ""],
    point: Int[Array, ""],
    max_step: Float[Array, ""],
    noise: Noise,
    bridge_key: PRNGKeyArray,
) -> Float[Array, " latent"]:
    """W(τ + length) − W(τ) from grid point τ = `point` on: a whole step of Δt uses its noise, a part of one its bridge.
    The same time always gets the same value, whatever else is asked for."""
    share = length / max_step
    over = share > 1.0  # a branch may be up to one and a half steps long
    number = jnp.where(over, point + 1, point)
    part = bridge(jnp.where(over, share - 1.0, share), noise(number), jr.fold_in(bridge_key, number))
    return jnp.sqrt(max_step) * (part + jnp.where(over, noise(point), 0.0))


def bridge(t: Float[Array, ""], end: Float[Array, " latent"], key: PRNGKeyArray) -> Float[Array, " latent"]:
    """W(t) of a Brownian path on [0, 1] with W(1) = end, by repeated halving: a function of t for a given key."""

    def halve(level, carry):
        left, width, at_left, at_right, node = carry
        eps = jr.normal(jr.fold_in(key, node), end.shape)
        middle = 0.5 * (at_left + at_right) + 0.5 * jnp.sqrt(width) * eps
        right = t >= left + 0.5 * width
        left = jnp.where(right, left + 0.5 * width, left)
        ends = jnp.where(right, middle, at_left), jnp.where(right, at_right, middle)
        return left, 0.5 * width, *ends, 2 * node + right.astype(node.dtype)

    zero, one = jnp.zeros((), end.dtype), jnp.ones((), end.dtype)
    start = (zero, one, jnp.zeros_like(end), end, jnp.ones((), jnp.int32))
    left, width, at_left, at_right, node = jax.lax.fori_loop(0, TREE_DEPTH, halve, start)
    share = jnp.clip((t - left) / width, 0.0, 1.0)
    eps = jr.normal(jr.fold_in(key, node), end.shape)
    return at_left + share * (at_right - at_left) + jnp.sqrt(width * share * (1 - share)) * eps


def bridge_step(
    ends: tuple[Float[Array, " latent"], Float[Array, " latent"]],
    dt: Float[Array, ""],
    length: Float[Array, ""],
    diffusion: Float[Array, " latent"],
    key: PRNGKeyArray,
) -> Float[Array, " latent"]:
    """A state inside an Euler step with both ends known, `length` after the first: the drift is constant along the step
    and cancels. The same time always gets the same value."""
    left, right = ends
    share = length / jnp.where(dt > 0, dt, 1.0)
    return left + share * (right - left) + diffusion * jnp.sqrt(dt) * bridge(share, jnp.zeros_like(left), key)
