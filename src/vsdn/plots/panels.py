"""The contents of pictures: panels of curves with bands, paths and dots. `plots.drawing` draws them."""

import dataclasses
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from vsdn.tables.table import Table

BANDS = (0.05, 0.25, 0.75, 0.95)  # the ends of the 90 and 50 % intervals
COLOURS = ("#1f6fb4", "#d1495b", "#2e8b57", "#8e5ea2", "#c98a1b", "#4a4e69")
SUFFIXES = (".png", ".svg", ".pdf", ".html")
MOST_VARIABLES = 6  # of a series; more colours could not be told apart
FLAT = 10.0  # variables get separate scales if the common one is this many times a range


class Curve(NamedTuple):
    """A line over time, with bands around it (widest first) and single paths."""

    name: str
    colour: str
    times: np.ndarray
    line: np.ndarray
    bands: tuple[tuple[str, np.ndarray, np.ndarray], ...] = ()  # name, low, high
    paths: np.ndarray = np.empty((0, 0))  # (path, time)
    dashed: bool = False


class Dots(NamedTuple):
    """Measurements, drawn as rings where they were hidden from the model."""

    colour: str
    times: np.ndarray
    values: np.ndarray
    hidden: bool = False


@dataclass(frozen=True, eq=False)
class Panel:
    title: str
    curves: list[Curve]
    dots: list[Dots]
    mark: float | None = None  # a time marked by a vertical line
    row: int | None = None  # panels with the same number stand side by side
    notes: tuple[str, ...] = ()  # shown once, below all panels


class Fan(NamedTuple):
    """The answer for one series at a sequence of times."""

    series: int
    times: np.ndarray
    mean: np.ndarray  # (time, channel)
    bands: np.ndarray  # (time, channel, end), ends as in BANDS


def series_name(table: Table, series: int) -> str:
    """The name of a series in pictures, on one line."""
    return "the series" if table.layout.id is None else f"series {' '.join(str(table.ids[series]).split())}"


def fan_panels(table: Table, fans: list[Fan], *, cut: float | None = None, notes: tuple[str, ...] = ()) -> list[Panel]:
    """One panel per series; or a row of panels, one per variable, where a common scale would flatten some lines."""
    if len(table.variables) > MOST_VARIABLES:
        notes = (*notes, f"The first {MOST_VARIABLES} of {len(table.variables)} variables are drawn.")
    panels = [dataclasses.replace(_fan_panel(table, fan, cut), notes=notes) for fan in fans]
    if not _any_is_flat(panels):
        return panels
    return [part for row, panel in enumerate(panels) for part in _one_a_variable(panel, row)]


def _fan_panel(table: Table, fan: Fan, cut: float | None) -> Panel:
    """The panel of a series: mean, 50 and 90 % bands, and observations (hidden ones, after `cut`, as rings)."""
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
    return Panel(series_name(table, fan.series), curves, dots, cut)


def _any_is_flat(panels: list[Panel]) -> bool:
    """Whether some variable's range is tiny compared with the scale that all variables would share."""
    colours = dict.fromkeys(curve.colour for panel in panels for curve in panel.curves)
    low, high = np.transpose([_extent(panels, colour) for colour in colours])
    ranges = (high - low)[high > low]  # a constant is a flat line on any scale
    return bool(len(ranges)) and bool(high.max() - low.min() > FLAT * ranges.min())


def _extent(panels: list[Panel], colour: str) -> tuple[float, float]:
    """The smallest and largest value drawn in a colour."""
    curves = [curve for panel in panels for curve in panel.curves if curve.colour == colour]
    parts = [part for curve in curves for part in (curve.line, *(end for band in curve.bands for end in band[1:]))]
    parts += [dots.values for panel in panels for dots in panel.dots if dots.colour == colour]
    values = np.concatenate(parts)
    values = values[np.isfinite(values)]
    return (float(values.min()), float(values.max())) if len(values) else (0.0, 0.0)


def _one_a_variable(panel: Panel, row: int) -> list[Panel]:
    """The panel split into one panel per variable."""
    return [
        dataclasses.replace(
            panel,
            title=f"{panel.title}: {curve.name}",
            curves=[curve],
            dots=[dots for dots in panel.dots if dots.colour == curve.colour],
            row=row,
        )
        for curve in panel.curves
    ]
