"""Draws panels as PNG, SVG or PDF, or as an HTML page that can be zoomed."""

import bisect
import datetime
import json
import math
import textwrap
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text

from vsdn.errors import DataError
from vsdn.files import replacing
from vsdn.plots.panels import SUFFIXES, Panel
from vsdn.tables.frames import time_column
from vsdn.tables.table import TimeAxis

GREY = "#666666"  # for legend entries drawn in several colours
MOST_LARGE = 9  # panels of full size; with more, all are smaller
SHADES = (0.18, 0.33)  # opacity of the bands, widest first; they overlap
LONGEST_NAME = 0.4  # of the picture's width


class Key(NamedTuple):
    """The meaning of a line, shade, dot or colour."""

    name: str
    kind: str  # line, dashes, path, shade, dot, ring or colour
    colour: str = GREY
    density: float = 1.0  # of a shade


def draw(panels: list[Panel], path: Path, axis: TimeAxis, *, time_name: str = "time") -> None:
    """Draws the panels into a file, whose suffix selects the format."""
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


def keys(panels: list[Panel]) -> list[Key]:
    """Legend entries: in grey those for what is drawn alike in every colour, then one per name and colour."""
    curves, dots = [curve for panel in panels for curve in panel.curves], [d for panel in panels for d in panel.dots]
    bands = {band[0]: number for curve in curves for number, band in enumerate(curve.bands)}
    density = 1 - np.cumprod(1 - np.array(SHADES))
    found = [Key("mean", "line")] if bands else []
    found += [Key(name, "shade", density=round(float(density[bands[name]]), 2)) for name in reversed(bands)]
    found += [Key("single paths", "path")] if any(curve.paths.size for curve in curves) else []
    found += [Key("seen", "dot")] if any(len(d.times) for d in dots if not d.hidden) else []
    found += [Key("hidden", "ring")] if any(len(d.times) for d in dots if d.hidden) else []
    return found + list(dict.fromkeys(Key(c.name, "dashes" if c.dashed else "colour", c.colour) for c in curves))


def time_label(axis: TimeAxis, time_name: str) -> str:
    """The label of the time axis, with the time zone whose clock it shows."""
    return time_name if axis.timezone is None else f"{time_name} ({axis.timezone})"


# --------------------------------------------------------------------------------------------------------- pictures


