"""The models by name. A new one is a file and a line here."""

from collections.abc import Callable

from vsdn.models import gru_decay, gru_ode, latent_ode, latent_sde, linear, ode_rnn, simple, vsdn
from vsdn.models.base import AbstractModel, Answer, Evidence

MODELS: dict[str, Callable[..., AbstractModel]] = {
    "vsdn-f": vsdn.make_filter,
    "vsdn-s": vsdn.make_smoother,
    "ode-rnn": ode_rnn.make_ode_rnn,
    "gru-ode": gru_ode.make_gru_ode,
    "latent-ode": latent_ode.make_latent_ode,
    "latent-sde": latent_sde.make_latent_sde,
    "gru-decay": gru_decay.make_gru_decay,
    "linear": linear.make_linear,
    "last-value": simple.make_last_value,
    "mean": simple.make_mean,
}

__all__ = ["MODELS", "AbstractModel", "Answer", "Evidence"]
