"""A keeper of the last value of each variable, which decays."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from vsdn.memories.keepers.base import AbstractKeeper, Foretold, squash, stretch


class Last(AbstractKeeper):
    """A share of the last value, which decays: share∘y·exp(−rate∘age)."""

    share: Float[Array, " channel"]
    log_rate: Float[Array, " channel"]

    def __init__(self, data_size: int):
        """Starts with the full value, which hardly decays."""
        self.share, self.log_rate = jnp.ones(data_size), jnp.full(data_size, np.log(1e-3))

    def paced(self, gap: Float[Array, ""]) -> "Last":
        """Values decay over about ten rows."""
        return eqx.tree_at(lambda last: last.log_rate, self, jnp.full_like(self.log_rate, jnp.log(0.1 / gap)))

    @property
    def size(self) -> int:
        return len(self.share)

    def after(self, kept: Float[Array, " kept"], dt: Float[Array, ""]) -> Float[Array, " kept"]:
        return squash(stretch(kept) * jnp.exp(-jnp.exp(self.log_rate) * dt))

    def take(
        self, kept: Float[Array, " kept"], y: Float[Array, " channel"], mask: Bool[Array, " channel"]
    ) -> Float[Array, " kept"]:
        return jnp.where(mask, squash(self.share * y), kept)

    def foretell(self, kept: Float[Array, "*any kept"]) -> Foretold:
        return Foretold(stretch(kept))