def figure(panels: list[Panel], axis: TimeAxis, time_name: str) -> Figure:
    """The panels side by side, smaller if there are many."""
    columns, wide, high = _format(panels)
    rows = -(-len(panels) // columns)
    picture = Figure(figsize=(wide * columns, high * rows), layout="constrained")
    FigureCanvasAgg(picture)
    places = picture.subplots(rows, columns, squeeze=False).ravel()
    small = len(panels) > MOST_LARGE
    titles = [_draw_panel(place, panel, axis, small=small) for place, panel in zip(places, panels, strict=False)]
    _share_times(places[: len(panels)], columns, time_column(_ends(panels), axis))
    for place in places[len(panels) :]:
        place.set_visible(False)
    beside = (_add_legend(picture, keys(panels)), _say_below(picture, panels, time_label(axis, time_name)))
    extra = sum(each.get_window_extent().height for each in beside) / picture.dpi
    picture.set_figheight(high * rows + extra + 0.1)
    _settle(picture)
    for place, title in zip(places, titles, strict=False):
        _shorten(title, place.get_window_extent().width)
    return picture


def _share_times(places: np.ndarray, columns: int, ends: np.ndarray) -> None:
    """Gives all panels the same times, labelled only where no panel is below. (sharex would do the same, in time that
    grows with the square of the number of panels.)"""
    for place in places:
        place.set_xlim(*ends)
    for place in places[: max(len(places) - columns, 0)]:
        place.tick_params(labelbottom=False)
        place.xaxis.get_offset_text().set_visible(False)


def _settle(picture: Figure) -> None:
    """Lays out the panels once and fixes them in place."""
    engine = picture.get_layout_engine()
    assert engine is not None
    engine.execute(picture)
    picture.set_layout_engine("none")


def _ends(panels: list[Panel]) -> np.ndarray:
    """The first and last time of all panels, with a margin."""
    times = np.concatenate([part.times for panel in panels for part in (*panel.curves, *panel.dots)])
    room = 0.05 * float(np.ptp(times)) or 0.5
    return np.array([times.min() - room, times.max() + room])


def _format(panels: list[Panel]) -> tuple[int, float, float]:
    """The number of panels per row, and the width and height of each in inches."""
    count = len(panels)
    if panels[0].row is not None:
        columns = sum(panel.row == panels[0].row for panel in panels)
    else:
        columns = min(count, 3) if count <= MOST_LARGE else math.ceil(math.sqrt(1.5 * count))
    if count <= MOST_LARGE:
        return columns, 6.4 if count == 1 else 4.6, 3.2 if count == 1 else 2.9
    return columns, max(2.5, 7.5 / columns), 1.7


def _draw_panel(place: Axes, panel: Panel, axis: TimeAxis, *, small: bool) -> Text:
    """Draws a panel and returns its title."""
    shown = lambda times: time_column(times, axis)
    for curve in panel.curves:
        for density, (_, low, high) in zip(SHADES, curve.bands, strict=False):
            place.fill_between(shown(curve.times), low, high, color=curve.colour, alpha=density, lw=0)
        for path in curve.paths:
            place.plot(shown(curve.times), path, color=curve.colour, lw=0.6, alpha=0.35)
        style = "--" if curve.dashed else "-"
        place.plot(shown(curve.times), curve.line, style, color=curve.colour, lw=1.0 if small else 1.4)
    for dots in panel.dots:
        style = _marker(hidden=dots.hidden)
        place.plot(shown(dots.times), dots.values, ls="", color=dots.colour, **style)
    if panel.mark is not None:
        place.axvline(shown(np.array([panel.mark]))[0], color="0.4", lw=0.8, ls=":")
    if axis.kind == "date":
        _show_dates(place, axis, small=small)
    place.spines[["top", "right"]].set_visible(False)
    place.tick_params(labelsize=6 if small else 8)
    for each in (place.xaxis, place.yaxis):
        each.get_offset_text().set_fontsize(6 if small else 8)
    return place.set_title(panel.title, fontsize=8 if small else 10, loc="left", parse_math=False)


def _marker(*, hidden: bool) -> dict[str, Any]:
    return {"mfc": "white", "ms": 4, "mew": 1, "marker": "o"} if hidden else {"ms": 6, "marker": "."}


def _show_dates(place: Axes, axis: TimeAxis, *, small: bool) -> None:
    """Puts ticks at whole calendar units, with clock times in the axis' time zone."""
    zone = _zone(axis)
    fewest, most = (2, 5) if small else (3, 7)  # with a narrower choice, some ranges would have no suitable interval
    locator = AutoDateLocator(tz=zone, minticks=fewest, maxticks=most)
    place.xaxis.set_major_locator(locator)
    place.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=zone))


def _zone(axis: TimeAxis) -> datetime.tzinfo:
    """The time zone of the axis; dates without one are shown as they are."""
    if axis.timezone is None:
        return datetime.UTC
    try:
        return pa.scalar(0, pa.timestamp("us", axis.timezone)).as_py().tzinfo
    except pa.ArrowInvalid as error:
        raise DataError(f"a time zone known here was expected, not {axis.timezone}") from error


def _say_below(picture: Figure, panels: list[Panel], label: str) -> Text:
    """The text below all panels: the label of the times, and each note once."""
    letters = int(13 * picture.get_figwidth())
    notes = [
        line for note in dict.fromkeys(n for p in panels for n in p.notes) for line in textwrap.wrap(note, letters)
    ]
    return picture.supxlabel("\n".join([label, *notes]), fontsize=9, parse_math=False)


