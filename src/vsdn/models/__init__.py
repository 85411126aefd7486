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

LOSS_SETTINGS = frozenset({"even_pull"})
MEMORY_SETTINGS = LOSS_SETTINGS | {"spread_memory"}
ROW_SETTINGS = MEMORY_SETTINGS | {"hide_share", "given_rows"}  # for memories from which rows can be hidden
KEEPER_SETTINGS = ROW_SETTINGS | {"keep_last", "keep_usual", "keep_trend", "keep_linear", "tell_error"}
HEEDS: dict[str, frozenset[str]] = {
    "vsdn-f": KEEPER_SETTINGS | {"save_memory"},
    "vsdn-s": KEEPER_SETTINGS | {"save_memory"},
    "ode-rnn": KEEPER_SETTINGS,
    "gru-ode": ROW_SETTINGS,
    "latent-ode": MEMORY_SETTINGS | {"given_rows"},
    "latent-sde": MEMORY_SETTINGS,
    "gru-decay": LOSS_SETTINGS,
    "linear": frozenset(),
    "last-value": LOSS_SETTINGS,
    "mean": LOSS_SETTINGS,
}


def able(setting: str) -> tuple[str, ...]:
    """The models that can use a setting."""
    return tuple(name for name, heeds in HEEDS.items() if setting in heeds)


__all__ = ["HEEDS", "MODELS", "AbstractModel", "Answer", "Evidence", "able"]
