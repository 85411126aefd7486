"""A keeper that filters a level and a trend of each variable exactly, and tracks how large recent errors were."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from vsdn.memories.keepers.base import AbstractKeeper, Foretold, squash, stretch

LEAST_NOISE = 1e-4  # in standard deviations: rounding of the data
MOST_SURPRISE = 20.0  # cap on a squared standardised error
MOST_UNREST = 6.0  # scales a standard deviation by at most about 20, either way
NEARLY_ONE = 1 - 1e-5


class Parts(NamedTuple):
    """The state of `Trend` for each variable: means and covariance of level and slope, and the unrest."""

    level: Float[Array, "*any channel"]
    slope: Float[Array, "*any channel"]
    level_var: Float[Array, "*any channel"]
    covariance: Float[Array, "*any channel"]
    slope_var: Float[Array, "*any channel"]
    unrest: Float[Array, "*any channel"]  # log ratio of recent squared errors to predicted ones


class Trend(AbstractKeeper):
    """The Kalman filter of a level whose slope is an Ornstein–Uhlenbeck process, each variable by itself.

    dlevel = slope dt + roughness dW, dslope = −rate·slope dt + speed·√(2 rate) dW′, y = level + noise; all four are
    learned. Trends decay, levels stay, and the less the filter knows, the closer its prediction is to the prior, N(0, 1
    + range²), which is no narrower than the variable itself. Errors come in bursts, which a Kalman filter does not
    expect: the predicted standard deviation is multiplied by exp(unrest / 2), where the unrest rises with each error
    larger than predicted, falls with each smaller one, and decays over time.
    """

    log_rate: Float[Array, " channel"]
    log_speed: Float[Array, " channel"]  # the slope's stationary standard deviation
    log_roughness: Float[Array, " channel"]
    log_noise: Float[Array, " channel"]
    log_range: Float[Array, " channel"]
    log_gain: Float[Array, " channel"]  # rise of the unrest per unit of excess squared error
    log_calm: Float[Array, " channel"]  # rate at which the unrest decays

    def __init__(self, data_size: int):
        """Starts with rows a unit of time apart."""
        fill = lambda number: jnp.full(data_size, np.log(number))
        self.log_rate, self.log_speed, self.log_roughness = fill(0.3), fill(0.1), fill(0.03)
        self.log_noise, self.log_range, self.log_gain, self.log_calm = fill(0.05), fill(0.3), fill(0.1), fill(0.01)

    def paced(self, gap: Float[Array, ""]) -> "Trend":
        """A trend lasts for a few rows, and the process noise is set for this gap between rows."""
        log_gap = jnp.log(gap).astype(self.log_rate.dtype)
        faster = (self.log_rate - log_gap, self.log_speed - log_gap, self.log_calm - log_gap)
        where = lambda trend: (trend.log_rate, trend.log_speed, trend.log_calm, trend.log_roughness)
        return eqx.tree_at(where, self, (*faster, self.log_roughness - 0.5 * log_gap))

    @property
    def size(self) -> int:
        return len(Parts._fields) * len(self.log_rate)

    def after(self, kept: Float[Array, " kept"], dt: Float[Array, ""]) -> Float[Array, " kept"]:
        was, rate = self._unpack(kept), jnp.exp(self.log_rate)
        left, reach = jnp.exp(-rate * dt), -jnp.expm1(-rate * dt) / rate
        speed_var, rough_var = jnp.exp(2 * self.log_speed), jnp.exp(2 * self.log_roughness)
        level_noise = 2 * speed_var / rate**2 * _integrated(rate * dt) + rough_var * dt
        carried = was.covariance + reach * was.slope_var
        parts = Parts(
            level=was.level + reach * was.slope,
            slope=left * was.slope,
            level_var=was.level_var + reach * (was.covariance + carried) + level_noise,
            covariance=left * carried + speed_var * rate * reach**2,
            slope_var=left**2 * was.slope_var - speed_var * jnp.expm1(-2 * rate * dt),
            unrest=was.unrest * jnp.exp(-jnp.exp(self.log_calm) * dt),
        )
        return jnp.where(dt > 0, self._pack(parts), kept)

    def take(
        self, kept: Float[Array, " kept"], y: Float[Array, " channel"], mask: Bool[Array, " channel"]
    ) -> Float[Array, " kept"]:
        was, noise_var = self._unpack(kept), self._noise_var
        error, variance = y - was.level, was.level_var + noise_var
        surprise = jnp.minimum(self.foretell(kept).error(y) ** 2, MOST_SURPRISE)
        gain = was.level_var / variance
        parts = Parts(
            level=was.level + gain * error,
            slope=was.slope + was.covariance / variance * error,
            level_var=gain * noise_var,
            covariance=was.covariance * noise_var / variance,
            slope_var=was.slope_var * (1.0 - gain * was.covariance**2 / (was.level_var * was.slope_var)),  # above 0
            unrest=jnp.clip(was.unrest + jnp.exp(self.log_gain) * (surprise - 1.0), -MOST_UNREST, MOST_UNREST),
        )
        return jnp.where(jnp.tile(mask, len(parts)), self._pack(parts), kept)

    def foretell(self, kept: Float[Array, "*any kept"]) -> Foretold:
        parts, range_var = self._unpack(kept), 1.0 + jnp.exp(2 * self.log_range)
        variance = parts.level_var + self._noise_var
        trust = range_var / (range_var + variance)  # product of the filter's and the prior's densities
        return Foretold(trust * parts.level, 0.5 * (jnp.log(trust * variance) + parts.unrest))

    @property
    def _noise_var(self) -> Float[Array, " channel"]:
        return jnp.exp(2 * self.log_noise) + LEAST_NOISE**2

    def _pack(self, parts: Parts) -> Float[Array, " kept"]:
        """The state as a vector: zero is the prior belief, with variance one for the level and the slope's own."""
        related = jnp.clip(parts.covariance / jnp.sqrt(parts.level_var * parts.slope_var), -NEARLY_ONE, NEARLY_ONE)
        log_vars = (jnp.log(parts.level_var), jnp.log(parts.slope_var) - 2 * self.log_speed)
        means = (squash(parts.level), squash(parts.slope))
        return jnp.concatenate([*means, *log_vars, jnp.arctanh(related), parts.unrest])

    def _unpack(self, kept: Float[Array, "*any kept"]) -> Parts:
        each = kept.reshape(*kept.shape[:-1], -1, len(self.log_rate))
        level, slope = (stretch(each[..., number, :]) for number in (0, 1))
        level_var, slope_var = jnp.exp(each[..., 2, :]), jnp.exp(each[..., 3, :] + 2 * self.log_speed)
        covariance = jnp.tanh(each[..., 4, :]) * jnp.sqrt(level_var * slope_var)
        return Parts(level, slope, level_var, covariance, slope_var, each[..., 5, :])


def _integrated(x: Float[Array, "*any"]) -> Float[Array, "*any"]:
    """x − 2 (1 − e^−x) + (1 − e^−2x) / 2, accurate for small x too: the variance of the integrated noise."""
    series = x**3 / 3 - x**4 / 4 + 7 * x**5 / 60 - x**6 / 24
    return jnp.where(x < 0.05, series, x + 2 * jnp.expm1(-x) - 0.5 * jnp.expm1(-2 * x))
