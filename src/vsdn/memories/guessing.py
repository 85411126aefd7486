"""A memory that predicts the next row itself and is updated with its residuals, as in the jumps of GRU-ODE-Bayes."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from vsdn.memories.keepers import Foretold, squash
from vsdn.memories.memory import AbstractFlow, AbstractODERNN, make_moving
from vsdn.nets import ACTIVATIONS

MOST_LOG_SCALE = 6.0  # bound, either way, on the log of the predicted scale


class Preparation(eqx.Module):
    """q = m∘ReLU(W [y, mean, log-variance, error] + b), with a W and a b for each variable."""

    weight: Float[Array, "channel prep 4"]
    bias: Float[Array, "channel prep"]

    def __init__(self, data_size: int, prep_size: int, *, key: PRNGKeyArray):
        deviation = jnp.sqrt(2.0 / (4 + prep_size))
        self.weight = deviation * jr.normal(key, (data_size, prep_size, 4))
        self.bias = jnp.full((data_size, prep_size), 0.1)

    @property
    def size(self) -> int:
        """The length of q."""
        return self.bias.size

    def __call__(self, news: Float[Array, "channel 4"], mask: Bool[Array, " channel"]) -> Float[Array, " input"]:
        prepared = jax.nn.relu(jnp.einsum("cpn,cn->cp", self.weight, news) + self.bias)
        return jnp.where(mask[:, None], prepared, 0.0).ravel()


class Guess(eqx.Module):
    """The prediction that h itself makes of each variable; a decoder describes the change from it, in its scale."""

    net: eqx.nn.MLP
    preparation: Preparation

    def __init__(
        self, data_size: int, hidden_size: int, width: int, prep_size: int, *, activation: str, key: PRNGKeyArray
    ):
        net_key, preparation_key = jr.split(key)
        self.net = eqx.nn.MLP(hidden_size, 2 * data_size, width, 1, ACTIVATIONS[activation], key=net_key)
        self.preparation = Preparation(data_size, prep_size, key=preparation_key)

    def __call__(self, h: Float[Array, "*any hidden"]) -> Foretold:
        return Foretold(*self._foretell(h))

    def news(
        self, h: Float[Array, " hidden"], y: Float[Array, " channel"], mask: Bool[Array, " channel"]
    ) -> Float[Array, " input"]:
        """The input of the memory's update: how wrong its prediction was, and how confident."""
        mean, log_scale = self._foretell(h)
        y = jnp.where(mask, y, 0.0)
        error = squash((y - mean) * jnp.exp(-log_scale))
        return self.preparation(jnp.stack([y, mean, 2 * log_scale, error], axis=1), mask)

    def _foretell(
        self, h: Float[Array, "*any hidden"]
    ) -> tuple[Float[Array, "*any channel"], Float[Array, "*any channel"]]:
        mean, raw = jnp.split(jnp.vectorize(self.net, signature="(h)->(k)")(h), 2, axis=-1)
        return mean, MOST_LOG_SCALE * jnp.tanh(raw / MOST_LOG_SCALE)


class GuessingODERNN(AbstractODERNN):
    """An ODE-RNN whose h predicts each variable itself, and whose cell receives the residuals (ours)."""

    flow: AbstractFlow
    cell: eqx.nn.GRUCell
    initial: Float[Array, " hidden"]
    guess: Guess

    def __init__(self, guess: Guess, *sizes: int, flow: str, activation: str, key: PRNGKeyArray):
        """`sizes` are those of the clock, of h and of the flow's hidden layer."""
        self.guess, num_news = guess, guess.preparation.size
        parts = make_moving(num_news, *sizes, flow=flow, activation=activation, key=key)
        self.flow, self.cell, self.initial = parts

    def kept(self, h: Float[Array, "*any hidden"]) -> Foretold:
        return self.guess(h)

    def jump(
        self, h: Float[Array, " hidden"], y: Float[Array, " channel"], mask: Bool[Array, " channel"]
    ) -> Float[Array, " hidden"]:
        return self.take(h, self.guess.news(h, y, mask), mask)
