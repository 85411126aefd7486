"""The feed-forward networks of the paper: drift, diffusion, and their parts."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"tanh": jnp.tanh, "relu": jax.nn.relu, "silu": jax.nn.silu}


class SplitMLP(eqx.Module):
    """N([x, c]) with one hidden layer, whose first product is split into W_x x + W_c c.

    The context's part is the same for every path of a series, so it is one matrix product outside the SDE loop.
    """

    from_state: eqx.nn.Linear
    from_context: eqx.nn.Linear
    out: eqx.nn.Linear
    activation: str = eqx.field(static=True)

    def __init__(
        self, state_size: int, context_size: int, out_size: int, width: int, *, activation: str, key: PRNGKeyArray
    ):
        first_key, out_key = jr.split(key)
        first = eqx.nn.Linear(state_size + context_size, width, key=first_key)
        split = lambda part, bias: eqx.tree_at(
            lambda layer: (layer.weight, layer.bias),
            eqx.nn.Linear(part.shape[1], width, use_bias=bias is not None, key=first_key),
            (part, bias),
            is_leaf=lambda leaf: leaf is None,
        )
        self.from_state = split(first.weight[:, :state_size], None)
        self.from_context = split(first.weight[:, state_size:], first.bias)
        self.out = eqx.nn.Linear(width, out_size, key=out_key)
        self.activation = activation

    def embed(self, context: Float[Array, " context"]) -> Float[Array, " width"]:
        return self.from_context(context)

    def __call__(self, state: Float[Array, " state"], embedded: Float[Array, " width"]) -> Float[Array, " out"]:
        return self.out(ACTIVATIONS[self.activation](self.from_state(state) + embedded))


class Drift(eqx.Module):
    """H = N_drift([x, c]) − λ∘x, with learned rates λ ≥ 0 that start near zero."""

    net: SplitMLP
    raw_rate: Float[Array, " latent"]

    def __init__(self, latent_size: int, context_size: int, width: int, *, activation: str, key: PRNGKeyArray):
        self.net = SplitMLP(latent_size, context_size, latent_size, width, activation=activation, key=key)
        self.raw_rate = jnp.full(latent_size, -3.0)

    def embed(self, context: Float[Array, " context"]) -> Float[Array, " width"]:
        return self.net.embed(context)

    def __call__(self, x: Float[Array, " latent"], embedded: Float[Array, " width"]) -> Float[Array, " latent"]:
        return self.net(x, embedded) - jax.nn.softplus(self.raw_rate) * x


def bounded_exp(x: Float[Array, "*any"], bound: float = 4.0) -> Float[Array, "*any"]:
    """exp x, smoothly bounded between e^−bound and e^bound."""
    return jnp.exp(bound * jnp.tanh(x / bound))


class Diffusion(eqx.Module):
    """R = exp N_diff(h): diagonal, never of x (appendix B); the logarithm is smoothly bounded to ± `bound`."""

    net: eqx.nn.MLP
    bound: float = eqx.field(static=True)

    def __init__(
        self, hidden_size: int, latent_size: int, width: int, *, activation: str, key: PRNGKeyArray, bound: float = 4.0
    ):
        self.net = eqx.nn.MLP(hidden_size, latent_size, width, 1, ACTIVATIONS[activation], key=key)
        self.bound = bound

    def __call__(self, h: Float[Array, " hidden"]) -> Float[Array, " latent"]:
        return bounded_exp(self.net(h), self.bound)
