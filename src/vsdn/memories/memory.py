"""Memories: h, all that a model keeps of what it has seen; it flows between observations and jumps at them."""

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from vsdn.grids.grid import Grid, Queries, at_rows
from vsdn.memories.keepers import Foretold
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
    whole: Float[Array, "point whole"] | None = None  # post with all that is kept, if the others show a part of it

    @property
    def arrived(self) -> Float[Array, "point hidden"]:
        """h after it took what was seen at each point, be it for this once alone."""
        return self.post if self.untold is None else self.untold

    @property
    def onward(self) -> Float[Array, "*batch point whole"]:
        """h after each point, all of it: what goes on from there."""
        return self.post if self.whole is None else self.whole


def tell(told: Bool[Array, ""] | None, pre: Array, arrived: Array) -> tuple[Array, Memory]:
    """How h goes on from a point, where it may be told of what was seen or not, and what it is there."""
    if told is None:
        return arrived, Memory(pre, arrived)
    post = jnp.where(told, arrived, pre)
    return post, Memory(pre, post, arrived)


def clock_before(clock: Float[Array, "point clock"]) -> Float[Array, "point clock"]:
    """The clock at the point where the step to each begins."""
    return jnp.concatenate([clock[:1], clock[:-1]])


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

    def read(self, h: Float[Array, "*any hidden"]) -> Float[Array, "*any read"]:
        """What networks read of h."""
        return h

    def kept(self, h: Float[Array, "*any hidden"]) -> Foretold | None:
        """What h foretells of each variable itself, by what it keeps as it was seen or by a guess; None if nothing."""
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

    def timed(self, h: Float[Array, " hidden"], clock: Float[Array, " clock"]) -> Float[Array, " hidden"]:
        """h where the known clocks show this."""
        return h

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
        return self.jump(self.timed(state, clock), y, mask)

    def hidden(self, state: Float[Array, " hidden"]) -> Float[Array, " hidden"]:
        return state

    def forward(self, grid: Grid, start: Float[Array, " hidden"] | None = None) -> Memory:
        """The memory along the grid, of everything up to each point; it begins as `start`, or afresh."""

        @jax.checkpoint  # the backward pass keeps h alone
        def step(h, at):
            dt, clock, y, mask, told = at
            pre = self.drift(h, clock, dt)
            return tell(told, pre, self.jump(pre, y, mask))

        begin = self.begin() if start is None else start
        return jax.lax.scan(step, begin, (grid.dt, clock_before(grid.clock), grid.values, grid.mask, grid.told))[1]

    def show(self, h: Float[Array, "*any whole"]) -> Float[Array, "*any hidden"]:
        """What is looked at of h; what else it keeps is there to go on from."""
        return h

    def branch(self, grid: Grid, memory: Memory, queries: Queries) -> Float[Array, "query hidden"]:
        """h at each query, a side branch from the point before it; h_pre of the start where nothing comes before."""
        flow = jax.vmap(self.drift)(memory.onward[queries.point], grid.clock[queries.point], queries.length)
        return jnp.where(queries.length[:, None] > 0, self.show(flow), memory.pre[queries.point])

    def before_rows(self, grid: Grid) -> Float[Array, "row hidden"]:
        return at_rows(self.forward(grid).pre, grid)

    def at_queries(self, grid: Grid, queries: Queries) -> Float[Array, "query hidden"]:
        return self.branch(grid, self.forward(grid), queries)


def make_moving(
    num_news: int, clock_size: int, hidden_size: int, width: int, *, flow: str, activation: str, key: PRNGKeyArray
) -> tuple[AbstractFlow, eqx.nn.GRUCell, Float[Array, " hidden"]]:
    """What moves in an ODE-RNN: its flow, the cell that takes so many numbers of a row, and what h begins as."""
    flow_key, cell_key, initial_key = jr.split(key, 3)
    moves = FLOWS[flow](hidden_size, clock_size, width, activation=activation, key=flow_key)
    initial = 0.1 * jr.normal(initial_key, (hidden_size,))  # at zero, N_init's first layer would not learn
    return moves, eqx.nn.GRUCell(num_news, hidden_size, key=cell_key), initial


class AbstractODERNN(AbstractFlowingMemory):
    """A flow of one's choice and a GRU cell, which can be run back in time, too."""

    def take(
        self, h: Float[Array, " moving"], news: Float[Array, " news"], mask: Bool[Array, " channel"]
    ) -> Float[Array, " moving"]:
        """h after the cell took the news of a row; unchanged where nothing was seen."""
        return jnp.where(mask.any(), self.cell(news, h), h)

    def read_along(self, memory: Memory) -> Memory:
        """What networks read of the memory along a grid."""
        return jax.tree.map(self.read, memory._replace(whole=None))

    def backward(
        self, grid: Grid, start: Float[Array, " hidden"], *, next_row_only: bool = False
    ) -> Float[Array, "point hidden"]:
        """g(τ_k⁺): the memory of everything after each point, run back in time from `start` beyond the last; or of the
        next row alone, as if the series ended there."""

        @jax.checkpoint
        def step(g, at):
            dt, clock, clock_before, y, mask = at
            later = jnp.where(mask.any(), self.begin(), g) if next_row_only else g
            return self.timed(self.drift(self.absorb(later, y, mask, clock), clock, dt), clock_before), g

        inputs = (grid.dt, grid.clock, clock_before(grid.clock), grid.values, grid.mask)
        return jax.lax.scan(step, start, inputs, reverse=True)[1]


class ODERNN(AbstractODERNN):
    """The memory of the paper: its cell takes [y∘m, m]."""

    flow: AbstractFlow
    cell: eqx.nn.GRUCell
    initial: Float[Array, " hidden"]

    def __init__(self, data_size: int, *sizes: int, flow: str, activation: str, key: PRNGKeyArray):
        """With the `sizes` of the clock, of h and of the flow's layer."""
        parts = make_moving(2 * data_size, *sizes, flow=flow, activation=activation, key=key)
        self.flow, self.cell, self.initial = parts

    def jump(
        self, h: Float[Array, " hidden"], y: Float[Array, " channel"], mask: Bool[Array, " channel"]
    ) -> Float[Array, " hidden"]:
        return self.take(h, jnp.concatenate([jnp.where(mask, y, 0.0), mask.astype(h.dtype)]), mask)
