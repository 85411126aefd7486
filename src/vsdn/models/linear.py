"""The exact linear model: a linear SDE seen through a linear readout, trained on its Kalman likelihood."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from vsdn.grids import Grid, Queries, since_row
from vsdn.kalman import Belief, Filtered, LinearSDE, Readout, advance, discretise, filter_rows, read
from vsdn.likelihoods import Gaussian, Likelihood
from vsdn.models.base import AbstractModel, Evidence
from vsdn.models.simple import gaussian_params
from vsdn.settings import ModelSettings

SLOWEST, FASTEST = 0.02, 2.0  # rates at the start: a typical series lasts ten units of time


class Linear(AbstractModel):
    """dx = (A x + b) dt + L dW from N(m₀, P₀), y = C x + D [1, clock] + noise; exact over any gap, whatever Δt is.

    Known periods enter the readout alone: driven by a sinusoid, a linear system answers with one of the same period.
    """

    likelihood: Likelihood
    root_rate: Float[Array, " mode"]  # √a: a rate of 0, a level that stays, is inside the range
    frequency: Float[Array, " mode"]
    push: Float[Array, " latent"]
    diffusion: Float[Array, "latent latent"]
    initial_mean: Float[Array, " latent"]
    initial_root: Float[Array, "latent latent"]  # P₀ is this times its transpose
    weight: Float[Array, "channel latent"]  # C
    offset: Float[Array, "channel known"]  # D, of 1 and the clock
    root_noise: Float[Array, " channel"]
    floor: float = eqx.field(static=True)

    @property
    def sde(self) -> LinearSDE:
        return LinearSDE(self.root_rate**2, self.frequency, self.push, self.diffusion)

    @property
    def initial(self) -> Belief:
        return Belief(self.initial_mean, self.initial_root @ self.initial_root.T)

    @property
    def readout(self) -> Readout:
        return Readout(self.weight, self.floor**2 + self.root_noise**2)

    def level(self, clock: Float[Array, "any clock"]) -> Float[Array, "any channel"]:
        """What the readout adds at these times, whatever the state is."""
        return self.offset[:, 0] + clock @ self.offset[:, 1:].T

    def filter(self, grid: Grid) -> Filtered:
        """The beliefs at the rows."""
        transitions = jax.vmap(lambda gap: discretise(self.sde, gap))(since_row(grid)[grid.rows])
        y = grid.values[grid.rows] - self.level(grid.clock[grid.rows])
        return filter_rows(self.initial, transitions, self.readout, y, grid.mask[grid.rows])

    def foretell(self, beliefs: Belief, clock: Float[Array, "any clock"]) -> Float[Array, "1 any channel 2"]:
        """The mixture, of one component, that these beliefs make of what will be seen."""
        mean, variance = jax.vmap(lambda belief: read(belief, self.readout))(beliefs)
        return gaussian_params(mean + self.level(clock), variance, self.floor)[None]

    def evidence(self, grid: Grid, *, num_samples: int, key: PRNGKeyArray) -> Evidence:
        log_lik = jnp.sum(self.filter(grid).log_lik)[None]
        return Evidence(log_lik, jnp.zeros_like(log_lik), jnp.zeros_like(log_lik))

    def predict(self, grid: Grid, *, num_samples: int, key: PRNGKeyArray) -> Float[Array, "sample row channel param"]:
        return self.foretell(self.filter(grid).before, grid.clock[grid.rows])

    def forecast(
        self, grid: Grid, queries: Queries, *, num_samples: int, key: PRNGKeyArray
    ) -> Float[Array, "sample query channel param"]:
        append = lambda first, rest: jnp.concatenate([first[None], rest])
        known = jax.tree.map(append, self.initial, self.filter(grid).after)
        seen = grid.mask.any(axis=1)
        num_rows = jnp.where(queries.length > 0, jnp.cumsum(seen)[queries.point], 0)
        gap = jnp.where(seen, 0.0, since_row(grid))[queries.point] + queries.length
        ahead = lambda row, gap: advance(jax.tree.map(lambda part: part[row], known), discretise(self.sde, gap))
        return self.foretell(jax.vmap(ahead)(num_rows, gap), queries.clock)


def make_linear(data_size: int, clock_size: int, settings: ModelSettings, *, key: PRNGKeyArray) -> Linear:
    """The linear model before training: modes of many rates, each state of variance 1, mixed into each variable.

    States come in pairs, so that an odd `latent_size` has one more.
    """
    frequency_key, weight_key = jr.split(key)
    num_modes = -(-settings.sizes[1] // 2)
    rate = jnp.geomspace(FASTEST, SLOWEST, num_modes)
    size = 2 * num_modes
    return Linear(
        likelihood=Likelihood((Gaussian(settings.scale_floor),) * data_size),
        root_rate=jnp.sqrt(rate),
        frequency=rate * jr.normal(frequency_key, (num_modes,)),
        push=jnp.zeros(size),
        diffusion=jnp.diag(jnp.sqrt(2 * jnp.tile(rate, 2))),
        initial_mean=jnp.zeros(size),
        initial_root=jnp.eye(size),
        weight=jr.normal(weight_key, (data_size, size)) / size**0.5,
        offset=jnp.zeros((data_size, 1 + clock_size)),
        root_noise=jnp.full(data_size, 0.3),
        floor=settings.scale_floor,
    )
