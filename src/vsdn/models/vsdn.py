"""VSDN: a latent SDE whose drift and diffusion follow an ODE-RNN memory of what was seen, with a decoder."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from vsdn.grids import Grid, Queries
from vsdn.likelihoods import FAMILIES, Likelihood
from vsdn.models.base import AbstractModel, Evidence, at_rows, masked_log_lik
from vsdn.nets import ACTIVATIONS, ODERNN, AbstractEncoder, Diffusion, Drift, Filter, Memory, Smoother, SplitMLP
from vsdn.sde import Steps, brownian, posterior_path, prior_path, step_noise, training_noise
from vsdn.settings import ModelSettings


class VSDN(AbstractModel):
    """The generative model and, by its encoder, the posterior: `Filter` makes VSDN-F, `Smoother` VSDN-S."""

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
        embed = jax.vmap(self.drift.embed)
        prior = embed(context(memory.post[:-1]))
        return Steps(
            dt=grid.dt[1:],
            prior=prior,
            posterior=prior if posterior is None else embed(context(posterior)),
            log_diffusion=jax.vmap(self.diffusion)(memory.post[:-1]),
        )

    def decode(
        self, states: Float[Array, "sample row latent"], pre: Float[Array, "row hidden"]
    ) -> Float[Array, "sample row channel param"]:
        """The likelihood's parameters D([x, h_pre]): the decoder must not see what it scores."""
        embedded = jax.vmap(self.decoder.embed)(pre)
        flat = jax.vmap(jax.vmap(self.decoder), in_axes=(0, None))(states, embedded)
        return flat.reshape(*flat.shape[:-1], len(self.likelihood.families), -1)

    def evidence(self, grid: Grid, *, num_samples: int, key: PRNGKeyArray) -> Evidence:
        memory = self.memory.forward(grid)
        steps = self.steps(grid, memory, self.encoder(grid, memory))
        x0 = self.initial(memory.pre[0])
        noise = training_noise(key, (num_samples, *steps.log_diffusion.shape)).astype(x0.dtype)
        paths = jax.vmap(lambda eps: posterior_path(self.drift, x0, steps, eps))(noise)
        states = jax.vmap(lambda states: at_rows(states, grid))(paths.states)
        params = self.decode(states, at_rows(memory.pre, grid))
        log_lik = jax.vmap(lambda p: masked_log_lik(self.likelihood, p, grid))(params)
        return Evidence(log_lik, paths.kl, paths.log_ratio)

    def predict(self, grid: Grid, *, num_samples: int, key: PRNGKeyArray) -> Float[Array, "sample row channel param"]:
        memory = self.memory.forward(grid)
        steps = self.steps(grid, memory)
        x0 = self.initial(memory.pre[0])
        noise = training_noise(key, (num_samples, *steps.log_diffusion.shape)).astype(x0.dtype)
        states = jax.vmap(lambda eps: prior_path(self.drift, x0, steps, eps))(noise)
        return self.decode(states[:, grid.rows], memory.pre[grid.rows])

    def forecast(
        self, grid: Grid, queries: Queries, *, num_samples: int, key: PRNGKeyArray
    ) -> Float[Array, "sample query channel param"]:
        memory = self.memory.forward(grid)
        steps = self.steps(grid, memory)
        x0 = self.initial(memory.pre[0])

        def branches(key: PRNGKeyArray) -> Float[Array, "query latent"]:
            path_key, bridge_key = jr.split(key)
            noise = step_noise(path_key, steps.dt.shape[0], x0.shape[0])
            states = prior_path(self.drift, x0, steps, noise)

            def branch(point, length):
                dw = brownian(length, point, queries.max_step, x0.shape[0], path_key, bridge_key)
                return self.euler(states[point], memory.post[point], grid.clock[point], length, dw)

            return jax.vmap(branch)(queries.point, queries.length)

        states = jax.vmap(branches)(jr.split(key, num_samples))
        flow = jax.vmap(self.memory.drift)(memory.post[queries.point], grid.clock[queries.point], queries.length)
        pre = jnp.where(queries.length[:, None] > 0, flow, memory.pre[queries.point])
        return self.decode(states, pre)

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
        return x + drift * dt + jnp.exp(self.diffusion(post)) * dw


def make_filter(data_size: int, clock_size: int, settings: ModelSettings, *, key: PRNGKeyArray) -> VSDN:
    """VSDN-F with fresh weights."""
    return _make(Filter(), data_size, clock_size, settings, key=key)


def make_smoother(data_size: int, clock_size: int, settings: ModelSettings, *, key: PRNGKeyArray) -> VSDN:
    """VSDN-S with fresh weights."""
    key, backward_key = jr.split(key)
    backward = _make_memory(data_size, clock_size, settings, key=backward_key)
    return _make(Smoother(backward), data_size, clock_size, settings, key=key)


def _make_memory(data_size: int, clock_size: int, settings: ModelSettings, *, key: PRNGKeyArray) -> ODERNN:
    hidden, _, width = settings.sizes
    return ODERNN(data_size, clock_size, hidden, width, flow=settings.flow, activation=settings.activation, key=key)


def _make(
    encoder: AbstractEncoder, data_size: int, clock_size: int, settings: ModelSettings, *, key: PRNGKeyArray
) -> VSDN:
    memory_key, drift_key, diffusion_key, initial_key, decoder_key = jr.split(key, 5)
    (hidden, latent, width), activation = settings.sizes, settings.activation
    family = FAMILIES[settings.likelihood](settings.scale_floor)
    likelihood = Likelihood((family,) * data_size)
    return VSDN(
        memory=_make_memory(data_size, clock_size, settings, key=memory_key),
        encoder=encoder,
        drift=Drift(latent, hidden + clock_size, width, activation=activation, key=drift_key),
        diffusion=Diffusion(hidden, latent, width, activation=activation, key=diffusion_key),
        initial=eqx.nn.MLP(hidden, latent, settings.init_width, 1, ACTIVATIONS[activation], key=initial_key),
        decoder=SplitMLP(
            latent, hidden, data_size * likelihood.num_params, width, activation=activation, key=decoder_key
        ),
        likelihood=likelihood,
    )
