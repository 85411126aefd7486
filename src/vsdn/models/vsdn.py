"""VSDN: a latent SDE whose drift and diffusion follow an ODE-RNN memory of what was seen, with a decoder."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key, PRNGKeyArray

from vsdn import fused
from vsdn.grids import Grid, Queries, at_rows
from vsdn.likelihoods import Likelihood
from vsdn.models.base import AbstractModel, Evidence, make_likelihood, masked_log_lik
from vsdn.nets import ACTIVATIONS, ODERNN, AbstractEncoder, Diffusion, Drift, Filter, Memory, Smoother, SplitMLP
from vsdn.sde import Path, Steps, brownian, path_noise, path_seed, posterior_paths, prior_paths
from vsdn.settings import ModelSettings


class Walk(NamedTuple):
    """What the latent paths of one series begin with and walk along."""

    memory: Memory
    x0: Float[Array, " latent"]
    steps: Steps

    def start(self, num_paths: int) -> Float[Array, "path latent"]:
        return jnp.broadcast_to(self.x0, (num_paths, *self.x0.shape))


class VSDN(AbstractModel):
    """The generative model and, by its encoder, the posterior: `Filter` makes VSDN-F, `Smoother` VSDN-S.

    For one series the SDE loop is the plain scan of `vsdn.sde`; for a batch it is `vsdn.fused`, the same paths sooner.
    """

    memory: ODERNN
    encoder: AbstractEncoder
    drift: Drift
    diffusion: Diffusion
    initial: eqx.nn.MLP
    decoder: SplitMLP
    likelihood: Likelihood

    def steps(self, grid: Grid, memory: Memory, posterior: Float[Array, "step hidden"] | None = None) -> Steps:
        """What the paths of this series walk along; without a posterior's context it is the prior's."""
        context = lambda hidden: jnp.concatenate([hidden, grid.clock[: hidden.shape[0]]], axis=1)
        prior = context(memory.post[:-1])
        return Steps(
            dt=grid.dt[1:],
            prior=prior,
            posterior=prior if posterior is None else context(posterior),
            diffusion=jax.vmap(self.diffusion)(memory.post[:-1]),
        )

    def prior_walk(self, grid: Grid) -> Walk:
        memory = self.memory.forward(grid)
        return Walk(memory, self.initial(memory.pre[0]), self.steps(grid, memory))

    def posterior_walk(self, grid: Grid) -> Walk:
        memory = self.memory.forward(grid)
        context = self.encoder(grid, memory, self.encoder.beyond())
        return Walk(memory, self.initial(memory.pre[0]), self.steps(grid, memory, context))

    def decode(
        self, states: Float[Array, "sample row latent"], pre: Float[Array, "row hidden"]
    ) -> Float[Array, "sample row channel param"]:
        """The likelihood's parameters D([x, h_pre]): the decoder must not see what it scores."""
        embedded = jax.vmap(self.decoder.embed)(pre)
        flat = jax.vmap(jax.vmap(self.decoder), in_axes=(0, None))(states, embedded)
        return flat.reshape(*flat.shape[:-1], len(self.likelihood.families), -1)

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
        """What paths say, whose states and memory are those at the rows."""
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
        """The mixture at each query, a side branch from the point before it on every path."""
        seed, post = path_seed(key), walk.memory.post

        def branches(path: Array, states: Float[Array, "point latent"]) -> Float[Array, "query latent"]:
            noise, bridge_key = path_noise(seed, path, walk.x0), jr.fold_in(key, path)

            def branch(point, length):
                dw = brownian(length, point, queries.max_step, noise, bridge_key)
                return self.euler(states[point], post[point], grid.clock[point], length, dw)

            return jax.vmap(branch)(queries.point, queries.length)

        ends = jax.vmap(branches)(jnp.arange(states.shape[0]), states)
        return self.decode(ends, self.memory.branch(grid, walk.memory, queries))

    def euler(
        self,
        x: Float[Array, " latent"],
        post: Float[Array, " hidden"],
        clock: Float[Array, " clock"],
        dt: Float[Array, ""],
        dw: Float[Array, " latent"],
    ) -> Float[Array, " latent"]:
        """x after one step of the prior SDE from a point with memory `post`, driven by dw."""
        drift = self.drift(x, self.drift.embed(jnp.concatenate([post, clock])))
        return x + drift * dt + self.diffusion(post) * dw


def make_filter(data_size: int, clock_size: int, settings: ModelSettings, *, key: PRNGKeyArray) -> VSDN:
    """VSDN-F with fresh weights."""
    return _make(Filter(), data_size, clock_size, settings, key=key)


def make_smoother(data_size: int, clock_size: int, settings: ModelSettings, *, key: PRNGKeyArray) -> VSDN:
    """VSDN-S with fresh weights."""
    key, backward_key = jr.split(key)
    backward = make_memory(data_size, clock_size, settings, key=backward_key)
    return _make(Smoother(backward), data_size, clock_size, settings, key=key)


def make_memory(data_size: int, clock_size: int, settings: ModelSettings, *, key: PRNGKeyArray) -> ODERNN:
    """The ODE-RNN that the settings ask for, with fresh weights."""
    hidden, _, width = settings.sizes
    return ODERNN(data_size, clock_size, hidden, width, flow=settings.flow, activation=settings.activation, key=key)


def _make(
    encoder: AbstractEncoder, data_size: int, clock_size: int, settings: ModelSettings, *, key: PRNGKeyArray
) -> VSDN:
    memory_key, drift_key, diffusion_key, initial_key, decoder_key = jr.split(key, 5)
    (hidden, latent, width), activation = settings.sizes, settings.activation
    likelihood = make_likelihood(data_size, settings)
    return VSDN(
        memory=make_memory(data_size, clock_size, settings, key=memory_key),
        encoder=encoder,
        drift=Drift(latent, hidden + clock_size, width, activation=activation, key=drift_key),
        diffusion=Diffusion(hidden, latent, width, activation=activation, key=diffusion_key),
        initial=eqx.nn.MLP(hidden, latent, settings.init_width, 1, ACTIVATIONS[activation], key=initial_key),
        decoder=SplitMLP(
            latent, hidden, data_size * likelihood.num_params, width, activation=activation, key=decoder_key
        ),
        likelihood=likelihood,
    )
