"""What pictures show: panels of curves with bands, paths and dots. How they are drawn is another matter (`plots`)."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from vsdn.data import Table

BANDS = (0.05, 0.25, 0.75, 0.95)  # the ends of the 90 and 50 % intervals
COLOURS = ("#1f6fb4", "#d1495b", "#2e8b57", "#8e5ea2", "#c98a1b", "#4a4e69")
SUFFIXES = (".png", ".svg", ".pdf", ".html")
MOST_VARIABLES = 6  # of a panel; more could not be told apart


class Curve(NamedTuple):
    """A line along times, in its bands (the widest first), and single paths beside it."""

    name: str
    colour: str
    times: np.ndarray
    line: np.ndarray
    bands: tuple[tuple[str, np.ndarray, np.ndarray], ...] = ()  # name, low, high
    paths: np.ndarray = np.empty((0, 0))  # (path, time)
    dashed: bool = False


class Dots(NamedTuple):
    """What was measured; rings where it was hidden from the model."""

    colour: str
    times: np.ndarray
    values: np.ndarray
    hidden: bool = False


@dataclass(frozen=True, eq=False)
class Panel:
    title: str
    curves: list[Curve]
    dots: list[Dots]
    mark: float | None = None  # a time that divides it


class Fan(NamedTuple):
    """What is said of one series along a line of times."""

    series: int
    times: np.ndarray
    mean: np.ndarray  # (time, channel)
    bands: np.ndarray  # (time, channel, end), ends as in BANDS


def fan_panel(table: Table, fan: Fan, *, cut: float | None = None) -> Panel:
    """A series: mean, 50 and 90 % bands, and what was seen (as rings what was hidden, after `cut`)."""
    curves, dots = [], []
    rows = slice(table.starts[fan.series], table.starts[fan.series + 1])
    times, hidden = table.times[rows], np.zeros(rows.stop - rows.start, bool)
    hidden = hidden if cut is None else times > cut
    for channel, name in enumerate(table.variables[:MOST_VARIABLES]):
        colour = COLOURS[channel]
        low90, low50, high50, high90 = np.moveaxis(fan.bands[:, channel], -1, 0)
        bands = (("90 %", low90, high90), ("50 %", low50, high50))
        curves.append(Curve(name, colour, fan.times, fan.mean[:, channel], bands))
        mask, values = table.mask[rows, channel], table.values[rows, channel]
        for late in (False, True):
            shown = mask & (hidden == late)
            if shown.any() or not late:
                dots.append(Dots(colour, times[shown], values[shown], hidden=late))
    return Panel(f"series {table.ids[fan.series]}", curves, dots, cut)
