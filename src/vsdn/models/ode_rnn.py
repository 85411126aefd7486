"""ODE-RNN (Rubanova et al. 2019): VSDN's forward memory with a decoder on h alone, without latent paths."""

import jax.random as jr
from jaxtyping import PRNGKeyArray

from vsdn.models.recurrent import Recurrent, make_recurrent
from vsdn.models.vsdn import make_memory
from vsdn.settings import ModelSettings


def make_ode_rnn(data_size: int, speeds: tuple[float, ...], settings: ModelSettings, *, key: PRNGKeyArray) -> Recurrent:
    """An ODE-RNN with fresh weights."""
    memory_key, decoder_key = jr.split(key)
    memory = make_memory(data_size, speeds, settings, key=memory_key)
    return make_recurrent(memory, data_size, settings, decoder_key=decoder_key)
