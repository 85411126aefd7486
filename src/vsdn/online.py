"""A filter that goes with the data: a small immutable state, and the same cost at every update."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from vsdn.models.vsdn import VSDN
from vsdn.sde import brownian, path_noise, path_seed


class OnlineState(NamedTuple):
    """One series just after its last observation: its memory, its latent paths, and how many steps they took."""

    post: Float[Array, " hidden"]
    states: Float[Array, "sample latent"]
    num_steps: Int[Array, ""]
    key: PRNGKeyArray


class Gap(NamedTuple):
    """From the last observation to the next or to a query: `whole` steps of Δt, then one of `length`."""

    whole: Int[Array, ""]
    length: Float[Array, ""]
    max_step: Float[Array, ""]
    phase: Float[Array, " period"]  # 2πt/P at the gap's start, for each known period
    phase_step: Float[Array, " period"]  # and how far it moves in Δt

    def clock(self, step: Int[Array, ""]) -> Float[Array, " clock"]:
        angle = self.phase + step * self.phase_step
        return jnp.concatenate([jnp.sin(angle), jnp.cos(angle)])


def init(model: VSDN, *, num_samples: int, key: PRNGKeyArray) -> OnlineState:
    """The state at the start of a series, before anything was seen."""
    x0 = model.initial(model.memory.initial)
    states = jnp.broadcast_to(x0, (num_samples, x0.shape[0]))
    return OnlineState(model.memory.initial, states, jnp.zeros((), jnp.int32), key)


def update(
    model: VSDN, state: OnlineState, gap: Gap, y: Float[Array, " channel"], mask: Bool[Array, " channel"]
) -> OnlineState:
    """The state after it crossed the gap and took what was seen at its end."""
    state = _march(model, state, gap)
    arrived = _step(model, state, gap.clock(gap.whole), gap.length)
    moved = jax.tree.map(lambda new, old: jnp.where(gap.length > 0, new, old), arrived, state)
    return moved._replace(post=model.memory.jump(moved.post, y, mask))


def forecast(model: VSDN, state: OnlineState, gap: Gap) -> Float[Array, "sample channel param"]:
    """The mixture that foretells the end of the gap: its parameters, one component a path."""
    state = _march(model, state, gap)
    clock = gap.clock(gap.whole)

    def branch(x, path):
        noise = path_noise(path_seed(state.key), path, x)
        dw = brownian(gap.length, state.num_steps, gap.max_step, noise, jr.fold_in(state.key, path))
        return model.euler(x, state.post, clock, gap.length, dw)

    states = jax.vmap(branch)(state.states, jnp.arange(len(state.states)))
    pre = model.memory.drift(state.post, clock, gap.length)
    return model.decode(states[:, None], pre[None])[:, 0]


def _march(model: VSDN, state: OnlineState, gap: Gap) -> OnlineState:
    """The state after the whole steps of the gap."""
    walk = lambda number, state: _step(model, state, gap.clock(number), gap.max_step)
    return jax.lax.fori_loop(0, gap.whole, walk, state)


def _step(model: VSDN, state: OnlineState, clock: Float[Array, " clock"], dt: Float[Array, ""]) -> OnlineState:
    """The state one step on, with nothing seen."""

    def move(x, path):
        eps = path_noise(path_seed(state.key), path, x)(state.num_steps)
        return model.euler(x, state.post, clock, dt, jnp.sqrt(dt) * eps)

    states = jax.vmap(move)(state.states, jnp.arange(len(state.states)))
    return OnlineState(model.memory.drift(state.post, clock, dt), states, state.num_steps + 1, state.key)
