"""Panels drawn as PNG, SVG or PDF, or as a page that can be zoomed."""

import json
import math
from importlib.resources import files
from pathlib import Path
from typing import Any

import matplotlib.dates
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from vsdn.data import TimeAxis
from vsdn.errors import DataError
from vsdn.files import replacing
from vsdn.frames import time_column
from vsdn.panels import SUFFIXES, Panel


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
