"""Online updates and forecasts of one series: a small immutable state, and the same cost for every update."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from vsdn.models.base import AbstractOnline


class Gap(NamedTuple):
    """The interval from the last observation to the next or to a query: `whole` steps of Δt, then one of `length`."""

    whole: Int[Array, ""]
    length: Float[Array, ""]
    max_step: Float[Array, ""]
    phase: Float[Array, " period"]  # 2πt/P at the gap's start, for each known period
    phase_step: Float[Array, " period"]  # and its change over Δt

    def clock(self, step: Int[Array, ""] | Float[Array, ""]) -> Float[Array, " clock"]:
        """The clock `step` steps of Δt after the start of the gap."""
        angle = self.phase + jnp.asarray(step, self.phase.dtype) * self.phase_step
        return jnp.concatenate([jnp.sin(angle), jnp.cos(angle)])

    @property
    def end(self) -> Float[Array, " clock"]:
        """The clock at the end of the gap."""
        return self.clock(self.whole.astype(self.length.dtype) + self.length / self.max_step)


def update(
    model: AbstractOnline, state: Any, gap: Gap, y: Float[Array, " channel"], mask: Bool[Array, " channel"]
) -> Any:
    """The state moved across the gap and updated with the observation at its end."""
    state = _march(model, state, gap)
    arrived = model.advance(state, gap.clock(gap.whole), gap.length)
    moved = jax.tree.map(lambda new, old: jnp.where(gap.length > 0, new, old), arrived, state)
    return model.take(moved, y, mask, gap.end)


def forecast(model: AbstractOnline, state: Any, gap: Gap) -> Float[Array, "sample channel param"]:
    """The predictive mixture at the end of the gap: its parameters, one component per path."""
    state = _march(model, state, gap)
    there = model.branch(state, gap.clock(gap.whole), gap.length, gap.max_step)
    return model.look(there, gap.end)


def _march(model: AbstractOnline, state: Any, gap: Gap) -> Any:
    """The state after the whole steps of the gap."""
    walk = lambda number, state: model.advance(state, gap.clock(number), gap.max_step)
    return jax.lax.fori_loop(0, gap.whole, walk, state)
