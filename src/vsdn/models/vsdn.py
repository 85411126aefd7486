"""VSDN: a latent SDE whose drift and diffusion are driven by an ODE-RNN memory of past observations, with a decoder."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray

from vsdn import fused
from vsdn.grids.grid import Grid, Queries, at_rows, last_row, until, within
from vsdn.likelihoods import Likelihood
from vsdn.memories.encoders import AbstractEncoder, Filter, Smoother
from vsdn.memories.guessing import Guess, GuessingODERNN
from vsdn.memories.keepers import Foretold, make_keeper
from vsdn.memories.keeping import KeepingODERNN
from vsdn.memories.memory import ODERNN, AbstractODERNN, Memory
from vsdn.models.base import AbstractOnline, Answer, Evidence, Field, foretold, make_likelihood, masked_log_lik
from vsdn.models.trying import look_again
from vsdn.nets import ACTIVATIONS, Diffusion, Drift, SplitMLP
from vsdn.particles import FORWARD, Filtered, equal, filter_particles, go_on, smooth_particles
from vsdn.sde import (
    Path,
    Steps,
    bridge_step,
    brownian,
    embed,
    path_noise,
    path_seed,
    posterior_paths,
    prior_paths,
)
from vsdn.settings import ModelSettings


class Walk(NamedTuple):
    """The start of one series' latent paths, and the steps along which they are simulated."""

    memory: Memory
    x0: Float[Array, " latent"]
    steps: Steps

    def start(self, num_paths: int) -> Float[Array, "path latent"]:
        return jnp.broadcast_to(self.x0, (num_paths, *self.x0.shape))


class Going(NamedTuple):
    """The online state of one series: its memory, its latent paths, and the number of steps so far."""

    h: Float[Array, " hidden"]
    states: Float[Array, "sample latent"]
    num_steps: Int[Array, ""]
    key: PRNGKeyArray


