"""A straightforward `jax.lax.scan`: the whole first layer inside the step, no checkpointing, exact normals."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from peers.problem import Problem, Size


def make(size: Size, problem: Problem) -> Callable[[int], tuple]:
    learned = tuple(map(jnp.asarray, problem[:10]))
    dt = jnp.asarray(problem.dt)

    def drift(weights, x, context):
        first_state, first_context, first_bias, out, out_bias, raw_rate = weights
        first = jnp.concatenate([first_state, first_context], axis=1)
        hidden = jnp.tanh(first @ jnp.concatenate([x, context]) + first_bias)
        return out @ hidden + out_bias - jax.nn.softplus(raw_rate) * x

    def path(weights, x0, posterior, prior, log_diffusion, dt, key):
        def step(carry, at):
            x, kl = carry
            posterior, prior, log_diffusion, dt, eps = at
            sigma, drift_q, drift_g = jnp.exp(log_diffusion), drift(weights, x, posterior), drift(weights, x, prior)
            kl = kl + 0.5 * jnp.sum(((drift_q - drift_g) / sigma) ** 2) * dt
            return (x + drift_q * dt + sigma * jnp.sqrt(dt) * eps, kl), None

        noise = jr.normal(key, (size.steps, size.latent))
        return jax.lax.scan(step, (x0, jnp.zeros(())), (posterior, prior, log_diffusion, dt, noise))[0]

    def loss(learned, seed):
        weights, (x0, *steps) = learned[:6], learned[6:]
        keys = jr.split(jr.key(seed), (size.series, size.paths))
        one = lambda x0, q, p, d, dt, keys: jax.vmap(lambda key: path(weights, x0, q, p, d, dt, key))(keys)
        ends, kl = jax.vmap(one)(x0, *steps, dt, keys)  # pyright: ignore[reportCallIssue]
        return jnp.mean(kl) + jnp.mean((ends - 1) ** 2)

    step = jax.jit(jax.value_and_grad(loss))
    return lambda seed: jax.block_until_ready(step(learned, np.uint32(seed)))
