"""A keeper of what is usual in a series, and of how far the last values were from it."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from vsdn.memories.keepers.base import AbstractKeeper, Foretold, squash, stretch
from vsdn.memories.keepers.last import Last


class Parts(NamedTuple):
    """The state of `Usual` for each variable."""

    level: Float[Array, "*any channel"]  # last value minus the usual, kept as in `Last`
    mean: Float[Array, "*any channel"]
    number: Float[Array, "*any channel"]  # number of values so far
    swing: Float[Array, "*any period channel"]  # the clocks' swings about the mean, now
    quarter: Float[Array, "*any period channel"]  # and a quarter of a period from now

    @property
    def usual(self) -> Float[Array, "*any channel"]:
        return self.mean + jnp.sum(self.swing, axis=-2)


class Usual(AbstractKeeper):
    """What is usual in this series, and how far from it the last value was.

    The usual value is a mean plus a swing with each known clock, learned along the series as by ridge regression: after
    n values the next one moves the mean by e / (n + 1 + λ) and a swing by 2e / (n + 1 + λ′), where e is its distance
    from the usual value. λ ≥ 1 and λ′ ≥ 4 per clock are learned; no update overshoots the value. Swings turn with their
    clocks, so that a value updates them at their present phase.
    """

    last: Last
    log_ridge: Float[Array, "2 channel"]  # of λ and λ′, above their minimum
    speeds: tuple[float, ...] = eqx.field(static=True)  # of the clocks, in radians per unit of time

    def __init__(self, data_size: int, speeds: tuple[float, ...]):
        self.last, self.speeds = Last(data_size), speeds
        self.log_ridge = jnp.full((2, data_size), np.log(20.0))

    def paced(self, gap: Float[Array, ""]) -> "Usual":
        return eqx.tree_at(lambda usual: usual.last, self, self.last.paced(gap))

    @property
    def size(self) -> int:
        return self.last.size * (3 + 2 * len(self.speeds))

    def after(self, kept: Float[Array, " kept"], dt: Float[Array, ""]) -> Float[Array, " kept"]:
        parts = self._unpack(kept)
        angle = (jnp.asarray(self.speeds, kept.dtype) * dt)[:, None]
        cosine, sine = jnp.cos(angle), jnp.sin(angle)
        swing = parts.swing * cosine + parts.quarter * sine
        quarter = parts.quarter * cosine - parts.swing * sine
        return self._pack(parts._replace(level=self.last.after(parts.level, dt), swing=swing, quarter=quarter))

    def take(
        self, kept: Float[Array, " kept"], y: Float[Array, " channel"], mask: Bool[Array, " channel"]
    ) -> Float[Array, " kept"]:
        parts, least = self._unpack(kept), jnp.asarray([[1.0], [4.0 * len(self.speeds)]], kept.dtype)
        mean_gain, swing_gain = 1.0 / (parts.number + 1.0 + least + jnp.exp(self.log_ridge))  # at most e in total
        error = y - parts.usual
        moved = parts._replace(mean=parts.mean + mean_gain * error, swing=parts.swing + 2.0 * swing_gain * error)
        level = self.last.take(parts.level, y - moved.usual, mask)
        seen = jnp.tile(mask, self.size // len(mask))
        return jnp.where(seen, self._pack(moved._replace(level=level, number=parts.number + 1.0)), kept)

    def foretell(self, kept: Float[Array, "*any kept"]) -> Foretold:
        parts = self._unpack(kept)
        return Foretold(parts.usual + self.last.foretell(parts.level).mean)

    def _pack(self, parts: Parts) -> Float[Array, " kept"]:
        plain = (parts.level, squash(parts.mean), jnp.log1p(parts.number))
        return jnp.concatenate([*plain, squash(parts.swing).ravel(), squash(parts.quarter).ravel()])

    def _unpack(self, kept: Float[Array, "*any kept"]) -> Parts:
        each = kept.reshape(*kept.shape[:-1], -1, self.last.size)
        level, mean, number = each[..., 0, :], stretch(each[..., 1, :]), jnp.expm1(jnp.maximum(each[..., 2, :], 0.0))
        return Parts(level, mean, number, *jnp.split(stretch(each[..., 3:, :]), 2, axis=-2))
