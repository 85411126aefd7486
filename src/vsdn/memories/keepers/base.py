"""What a memory may keep of each variable as it was seen: the interface of keepers, and how numbers are kept."""

from abc import abstractmethod
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


class Foretold(NamedTuple):
    """What is foretold of each variable by what is kept alone."""

    mean: Float[Array, "*any channel"]
    log_scale: Float[Array, "*any channel"] | None = None  # of its error; None where the decoder alone is to tell

    def error(self, y: Float[Array, "*any channel"]) -> Float[Array, "*any channel"]:
        """How far y is from it, in deviations if they are foretold."""
        return y - self.mean if self.log_scale is None else (y - self.mean) * jnp.exp(-self.log_scale)


class AbstractKeeper(eqx.Module):
    """What is kept, in three moves: time goes by, something is seen, and the next value is foretold.

    Nothing in it is a network: each keeper foretells alone what is seen next, and a decoder tells of the change from
    there. What is kept is one vector, and so written that a rare outburst does not drown the networks that read it.
    """

    settled: ClassVar[bool] = False  # whether training leaves it as it was primed, and what it begins with at zero

    @abstractmethod
    def paced(self, gap: Float[Array, ""]) -> "AbstractKeeper":
        """The same with rates to begin with, for rows that are usually so far apart."""

    @property
    @abstractmethod
    def size(self) -> int:
        """How many numbers are kept. All begin at zero; a memory learns what its own begin with."""

    def begin(self, dtype: jnp.dtype) -> Float[Array, " kept"]:
        """What is kept before anything was seen."""
        return jnp.zeros(self.size, dtype)

    @property
    def clocks(self) -> tuple[float, ...]:
        """The speeds of the clocks that it is to be told of, in radians a unit of time."""
        return ()

    @property
    def shown_size(self) -> int:
        """How many of the numbers that are kept, the last of them, `read` and `foretell` look at."""
        return self.size

    @property
    def read_size(self) -> int:
        """How many numbers networks read of it."""
        return self.size

    def show(self, kept: Float[Array, "*any kept"]) -> Float[Array, "*any shown"]:
        """The end of it, to which `read` and `foretell` say the same as to the whole."""
        return kept[..., -self.shown_size :]

    def read(self, kept: Float[Array, "*any kept"]) -> Float[Array, "*any read"]:
        """What networks read of it: all, or what matters."""
        return kept

    def timed(self, kept: Float[Array, " kept"], clock: Float[Array, " clock"]) -> Float[Array, " kept"]:
        """The same where the known clocks show this, if that matters to it."""
        return kept

    @abstractmethod
    def after(self, kept: Float[Array, " kept"], dt: Float[Array, ""]) -> Float[Array, " kept"]:
        """What is left of it after dt, exactly."""

    @abstractmethod
    def take(
        self, kept: Float[Array, " kept"], y: Float[Array, " channel"], mask: Bool[Array, " channel"]
    ) -> Float[Array, " kept"]:
        """What is kept once the seen entries of y are."""

    @abstractmethod
    def foretell(self, kept: Float[Array, "*any kept"]) -> Foretold:
        """What it says of each variable now."""


def squash(x: Float[Array, "*any"]) -> Float[Array, "*any"]:
    """x where it is small, its logarithm where it is large."""
    return jnp.sign(x) * jnp.log1p(jnp.abs(x))


def stretch(x: Float[Array, "*any"]) -> Float[Array, "*any"]:
    """What was squashed to x."""
    return jnp.sign(x) * jnp.expm1(jnp.abs(x))
