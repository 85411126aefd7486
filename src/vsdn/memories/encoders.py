"""What the posterior drift is driven by: the two encoders of the paper."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from vsdn.grids.grid import Grid, last_row
from vsdn.memories.memory import AbstractODERNN, Memory


class AbstractEncoder(eqx.Module):
    """What the posterior drift of each step is driven by."""

    @abstractmethod
    def __call__(self, grid: Grid, memory: Memory, after: Any) -> Float[Array, "step read"]:
        """The posterior's context, one a step, for a grid beyond which lies what `after` knows; of the forward memory
        it is given what networks read."""

    @abstractmethod
    def guide(self, grid: Grid, memory: Memory) -> Float[Array, "step read"]:
        """The same of a posterior that knows no more than the next row; after the last row it is the prior's."""

    @abstractmethod
    def beyond(self) -> Any:
        """What is known beyond the end of a series."""

    @abstractmethod
    def pass_back(self, grid: Grid, after: Any) -> Any:
        """What is known beyond the first point of a grid, beyond which lies what `after` knows."""


class Filter(AbstractEncoder):
    """h_pre + h_post of the point at which the step arrives, if something was seen there; else the prior's context."""

    def __call__(self, grid: Grid, memory: Memory, after: tuple[()]) -> Float[Array, "step read"]:
        arrives = grid.mask[1:].any(axis=1, keepdims=True)
        return jnp.where(arrives, memory.pre[1:] + memory.arrived[1:], memory.post[:-1])

    def guide(self, grid: Grid, memory: Memory) -> Float[Array, "step read"]:
        return self(grid, memory, ())

    def beyond(self) -> tuple[()]:
        return ()

    def pass_back(self, grid: Grid, after: tuple[()]) -> tuple[()]:
        return ()


class Smoother(AbstractEncoder):
    """h_post + g of the point at which the step begins: g knows everything after it."""

    backward: AbstractODERNN

    def __call__(self, grid: Grid, memory: Memory, after: Float[Array, " hidden"]) -> Float[Array, "step read"]:
        return memory.post[:-1] + self.backward.read(self.backward.backward(grid, after)[:-1])

    def guide(self, grid: Grid, memory: Memory) -> Float[Array, "step read"]:
        context = self.backward.read(self.backward.backward(grid, self.backward.begin(), next_row_only=True))
        before_last = jnp.arange(grid.dt.shape[0] - 1, dtype=jnp.int32) < last_row(grid)[-1]
        return memory.post[:-1] + jnp.where(before_last[:, None], context[:-1], 0.0)

    def beyond(self) -> Float[Array, " hidden"]:
        return self.backward.begin()

    def pass_back(self, grid: Grid, after: Float[Array, " hidden"]) -> Float[Array, " hidden"]:
        return self.backward.backward(grid, after)[0]
