"""Memories: h, all that a model keeps of past observations; it flows between observations and jumps at them."""

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
        """A copy whose unit i starts with time constant exp(log_span[i])."""


class LeakyFlow(AbstractFlow):
    """tanh N([h, clock]) − λ∘h, with learned rates λ ≥ 0 that start near zero."""

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
    """(1 − z)∘(tanh N([h, clock]) − h): bounded, and able to hold h indefinitely (z → 1)."""

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
    """The forward memory at each grid point, before (pre) and after (post) it takes in the observation there."""

    pre: Float[Array, "point hidden"]
    post: Float[Array, "point hidden"]
    untold: Float[Array, "point hidden"] | None = None  # pre updated with each observation, even if hidden; None: post
    whole: Float[Array, "point whole"] | None = None  # the whole of post, where the others hold only the shown part

    @property
    def arrived(self) -> Float[Array, "point hidden"]:
        """h updated with the observation at each point, even where that is hidden from the memory."""
        return self.post if self.untold is None else self.untold

    @property
    def onward(self) -> Float[Array, "*batch point whole"]:
        """The whole of h after each point, from which the memory continues."""
        return self.post if self.whole is None else self.whole


def tell(told: Bool[Array, ""] | None, pre: Array, arrived: Array) -> tuple[Array, Memory]:
    """h with which the memory continues from a point, and its `Memory` there; `told` False skips the observation."""
    if told is None:
        return arrived, Memory(pre, arrived)
    post = jnp.where(told, arrived, pre)
    return post, Memory(pre, post, arrived)


def clock_before(clock: Float[Array, "point clock"]) -> Float[Array, "point clock"]:
    """The clock at the start of the step to each point."""
    return jnp.concatenate([clock[:1], clock[:-1]])


class AbstractMemory(eqx.Module):
    """h: all that a model keeps of past observations. Computed along a grid at once, or step by step."""

    @abstractmethod
    def begin(self) -> Any:
        """The state before any observation."""

    @abstractmethod
    def move(self, state: Any, clock: Float[Array, " clock"], dt: Float[Array, ""]) -> Any:
        """The state after a step of length dt without observations; `clock` is that at the start of the step."""

    @abstractmethod
    def absorb(
        self, state: Any, y: Float[Array, " channel"], mask: Bool[Array, " channel"], clock: Float[Array, " clock"]
    ) -> Any:
        """The state updated with the observed entries of y."""

    @abstractmethod
    def hidden(self, state: Any) -> Float[Array, " hidden"]:
        """The h in a state."""

    def read(self, h: Float[Array, "*any hidden"]) -> Float[Array, "*any read"]:
        """The part of h that networks read."""
        return h

    def kept(self, h: Float[Array, "*any hidden"]) -> Foretold | None:
        """The prediction that h itself makes of each variable, by a keeper or a guess; None if it makes none."""
        return None

    @abstractmethod
    def before_rows(self, grid: Grid) -> Float[Array, "row hidden"]:
        """h just before each row, given the rows before it."""

    @abstractmethod
    def at_queries(self, grid: Grid, queries: Queries) -> Float[Array, "query hidden"]:
        """h at each query, given the observations before it."""


