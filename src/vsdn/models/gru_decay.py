"""GRU with exponential decay (GRU-D, Che et al. 2018): one step per row, in exact time, without a grid."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from vsdn.grids.grid import Grid, Queries, last_seen
from vsdn.memories.memory import AbstractMemory
from vsdn.models.recurrent import Recurrent, make_recurrent
from vsdn.settings import ModelSettings


class Fading(NamedTuple):
    """h just after the last row, and each variable's last value and the time since it."""

    h: Float[Array, " hidden"]
    last: Float[Array, " channel"]
    gap: Float[Array, " channel"]


class FadingMemory(AbstractMemory):
    """h decays with the time since each variable was last observed, and so do their last values, toward the mean.

    Until a variable is first observed its time counts from the start of the series.
    """

    cell: eqx.nn.GRUCell
    hidden_rate: eqx.nn.Linear
    value_rate: Float[Array, " channel"]
    value_bias: Float[Array, " channel"]
    initial: Float[Array, " hidden"]

    def __init__(self, data_size: int, clock_size: int, hidden_size: int, *, key: PRNGKeyArray):
        cell_key, hidden_key, value_key, initial_key = jr.split(key, 4)
        self.cell = eqx.nn.GRUCell(2 * data_size + clock_size, hidden_size, key=cell_key)
        self.hidden_rate = eqx.nn.Linear(data_size, hidden_size, key=hidden_key)
        self.value_rate = jr.uniform(value_key, (data_size,))
        self.value_bias = jnp.zeros(data_size)
        self.initial = 0.1 * jr.normal(initial_key, (hidden_size,))

    def fade(self, h: Float[Array, " hidden"], gap: Float[Array, " channel"]) -> Float[Array, " hidden"]:
        """γ_h∘h with γ_h = exp(−max(0, W gap + b)), where gap is the time since each variable was last observed."""
        return jnp.exp(-jax.nn.relu(self.hidden_rate(gap))) * h

    def fill(
        self, last: Float[Array, "*row channel"], gap: Float[Array, "*row channel"]
    ) -> Float[Array, "*row channel"]:
        """γ_y∘last with γ_y = exp(−max(0, w∘gap + b)): stands in for a missing value, whose mean is 0 in our units."""
        return jnp.exp(-jax.nn.relu(self.value_rate * gap + self.value_bias)) * last

    def begin(self) -> Fading:
        zero = jnp.zeros_like(self.value_rate)
        return Fading(self.initial, zero, zero)

    def move(self, state: Fading, clock: Float[Array, " clock"], dt: Float[Array, ""]) -> Fading:
        return state._replace(gap=state.gap + dt)

    def absorb(
        self, state: Fading, y: Float[Array, " channel"], mask: Bool[Array, " channel"], clock: Float[Array, " clock"]
    ) -> Fading:
        filled = jnp.where(mask, y, self.fill(state.last, state.gap))
        taken = self.cell(jnp.concatenate([filled, mask.astype(filled.dtype), clock]), self.hidden(state))
        h = jnp.where(mask.any(), taken, state.h)
        return Fading(h, jnp.where(mask, y, state.last), jnp.where(mask, 0.0, state.gap))

    def hidden(self, state: Fading) -> Float[Array, " hidden"]:
        return self.fade(state.h, state.gap)

    def after_rows(self, grid: Grid) -> Float[Array, "state hidden"]:
        """h at the start, and updated with each row; only h needs the recurrence."""
        mask, clock = grid.mask[grid.rows], grid.clock[grid.rows]
        last, gap = _last_values(grid, grid.rows - 1, jnp.cumsum(grid.dt)[grid.rows])
        y = jnp.where(mask, grid.values[grid.rows], self.fill(last, gap))
        inputs = jnp.concatenate([y, mask.astype(y.dtype), clock], axis=1)

        def step(h, at):
            gap, inputs, any_seen = at
            h = jnp.where(any_seen, self.cell(inputs, self.fade(h, gap)), h)
            return h, h

        states = jax.lax.scan(step, self.initial, (gap, inputs, mask.any(axis=1)))[1]
        return jnp.concatenate([self.initial[None], states])

    def before_rows(self, grid: Grid) -> Float[Array, "row hidden"]:
        gap = _last_values(grid, grid.rows - 1, jnp.cumsum(grid.dt)[grid.rows])[1]
        return jax.vmap(self.fade)(self.after_rows(grid)[:-1], gap)

    def at_queries(self, grid: Grid, queries: Queries) -> Float[Array, "query hidden"]:
        point = jnp.where(queries.length > 0, queries.point, -1)  # −1: nothing comes before
        time = jnp.cumsum(grid.dt)[queries.point] + queries.length
        rows_before = jnp.where(point >= 0, jnp.cumsum(grid.mask.any(axis=1))[point], 0)
        return jax.vmap(self.fade)(self.after_rows(grid)[rows_before], _last_values(grid, point, time)[1])


def _last_values(
    grid: Grid, point: Int[Array, " query"], time: Float[Array, " query"]
) -> tuple[Float[Array, "query channel"], Float[Array, "query channel"]]:
    """Each variable's last value up to and including a point (0 before its first), and the time from it to `time`."""
    last = jnp.where((point >= 0)[:, None], last_seen(grid)[point], -1)
    value = jnp.where(last >= 0, jnp.take_along_axis(grid.values, last, axis=0), 0.0)
    return value, time[:, None] - jnp.where(last >= 0, jnp.cumsum(grid.dt)[last], 0.0)


def make_gru_decay(
    data_size: int, speeds: tuple[float, ...], settings: ModelSettings, *, key: PRNGKeyArray
) -> Recurrent:
    """A GRU-D with fresh weights."""
    memory_key, decoder_key = jr.split(key)
    memory = FadingMemory(data_size, 2 * len(speeds), settings.sizes[0], key=memory_key)
    return make_recurrent(memory, data_size, settings, decoder_key=decoder_key)
