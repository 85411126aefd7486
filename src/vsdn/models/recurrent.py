"""What the deterministic baselines share: a memory h of past observations, and a decoder on it alone."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from vsdn.grids.grid import Grid, Queries
from vsdn.likelihoods import Likelihood
from vsdn.memories.memory import AbstractMemory
from vsdn.models.base import foretold, make_decoder, make_likelihood
from vsdn.models.pathless import AbstractPathless
from vsdn.settings import ModelSettings


class AbstractRecurrent(AbstractPathless):
    """y ~ Φ(D(h)), where h is the memory just before y."""

    memory: eqx.AbstractVar[Any]  # an AbstractMemory, of any kind

    @abstractmethod
    def decode(self, h: Float[Array, " hidden"]) -> Float[Array, "channel param"]:
        """The likelihood's parameters D(h)."""

    def predict(self, grid: Grid, *, num_samples: int, key: PRNGKeyArray) -> Float[Array, "sample row channel param"]:
        return jax.vmap(self.decode)(self.memory.before_rows(grid))[None]

    def forecast(
        self, grid: Grid, queries: Queries, *, num_samples: int, key: PRNGKeyArray
    ) -> Float[Array, "sample query channel param"]:
        return jax.vmap(self.decode)(self.memory.at_queries(grid, queries))[None]

    def begin(self, *, num_samples: int, key: PRNGKeyArray) -> Any:
        return self.memory.begin()

    def advance(self, state: Any, clock: Float[Array, " clock"], dt: Float[Array, ""]) -> Any:
        return self.memory.move(state, clock, dt)

    def take(
        self, state: Any, y: Float[Array, " channel"], mask: Bool[Array, " channel"], clock: Float[Array, " clock"]
    ) -> Any:
        return self.memory.absorb(state, y, mask, clock)

    def look(self, state: Any, clock: Float[Array, " clock"]) -> Float[Array, "sample channel param"]:
        return self.decode(self.memory.hidden(state))[None]


class Recurrent(AbstractRecurrent):
    """A memory, and a decoder that has no influence on it."""

    memory: AbstractMemory
    decoder: eqx.nn.MLP
    likelihood: Likelihood

    def decode(self, h: Float[Array, " hidden"]) -> Float[Array, "channel param"]:
        return foretold(self.likelihood, self.decoder(self.memory.read(h)), self.memory.kept(h))


def make_recurrent(
    memory: AbstractMemory, data_size: int, settings: ModelSettings, *, decoder_key: PRNGKeyArray
) -> Recurrent:
    """A memory with a fresh decoder."""
    likelihood = make_likelihood(data_size, settings)
    hidden_size = len(memory.read(memory.hidden(memory.begin())))
    decoder = make_decoder(hidden_size, likelihood, settings, key=decoder_key)
    return Recurrent(memory=memory, decoder=decoder, likelihood=likelihood)