class AbstractFlowingMemory(AbstractMemory):
    """A memory that flows between observations and jumps at them; unobserved values are never read."""

    flow: eqx.AbstractVar[AbstractFlow]
    cell: eqx.AbstractVar[eqx.nn.GRUCell]
    initial: eqx.AbstractVar[Float[Array, " hidden"]]

    @abstractmethod
    def jump(
        self, h: Float[Array, " hidden"], y: Float[Array, " channel"], mask: Bool[Array, " channel"]
    ) -> Float[Array, " hidden"]:
        """h updated with the observed entries of y; unchanged if there are none."""

    def timed(self, h: Float[Array, " hidden"], clock: Float[Array, " clock"]) -> Float[Array, " hidden"]:
        """h with the known clocks set to `clock`, for memories that hold them."""
        return h

    def drift(
        self, h: Float[Array, " hidden"], clock: Float[Array, " clock"], dt: Float[Array, ""]
    ) -> Float[Array, " hidden"]:
        """h after an Euler step of its ODE."""
        return h + self.flow(h, clock) * dt

    def spread(self, num_rows: float, span: float) -> "AbstractFlowingMemory":
        """A copy whose units start with memory spans from one row and one unit of time (the first) to `num_rows` and
        `span` (the last), evenly spaced in the logarithm.

        A GRU's gates start half open: all is forgotten after a few rows, and no gradient shows what it would be needed
        for.
        """
        size, place = self.cell.hidden_size, np.linspace(0.0, 1.0, self.cell.hidden_size)
        log_rows = jnp.asarray(place * np.log(max(num_rows, 1.0)), self.initial.dtype)
        log_span = jnp.asarray(place * np.log(max(span, 1.0)), self.initial.dtype)
        hold = jnp.asarray(self.cell.bias).at[size : 2 * size].set(log_rows)  # bias of the gate that keeps h
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
        """The memory along the grid, given everything up to each point; it starts from `start`, or afresh."""

        @jax.checkpoint  # the backward pass stores only h
        def step(h, at):
            dt, clock, y, mask, told = at
            pre = self.drift(h, clock, dt)
            return tell(told, pre, self.jump(pre, y, mask))

        begin = self.begin() if start is None else start
        return jax.lax.scan(step, begin, (grid.dt, clock_before(grid.clock), grid.values, grid.mask, grid.told))[1]

    def show(self, h: Float[Array, "*any whole"]) -> Float[Array, "*any hidden"]:
        """The part of h that is used at a point; the rest is only needed to continue."""
        return h

    def branch(self, grid: Grid, memory: Memory, queries: Queries) -> Float[Array, "query hidden"]:
        """h at each query, branching off from the point before it; h_pre of the start where there is none."""
        flow = jax.vmap(self.drift)(memory.onward[queries.point], grid.clock[queries.point], queries.length)
        return jnp.where(queries.length[:, None] > 0, self.show(flow), memory.pre[queries.point])

    def before_rows(self, grid: Grid) -> Float[Array, "row hidden"]:
        return at_rows(self.forward(grid).pre, grid)

    def at_queries(self, grid: Grid, queries: Queries) -> Float[Array, "query hidden"]:
        return self.branch(grid, self.forward(grid), queries)


def make_moving(
    num_news: int, clock_size: int, hidden_size: int, width: int, *, flow: str, activation: str, key: PRNGKeyArray
) -> tuple[AbstractFlow, eqx.nn.GRUCell, Float[Array, " hidden"]]:
    """The trainable parts of an ODE-RNN: its flow, a cell with `num_news` inputs per row, and the initial h."""
    flow_key, cell_key, initial_key = jr.split(key, 3)
    moves = FLOWS[flow](hidden_size, clock_size, width, activation=activation, key=flow_key)
    initial = 0.1 * jr.normal(initial_key, (hidden_size,))  # at zero, N_init's first layer would not learn
    return moves, eqx.nn.GRUCell(num_news, hidden_size, key=cell_key), initial


class AbstractODERNN(AbstractFlowingMemory):
    """A flow of one's choice and a GRU cell; can also be run backward in time."""

    def take(
        self, h: Float[Array, " moving"], news: Float[Array, " news"], mask: Bool[Array, " channel"]
    ) -> Float[Array, " moving"]:
        """h updated by the cell with a row's input; unchanged if nothing was observed."""
        return jnp.where(mask.any(), self.cell(news, h), h)

    def read_along(self, memory: Memory) -> Memory:
        """The memory along a grid, as networks read it."""
        return jax.tree.map(self.read, memory._replace(whole=None))

    def backward(
        self, grid: Grid, start: Float[Array, " hidden"], *, next_row_only: bool = False
    ) -> Float[Array, "point hidden"]:
        """g(τ_k⁺): the memory of everything after each point, run backward in time from `start` beyond the last; or of
        the next row alone, as if the series ended there."""

        @jax.checkpoint
        def step(g, at):
            dt, clock, clock_before, y, mask = at
            later = jnp.where(mask.any(), self.begin(), g) if next_row_only else g
            return self.timed(self.drift(self.absorb(later, y, mask, clock), clock, dt), clock_before), g

        inputs = (grid.dt, grid.clock, clock_before(grid.clock), grid.values, grid.mask)
        return jax.lax.scan(step, start, inputs, reverse=True)[1]


class ODERNN(AbstractODERNN):
    """The memory of the paper: its cell receives [y∘m, m]."""

    flow: AbstractFlow
    cell: eqx.nn.GRUCell
    initial: Float[Array, " hidden"]

    def __init__(self, data_size: int, *sizes: int, flow: str, activation: str, key: PRNGKeyArray):
        """`sizes` are those of the clock, of h and of the flow's hidden layer."""
        parts = make_moving(2 * data_size, *sizes, flow=flow, activation=activation, key=key)
        self.flow, self.cell, self.initial = parts

    def jump(
        self, h: Float[Array, " hidden"], y: Float[Array, " channel"], mask: Bool[Array, " channel"]
    ) -> Float[Array, " hidden"]:
        return self.take(h, jnp.concatenate([jnp.where(mask, y, 0.0), mask.astype(h.dtype)]), mask)
