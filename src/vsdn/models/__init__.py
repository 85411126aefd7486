"""The models by name, and the optional settings that each can use. A new one is a file and two lines here."""

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

OF_LOSS = frozenset({"even_pull"})
OF_MEMORY = OF_LOSS | {"spread_memory"}
OF_ROWS = OF_MEMORY | {"hide_share", "given_rows"}  # of a memory that need not be told of every row
OF_KEEPERS = OF_ROWS | {"keep_last", "keep_usual", "keep_trend", "keep_linear", "tell_error"}
HEEDS: dict[str, frozenset[str]] = {
    "vsdn-f": OF_KEEPERS | {"save_memory"},
    "vsdn-s": OF_KEEPERS | {"save_memory"},
    "ode-rnn": OF_KEEPERS,
    "gru-ode": OF_ROWS,
    "latent-ode": OF_MEMORY | {"given_rows"},
    "latent-sde": OF_MEMORY,
    "gru-decay": OF_LOSS,
    "linear": frozenset(),
    "last-value": OF_LOSS,
    "mean": OF_LOSS,
}


def able(setting: str) -> tuple[str, ...]:
    """The models that can use a setting."""
    return tuple(name for name, heeds in HEEDS.items() if setting in heeds)


__all__ = ["HEEDS", "MODELS", "AbstractModel", "Answer", "Evidence", "able"]
