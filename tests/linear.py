"""Linear parts to put into a model, so that its likelihood has a closed form."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from examples import make_model
from jaxtyping import Array
from oracles import LinearGaussian

RATES, READOUT = np.array([[-0.8, 0.3], [0.0, -0.4]]), np.array([[1.0, 0.2], [-0.3, 0.9]])
NOISE = 0.5


class Linear(eqx.Module):
    """H = A z + b, whatever the context."""

    push: Array = eqx.field(converter=jnp.asarray)

    def embed(self, context):
        return self.push

    def __call__(self, z, embedded):
        return jnp.asarray(RATES) @ z + embedded


class Readout(eqx.Module):
    """Mean C z, scale σ."""

    def __call__(self, z):
        floor = np.log(1e-3)
        raw = floor + np.log(np.expm1(np.log(NOISE) - floor))
        return jnp.stack([jnp.asarray(READOUT) @ z, jnp.full(2, raw)], axis=1).ravel()


class ContextLinear(eqx.Module):
    """H = A x + c, where c is the first entries of the context."""

    def embed(self, context):
        return 2.0 * context[:2]

    def __call__(self, x, embedded):
        return jnp.asarray(RATES) @ x + embedded


class ContextReadout(eqx.Module):
    """A readout that takes no heed of its context."""

    def embed(self, context):
        return context

    def __call__(self, x, embedded):
        return Readout()(x)


def linear_vsdn(name):
    """A VSDN that is linear and Gaussian given its memory, and its law on a grid."""
    model = make_model(name, clock_size=0, latent_size=2)
    model = eqx.tree_at(lambda m: (m.drift, m.decoder), model, (ContextLinear(), ContextReadout()))

    @jax.jit
    def parts_of(grid):
        memory = model.memory.forward(grid)
        steps = model.steps(grid, memory)
        return steps.dt, jax.vmap(model.drift.embed)(steps.prior), steps.diffusion, model.initial(memory.pre[0])

    def oracle(grid) -> LinearGaussian:
        dt, context, diffusion, x0 = map(np.asarray, parts_of(grid))
        return LinearGaussian(dt, RATES, context, diffusion, x0, READOUT, NOISE, np.asarray(grid.mask))

    return model, oracle
