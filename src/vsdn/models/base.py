"""What every model offers: evidence to train on, and predictions."""

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.nn import logsumexp
from jaxtyping import Array, Bool, Float, Key, PRNGKeyArray

from vsdn.grids.grid import Grid, Queries
from vsdn.likelihoods import FAMILIES, Likelihood
from vsdn.memories.keepers import Foretold
from vsdn.models.drawing import draw_series
from vsdn.nets import ACTIVATIONS
from vsdn.particles import effective_size
from vsdn.settings import ModelSettings


class Evidence(NamedTuple):
    """What an objective needs of one series, for each of its latent paths."""

    log_lik: Float[Array, " sample"]  # Σ log Φ over the observed values
    kl: Float[Array, " sample"]  # ½∫|u|² dt; 0 without a latent path
    log_ratio: Float[Array, " sample"]  # log dQ/dP of the path; 0 without one


class Answer(NamedTuple):
    """Mixture parameters at each query; component k is the same path at every query if `has_paths`."""

    params: Float[Array, "sample query channel param"]
    states: Float[Array, "sample query latent"] | None = None  # latent states, if there are any
    size: Float[Array, " query"] | None = None  # the effective number of particles, if there are weights


class Field(NamedTuple):
    """Drift and diffusion of one series' latent paths along its steps."""

    prior: Float[Array, "sample step latent"]  # drift
    posterior: Float[Array, "sample step latent"]  # drift
    diffusion: Float[Array, "step latent"]


