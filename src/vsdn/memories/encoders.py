"""The two encoders of the paper (filter and smoother): the context that drives the posterior drift."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from vsdn.grids.grid import Grid, last_row
from vsdn.memories.memory import AbstractODERNN, Memory


class AbstractEncoder(eqx.Module):
    """Computes the context that drives the posterior drift at each step."""

    @abstractmethod
    def __call__(self, grid: Grid, memory: Memory, after: Any) -> Float[Array, "step read"]:
        """The posterior's context at each step; `after` summarises what lies beyond the end of the grid, `memory` is
        the forward memory as networks read it."""

    @abstractmethod
    def guide(self, grid: Grid, memory: Memory) -> Float[Array, "step read"]:
        """The context of a proposal that sees only the next row; after the last row it equals the prior's."""

    @abstractmethod
    def beyond(self) -> Any:
        """The summary of the data beyond the end of a series, where there is none."""

    @abstractmethod
    def pass_back(self, grid: Grid, after: Any) -> Any:
        """The summary of the data beyond the grid's first point, given `after`, that beyond its last."""


class Filter(AbstractEncoder):
    """h_pre + h_post at the point where the step arrives, if something was observed there; else the prior's context."""

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
    """h_post + g at the point where the step begins; g summarises everything after it."""

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
