"""The interface of keepers, which hold past values of each variable, and the scale on which they store numbers."""

from abc import abstractmethod
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


class Foretold(NamedTuple):
    """The prediction of each variable from the keeper's state alone."""

    mean: Float[Array, "*any channel"]
    log_scale: Float[Array, "*any channel"] | None = None  # log standard deviation; None if the decoder alone sets it

    def error(self, y: Float[Array, "*any channel"]) -> Float[Array, "*any channel"]:
        """The residual of y, in standard deviations if they are predicted."""
        return y - self.mean if self.log_scale is None else (y - self.mean) * jnp.exp(-self.log_scale)


class AbstractKeeper(eqx.Module):
    """A state with three operations: time passes, an observation is taken in, the next value is predicted.

    No networks: each keeper predicts the next observation by itself, and a decoder describes the change from there. The
    state is one vector, scaled so that a rare outburst does not drown the networks that read it.
    """

    settled: ClassVar[bool] = False  # if true, fitted once before training and then frozen

    @abstractmethod
    def paced(self, gap: Float[Array, ""]) -> "AbstractKeeper":
        """A copy with initial rates for rows that are typically `gap` apart."""

    @property
    @abstractmethod
    def size(self) -> int:
        """The size of the state. It starts at zero, or at values that the memory learns."""

    def begin(self, dtype: jnp.dtype) -> Float[Array, " kept"]:
        """The state before any observation."""
        return jnp.zeros(self.size, dtype)

    @property
    def clocks(self) -> tuple[float, ...]:
        """The angular speeds of the clocks that it needs, in radians per unit of time."""
        return ()

    @property
    def shown_size(self) -> int:
        """How many of the last entries of the state `read` and `foretell` use."""
        return self.size

    @property
    def read_size(self) -> int:
        """How many numbers networks read of the state."""
        return self.size

    def show(self, kept: Float[Array, "*any kept"]) -> Float[Array, "*any shown"]:
        """The last entries of the state; `read` and `foretell` give the same for them as for the whole."""
        return kept[..., -self.shown_size :]

    def read(self, kept: Float[Array, "*any kept"]) -> Float[Array, "*any read"]:
        """What networks read of the state: all of it, or the relevant part."""
        return kept

    def timed(self, kept: Float[Array, " kept"], clock: Float[Array, " clock"]) -> Float[Array, " kept"]:
        """The state with the known clocks set to `clock`, if it uses them."""
        return kept

    @abstractmethod
    def after(self, kept: Float[Array, " kept"], dt: Float[Array, ""]) -> Float[Array, " kept"]:
        """The state after a time dt, exactly."""

    @abstractmethod
    def take(
        self, kept: Float[Array, " kept"], y: Float[Array, " channel"], mask: Bool[Array, " channel"]
    ) -> Float[Array, " kept"]:
        """The state updated with the observed entries of y."""

    @abstractmethod
    def foretell(self, kept: Float[Array, "*any kept"]) -> Foretold:
        """The prediction of each variable now."""


def squash(x: Float[Array, "*any"]) -> Float[Array, "*any"]:
    """Approximately x where it is small, its logarithm where it is large (odd)."""
    return jnp.sign(x) * jnp.log1p(jnp.abs(x))


def stretch(x: Float[Array, "*any"]) -> Float[Array, "*any"]:
    """The inverse of `squash`."""
    return jnp.sign(x) * jnp.expm1(jnp.abs(x))
