"""Latent SDE (Li et al. 2020): a prior SDE that no observation drives, and a posterior SDE that looks ahead."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from vsdn.grids.grid import Grid, at_rows, last_row
from vsdn.likelihoods import Likelihood
from vsdn.models.base import Evidence, Field, make_decoder, make_likelihood, masked_log_lik
from vsdn.models.latent import AbstractLatent, Reading, Recognition
from vsdn.nets import Drift, bounded_exp
from vsdn.sde import Path, Steps, bridge_step, path_noise, path_seed, posterior_path, prior_path
from vsdn.settings import ModelSettings


class LatentSDE(AbstractLatent):
    """z₀ ~ N(0, I), dz = H_G(z) dt + R dW, y ~ Φ(D(z)); the posterior has q(z₀) and dz = H_Q(z, c) dt + R dW.

    The context c(t) is the backward memory of all known rows after t. H_G and H_Q are separate networks; R is diagonal
    and common to both.
    """

    recognition: Recognition
    prior: Drift
    posterior: Drift
    log_diffusion: Float[Array, " latent"]
    decoder: eqx.nn.MLP
    likelihood: Likelihood

    @property
    def diffusion(self) -> Float[Array, " latent"]:
        """R."""
        return bounded_exp(self.log_diffusion)

    def steps(self, grid: Grid, reading: Reading) -> Steps:
        """The steps along which paths of this reading are simulated, with contexts embedded by the network of each."""
        clock = grid.clock[:-1]
        context = jnp.concatenate([reading.context[:-1], clock], axis=1)
        return Steps(
            dt=grid.dt[1:],
            prior=jax.vmap(self.prior.embed)(clock),
            posterior=jax.vmap(self.posterior.embed)(context),
            diffusion=jnp.broadcast_to(self.diffusion, (clock.shape[0], *self.diffusion.shape)),
        )

    def posterior_paths(self, grid: Grid, *, num_samples: int, key: PRNGKeyArray) -> Path:
        """Paths conditioned on the whole series; their KL and log-ratio include z₀."""
        reading, seed = self.recognition(grid, last_row(grid)[-1]), path_seed(key)
        start, steps = reading.start, self.steps(grid, reading)

        def walk(number: Array) -> Path:
            noise = path_noise(seed, number, start.mean)
            z0 = start.draw(noise)
            path = posterior_path(self.posterior, z0, steps, noise, prior_drift=self.prior)
            return Path(path.states, start.kl() + path.kl, start.log_ratio(z0) + path.log_ratio)

        return jax.vmap(walk)(jnp.arange(num_samples))

    def evidence(self, grid: Grid, *, num_samples: int, key: PRNGKeyArray) -> Evidence:
        paths = self.posterior_paths(grid, num_samples=num_samples, key=key)
        params = self.decode(jax.vmap(lambda states: at_rows(states, grid))(paths.states))
        log_lik = jax.vmap(lambda params: masked_log_lik(self.likelihood, params, grid))(params)
        return Evidence(log_lik, paths.kl, paths.log_ratio)

    def walk(
        self, grid: Grid, known: Int[Array, ""], *, num_samples: int, key: PRNGKeyArray
    ) -> Float[Array, "sample point latent"]:
        """Paths of the posterior SDE up to the point `known`, and of the prior SDE from there on."""
        reading, seed = self.recognition(grid, known), path_seed(key)
        start, steps = reading.start, self.steps(grid, reading)
        number = jnp.arange(grid.dt.shape[0], dtype=jnp.int32)
        before = number[1:] <= known
        past = steps._replace(dt=jnp.where(before, steps.dt, 0.0), prior=steps.posterior)
        future = steps._replace(dt=jnp.where(before, 0.0, steps.dt))

        def path(sample: Array) -> Float[Array, "point latent"]:
            noise = path_noise(seed, sample, start.mean)
            inferred = prior_path(self.posterior, start.draw(noise), past, noise)
            foretold = prior_path(self.prior, inferred[-1], future, noise)
            return jnp.where((number <= known)[:, None], inferred, foretold)

        return jax.vmap(path)(jnp.arange(num_samples))

    def field(self, grid: Grid, *, num_samples: int, key: PRNGKeyArray) -> Field:
        """Drift and diffusion along the latent paths."""
        states = self.posterior_paths(grid, num_samples=num_samples, key=key).states[:, :-1]
        steps = self.steps(grid, self.recognition(grid, last_row(grid)[-1]))
        along = lambda drift, context: jax.vmap(jax.vmap(drift), (0, None))(states, context)
        return Field(along(self.prior, steps.prior), along(self.posterior, steps.posterior), steps.diffusion)

    def branch(
        self,
        z: Float[Array, " latent"],
        clock: Float[Array, " clock"],
        dt: Float[Array, ""],
        dw: Float[Array, " latent"],
    ) -> Float[Array, " latent"]:
        return z + self.prior(z, self.prior.embed(clock)) * dt + self.diffusion * dw

    def between(
        self,
        ends: tuple[Float[Array, " latent"], Float[Array, " latent"]],
        clock: Float[Array, " clock"],
        dt: Float[Array, ""],
        length: Float[Array, ""],
        key: PRNGKeyArray,
    ) -> Float[Array, " latent"]:
        return bridge_step(ends, dt, length, self.diffusion, key)


def make_latent_sde(
    data_size: int, speeds: tuple[float, ...], settings: ModelSettings, *, key: PRNGKeyArray
) -> LatentSDE:
    """A Latent SDE with fresh weights."""
    recognition_key, prior_key, posterior_key, decoder_key = jr.split(key, 4)
    hidden, latent, width = settings.sizes
    likelihood = make_likelihood(data_size, settings)
    return LatentSDE(
        recognition=Recognition(data_size, 2 * len(speeds), settings, key=recognition_key),
        prior=Drift(latent, 2 * len(speeds), width, activation=settings.activation, key=prior_key),
        posterior=Drift(latent, hidden + 2 * len(speeds), width, activation=settings.activation, key=posterior_key),
        log_diffusion=jnp.full(latent, -1.0),
        decoder=make_decoder(latent, likelihood, settings, key=decoder_key),
        likelihood=likelihood,
    )
