"""A keeper with a linear-Gaussian belief over all variables: what is usual in a series, and its departures."""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Bool, Float

from vsdn.memories.keepers.base import AbstractKeeper, Foretold, squash

LEAST_NOISE = 1e-2  # in standard deviations; keeps beliefs well above 32-bit rounding
NUM_FADING = 2  # departures that last for about one row, and for about ten


class Belief(NamedTuple):
    """The belief about the states: N(mean, 1 − told)."""

    mean: Float[Array, "*any state"]
    told: Float[Array, "*any state state"]  # reduction of the covariance from its prior value 1


class Said(NamedTuple):
    """What a belief predicts for the variables at the current clock."""

    means: Float[Array, "*any part channel"]  # of the prediction, and the share of each part in it
    log_scale: Float[Array, "*any channel"]
    clock: Float[Array, "*any clock"]


class Parts(NamedTuple):
    """The state of `Linear`. At zero it is not yet a belief: the clock must be set first."""

    belief: Belief
    said: Said


class Linear(AbstractKeeper):
    """The Kalman filter of y = D [1, clock] + C(clock) s + noise, exact over any gap.

    D is common to all series. The states s of a series, each N(0, 1) a priori, are its own mean and its own swing with
    each known clock, which are constant, and departures from them, which decay: ds = −rate·s dt + √(2 rate) dW. Each
    part has as many states as there are variables, with loads that mix them, so that one variable informs another. D,
    loads, rates and noises are fitted to predict the table's next values (`priming`); training leaves them alone.
    """

    settled: ClassVar[bool] = True

    usual: Float[Array, "channel known"]  # D
    loads: Float[Array, "part channel factor"]  # of a mean, of swings, of departures
    log_rate: Float[Array, " fading"]
    log_noise: Float[Array, " channel"]
    speeds: tuple[float, ...] = eqx.field(static=True)  # of the clocks, radians a unit of time

    def __init__(self, data_size: int, speeds: tuple[float, ...]):
        """Starts with an equal share of the variance in each part, and rows a unit of time apart."""
        num_parts = 1 + len(speeds) + NUM_FADING
        self.usual = jnp.zeros((data_size, 1 + 2 * len(speeds)))
        self.loads = jnp.tile(0.4 * jnp.eye(data_size), (num_parts, 1, 1))
        self.log_rate = jnp.log(jnp.geomspace(1.0, 0.1, NUM_FADING))
        self.log_noise = jnp.full(data_size, np.log(0.5))
        self.speeds = speeds

    def paced(self, gap: Float[Array, ""]) -> "Linear":
        faster = self.log_rate - jnp.log(gap).astype(self.log_rate.dtype)
        return eqx.tree_at(lambda linear: linear.log_rate, self, faster)

    @property
    def clocks(self) -> tuple[float, ...]:
        return self.speeds

    @property
    def size(self) -> int:
        return self._num_states * (1 + self._num_states) + self.read_size

    @property
    def shown_size(self) -> int:
        return self.read_size

    @property
    def read_size(self) -> int:
        return len(self.usual) * (3 + NUM_FADING) + 2 * len(self.speeds)

    def read(self, kept: Float[Array, "*any kept"]) -> Float[Array, "*any read"]:
        """The certainty of the predictions, the clock, the predictions, and each part's contribution to them."""
        said = self._said(kept)
        means = squash(said.means).reshape(*kept.shape[:-1], -1)
        return jnp.concatenate([said.log_scale, said.clock, means], axis=-1)

    def foretell(self, kept: Float[Array, "*any kept"]) -> Foretold:
        said = self._said(kept)
        return Foretold(said.means[..., 0, :], said.log_scale)

    def begin(self, dtype: jnp.dtype) -> Float[Array, " kept"]:
        kept = jnp.zeros(self.size, dtype)
        return self.timed(kept, self._said(kept).clock)

    def timed(self, kept: Float[Array, " kept"], clock: Float[Array, " clock"]) -> Float[Array, " kept"]:
        return self._pack(self._unpack(kept).belief, clock)

    def after(self, kept: Float[Array, " kept"], dt: Float[Array, ""]) -> Float[Array, " kept"]:
        (mean, told), said = self._unpack(kept)
        fading = jnp.repeat(jnp.exp(-jnp.exp(self.log_rate) * dt), len(self.usual))
        fade = jnp.ones_like(mean).at[-len(fading) :].set(fading)
        angle = jnp.asarray(self.speeds, kept.dtype) * dt
        (sine, cosine), (sin, cos) = jnp.split(said.clock, 2), (jnp.sin(angle), jnp.cos(angle))
        clock = jnp.concatenate([sine * cos + cosine * sin, cosine * cos - sine * sin])
        return self._pack(Belief(fade * mean, jnp.outer(fade, fade) * told), clock)

    def take(
        self, kept: Float[Array, " kept"], y: Float[Array, " channel"], mask: Bool[Array, " channel"]
    ) -> Float[Array, " kept"]:
        (mean, told), said = self._unpack(kept)
        weights = jnp.where(mask[:, None], self._weights(said.clock), 0.0)
        error = jnp.where(mask, y - said.means[0], 0.0)
        shared = weights - weights @ told  # covariance of the observation with the states
        root = jnp.linalg.cholesky(shared @ weights.T + jnp.diag(jnp.where(mask, self._noise, 1.0)))
        gain, z = (solve_triangular(root, part, lower=True) for part in (shared, error))
        moved = self._pack(Belief(mean + z @ gain, told + gain.T @ gain), said.clock)
        return jnp.where(mask.any(), moved, kept)

    @property
    def _num_states(self) -> int:
        return len(self.usual) * (len(self.loads) + len(self.speeds))  # a swing has two

    @property
    def _noise(self) -> Float[Array, " channel"]:
        return jnp.exp(2 * self.log_noise) + LEAST_NOISE**2

    def _weights(self, clock: Float[Array, " clock"]) -> Float[Array, "channel state"]:
        """C: the loads of the means, of each clock's sine and cosine swings, and of the departures."""
        mean, swings, fading = jnp.split(self.loads, [1, 1 + len(self.speeds)])
        turning = clock[:, None, None] * jnp.concatenate([swings, swings])
        return jnp.concatenate([*mean, *turning, *fading], axis=1)

    def _say(self, belief: Belief, clock: Float[Array, " clock"]) -> Said:
        weights = self._weights(clock)
        fading = NUM_FADING * len(self.usual)
        each = weights * belief.mean
        departures = each[:, -fading:].reshape(len(self.usual), NUM_FADING, -1).sum(axis=2).T
        own = each[:, :-fading].sum(axis=1)
        foretold = self.usual @ jnp.concatenate([jnp.ones(1, clock.dtype), clock]) + own + departures.sum(axis=0)
        variance = jnp.sum(weights * (weights - weights @ belief.told), axis=1)  # rounding may make it negative
        log_scale = 0.5 * jnp.log(jnp.maximum(variance, 0.0) + self._noise)
        return Said(jnp.stack([foretold, own, *departures]), log_scale, clock)

    def _pack(self, belief: Belief, clock: Float[Array, " clock"]) -> Float[Array, " kept"]:
        return jnp.concatenate([part.ravel() for part in (*belief, *self._say(belief, clock))])

    def _unpack(self, kept: Float[Array, "*any kept"]) -> Parts:
        count = self._num_states
        mean, told, said = jnp.split(kept, [count, count * (1 + count)], axis=-1)
        return Parts(Belief(mean, told.reshape(*kept.shape[:-1], count, count)), self._said(said))

    def _said(self, kept: Float[Array, "*any kept"]) -> Said:
        """The prediction, which is stored at the end of the state."""
        shown, channels = self.show(kept), len(self.usual)
        means, log_scale, clock = jnp.split(shown, np.cumsum([(2 + NUM_FADING) * channels, channels]), axis=-1)
        return Said(means.reshape(*kept.shape[:-1], -1, channels), log_scale, clock)