class AbstractModel(eqx.Module):
    """A model of one series; `vmap` turns it into one of many."""

    has_states: ClassVar[bool] = True  # whether there is a latent state
    has_paths: ClassVar[bool] = True  # whether the components of `interpolate` are whole paths

    likelihood: eqx.AbstractVar[Likelihood]

    @abstractmethod
    def evidence(self, grid: Grid, *, num_samples: int, key: PRNGKeyArray) -> Evidence:
        """The evidence of `num_samples` latent paths for the observations on the grid."""

    @abstractmethod
    def predict(self, grid: Grid, *, num_samples: int, key: PRNGKeyArray) -> Float[Array, "sample row channel param"]:
        """The mixture that predicts each row from the rows before it: parameters, one component per path."""

    @abstractmethod
    def forecast(
        self, grid: Grid, queries: Queries, *, num_samples: int, key: PRNGKeyArray
    ) -> Float[Array, "sample query channel param"]:
        """The mixture that predicts each query from the observations before it: parameters, one component per path."""

    @abstractmethod
    def filter(self, grid: Grid, *, num_samples: int, key: PRNGKeyArray) -> Answer:
        """The distribution of a repeated measurement at each row, given that row and those before it."""

    @abstractmethod
    def interpolate(self, grid: Grid, queries: Queries, *, num_samples: int, key: PRNGKeyArray) -> Answer:
        """The distribution of a measurement at each query, given every row before, at and after it."""

    def log_likelihood(
        self, grid: Grid, *, num_samples: int, key: PRNGKeyArray
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """An estimate of the log-likelihood, unbiased after exp, and the effective number of paths (NaN: exact)."""
        evidence = self.evidence(grid, num_samples=num_samples, key=key)
        log_weights = evidence.log_lik - evidence.log_ratio
        size = effective_size(jax.nn.log_softmax(log_weights))
        return logsumexp(log_weights) - jnp.log(num_samples), size

    # The same for a batch, one key per series; overridden where a batch can be computed faster than series by series.

    def batch_evidence(self, grids: Grid, *, num_samples: int, keys: Key[Array, " batch"]) -> Evidence:
        return jax.vmap(lambda grid, key: self.evidence(grid, num_samples=num_samples, key=key))(grids, keys)

    def batch_predict(
        self, grids: Grid, *, num_samples: int, keys: Key[Array, " batch"]
    ) -> Float[Array, "batch sample row channel param"]:
        return jax.vmap(lambda grid, key: self.predict(grid, num_samples=num_samples, key=key))(grids, keys)

    def batch_forecast(
        self, grids: Grid, queries: Queries, *, num_samples: int, keys: Key[Array, " batch"]
    ) -> Float[Array, "batch sample query channel param"]:
        one = lambda grid, queries, key: self.forecast(grid, queries, num_samples=num_samples, key=key)
        return jax.vmap(one)(grids, queries, keys)


class AbstractOnline(AbstractModel):
    """A model that can follow data as they come: a small state, and the same cost at every step and at every row.

    Along the points of a grid its answers equal those computed from the whole grid at once.
    """

    in_turn: ClassVar[bool] = True  # whether `sample_rows` draws value by value; only ranks are used then

    @abstractmethod
    def begin(self, *, num_samples: int, key: PRNGKeyArray) -> Any:
        """The state before any observation."""

    @abstractmethod
    def advance(self, state: Any, clock: Float[Array, " clock"], dt: Float[Array, ""]) -> Any:
        """The state after a step of length dt without observations; `clock` is that at the start of the step."""

    def branch(
        self, state: Any, clock: Float[Array, " clock"], dt: Float[Array, ""], max_step: Float[Array, ""]
    ) -> Any:
        """The state at a query, `dt` after the last point, where steps are of length `max_step`."""
        return self.advance(state, clock, dt)

    @abstractmethod
    def take(
        self, state: Any, y: Float[Array, " channel"], mask: Bool[Array, " channel"], clock: Float[Array, " clock"]
    ) -> Any:
        """The state updated with the observed entries of y."""

    def sample_rows(
        self, grid: Grid, *, num_samples: int, num_particles: int = 1, key: PRNGKeyArray
    ) -> Float[Array, "sample row channel"]:
        """Joint draws of the values at every row, including rows with nothing observed, given the observations; each
        draw is selected from `num_particles` particles, which is needed if rows are observed after unobserved ones."""
        one = lambda key: draw_series(self, grid, num_particles=num_particles, key=key)
        return jax.vmap(one)(jr.split(key, num_samples))

    @abstractmethod
    def look(self, state: Any, clock: Float[Array, " clock"]) -> Float[Array, "sample channel param"]:
        """The predictive mixture of a measurement now: its parameters, one component per path."""


def masked_log_lik(likelihood: Likelihood, params: Float[Array, "row channel param"], grid: Grid) -> Float[Array, ""]:
    """Σ log Φ over the observed values, given one path's parameters at the rows, reweighted by `even_pull`."""
    mask = grid.mask[grid.rows]
    y = jnp.where(mask, grid.values[grid.rows], 0.0)
    return jnp.sum(jnp.where(mask, likelihood.log_prob(likelihood.pulled(params), y), 0.0))


def foretold(
    likelihood: Likelihood, decoded: Float[Array, "*any out"], kept: Foretold | None
) -> Float[Array, "*any channel param"]:
    """The likelihood's parameters from a decoder's output, which describes the change from `kept` if that is given."""
    params = decoded.reshape(*decoded.shape[:-1], len(likelihood.families), -1)
    return params if kept is None else likelihood.moved(params, kept.mean, kept.log_scale)


def make_likelihood(data_size: int, settings: ModelSettings) -> Likelihood:
    """The likelihood: for every variable the family that the settings name."""
    return Likelihood((FAMILIES[settings.likelihood](settings.scale_floor),) * data_size, settings.even_pull)


def make_decoder(in_size: int, likelihood: Likelihood, settings: ModelSettings, *, key: PRNGKeyArray) -> eqx.nn.MLP:
    """A network with one hidden layer and fresh weights that maps a state to the likelihood's parameters."""
    out_size, width = len(likelihood.families) * likelihood.num_params, settings.sizes[2]
    return eqx.nn.MLP(in_size, out_size, width, 1, ACTIVATIONS[settings.activation], key=key)
