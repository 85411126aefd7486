"""Keepers: what a memory keeps of each variable as it was seen. Ours; the paper's memory is a network alone."""

from vsdn.errors import SettingsError
from vsdn.keepers.base import AbstractKeeper, Foretold, squash
from vsdn.keepers.last import Last
from vsdn.keepers.trend import Trend
from vsdn.keepers.usual import Usual
from vsdn.settings import ModelSettings

__all__ = ["AbstractKeeper", "Foretold", "Last", "Trend", "Usual", "make_keeper", "squash"]


def make_keeper(data_size: int, speeds: tuple[float, ...], settings: ModelSettings) -> AbstractKeeper | None:
    """The keeper that is asked for, if any; what is usual, and a trend, go with the last value."""
    if settings.keep_usual and settings.keep_trend:
        raise SettingsError("keep_usual and keep_trend cannot go together: choose one of them")
    if settings.keep_usual:
        return Usual(data_size, speeds)
    if settings.keep_trend:
        return Trend(data_size)
    return Last(data_size) if settings.keep_last else None
