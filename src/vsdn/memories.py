"""Memories: h, all that a model keeps of what it has seen; it flows between observations and jumps at them."""

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from vsdn.grids import Grid, Queries, at_rows
from vsdn.keepers import AbstractKeeper, Foretold, squash
from vsdn.nets import ACTIVATIONS


class AbstractFlow(eqx.Module):
    """dh/dt between observations."""

    @abstractmethod
    def __call__(self, h: Float[Array, " hidden"], clock: Float[Array, " clock"]) -> Float[Array, " hidden"]:
        """The velocity of the memory."""

    @abstractmethod
    def spread(self, log_span: Float[Array, " hidden"]) -> "AbstractFlow":
        """The flow whose units begin to hold what they know for e^log_span each, where something else fades it."""


class LeakyFlow(AbstractFlow):
    """tanh N([h, clock]) − λ∘h, with rates λ ≥ 0 that are learned and begin near zero."""

    net: eqx.nn.MLP
    raw_rate: Float[Array, " hidden"]

    def __init__(self, hidden_size: int, clock_size: int, width: int, *, activation: str, key: PRNGKeyArray):
        self.net = eqx.nn.MLP(hidden_size + clock_size, hidden_size, width, 1, ACTIVATIONS[activation], key=key)
        self.raw_rate = jnp.full(hidden_size, -3.0)

    def __call__(self, h: Float[Array, " hidden"], clock: Float[Array, " clock"]) -> Float[Array, " hidden"]:
        return jnp.tanh(self.net(jnp.concatenate([h, clock]))) - jax.nn.softplus(self.raw_rate) * h

    def spread(self, log_span: Float[Array, " hidden"]) -> "LeakyFlow":
        rate = jnp.exp(-log_span)
        return eqx.tree_at(lambda flow: flow.raw_rate, self, jnp.log(jnp.expm1(rate)))


class GRUFlow(AbstractFlow):
    """(1 − z)∘(tanh N([h, clock]) − h): bounded, and able to hold h as long as it likes (z → 1)."""

    net: eqx.nn.MLP
    gate: eqx.nn.Linear

    def __init__(self, hidden_size: int, clock_size: int, width: int, *, activation: str, key: PRNGKeyArray):
        net_key, gate_key = jr.split(key)
        self.net = eqx.nn.MLP(hidden_size + clock_size, hidden_size, width, 1, ACTIVATIONS[activation], key=net_key)
        self.gate = eqx.nn.Linear(hidden_size + clock_size, hidden_size, key=gate_key)

    def __call__(self, h: Float[Array, " hidden"], clock: Float[Array, " clock"]) -> Float[Array, " hidden"]:
        inputs = jnp.concatenate([h, clock])
        return jax.nn.sigmoid(self.gate(inputs)) * (jnp.tanh(self.net(inputs)) - h)

    def spread(self, log_span: Float[Array, " hidden"]) -> "GRUFlow":
        return eqx.tree_at(lambda flow: flow.gate.bias, self, -log_span)


FLOWS: dict[str, type[LeakyFlow] | type[GRUFlow]] = {"leaky": LeakyFlow, "gru": GRUFlow}


class Memory(NamedTuple):
    """The forward memory at each grid point, before (pre) and after (post) it took what was seen there."""

    pre: Float[Array, "point hidden"]
    post: Float[Array, "point hidden"]
    untold: Float[Array, "point hidden"] | None = None  # as if it had been told of everything that was seen there

    @property
    def arrived(self) -> Float[Array, "point hidden"]:
        """h after it took what was seen at each point, be it for this once alone."""
        return self.post if self.untold is None else self.untold


