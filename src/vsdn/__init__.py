"""Sporadic time series: learn a continuous-time stochastic model from a table, and ask it questions."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from vsdn.errors import DataError, RunError, SettingsError, VsdnError
from vsdn.version import __version__

if TYPE_CHECKING:
    from vsdn import exported
    from vsdn.fitted import Fitted, load
    from vsdn.fitting import fit, resume
    from vsdn.online.tracking import Online
    from vsdn.tables.frames import Columns

__all__ = [
    "Columns",
    "DataError",
    "Fitted",
    "Online",
    "RunError",
    "SettingsError",
    "VsdnError",
    "__version__",
    "exported",
    "fit",
    "load",
    "resume",
]

HOMES = {
    "Columns": "tables.frames",
    "Fitted": "fitted",
    "load": "fitted",
    "fit": "fitting",
    "resume": "fitting",
    "Online": "online.tracking",
}


def __getattr__(name: str) -> Any:
    """Imports names on first use, so that an exported forecaster runs without any model's code."""
    if name in HOMES:
        return getattr(import_module(f"vsdn.{HOMES[name]}"), name)
    if name == "exported":
        return import_module("vsdn.exported")
    raise AttributeError(f"module 'vsdn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
