"""Pictures of forecasts."""

from dataclasses import dataclass
from pathlib import Path

import matplotlib.dates
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from vsdn.data import Table
from vsdn.errors import DataError
from vsdn.files import replacing
from vsdn.frames import time_column

BANDS = (0.05, 0.25, 0.75, 0.95)  # the ends of the 90 and 50 % intervals
COLOURS = ("#1f6fb4", "#d1495b", "#2e8b57", "#8e5ea2", "#c98a1b", "#4a4e69")
SUFFIXES = (".png", ".svg", ".pdf")


@dataclass(frozen=True, eq=False)
class Fan:
    """The forecast of one series along a line of times."""

    series: int
    times: np.ndarray
    mean: np.ndarray  # (time, channel)
    bands: np.ndarray  # (time, channel, end), ends as in BANDS


def fan_chart(table: Table, fans: list[Fan], path: Path, *, cut: float | None = None, channels: int = 6) -> None:
    """Nothing; a panel a series: what was seen (rings where it was hidden, after `cut`), mean, 50 and 90 % bands."""
    if path.suffix.lower() not in SUFFIXES:
        raise DataError(f"a picture is a {', '.join(SUFFIXES)} file, but {path} was asked for")
    columns = min(len(fans), 3)
    rows = -(-len(fans) // columns)
    figure = Figure(figsize=(4.6 * columns, 2.9 * rows + 0.6), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(rows, columns, squeeze=False, sharex=table.axis.kind == "number").ravel()
    for panel, fan in zip(panels, fans, strict=False):
        _draw_fan(panel, table, fan, cut, min(channels, len(table.variables)))
    for panel in panels[len(fans) :]:
        panel.set_visible(False)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False, fontsize=9)
    try:
        with replacing(path) as file:
            figure.savefig(file, format=path.suffix[1:].lower(), dpi=130)
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror or error}") from None


def _draw_fan(panel: Axes, table: Table, fan: Fan, cut: float | None, channels: int) -> None:
    rows = slice(table.starts[fan.series], table.starts[fan.series + 1])
    seen_at, times = (time_column(t, table.axis) for t in (table.times[rows], fan.times))
    hidden = np.zeros(len(seen_at), bool) if cut is None else table.times[rows] > cut
    for channel in range(channels):
        colour, name = COLOURS[channel % len(COLOURS)], table.variables[channel]
        low90, low50, high50, high90 = np.moveaxis(fan.bands[:, channel], -1, 0)
        panel.fill_between(times, low90, high90, color=colour, alpha=0.18, lw=0, label=f"{name} 90 %")
        panel.fill_between(times, low50, high50, color=colour, alpha=0.33, lw=0, label="50 %")
        panel.plot(times, fan.mean[:, channel], color=colour, lw=1.4, label="mean")
        mask, values = table.mask[rows, channel], table.values[rows, channel]
        panel.plot(seen_at[mask & ~hidden], values[mask & ~hidden], ".", color=colour, ms=6, label="seen")
        if hidden.any():
            late = mask & hidden
            panel.plot(seen_at[late], values[late], "o", mfc="white", color=colour, ms=4, mew=1, label="hidden")
    if cut is not None:
        panel.axvline(time_column(np.array([cut]), table.axis)[0], color="0.4", lw=0.8, ls=":")
    if table.axis.kind == "date":
        locator = matplotlib.dates.AutoDateLocator(maxticks=6)
        panel.xaxis.set_major_locator(locator)
        panel.xaxis.set_major_formatter(matplotlib.dates.ConciseDateFormatter(locator))
    panel.set_xlabel(table.layout.time, fontsize=8)
    panel.set_title(f"series {table.ids[fan.series]}", fontsize=10, loc="left")
    panel.spines[["top", "right"]].set_visible(False)
    panel.tick_params(labelsize=8)