class AbstractMemory(eqx.Module):
    """h: all that a model keeps of what it has seen. Along a grid at once, or step by step with a state of its own."""

    @abstractmethod
    def begin(self) -> Any:
        """The state before anything was seen."""

    @abstractmethod
    def move(self, state: Any, clock: Float[Array, " clock"], dt: Float[Array, ""]) -> Any:
        """The state after a step from where the clock shows this, with nothing seen."""

    @abstractmethod
    def absorb(
        self, state: Any, y: Float[Array, " channel"], mask: Bool[Array, " channel"], clock: Float[Array, " clock"]
    ) -> Any:
        """The state after it took the seen entries of y."""

    @abstractmethod
    def hidden(self, state: Any) -> Float[Array, " hidden"]:
        """h of a state."""

    def kept(self, h: Float[Array, "*any hidden"]) -> Foretold | None:
        """What h foretells of each variable by what it keeps as it was seen; None if it keeps nothing so."""
        return None

    @abstractmethod
    def before_rows(self, grid: Grid) -> Float[Array, "row hidden"]:
        """h just before each row, of the rows before it."""

    @abstractmethod
    def at_queries(self, grid: Grid, queries: Queries) -> Float[Array, "query hidden"]:
        """h at each query, of what was seen before it."""


class AbstractFlowingMemory(AbstractMemory):
    """A memory that flows between observations and jumps at them; unseen values are never read."""

    flow: eqx.AbstractVar[AbstractFlow]
    cell: eqx.AbstractVar[eqx.nn.GRUCell]
    initial: eqx.AbstractVar[Float[Array, " hidden"]]

    @abstractmethod
    def jump(
        self, h: Float[Array, " hidden"], y: Float[Array, " channel"], mask: Bool[Array, " channel"]
    ) -> Float[Array, " hidden"]:
        """h after it took the seen entries of y; unchanged where none was seen."""

    def drift(
        self, h: Float[Array, " hidden"], clock: Float[Array, " clock"], dt: Float[Array, ""]
    ) -> Float[Array, " hidden"]:
        """h after an Euler step of its ODE."""
        return h + self.flow(h, clock) * dt

    def spread(self, num_rows: float, span: float) -> "AbstractFlowingMemory":
        """The memory whose units begin to hold what they took for a row and a unit of time (the first of them) up to so
        many rows and this span (the last), evenly by the logarithm.

        The gates of a GRU begin half open: all is forgotten after a few rows, and no gradient tells what for.
        """
        size, place = self.cell.hidden_size, np.linspace(0.0, 1.0, self.cell.hidden_size)
        log_rows = jnp.asarray(place * np.log(max(num_rows, 1.0)), self.initial.dtype)
        log_span = jnp.asarray(place * np.log(max(span, 1.0)), self.initial.dtype)
        hold = jnp.asarray(self.cell.bias).at[size : 2 * size].set(log_rows)  # of the gate that keeps h
        return eqx.tree_at(lambda m: (m.cell.bias, m.flow), self, (hold, self.flow.spread(log_span)))

    def begin(self) -> Float[Array, " hidden"]:
        return self.initial

    def move(
        self, state: Float[Array, " hidden"], clock: Float[Array, " clock"], dt: Float[Array, ""]
    ) -> Float[Array, " hidden"]:
        return self.drift(state, clock, dt)

    def absorb(
        self,
        state: Float[Array, " hidden"],
        y: Float[Array, " channel"],
        mask: Bool[Array, " channel"],
        clock: Float[Array, " clock"],
    ) -> Float[Array, " hidden"]:
        return self.jump(state, y, mask)

    def hidden(self, state: Float[Array, " hidden"]) -> Float[Array, " hidden"]:
        return state

    def forward(self, grid: Grid, start: Float[Array, " hidden"] | None = None) -> Memory:
        """The memory along the grid, of everything up to each point; it begins as `start`, or afresh."""
        clock = jnp.concatenate([grid.clock[:1], grid.clock[:-1]])  # of the point where the step begins

        @jax.checkpoint  # the backward pass keeps h alone
        def step(h, at):
            dt, clock, y, mask, told = at
            pre = self.drift(h, clock, dt)
            arrived = self.jump(pre, y, mask)
            if told is None:
                return arrived, Memory(pre, arrived)
            post = jnp.where(told, arrived, pre)
            return post, Memory(pre, post, arrived)

        begin = self.initial if start is None else start
        return jax.lax.scan(step, begin, (grid.dt, clock, grid.values, grid.mask, grid.told))[1]

    def branch(self, grid: Grid, memory: Memory, queries: Queries) -> Float[Array, "query hidden"]:
        """h at each query, a side branch from the point before it; h_pre of the start where nothing comes before."""
        flow = jax.vmap(self.drift)(memory.post[queries.point], grid.clock[queries.point], queries.length)
        return jnp.where(queries.length[:, None] > 0, flow, memory.pre[queries.point])

    def before_rows(self, grid: Grid) -> Float[Array, "row hidden"]:
        return at_rows(self.forward(grid).pre, grid)

    def at_queries(self, grid: Grid, queries: Queries) -> Float[Array, "query hidden"]:
        return self.branch(grid, self.forward(grid), queries)


