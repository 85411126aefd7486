"""The simple baselines: each variable's own mean, and its last value with a variance that grows with the gap."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from vsdn.grids.grid import Grid, Queries, last_seen
from vsdn.likelihoods import Likelihood
from vsdn.models.base import make_likelihood
from vsdn.models.pathless import AbstractPathless
from vsdn.settings import ModelSettings


class Mean(AbstractPathless):
    """N(0, 1) in the model's units: mean and standard deviation of the training part."""

    likelihood: Likelihood

    def begin(self, *, num_samples: int, key: PRNGKeyArray) -> tuple[()]:
        return ()

    def advance(self, state: tuple[()], clock: Float[Array, " clock"], dt: Float[Array, ""]) -> tuple[()]:
        return state

    def take(
        self,
        state: tuple[()],
        y: Float[Array, " channel"],
        mask: Bool[Array, " channel"],
        clock: Float[Array, " clock"],
    ) -> tuple[()]:
        return state

    def look(self, state: tuple[()], clock: Float[Array, " clock"]) -> Float[Array, "sample channel param"]:
        return self._everywhere(jnp.zeros(1, jnp.int32))[:, 0]

    def _everywhere(self, places: Int[Array, " query"]) -> Float[Array, "1 query channel 2"]:
        shape = (1, *places.shape, len(self.likelihood.families))
        return self.likelihood.with_moments(jnp.zeros(shape), jnp.ones(shape))

    def predict(self, grid: Grid, *, num_samples: int, key: PRNGKeyArray) -> Float[Array, "sample row channel param"]:
        return self._everywhere(grid.rows)

    def forecast(
        self, grid: Grid, queries: Queries, *, num_samples: int, key: PRNGKeyArray
    ) -> Float[Array, "sample query channel param"]:
        return self._everywhere(queries.point)


class Last(NamedTuple):
    """Each variable's last value, the time since it, and whether there was one."""

    value: Float[Array, " channel"]
    gap: Float[Array, " channel"]
    known: Bool[Array, " channel"]


class LastValue(AbstractPathless):
    """N(last value, a + b·gap), a and b learned for each variable; the variable's mean until it is first observed."""

    likelihood: Likelihood
    raw: Float[Array, "channel 2"]

    def _after(
        self, grid: Grid, point: Int[Array, " query"], length: Float[Array, " query"]
    ) -> Float[Array, "1 query channel 2"]:
        """The forecast `length` after a point, given the observations up to and including it."""
        last = last_seen(grid)[point]
        time = jnp.cumsum(grid.dt)
        gap = (time[point] + length)[:, None] - time[last]
        value = jnp.take_along_axis(grid.values, last, axis=0)
        return self._foretell(Last(value, gap, (last >= 0) & (point >= 0)[:, None]))[None]

    def _foretell(self, last: Last) -> Float[Array, "*any channel 2"]:
        start, slope = jax.nn.softplus(self.raw[:, 0]), jax.nn.softplus(self.raw[:, 1])
        mean = jnp.where(last.known, last.value, 0.0)
        variance = jnp.where(last.known, start + slope * last.gap, 1.0)
        return self.likelihood.with_moments(mean, variance)

    def begin(self, *, num_samples: int, key: PRNGKeyArray) -> Last:
        zero = jnp.zeros_like(self.raw[:, 0])
        return Last(zero, zero, jnp.zeros(zero.shape, bool))

    def advance(self, state: Last, clock: Float[Array, " clock"], dt: Float[Array, ""]) -> Last:
        return state._replace(gap=state.gap + dt)

    def take(
        self, state: Last, y: Float[Array, " channel"], mask: Bool[Array, " channel"], clock: Float[Array, " clock"]
    ) -> Last:
        return Last(jnp.where(mask, y, state.value), jnp.where(mask, 0.0, state.gap), state.known | mask)

    def look(self, state: Last, clock: Float[Array, " clock"]) -> Float[Array, "sample channel param"]:
        return self._foretell(state)[None]

    def predict(self, grid: Grid, *, num_samples: int, key: PRNGKeyArray) -> Float[Array, "sample row channel param"]:
        return self._after(grid, grid.rows - 1, grid.dt[grid.rows])

    def forecast(
        self, grid: Grid, queries: Queries, *, num_samples: int, key: PRNGKeyArray
    ) -> Float[Array, "sample query channel param"]:
        nothing_before = queries.length <= 0
        return self._after(grid, jnp.where(nothing_before, -1, queries.point), queries.length)


def make_mean(data_size: int, speeds: tuple[float, ...], settings: ModelSettings, *, key: PRNGKeyArray) -> Mean:
    """The per-variable mean; nothing is learned beyond the scaler."""
    return Mean(make_likelihood(data_size, settings))


def make_last_value(
    data_size: int, speeds: tuple[float, ...], settings: ModelSettings, *, key: PRNGKeyArray
) -> LastValue:
    """The last value carried forward, with a variance to be learned."""
    return LastValue(make_likelihood(data_size, settings), jnp.full((data_size, 2), -3.0))
