"""diffrax with Euler and fixed steps, KL as one more component; time is counted in steps (see torchsde_peer)."""

from collections.abc import Callable

import diffrax  # pyright: ignore[reportMissingImports]
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from peers.problem import Problem, Size


class Diagonal(diffrax.ControlTerm):
    """A control term whose product is elementwise."""

    def prod(self, vf, control):
        return jax.tree.map(jnp.multiply, vf, control)


class Increments(diffrax.AbstractPath):
    """Brownian motion at whole times, its increments drawn before: the least that a solver with fixed steps can do."""

    t0: float  # pyright: ignore[reportIncompatibleVariableOverride]
    t1: float  # pyright: ignore[reportIncompatibleVariableOverride]
    noise: jax.Array

    def evaluate(self, t0, t1=None, left=True):
        number = jnp.asarray(t0 + 1e-3).astype(jnp.int32)
        return self.noise[jnp.clip(number, 0, len(self.noise) - 1)], jnp.zeros(())


def make(size: Size, problem: Problem, *, tree: bool = False) -> Callable[[int], tuple]:
    """`tree=True`: with the Brownian motion that it recommends; else with increments drawn before."""
    learned = tuple(map(jnp.asarray, problem[:10]))
    dt = jnp.asarray(problem.dt)

    def path(weights, x0, posterior, prior, sigma, dt, key):
        first_state, out, out_bias, rate = weights

        def drift(t, y, args):
            x, _ = y
            n = jnp.clip((t + 1e-3).astype(jnp.int32), 0, size.steps - 1)
            hidden = first_state @ x
            of = lambda context: out @ jnp.tanh(hidden + context[n]) + out_bias - rate * x
            drift_q, drift_g = of(posterior), of(prior)
            return drift_q * dt[n], 0.5 * jnp.sum(((drift_q - drift_g) / sigma[n]) ** 2) * dt[n]

        def diffusion(t, y, args):
            n = jnp.clip((t + 1e-3).astype(jnp.int32), 0, size.steps - 1)
            return sigma[n] * jnp.sqrt(dt[n]), jnp.zeros(())

        shape = (jax.ShapeDtypeStruct((size.latent,), jnp.float32), jax.ShapeDtypeStruct((), jnp.float32))
        end = float(size.steps)
        if tree:
            motion = diffrax.VirtualBrownianTree(0.0, end, tol=0.5, shape=shape, key=key)
        else:
            motion = Increments(0.0, end, jr.normal(key, (size.steps, size.latent)))
        terms = diffrax.MultiTerm(diffrax.ODETerm(drift), Diagonal(diffusion, motion))
        solution = diffrax.diffeqsolve(
            terms, diffrax.Euler(), 0.0, end, 1.0, (x0, jnp.zeros(())), max_steps=size.steps
        )  # its default: the end alone is kept, and gradients by recursive checkpointing
        ends, kl = solution.ys  # pyright: ignore[reportGeneralTypeIssues]
        return ends[0], kl[0]

    def loss(learned, seed):
        first_state, first_context, first_bias, out, out_bias, raw_rate, x0, posterior, prior, log_diffusion = learned
        embed = lambda context: context @ first_context.T + first_bias
        weights = (first_state, out, out_bias, jax.nn.softplus(raw_rate))
        keys = jr.split(jr.key(seed), (size.series, size.paths))
        one = lambda x0, q, p, d, dt, keys: jax.vmap(lambda key: path(weights, x0, q, p, d, dt, key))(keys)
        ends, kl = jax.vmap(one)(x0, embed(posterior), embed(prior), jnp.exp(log_diffusion), dt, keys)
        return jnp.mean(kl) + jnp.mean((ends - 1) ** 2)

    step = jax.jit(jax.value_and_grad(loss))
    return lambda seed: jax.block_until_ready(step(learned, np.uint32(seed)))
