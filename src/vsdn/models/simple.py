"""The honest simple rivals: each variable's own mean, and its last value with a variance that grows with the gap."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from vsdn.grids import Grid, Queries, last_seen
from vsdn.likelihoods import Gaussian, Likelihood
from vsdn.models.base import AbstractPathless
from vsdn.settings import ModelSettings


def gaussian_params(mean: Float[Array, "*any"], variance: Float[Array, "*any"], floor: float) -> Float[Array, "*any 2"]:
    """The parameters of which `Gaussian` makes this mean and variance (no less than its floor allows)."""
    over = jnp.maximum(0.5 * jnp.log(variance) - jnp.log(floor), 1e-6)
    return jnp.stack([mean, jnp.log(floor) + over + jnp.log(-jnp.expm1(-over))], axis=-1)


class Mean(AbstractPathless):
    """N(0, 1) in the model's units: the mean and deviation of the training part."""

    likelihood: Likelihood
    floor: float = eqx.field(static=True)

    def _everywhere(self, count: int) -> Float[Array, "1 query channel 2"]:
        shape = (1, count, len(self.likelihood.families))
        return gaussian_params(jnp.zeros(shape), jnp.ones(shape), self.floor)

    def predict(self, grid: Grid, *, num_samples: int, key: PRNGKeyArray) -> Float[Array, "sample row channel param"]:
        return self._everywhere(grid.rows.shape[0])

    def forecast(
        self, grid: Grid, queries: Queries, *, num_samples: int, key: PRNGKeyArray
    ) -> Float[Array, "sample query channel param"]:
        return self._everywhere(queries.point.shape[0])


class LastValue(AbstractPathless):
    """N(last value, a + b·gap), a and b learned for each variable; the variable's mean until it is first seen."""

    likelihood: Likelihood
    raw: Float[Array, "channel 2"]
    floor: float = eqx.field(static=True)

    def _after(
        self, grid: Grid, point: Int[Array, " query"], length: Float[Array, " query"]
    ) -> Float[Array, "1 query channel 2"]:
        """The forecast `length` after a point, of what was seen up to and with it."""
        last = last_seen(grid)[point]
        time = jnp.cumsum(grid.dt)
        gap = (time[point] + length)[:, None] - time[last]
        value = jnp.take_along_axis(grid.values, last, axis=0)
        start, slope = jax.nn.softplus(self.raw[:, 0]), jax.nn.softplus(self.raw[:, 1])
        known = (last >= 0) & (point >= 0)[:, None]
        mean, variance = jnp.where(known, value, 0.0), jnp.where(known, start + slope * gap, 1.0)
        return gaussian_params(mean, variance, self.floor)[None]

    def predict(self, grid: Grid, *, num_samples: int, key: PRNGKeyArray) -> Float[Array, "sample row channel param"]:
        return self._after(grid, grid.rows - 1, grid.dt[grid.rows])

    def forecast(
        self, grid: Grid, queries: Queries, *, num_samples: int, key: PRNGKeyArray
    ) -> Float[Array, "sample query channel param"]:
        nothing_before = queries.length <= 0
        return self._after(grid, jnp.where(nothing_before, -1, queries.point), queries.length)


def make_mean(data_size: int, clock_size: int, settings: ModelSettings, *, key: PRNGKeyArray) -> Mean:
    """The per-variable mean; nothing to learn beyond the scaler."""
    return Mean(Likelihood((Gaussian(settings.scale_floor),) * data_size), settings.scale_floor)


def make_last_value(data_size: int, clock_size: int, settings: ModelSettings, *, key: PRNGKeyArray) -> LastValue:
    """The last value carried forward, with its variance to be learned."""
    likelihood = Likelihood((Gaussian(settings.scale_floor),) * data_size)
    return LastValue(likelihood, jnp.full((data_size, 2), -3.0), settings.scale_floor)