class ODERNN(AbstractFlowingMemory):
    """The memory of the paper: a flow of one's choice, and a GRU cell that takes [y∘m, m].

    With a keeper (ours), what it keeps is the end of h, and the cell takes [squash(error)∘m, m, kept]: the error of
    what it foretold, in deviations where it foretells those too.
    """

    flow: AbstractFlow
    cell: eqx.nn.GRUCell
    initial: Float[Array, " hidden"]
    keeper: AbstractKeeper | None

    def __init__(
        self,
        data_size: int,
        clock_size: int,
        hidden_size: int,
        width: int,
        *,
        flow: str,
        activation: str,
        keeper: AbstractKeeper | None = None,
        key: PRNGKeyArray,
    ):
        flow_key, cell_key, initial_key = jr.split(key, 3)
        self.keeper, num_kept = keeper, 0 if keeper is None else keeper.size
        self.flow = FLOWS[flow](hidden_size, clock_size, width, activation=activation, key=flow_key)
        self.cell = eqx.nn.GRUCell(2 * data_size + num_kept, hidden_size, key=cell_key)
        moving = 0.1 * jr.normal(initial_key, (hidden_size,))  # at zero, N_init's first layer would not learn
        self.initial = jnp.concatenate([moving, jnp.zeros(num_kept, moving.dtype)])

    def kept(self, h: Float[Array, "*any hidden"]) -> Foretold | None:
        return None if self.keeper is None else self.keeper.foretell(h[..., -self.keeper.size :])

    def drift(
        self, h: Float[Array, " hidden"], clock: Float[Array, " clock"], dt: Float[Array, ""]
    ) -> Float[Array, " hidden"]:
        if self.keeper is None:
            return super().drift(h, clock, dt)
        moving, kept = h[: -self.keeper.size], h[-self.keeper.size :]
        return jnp.concatenate([super().drift(moving, clock, dt), self.keeper.after(kept, dt)])

    def jump(
        self, h: Float[Array, " hidden"], y: Float[Array, " channel"], mask: Bool[Array, " channel"]
    ) -> Float[Array, " hidden"]:
        if self.keeper is None:
            taken = self.cell(jnp.concatenate([jnp.where(mask, y, 0.0), mask.astype(h.dtype)]), h)
            return jnp.where(mask.any(), taken, h)
        moving, kept = h[: -self.keeper.size], h[-self.keeper.size :]
        y = jnp.where(mask, y, 0.0)
        news = jnp.where(mask, squash(self.keeper.foretell(kept).error(y)), 0.0)
        taken = self.cell(jnp.concatenate([news, mask.astype(h.dtype), kept]), moving)
        return jnp.concatenate([jnp.where(mask.any(), taken, moving), self.keeper.take(kept, y, mask)])

    def backward(
        self, grid: Grid, start: Float[Array, " hidden"], *, next_row_only: bool = False
    ) -> Float[Array, "point hidden"]:
        """g(τ_k⁺): the memory of everything after each point, run back in time from `start` beyond the last; or of the
        next row alone, as if the series ended there."""

        @jax.checkpoint
        def step(g, at):
            dt, clock, y, mask = at
            later = jnp.where(mask.any(), self.initial, g) if next_row_only else g
            return self.drift(self.jump(later, y, mask), clock, dt), g

        inputs = (grid.dt, grid.clock, grid.values, grid.mask)
        return jax.lax.scan(step, start, inputs, reverse=True)[1]
