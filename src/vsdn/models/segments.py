"""The evidence of long series, segment by segment: memory use grows as the square root of the number of steps.

A segment is a grid on which memory and paths continue from the end of the one before. The backward pass stores what is
handed from segment to segment and recomputes each segment once.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from vsdn import fused
from vsdn.grids.grid import Grid
from vsdn.models.base import Evidence
from vsdn.models.vsdn import VSDN

Cut = Callable[[Int[Array, ""]], Grid]  # a batch's segment with this number


class Reached(NamedTuple):
    """The state at the end of the segments so far."""

    post: Float[Array, "batch hidden"]
    states: Float[Array, "batch path latent"]
    evidence: Evidence


def batch_evidence(model: VSDN, grids: Grid, *, num_samples: int, keys: Key[Array, " batch"]) -> Evidence:
    """`model.batch_evidence` (up to rounding), computed in √steps segments of √steps each."""
    num_steps = grids.dt.shape[1] - 1
    length = max(math.isqrt(num_steps), 1)
    numbers = jnp.arange(-(-num_steps // length))
    cut = lambda number: jax.vmap(lambda grid: cut_segment(grid, number, length))(grids)

    @jax.checkpoint  # the backward pass stores `Reached` and recomputes the segment
    def walk(reached: Reached, at: tuple[Int[Array, ""], Any]) -> tuple[Reached, None]:
        number, after = at
        return _walk(model, cut(number), reached, after, keys=keys, first_step=number * length), None

    start = _start(model, grids, num_samples)
    return jax.lax.scan(walk, start, (numbers, _pass_back(model, cut, numbers, len(keys))))[0].evidence


def cut_segment(grid: Grid, number: Int[Array, ""], length: int) -> Grid:
    """`length` steps of a series from point number · length on. The observation at that point belongs to the segment
    before, and no step arrives there; beyond the grid's end nothing moves."""
    place = jnp.arange(length + 1)
    index = number * length + place
    at = jnp.minimum(index, grid.dt.shape[0] - 1)
    own = ((place > 0) | (number == 0)) & (index == at)
    mask = grid.mask[at] & own[:, None]
    told = None if grid.told is None else grid.told[at]
    return Grid(jnp.where(own, grid.dt[at], 0.0), grid.values[at], mask, grid.clock[at], place, told)


def _start(model: VSDN, grids: Grid, num_samples: int) -> Reached:
    """The state before the first segment, without observations."""
    h0 = model.memory.begin()
    pre = jax.vmap(model.memory.drift, in_axes=(None, 0, 0))(h0, grids.clock[:, 0], grids.dt[:, 0])
    x0 = jax.vmap(model.initial)(model.memory.read(pre))
    nothing = jnp.zeros((len(x0), num_samples), x0.dtype)
    states = jnp.broadcast_to(x0[:, None], (*nothing.shape, x0.shape[1]))
    return Reached(jnp.broadcast_to(h0, (len(x0), *h0.shape)), states, Evidence(nothing, nothing, nothing))


def _pass_back(model: VSDN, cut: Cut, numbers: Int[Array, " segment"], batch: int) -> Any:
    """The encoder's summary of the data beyond the end of each segment."""

    @jax.checkpoint
    def step(after: Any, number: Int[Array, ""]) -> tuple[Any, Any]:
        return jax.vmap(model.encoder.pass_back)(cut(number), after), after

    beyond = jax.tree.map(lambda part: jnp.broadcast_to(part, (batch, *part.shape)), model.encoder.beyond())
    return jax.lax.scan(step, beyond, numbers, reverse=True)[1]


def _walk(
    model: VSDN, grids: Grid, reached: Reached, after: Any, *, keys: Key[Array, " batch"], first_step: Int[Array, ""]
) -> Reached:
    """The state after one more segment."""
    memory = jax.vmap(model.memory.forward)(grids, reached.post)
    read = model.memory.read_along(memory)
    context = jax.vmap(model.encoder)(grids, read, after)
    steps = jax.vmap(model.steps)(grids, read, context)
    everywhere = grids._replace(mask=jnp.ones_like(grids.mask))  # all states are needed, the last to continue
    paths = fused.posterior_paths(model.drift, reached.states, steps, everywhere, keys=keys, first_step=first_step)
    told = jax.vmap(model.weigh)(grids, memory.pre, paths)
    evidence = jax.tree.map(jnp.add, reached.evidence, told)
    return Reached(memory.onward[:, -1], paths.states[:, :, -1], evidence)
