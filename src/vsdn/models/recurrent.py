"""What the deterministic rivals share: a memory h of what was seen, and a decoder on it alone."""

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray

from vsdn.grids import Grid, Queries
from vsdn.likelihoods import FAMILIES, Likelihood
from vsdn.models.base import AbstractPathless
from vsdn.nets import ACTIVATIONS, AbstractMemory
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
    return Recurrent(memory=memory, decoder=make_decoder(likelihood, settings, key=decoder_key), likelihood=likelihood)


def make_likelihood(data_size: int, settings: ModelSettings) -> Likelihood:
    """The family that the settings name, for every variable."""
    return Likelihood((FAMILIES[settings.likelihood](settings.scale_floor),) * data_size)


def make_decoder(likelihood: Likelihood, settings: ModelSettings, *, key: PRNGKeyArray) -> eqx.nn.MLP:
    """A network with one hidden layer from h to the likelihood's parameters, with fresh weights."""
    hidden, _, width = settings.sizes
    out_size = len(likelihood.families) * likelihood.num_params
    return eqx.nn.MLP(hidden, out_size, width, 1, ACTIVATIONS[settings.activation], key=key)
