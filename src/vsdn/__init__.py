"""Sporadic time series: learn a continuous-time stochastic model from a table, and ask it questions."""

from vsdn.errors import DataError, RunError, SettingsError, VsdnError
from vsdn.fitted import Fitted, load
from vsdn.fitting import fit, resume
from vsdn.frames import Columns
from vsdn.tracking import Online
from vsdn.version import __version__

__all__ = [
    "Columns",
    "DataError",
    "Fitted",
    "Online",
    "RunError",
    "SettingsError",
    "VsdnError",
    "__version__",
    "fit",
    "load",
    "resume",
]
