"""Keepers: what a memory keeps of each variable's past values. Ours; the paper's memory is a network alone."""

from vsdn.errors import SettingsError
from vsdn.memories.keepers.base import AbstractKeeper, Foretold, squash
from vsdn.memories.keepers.last import Last
from vsdn.memories.keepers.linear import Linear
from vsdn.memories.keepers.trend import Trend
from vsdn.memories.keepers.usual import Usual
from vsdn.settings import ModelSettings

__all__ = ["AbstractKeeper", "Foretold", "Last", "Linear", "Trend", "Usual", "make_keeper", "squash"]


MOST_VARIABLES = 20  # of a linear belief, whose covariance grows with their number squared


def make_keeper(data_size: int, speeds: tuple[float, ...], settings: ModelSettings) -> AbstractKeeper | None:
    """The keeper that the settings ask for, if any; refuses settings that contradict each other."""
    one_of = ("keep_usual", "keep_trend", "keep_linear", "tell_error")
    asked = [name for name in one_of if getattr(settings, name)]
    if settings.tell_error and settings.keep_last:
        asked.append("keep_last")
    if len(asked) > 1:
        raise SettingsError(f"{' and '.join(asked)} cannot go together: choose one of them")
    if settings.keep_usual:
        return Usual(data_size, speeds)
    if settings.keep_trend:
        return Trend(data_size)
    if settings.keep_linear and data_size > MOST_VARIABLES:
        raise SettingsError(f"keep_linear is for {MOST_VARIABLES} variables at most, but there are {data_size}")
    if settings.keep_linear:
        return Linear(data_size, speeds)
    return Last(data_size) if settings.keep_last else None
