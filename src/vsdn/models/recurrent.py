"""What the deterministic rivals share: a memory h of what was seen, and a decoder on it alone."""

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray

from vsdn.grids import Grid, Queries
from vsdn.likelihoods import Likelihood
from vsdn.models.base import AbstractPathless, make_decoder, make_likelihood
from vsdn.nets import AbstractMemory
from vsdn.settings import ModelSettings


class AbstractRecurrent(AbstractPathless, AbstractMemory):
    """y ~ Φ(D(h)), h being the memory just before y."""

    decoder: eqx.AbstractVar[eqx.nn.MLP]

    def decode(self, h: Float[Array, " hidden"]) -> Float[Array, "channel param"]:
        """The likelihood's parameters D(h)."""
        return self.decoder(h).reshape(len(self.likelihood.families), -1)

    def predict(self, grid: Grid, *, num_samples: int, key: PRNGKeyArray) -> Float[Array, "sample row channel param"]:
        return jax.vmap(self.decode)(self.before_rows(grid))[None]

    def forecast(
        self, grid: Grid, queries: Queries, *, num_samples: int, key: PRNGKeyArray
    ) -> Float[Array, "sample query channel param"]:
        return jax.vmap(self.decode)(self.at_queries(grid, queries))[None]


class Recurrent(AbstractRecurrent):
    """A memory and a decoder that does not shape it."""

    memory: AbstractMemory
    decoder: eqx.nn.MLP
    likelihood: Likelihood

    def before_rows(self, grid: Grid) -> Float[Array, "row hidden"]:
        return self.memory.before_rows(grid)

    def at_queries(self, grid: Grid, queries: Queries) -> Float[Array, "query hidden"]:
        return self.memory.at_queries(grid, queries)


def make_recurrent(
    memory: AbstractMemory, data_size: int, settings: ModelSettings, *, decoder_key: PRNGKeyArray
) -> Recurrent:
    """A memory with a fresh decoder."""
    likelihood = make_likelihood(data_size, settings)
    decoder = make_decoder(settings.sizes[0], likelihood, settings, key=decoder_key)
    return Recurrent(memory=memory, decoder=decoder, likelihood=likelihood)
