"""Pictures: panels of curves with bands, paths and dots, drawn as PNG, SVG or PDF, or as a page that can be zoomed."""

import json
import math
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.dates
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from vsdn.data import Table, TimeAxis
from vsdn.errors import DataError
from vsdn.files import replacing
from vsdn.frames import time_column

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


def draw(panels: list[Panel], path: Path, axis: TimeAxis, *, time_name: str = "time") -> None:
    """Nothing; the panels are in a file of the kind that its suffix says."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise DataError(f"a picture is a {', '.join(SUFFIXES)} file, but {path} was asked for")
    try:
        with replacing(path) as file:
            if suffix == ".html":
                file.write(page(panels, axis, time_name).encode())
            else:
                figure(panels, axis, time_name).savefig(file, format=suffix[1:], dpi=130)
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror or error}") from None


def figure(panels: list[Panel], axis: TimeAxis, time_name: str) -> Figure:
    """The panels side by side, smaller where there are many."""
    columns = min(len(panels), 3) if len(panels) <= 9 else math.ceil(math.sqrt(1.5 * len(panels)))
    rows = -(-len(panels) // columns)
    wide, high = (4.6, 2.9) if len(panels) <= 9 else (2.5, 1.7)
    picture = Figure(figsize=(wide * columns, high * rows + 0.6), layout="constrained")
    FigureCanvasAgg(picture)
    places = picture.subplots(rows, columns, squeeze=False, sharex=axis.kind == "number").ravel()
    for place, panel in zip(places, panels, strict=False):
        _draw_panel(place, panel, axis, small=len(panels) > 9)
    for place in places[len(panels) :]:
        place.set_visible(False)
    for place in places[max(len(panels) - columns, 0) : len(panels)]:
        place.tick_params(labelbottom=True)  # nothing is shown below it
    picture.supxlabel(time_name, fontsize=9)
    handles, labels = places[0].get_legend_handles_labels()
    first = {label: handle for handle, label in reversed(list(zip(handles, labels, strict=True)))}
    names = list(dict.fromkeys(labels))
    columns = min(len(names), 3 * columns + 2)
    picture.legend(
        [first[n] for n in names], names, loc="outside upper center", ncols=columns, frameon=False, fontsize=9
    )
    return picture


def _draw_panel(place: Axes, panel: Panel, axis: TimeAxis, *, small: bool) -> None:
    shown = lambda times: time_column(times, axis)
    for curve in panel.curves:
        for number, (name, low, high) in enumerate(curve.bands):
            shade, label = 0.18 + 0.15 * number, f"{curve.name} {name}" if number == 0 else name
            place.fill_between(shown(curve.times), low, high, color=curve.colour, alpha=shade, lw=0, label=label)
        for path in curve.paths:
            place.plot(shown(curve.times), path, color=curve.colour, lw=0.6, alpha=0.35)
        label = "mean" if curve.bands else curve.name
        style = "--" if curve.dashed else "-"
        place.plot(shown(curve.times), curve.line, style, color=curve.colour, lw=1.0 if small else 1.4, label=label)
    for dots in panel.dots:
        style = {"mfc": "white", "ms": 4, "mew": 1, "marker": "o"} if dots.hidden else {"ms": 6, "marker": "."}
        label = "hidden" if dots.hidden else "seen"
        place.plot(shown(dots.times), dots.values, ls="", color=dots.colour, label=label, **style)
    if panel.mark is not None:
        place.axvline(shown(np.array([panel.mark]))[0], color="0.4", lw=0.8, ls=":")
    if axis.kind == "date":
        locator = matplotlib.dates.AutoDateLocator(minticks=2, maxticks=4 if small else 7)
        place.xaxis.set_major_locator(locator)
        place.xaxis.set_major_formatter(matplotlib.dates.ConciseDateFormatter(locator))
        place.xaxis.get_offset_text().set_fontsize(6 if small else 8)
    place.set_title(panel.title, fontsize=8 if small else 10, loc="left")
    place.spines[["top", "right"]].set_visible(False)
    place.tick_params(labelsize=6 if small else 8)


def page(panels: list[Panel], axis: TimeAxis, time_name: str) -> str:
    """A page of HTML that needs nothing else: the panels can be zoomed, moved and read off."""
    data = {"dates": axis.kind == "date", "time": time_name, "panels": [_panel_json(panel, axis) for panel in panels]}
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("</", "<\\/")
    return files("vsdn").joinpath("page.html").read_text("utf-8").replace("null /* DATA */", text)


def _panel_json(panel: Panel, axis: TimeAxis) -> dict[str, Any]:
    moments = lambda times: _numbers(times * axis.seconds * 1e3 if axis.kind == "date" else times)
    return {
        "title": panel.title,
        "mark": None if panel.mark is None else moments(np.array([panel.mark]))[0],
        "curves": [
            {
                "name": curve.name,
                "colour": curve.colour,
                "times": moments(curve.times),
                "line": _numbers(curve.line),
                "bands": [
                    {"name": name, "low": _numbers(low), "high": _numbers(high)} for name, low, high in curve.bands
                ],
                "paths": [_numbers(path) for path in curve.paths],
                "dashed": curve.dashed,
            }
            for curve in panel.curves
        ],
        "dots": [
            {"colour": d.colour, "times": moments(d.times), "values": _numbers(d.values), "hidden": d.hidden}
            for d in panel.dots
        ],
    }


def _numbers(values: np.ndarray) -> list[float | None]:
    """As many digits as a screen can show; JSON has no word for NaN."""
    return [float(f"{value:.9g}") if math.isfinite(value) else None for value in np.asarray(values, float).tolist()]