def _add_legend(picture: Figure, found: list[Key]) -> Legend:
    """The legend above all panels, in as few rows as fit."""
    for rows in range(1, len(found)):
        legend = _legend(picture, found, -(-len(found) // rows))
        if legend.get_window_extent().width <= picture.bbox.width:
            return legend
        legend.remove()
    return _legend(picture, found, 1)


def _legend(picture: Figure, found: list[Key], columns: int) -> Legend:
    along_rows = [key for first in range(columns) for key in found[first::columns]]  # matplotlib fills columns first
    handles, names = [_handle(key) for key in along_rows], [key.name for key in along_rows]
    legend = picture.legend(
        handles, names, loc="outside upper center", ncols=columns, columnspacing=1.4, frameon=False, fontsize=9
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
        _shorten(text, LONGEST_NAME * picture.bbox.width)
    return legend


def _handle(key: Key) -> Artist:
    """The symbol beside a name in the legend."""
    if key.kind in ("shade", "colour"):
        return Patch(facecolor=key.colour, alpha=key.density, lw=0)
    if key.kind in ("dot", "ring"):
        return Line2D([], [], ls="", color=key.colour, **_marker(hidden=key.kind == "ring"))
    width, density = (0.6, 0.6) if key.kind == "path" else (1.4, 1.0)
    return Line2D([], [], ls="--" if key.kind == "dashes" else "-", color=key.colour, lw=width, alpha=density)


def _shorten(text: Text, width: float) -> None:
    """Cuts the middle out of a text wider than `width` pixels."""
    whole = text.get_text()

    def width_of(kept: int) -> float:
        text.set_text(f"{whole[: -(-kept // 2)]}…{whole[len(whole) - kept // 2 :]}")
        return text.get_window_extent().width

    if text.get_window_extent().width > width:
        width_of(max(bisect.bisect_right(range(len(whole)), width, key=width_of) - 1, 1))


# ------------------------------------------------------------------------------------------------------------ pages


def page(panels: list[Panel], axis: TimeAxis, time_name: str) -> str:
    """A self-contained HTML page: the panels can be zoomed, moved and read off."""
    data = {
        "dates": axis.kind == "date",
        "zone": axis.timezone,
        "time": time_name,
        "columns": _format(panels)[0] if panels[0].row is not None else None,
        "notes": list(dict.fromkeys(note for panel in panels for note in panel.notes)),
        "keys": [key._asdict() for key in keys(panels)],
        "shades": SHADES,
        "panels": [_panel_json(panel, axis) for panel in panels],
    }
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")  # no tag ends or begins
    return files("vsdn").joinpath("plots", "page.html").read_text("utf-8").replace("null /* DATA */", text)


def _panel_json(panel: Panel, axis: TimeAxis) -> dict[str, Any]:
    return {
        "title": panel.title,
        "mark": None if panel.mark is None else _moments(np.array([panel.mark]), axis)[0],
        "curves": [
            {
                "name": curve.name,
                "colour": curve.colour,
                "times": _moments(curve.times, axis),
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
            {"colour": d.colour, "times": _moments(d.times, axis), "values": _numbers(d.values), "hidden": d.hidden}
            for d in panel.dots
        ],
    }


def _moments(times: np.ndarray, axis: TimeAxis) -> list[float | None]:
    """Times unchanged; for dates, milliseconds since 1970-01-01 in UTC."""
    if axis.kind == "number":
        return _numbers(times)
    return (axis.to_datetimes(times).astype("datetime64[us]").astype(np.int64) / 1e3).tolist()


def _numbers(values: np.ndarray) -> list[float | None]:
    """The numbers with all digits; null for NaN, which JSON cannot express."""
    return [value if math.isfinite(value) else None for value in np.asarray(values, float).tolist()]
