"""The exact linear model: a linear SDE observed through a linear readout, trained on its Kalman likelihood."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from vsdn.errors import SettingsError
from vsdn.grids.grid import Grid, Queries, last_row, since_row, within
from vsdn.kalman import (
    Belief,
    Filtered,
    LinearSDE,
    Readout,
    Transition,
    advance,
    discretise,
    draw,
    draw_rows,
    filter_rows,
    look_back,
    observe,
    read,
    smooth_rows,
)
from vsdn.likelihoods import Likelihood
from vsdn.models.base import AbstractOnline, Answer, Evidence, make_likelihood
from vsdn.particles import either
from vsdn.settings import ModelSettings

SLOWEST, FASTEST = 0.02, 2.0  # initial rates; a typical series lasts ten units of time


class Linear(AbstractOnline):
    """dx = (A x + b) dt + L dW from N(m₀, P₀), y = C x + D [1, clock] + noise; exact over any gap, whatever Δt is.

    Known periods enter the readout only: a linear system driven by a sinusoid responds with one of the same period.
    """

    has_paths: ClassVar[bool] = False
    in_turn: ClassVar[bool] = False

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

    def level(self, clock: Float[Array, "*any clock"]) -> Float[Array, "*any channel"]:
        """The readout's offset at these times, which does not depend on the state."""
        return self.offset[:, 0] + clock @ self.offset[:, 1:].T

    def transitions(self, gaps: Float[Array, " gap"]) -> Transition:
        """The SDE over each gap."""
        return jax.vmap(lambda gap: discretise(self.sde, gap))(gaps)

    def beliefs(self, grid: Grid) -> tuple[Filtered, Transition]:
        """The beliefs at the rows, and the transition that leads to each."""
        transitions = self.transitions(since_row(grid)[grid.rows])
        y = grid.values[grid.rows] - self.level(grid.clock[grid.rows])
        return filter_rows(self.initial, transitions, self.readout, y, grid.mask[grid.rows]), transitions

    def foretell(self, beliefs: Belief, clock: Float[Array, "any clock"]) -> Float[Array, "1 any channel 2"]:
        """The predictive mixture, of one component, that these beliefs imply."""
        mean, variance = jax.vmap(lambda belief: read(belief, self.readout))(beliefs)
        return self.likelihood.with_moments(mean + self.level(clock), variance)[None]

    def begin(self, *, num_samples: int, key: PRNGKeyArray) -> Belief:
        return self.initial

    def advance(self, state: Belief, clock: Float[Array, " clock"], dt: Float[Array, ""]) -> Belief:
        return advance(state, discretise(self.sde, dt))

    def take(
        self, state: Belief, y: Float[Array, " channel"], mask: Bool[Array, " channel"], clock: Float[Array, " clock"]
    ) -> Belief:
        return observe(state, self.readout, y - self.level(clock), mask)[0]

    def look(self, state: Belief, clock: Float[Array, " clock"]) -> Float[Array, "sample channel param"]:
        return self.foretell(jax.tree.map(lambda part: part[None], state), clock[None])[:, 0]

    def evidence(self, grid: Grid, *, num_samples: int, key: PRNGKeyArray) -> Evidence:
        log_lik = jnp.sum(self.beliefs(grid)[0].log_lik)[None]
        return Evidence(log_lik, jnp.zeros_like(log_lik), jnp.zeros_like(log_lik))

    def log_likelihood(
        self, grid: Grid, *, num_samples: int, key: PRNGKeyArray
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        return jnp.sum(self.beliefs(grid)[0].log_lik), jnp.full((), jnp.nan)

    def predict(self, grid: Grid, *, num_samples: int, key: PRNGKeyArray) -> Float[Array, "sample row channel param"]:
        return self.foretell(self.beliefs(grid)[0].before, grid.clock[grid.rows])

    def forecast(
        self, grid: Grid, queries: Queries, *, num_samples: int, key: PRNGKeyArray
    ) -> Float[Array, "sample query channel param"]:
        known, _ = self.beliefs(grid)
        seen = grid.mask.any(axis=1)
        num_rows = jnp.where(queries.length > 0, jnp.cumsum(seen)[queries.point], 0)
        return self.foretell(self._ahead(grid, known, num_rows, queries), queries.clock)

    def _ahead(self, grid: Grid, known: Filtered, num_rows: Int[Array, " query"], queries: Queries) -> Belief:
        """The belief at each query, given the first `num_rows` rows."""
        append = lambda first, rest: jnp.concatenate([first[None], rest])
        after = jax.tree.map(append, self.initial, known.after)
        ahead = lambda row, gap: advance(jax.tree.map(lambda part: part[row], after), discretise(self.sde, gap))
        return jax.vmap(ahead)(num_rows, self._since(grid, queries))

    def _since(self, grid: Grid, queries: Queries) -> Float[Array, " query"]:
        """The time from the row at or before each query's point, or from the start, to the query."""
        return jnp.where(grid.mask.any(axis=1), 0.0, since_row(grid))[queries.point] + queries.length

    def filter(self, grid: Grid, *, num_samples: int, key: PRNGKeyArray) -> Answer:
        beliefs = self.beliefs(grid)[0].after
        return self._answer(beliefs, grid.clock[grid.rows], num_samples, key)

    def interpolate(self, grid: Grid, queries: Queries, *, num_samples: int, key: PRNGKeyArray) -> Answer:
        places, (known, transitions) = within(grid, queries), self.beliefs(grid)
        num_rows = jnp.cumsum(grid.mask.any(axis=1))[places.point]
        here = self._ahead(grid, known, num_rows, places)
        later = jnp.minimum(num_rows, len(grid.rows) - 1)  # the first row after each query
        onward = self.transitions(since_row(grid)[grid.rows][later] - self._since(grid, places))
        at_later = lambda beliefs: jax.tree.map(lambda part: part[later], beliefs)
        smoothed = smooth_rows(known, transitions)
        back = jax.vmap(look_back)(here, onward, at_later(known.before), at_later(smoothed))
        any_later = places.point < last_row(grid)[-1]
        beliefs = jax.vmap(either)(any_later, back, here)
        return self._answer(beliefs, places.clock, num_samples, key)

    def sample_rows(
        self, grid: Grid, *, num_samples: int, num_particles: int = 1, key: PRNGKeyArray
    ) -> Float[Array, "sample row channel"]:
        """Exact joint draws: paths through all points, drawn backward, and measurements of them. (Drawing variable by
        variable would lose the dependence between them.)"""
        transitions, level = self.transitions(grid.dt), self.level(grid.clock)
        known = filter_rows(self.initial, transitions, self.readout, grid.values - level, grid.mask)
        path_key, noise_key = jr.split(key)
        paths = jax.vmap(lambda key: draw_rows(known, transitions, key=key))(jr.split(path_key, num_samples))
        exact = (paths @ self.weight.T + level)[:, grid.rows]
        return exact + jnp.sqrt(self.readout.noise) * jr.normal(noise_key, exact.shape, exact.dtype)

    def _answer(
        self, beliefs: Belief, clock: Float[Array, "query clock"], num_samples: int, key: PRNGKeyArray
    ) -> Answer:
        keys = jr.split(key, (num_samples, len(clock)))
        states = jax.vmap(lambda keys: jax.vmap(lambda belief, key: draw(belief, key=key))(beliefs, keys))(keys)
        return Answer(self.foretell(beliefs, clock), states)


def make_linear(data_size: int, speeds: tuple[float, ...], settings: ModelSettings, *, key: PRNGKeyArray) -> Linear:
    """The linear model before training: modes with a range of rates, states of variance 1, mixed into each variable.

    States come in pairs, so an odd `latent_size` is rounded up.
    """
    if settings.likelihood != "gaussian":
        raise SettingsError(f"linear is exact for Gaussians: likelihood must be gaussian, but is {settings.likelihood}")
    frequency_key, weight_key = jr.split(key)
    num_modes = -(-settings.sizes[1] // 2)
    rate = jnp.geomspace(FASTEST, SLOWEST, num_modes)
    size = 2 * num_modes
    return Linear(
        likelihood=make_likelihood(data_size, settings),
        root_rate=jnp.sqrt(rate),
        frequency=rate * jr.normal(frequency_key, (num_modes,)),
        push=jnp.zeros(size),
        diffusion=jnp.diag(jnp.sqrt(2 * jnp.tile(rate, 2))),
        initial_mean=jnp.zeros(size),
        initial_root=jnp.eye(size),
        weight=jr.normal(weight_key, (data_size, size)) / size**0.5,
        offset=jnp.zeros((data_size, 1 + 2 * len(speeds))),
        root_noise=jnp.full(data_size, 0.3),
        floor=settings.scale_floor,
    )
