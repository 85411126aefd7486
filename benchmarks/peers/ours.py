"""vsdn's own SDE loop, fused or as a scan."""

import os
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from peers.problem import Problem, Size
from vsdn import fused
from vsdn.grids.grid import Grid
from vsdn.nets import Drift
from vsdn.sde import Path, Steps


def make_drift(problem: Problem) -> Drift:
    width, hidden = problem.first_context.shape
    drift = Drift(len(problem.out), hidden, width, activation="tanh", key=jr.key(0))
    where = lambda d: (d.net.from_state.weight, d.net.from_context.weight, d.net.from_context.bias, d.net.out.weight)
    drift = eqx.tree_at(where, drift, tuple(map(jnp.asarray, problem[:4])))
    return eqx.tree_at(lambda d: (d.net.out.bias, d.raw_rate), drift, tuple(map(jnp.asarray, problem[4:6])))


def loss_of(paths: Path) -> jax.Array:
    return jnp.mean(paths.kl) + jnp.mean((paths.states[:, :, 0] - 1) ** 2)


def end_of(size: Size) -> Grid:
    """Grids with something to see at their end alone: the state that the loss asks for."""
    everywhere = lambda array: jnp.broadcast_to(array, (size.series, *array.shape))
    nothing = jnp.zeros((size.steps + 1, 1))
    seen = jnp.arange(size.steps + 1)[:, None] == size.steps
    return Grid(*map(everywhere, (nothing[:, 0], nothing, seen, nothing, jnp.array([size.steps], jnp.int32))))


def make(size: Size, problem: Problem, *, kernel: bool = True) -> Callable[[int], tuple]:
    """seed → (loss, gradients of weights, contexts and log-diffusion); `kernel=False` asks for the scan."""
    drift = make_drift(problem)
    inputs = tuple(map(jnp.asarray, (problem.posterior, problem.prior, problem.log_diffusion, problem.x0)))
    dt, grids = jnp.asarray(problem.dt), end_of(size)
    params, static = eqx.partition(drift, eqx.is_inexact_array)

    def loss(learned, seed):
        params, (posterior, prior, log_diffusion, x0) = learned
        drift = eqx.combine(params, static)
        steps, keys = Steps(dt, prior, posterior, jnp.exp(log_diffusion)), jr.split(jr.key(seed), size.series)
        starts = jnp.broadcast_to(x0[:, None], (size.series, size.paths, size.latent))
        return loss_of(fused.posterior_paths(drift, starts, steps, grids, keys=keys))

    os.environ["VSDN_KERNEL"] = "on" if kernel else "off"
    step = jax.jit(jax.value_and_grad(loss))
    run = lambda seed: jax.block_until_ready(step((params, inputs), np.uint32(seed)))
    run(0)  # compiled as asked
    os.environ["VSDN_KERNEL"] = "on"
    return run
