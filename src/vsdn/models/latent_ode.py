"""Latent ODE (Chen et al. 2018, Rubanova et al. 2019): the only uncertainty is the start of a deterministic flow."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from vsdn.grids.grid import Grid, at_rows, last_told
from vsdn.likelihoods import Likelihood
from vsdn.models.base import Evidence, make_decoder, make_likelihood, masked_log_lik
from vsdn.models.latent import AbstractLatent, Recognition, Start
from vsdn.nets import Drift
from vsdn.sde import path_noise, path_seed
from vsdn.settings import ModelSettings


class LatentODE(AbstractLatent):
    """z₀ ~ N(0, I), dz/dt = N(z) − λ∘z, y ~ Φ(D(z)); q(z₀) reads the series from its end."""

    recognition: Recognition
    velocity: Drift
    decoder: eqx.nn.MLP
    likelihood: Likelihood

    def evidence(self, grid: Grid, *, num_samples: int, key: PRNGKeyArray) -> Evidence:
        start = self.recognition(grid, last_told(grid)[-1]).start
        z0 = self.draw(start, num_samples=num_samples, key=key)
        states = jax.vmap(lambda z0: at_rows(self.flow(grid, z0), grid))(z0)
        log_lik = jax.vmap(lambda params: masked_log_lik(self.likelihood, params, grid))(self.decode(states))
        return Evidence(log_lik, jnp.full_like(log_lik, start.kl()), jax.vmap(start.log_ratio)(z0))

    def walk(
        self, grid: Grid, known: Int[Array, ""], *, num_samples: int, key: PRNGKeyArray
    ) -> Float[Array, "sample point latent"]:
        start = self.recognition(grid, known).start
        return jax.vmap(lambda z0: self.flow(grid, z0))(self.draw(start, num_samples=num_samples, key=key))

    def draw(self, start: Start, *, num_samples: int, key: PRNGKeyArray) -> Float[Array, "sample latent"]:
        """z₀ of each path."""
        seed = path_seed(key)
        return jax.vmap(lambda path: start.draw(path_noise(seed, path, start.mean)))(jnp.arange(num_samples))

    def flow(self, grid: Grid, z0: Float[Array, " latent"]) -> Float[Array, "point latent"]:
        """z along the grid."""

        @jax.checkpoint  # the backward pass keeps z alone
        def step(z, at):
            z = self.midpoint(z, *at)
            return z, z

        embedded = jax.vmap(self.velocity.embed)(grid.clock[:-1])
        states = jax.lax.scan(step, z0, (embedded, grid.dt[1:]))[1]
        return jnp.concatenate([z0[None], states])

    def midpoint(
        self, z: Float[Array, " latent"], embedded: Float[Array, " width"], dt: Float[Array, ""]
    ) -> Float[Array, " latent"]:
        """z after one midpoint step: of second order, since no noise hides the solver's error here."""
        middle = z + 0.5 * dt * self.velocity(z, embedded)
        return z + dt * self.velocity(middle, embedded)

    def branch(
        self,
        z: Float[Array, " latent"],
        clock: Float[Array, " clock"],
        dt: Float[Array, ""],
        dw: Float[Array, " latent"],
    ) -> Float[Array, " latent"]:
        return self.midpoint(z, self.velocity.embed(clock), dt)

    def between(
        self,
        ends: tuple[Float[Array, " latent"], Float[Array, " latent"]],
        clock: Float[Array, " clock"],
        dt: Float[Array, ""],
        length: Float[Array, ""],
        key: PRNGKeyArray,
    ) -> Float[Array, " latent"]:
        return self.midpoint(ends[0], self.velocity.embed(clock), length)


def make_latent_ode(
    data_size: int, speeds: tuple[float, ...], settings: ModelSettings, *, key: PRNGKeyArray
) -> LatentODE:
    """A Latent ODE with fresh weights."""
    recognition_key, velocity_key, decoder_key = jr.split(key, 3)
    _, latent, width = settings.sizes
    likelihood = make_likelihood(data_size, settings)
    return LatentODE(
        recognition=Recognition(data_size, 2 * len(speeds), settings, key=recognition_key),
        velocity=Drift(latent, 2 * len(speeds), width, activation=settings.activation, key=velocity_key),
        decoder=make_decoder(latent, likelihood, settings, key=decoder_key),
        likelihood=likelihood,
    )
