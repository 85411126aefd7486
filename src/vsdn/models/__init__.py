"""The models by name. A new one is a file and a line here."""

from collections.abc import Callable

from vsdn.models import latent_ode, latent_sde, simple, vsdn
from vsdn.models.base import AbstractModel, Evidence

MODELS: dict[str, Callable[..., AbstractModel]] = {
    "vsdn-f": vsdn.make_filter,
    "vsdn-s": vsdn.make_smoother,
    "latent-ode": latent_ode.make,
    "latent-sde": latent_sde.make,
    "last-value": simple.make_last_value,
    "mean": simple.make_mean,
}

__all__ = ["MODELS", "AbstractModel", "Evidence"]