class VSDN(AbstractOnline):
    """The generative model and, by its encoder, the posterior: `Filter` makes VSDN-F, `Smoother` VSDN-S.

    For one series the SDE loop is the plain scan of `vsdn.sde`; for a batch it is `vsdn.fused`: the same paths, faster.
    """

    memory: AbstractODERNN
    encoder: AbstractEncoder
    drift: Drift
    diffusion: Diffusion
    initial: eqx.nn.MLP
    decoder: SplitMLP
    likelihood: Likelihood

    def steps(self, grid: Grid, read: Memory, posterior: Float[Array, "step read"] | None = None) -> Steps:
        """The steps along which paths are simulated, given the memory as networks read it; without `posterior`, the
        posterior's context is the prior's."""
        context = lambda part: jnp.concatenate([part, grid.clock[: part.shape[0]]], axis=1)
        prior = context(read.post[:-1])
        return Steps(
            dt=grid.dt[1:],
            prior=prior,
            posterior=prior if posterior is None else context(posterior),
            diffusion=jax.vmap(self.diffusion)(read.post[:-1]),
        )

    def prior_walk(self, grid: Grid) -> Walk:
        memory = self.memory.forward(grid)
        read = self.memory.read_along(memory)
        return Walk(memory, self.initial(read.pre[0]), self.steps(grid, read))

    def posterior_walk(self, grid: Grid, known: Grid | None = None) -> Walk:
        """The walk of a posterior that reads the grid, or only the part of it that is `known`."""
        memory = self.memory.forward(grid)
        read = self.memory.read_along(memory)
        context = self.encoder(grid if known is None else known, read, self.encoder.beyond())
        return Walk(memory, self.initial(read.pre[0]), self.steps(grid, read, context))

    def decode(
        self, states: Float[Array, "sample row latent"], pre: Float[Array, "row hidden"]
    ) -> Float[Array, "sample row channel param"]:
        """The likelihood's parameters D([x, h_pre]): the decoder must not see what it scores."""
        embedded = jax.vmap(self.decoder.embed)(self.memory.read(pre))
        flat = jax.vmap(jax.vmap(self.decoder), in_axes=(0, None))(states, embedded)
        return foretold(self.likelihood, flat, self.memory.kept(pre))

    def evidence(self, grid: Grid, *, num_samples: int, key: PRNGKeyArray) -> Evidence:
        walk = self.posterior_walk(grid)
        paths = posterior_paths(self.drift, walk.start(num_samples), walk.steps, key=key)
        states = jax.vmap(lambda states: at_rows(states, grid))(paths.states)
        return self.weigh(grid, at_rows(walk.memory.pre, grid), paths._replace(states=states))

    def batch_evidence(self, grids: Grid, *, num_samples: int, keys: Key[Array, " batch"]) -> Evidence:
        walks = jax.vmap(self.posterior_walk)(grids)
        x0 = jax.vmap(lambda walk: walk.start(num_samples))(walks)
        paths = fused.posterior_paths(self.drift, x0, walks.steps, grids, keys=keys)
        return jax.vmap(self.weigh)(grids, jax.vmap(at_rows)(walks.memory.pre, grids), paths)

    def weigh(self, grid: Grid, pre: Float[Array, "row hidden"], paths: Path) -> Evidence:
        """The evidence of paths, given their states and the memory at the rows."""
        params = self.decode(paths.states, pre)
        log_lik = jax.vmap(lambda p: masked_log_lik(self.likelihood, p, grid))(params)
        return Evidence(log_lik, paths.kl, paths.log_ratio)

    def predict(self, grid: Grid, *, num_samples: int, key: PRNGKeyArray) -> Float[Array, "sample row channel param"]:
        walk = self.prior_walk(grid)
        states = prior_paths(self.drift, walk.start(num_samples), walk.steps, key=key)
        return self.decode(states[:, grid.rows], walk.memory.pre[grid.rows])

    def batch_predict(
        self, grids: Grid, *, num_samples: int, keys: Key[Array, " batch"]
    ) -> Float[Array, "batch sample row channel param"]:
        walks = jax.vmap(self.prior_walk)(grids)
        x0 = jax.vmap(lambda walk: walk.start(num_samples))(walks)
        states = fused.prior_paths(self.drift, x0, walks.steps, keys=keys)
        decode = lambda grid, walk, states: self.decode(states[:, grid.rows], walk.memory.pre[grid.rows])
        return jax.vmap(decode)(grids, walks, states)

    def forecast(
        self, grid: Grid, queries: Queries, *, num_samples: int, key: PRNGKeyArray
    ) -> Float[Array, "sample query channel param"]:
        walk = self.prior_walk(grid)
        states = prior_paths(self.drift, walk.start(num_samples), walk.steps, key=key)
        return self._branch(grid, queries, walk, states, key)

    def batch_forecast(
        self, grids: Grid, queries: Queries, *, num_samples: int, keys: Key[Array, " batch"]
    ) -> Float[Array, "batch sample query channel param"]:
        walks = jax.vmap(self.prior_walk)(grids)
        x0 = jax.vmap(lambda walk: walk.start(num_samples))(walks)
        states = fused.prior_paths(self.drift, x0, walks.steps, keys=keys)
        return jax.vmap(self._branch)(grids, queries, walks, states, keys)

    def _branch(
        self, grid: Grid, queries: Queries, walk: Walk, states: Float[Array, "sample point latent"], key: PRNGKeyArray
    ) -> Float[Array, "sample query channel param"]:
        """The mixture at each query, branching off from the point before it on every path."""
        ends = self._branches(grid, queries, walk, states, key)
        return self.decode(ends, self.memory.branch(grid, walk.memory, queries))

    def _branches(
        self, grid: Grid, queries: Queries, walk: Walk, states: Float[Array, "sample point latent"], key: PRNGKeyArray
    ) -> Float[Array, "sample query latent"]:
        """The state of each path at each query, by the prior from the point before it."""
        seed, post = path_seed(key), walk.memory.post

        def branches(path: Array, states: Float[Array, "point latent"]) -> Float[Array, "query latent"]:
            noise, bridge_key = path_noise(seed, path, walk.x0), jr.fold_in(key, path)

            def branch(point, length):
                dw = brownian(length, point, queries.max_step, noise, bridge_key)
                return self.euler(states[point], post[point], grid.clock[point], length, dw)

            return jax.vmap(branch)(queries.point, queries.length)

        return jax.vmap(branches)(jnp.arange(states.shape[0]), states)

    def particles(self, grid: Grid, *, num_samples: int, key: PRNGKeyArray) -> tuple[Walk, Filtered]:
        """A particle approximation of the exact filter; the proposal sees no more than the next row."""
        memory = self.memory.forward(grid)
        read = self.memory.read_along(memory)
        steps = self.steps(grid, read, self.encoder.guide(grid, read))
        walk = Walk(memory, self.initial(read.pre[0]), steps)

        def score(x: Float[Array, " latent"], row: tuple[Array, Foretold | None, Array, Array]) -> Float[Array, ""]:
            embedded, kept, y, mask = row
            params = foretold(self.likelihood, self.decoder(x, embedded), kept)
            return jnp.sum(jnp.where(mask, self.likelihood.log_prob(params, jnp.where(mask, y, 0.0)), 0.0))

        rows = (jax.vmap(self.decoder.embed)(read.pre), self.memory.kept(memory.pre), grid.values, grid.mask)
        start, seen = walk.start(num_samples), grid.mask.any(axis=1)
        return walk, filter_particles(self.drift, score, start, embed(self.drift, steps), rows, seen, key=key)

    def particle_forecast(self, grid: Grid, queries: Queries, *, num_samples: int, key: PRNGKeyArray) -> Answer:
        """Predicts each query from paths that are weighted by the rows before it."""
        walk, known = self.particles(grid, num_samples=num_samples, key=key)
        states = self._branches(grid, queries, walk, known.ahead.swapaxes(0, 1), key)
        params = self.decode(states, self.memory.branch(grid, walk.memory, queries))
        return Answer(params, states, known.size[queries.point])

    def filter(self, grid: Grid, *, num_samples: int, key: PRNGKeyArray) -> Answer:
        walk, known = self.particles(grid, num_samples=num_samples, key=key)
        clouds = jax.tree.map(lambda part: part[grid.rows], known.cloud)
        keys = jax.vmap(lambda row: jr.fold_in(jr.fold_in(key, FORWARD), row))(grid.rows)
        states = jax.vmap(lambda cloud, key: equal(cloud, key=key))(clouds, keys).swapaxes(0, 1)
        return Answer(self.decode(states, walk.memory.pre[grid.rows]), states, known.size[grid.rows])

    def interpolate(self, grid: Grid, queries: Queries, *, num_samples: int, key: PRNGKeyArray) -> Answer:
        """Interpolates by the posterior if it sees later rows (VSDN-S), else by particles."""
        if isinstance(self.encoder, Smoother):
            return self.posterior_interpolate(grid, queries, num_samples=num_samples, key=key)
        return self.particle_interpolate(grid, queries, num_samples=num_samples, key=key)

    def memory_filter(self, grid: Grid, *, num_samples: int, key: PRNGKeyArray) -> Answer:
        """Filters by the memory updated with the row, where the memory holds the dependence."""
        return Answer(look_again(self, grid, num_samples=num_samples, key=key))

    def particle_interpolate(self, grid: Grid, queries: Queries, *, num_samples: int, key: PRNGKeyArray) -> Answer:
        walk, known = self.particles(grid, num_samples=num_samples, key=key)
        steps, last = embed(self.drift, walk.steps), last_row(grid)[-1]
        paths = smooth_particles(self.drift, known, steps, last, key=key)
        places = within(grid, queries)
        return self._between(grid, places, walk, paths, key)._replace(size=known.size[places.point])

    def posterior_interpolate(self, grid: Grid, queries: Queries, *, num_samples: int, key: PRNGKeyArray) -> Answer:
        last = last_row(grid)[-1]
        walk = self.posterior_walk(grid, until(grid, last))  # so that points added for queries change no answer
        paths = posterior_paths(self.drift, walk.start(num_samples), walk.steps, key=key).states
        paths = go_on(self.drift, paths, embed(self.drift, walk.steps), last, key=key)
        return self._between(grid, within(grid, queries), walk, paths, key)

    def _between(
        self, grid: Grid, places: Queries, walk: Walk, paths: Float[Array, "sample point latent"], key: PRNGKeyArray
    ) -> Answer:
        """The mixture of whole paths at each query: bridges inside steps, the prior after the last row."""
        last = last_row(grid)[-1]

        def inside(path: Array, states: Float[Array, "point latent"]) -> Float[Array, "query latent"]:
            def one(point, length):
                step = jnp.minimum(point, len(walk.steps.dt) - 1)
                dt, diffusion = walk.steps.dt[step], walk.steps.diffusion[step]
                ends = states[point], states[step + 1]
                return bridge_step(ends, dt, length, diffusion, jr.fold_in(jr.fold_in(key, path), point))

            return jax.vmap(one)(places.point, places.length)

        beyond = self._branches(grid, places, walk, paths, key)
        known = (places.point < last)[:, None]
        states = jnp.where(known, jax.vmap(inside)(jnp.arange(paths.shape[0]), paths), beyond)
        return Answer(self.decode(states, self.memory.branch(grid, walk.memory, places)), states)

    def log_likelihood(
        self, grid: Grid, *, num_samples: int, key: PRNGKeyArray
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        _, known = self.particles(grid, num_samples=num_samples, key=key)
        return known.log_lik, jnp.min(known.size)

    def field(self, grid: Grid, *, num_samples: int, key: PRNGKeyArray) -> Field:
        walk = self.posterior_walk(grid)
        paths = posterior_paths(self.drift, walk.start(num_samples), walk.steps, key=key).states
        steps = embed(self.drift, walk.steps)
        along = jax.vmap(jax.vmap(self.drift), (0, None))
        prior, posterior = along(paths[:, :-1], steps.prior), along(paths[:, :-1], steps.posterior)
        return Field(prior, posterior, steps.diffusion)

    def begin(self, *, num_samples: int, key: PRNGKeyArray) -> Going:
        x0 = self.initial(self.memory.read(self.memory.begin()))
        states = jnp.broadcast_to(x0, (num_samples, x0.shape[0]))
        return Going(self.memory.begin(), states, jnp.zeros((), jnp.int32), key)

    def advance(self, state: Going, clock: Float[Array, " clock"], dt: Float[Array, ""]) -> Going:
        def move(x, path):
            eps = path_noise(path_seed(state.key), path, x)(state.num_steps)
            return self.euler(x, state.h, clock, dt, jnp.sqrt(dt) * eps)

        return self._move(state, move, clock, dt)

    def branch(
        self, state: Going, clock: Float[Array, " clock"], dt: Float[Array, ""], max_step: Float[Array, ""]
    ) -> Going:
        def move(x, path):
            noise = path_noise(path_seed(state.key), path, x)
            dw = brownian(dt, state.num_steps, max_step, noise, jr.fold_in(state.key, path))
            return self.euler(x, state.h, clock, dt, dw)

        return self._move(state, move, clock, dt)

    def _move(self, state: Going, move: Callable, clock: Float[Array, " clock"], dt: Float[Array, ""]) -> Going:
        states = jax.vmap(move)(state.states, jnp.arange(len(state.states)))
        return Going(self.memory.drift(state.h, clock, dt), states, state.num_steps + 1, state.key)

    def take(
        self, state: Going, y: Float[Array, " channel"], mask: Bool[Array, " channel"], clock: Float[Array, " clock"]
    ) -> Going:
        return state._replace(h=self.memory.absorb(state.h, y, mask, clock))

    def look(self, state: Going, clock: Float[Array, " clock"]) -> Float[Array, "sample channel param"]:
        return self.decode(state.states[:, None], state.h[None])[:, 0]

    def euler(
        self,
        x: Float[Array, " latent"],
        post: Float[Array, " hidden"],
        clock: Float[Array, " clock"],
        dt: Float[Array, ""],
        dw: Float[Array, " latent"],
    ) -> Float[Array, " latent"]:
        """x after one step of the prior SDE from a point with memory `post`, driven by dw."""
        read = self.memory.read(post)
        drift = self.drift(x, self.drift.embed(jnp.concatenate([read, clock])))
        return x + drift * dt + self.diffusion(read) * dw


def make_filter(data_size: int, speeds: tuple[float, ...], settings: ModelSettings, *, key: PRNGKeyArray) -> VSDN:
    """VSDN-F with fresh weights."""
    return _make(Filter(), data_size, speeds, settings, key=key)


def make_smoother(data_size: int, speeds: tuple[float, ...], settings: ModelSettings, *, key: PRNGKeyArray) -> VSDN:
    """VSDN-S with fresh weights."""
    key, backward_key = jr.split(key)
    plain = settings.model_copy(update={"tell_error": False})  # the backward memory makes no predictions of its own
    backward = make_memory(data_size, speeds, plain, key=backward_key)
    return _make(Smoother(backward), data_size, speeds, settings, key=key)


def make_memory(
    data_size: int, speeds: tuple[float, ...], settings: ModelSettings, *, key: PRNGKeyArray
) -> AbstractODERNN:
    """The ODE-RNN that the settings ask for, with fresh weights."""
    (hidden, _, width), activation = settings.sizes, settings.activation
    sizes, how = (2 * len(speeds), hidden, width), {"flow": settings.flow, "activation": activation}
    keeper = make_keeper(data_size, speeds, settings)
    if settings.tell_error:
        key, guess_key = jr.split(key)
        guess = Guess(data_size, hidden, width, settings.prep_size, activation=activation, key=guess_key)
        return GuessingODERNN(guess, *sizes, **how, key=key)
    if keeper is not None:
        return KeepingODERNN(keeper, data_size, *sizes, **how, key=key)
    return ODERNN(data_size, *sizes, **how, key=key)


def _make(
    encoder: AbstractEncoder, data_size: int, speeds: tuple[float, ...], settings: ModelSettings, *, key: PRNGKeyArray
) -> VSDN:
    memory_key, drift_key, diffusion_key, initial_key, decoder_key = jr.split(key, 5)
    (_, latent, width), activation = settings.sizes, settings.activation
    likelihood = make_likelihood(data_size, settings)
    memory = make_memory(data_size, speeds, settings, key=memory_key)
    hidden = len(memory.read(memory.begin()))
    return VSDN(
        memory=memory,
        encoder=encoder,
        drift=Drift(latent, hidden + 2 * len(speeds), width, activation=activation, key=drift_key),
        diffusion=Diffusion(hidden, latent, width, activation=activation, key=diffusion_key),
        initial=eqx.nn.MLP(hidden, latent, settings.init_width, 1, ACTIVATIONS[activation], key=initial_key),
        decoder=SplitMLP(
            latent, hidden, data_size * likelihood.num_params, width, activation=activation, key=decoder_key
        ),
        likelihood=likelihood,
    )
