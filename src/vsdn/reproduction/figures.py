"""Results as pictures: the scores of all models with their spread, and bounds against epochs."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from vsdn.files import replacing
from vsdn.panels import COLOURS
from vsdn.reproduction.curves import CURVE_DIGITS, PARTS, CurveOf
from vsdn.reproduction.plans import SCORES, Plan, Row
from vsdn.reproduction.tables import HEADINGS, Book, Finished, Spread

SHOWN = ("nll", "mse", "crps")
FAR_APART = 10  # scores of which the largest is so many times the least are drawn by their logarithms
Where = Literal["outside upper center", "outside lower center"]  # a legend, beside all panels
FAR_OUT = 6  # scores that lie so many times the middle half's width beyond it are named at the edge


def draw_scores(plan: Plan, runs: Sequence[Finished], task: str, path: Path) -> None:
    """Nothing; a picture with a panel a score: a dot a model and kind of settings, its whisker the deviation."""
    done = {run.job.row for run in runs if task in run.result["scores"]}
    book, rows = Book(plan, runs), [row for row in plan.rows if row.name in done]
    if not rows:
        return
    picture = _figure(3.4 * len(SHOWN) + 1.2, 0.32 * len(rows) + 1.2)
    places = picture.subplots(1, len(SHOWN), sharey=True, squeeze=False)[0]
    for place, score in zip(places, SHOWN, strict=True):
        lay_scale(place, _draw_score(place, book, rows, task, score))
        place.set_xlabel(_unit(plan, score), fontsize=9)
        place.grid(axis="x", lw=0.3)
    places[0].set_yticks(range(len(rows)), [row.title for row in rows], fontsize=8)
    places[0].invert_yaxis()
    picture.suptitle(f"{plan.title}\n{plan.tasks[task].title}", fontsize=9)
    told = f"mean, and standard deviation over {plan.repeated}; less is better"
    _add_legend(picture, places[0], "outside lower center", told)
    _save(picture, path)


def _unit(plan: Plan, score: str) -> str:
    """E.g. MSE a frame; CRPS is of values always."""
    return f"{HEADINGS[score]} a {plan.per if score in SCORES else 'value'}" + " (nats)" * (score == "nll")


def _draw_score(place: Axes, book: Book, rows: Sequence[Row], task: str, score: str) -> list[tuple[float, float]]:
    """The means that were drawn, each with its height."""
    kinds, drawn = ["the paper", *book.plan.presets], []
    for number, kind in enumerate(kinds):
        found = [_printed(row, task, score) if number == 0 else book.spread(task, kind, row, score) for row in rows]
        at = [place for place, each in enumerate(found) if each is not None and math.isfinite(each.mean)]
        if not at:
            continue
        means = [each.mean for each in found if each is not None and math.isfinite(each.mean)]
        stds = [each.std or 0.0 for each in found if each is not None and math.isfinite(each.mean)]
        name = kind if number == 0 else book.plan.presets[kind].title
        height = np.array(at) + 0.2 * (number - (len(kinds) - 1) / 2)
        place.errorbar(means, height, xerr=stds, fmt="osD"[number], ms=4, lw=1, color=COLOURS[number], label=name)
        drawn += zip(means, height, strict=True)
    return drawn


def lay_scale(place: Axes, drawn: Sequence[tuple[float, float]]) -> None:
    """Nothing; the axis shows scores far apart by their logarithms, and is not as wide as a few far out would have it:
    these are named at its edge."""
    means = np.array([mean for mean, _ in drawn])
    if not len(means):
        return
    if 0 < FAR_APART * means.min() < means.max():
        place.set_xscale("log")
        place.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        place.xaxis.set_major_formatter(FuncFormatter(lambda at, _: f"{at:g}"))
        place.xaxis.set_minor_formatter(NullFormatter())
        return
    low, high = np.percentile(means, [25, 75])
    near = means[(means >= low - FAR_OUT * (high - low)) & (means <= high + FAR_OUT * (high - low))]
    if len(near) == len(means) or near.min() == near.max():  # nothing far out, or nothing to be far from
        return
    margin = 0.08 * (near.max() - near.min())
    ends = near.min() - margin, near.max() + margin
    place.set_xlim(*ends)
    for mean, height in drawn:
        if not ends[0] <= mean <= ends[1]:
            right = mean > ends[1]
            number = f"{mean:,.0f}" if abs(mean) >= 1000 else f"{mean:.3g}"
            text, at = (f"{number} →", ends[1]) if right else (f"← {number}", ends[0])
            side, box = "right" if right else "left", {"fc": "white", "ec": "none", "pad": 1}
            place.text(at, height, text, ha=side, va="center", fontsize=7, bbox=box)


def _printed(row: Row, task: str, score: str) -> Spread | None:
    """What the paper reports."""
    figure = row.paper.get(task, {}).get(score)
    return None if figure is None else Spread(*figure, 1)


def draw_curves(plan: Plan, curves: Sequence[CurveOf], path: Path) -> None:
    """Nothing; a picture of bounds against epochs: training above, validation below, a column a model and objective,
    a line a number of paths (the mean over runs)."""
    columns: dict[str, list[Row]] = {}
    for row in plan.rows:
        columns.setdefault(f"{row.model} ({row.objective})", []).append(row)
    picture = _figure(3.0 * len(columns) + 0.6, 5.4)
    places = picture.subplots(2, len(columns), sharex=True, sharey="row", squeeze=False)
    for column, (title, rows) in enumerate(columns.items()):
        places[0, column].set_title(title, fontsize=9)
        places[1, column].set_xlabel("epoch", fontsize=9)
        for line, (part, name) in enumerate(PARTS.items()):
            _draw_column(places[line, column], rows, curves, part)
            places[line, 0].set_ylabel(f"bound, {name}\n(nats a value)", fontsize=9)
    _limit(places)
    _add_legend(picture, places[0, 0], "outside upper center")
    _save(picture, path)


def _draw_column(place: Axes, rows: Sequence[Row], curves: Sequence[CurveOf], part: str) -> None:
    for number, row in enumerate(rows):
        kept = lambda losses: [round(loss, CURVE_DIGITS) for loss in losses]  # as `curves.csv` has them
        mine = [kept(curve.losses[part]) for curve in curves if curve.row == row.name]
        if not mine:
            continue
        length = min(map(len, mine))
        mean = -np.mean([losses[:length] for losses in mine], axis=0)
        place.plot(np.arange(1, length + 1), mean, color=COLOURS[number % len(COLOURS)], lw=1.1, label=_name(row))
    place.grid(lw=0.3)


def _limit(places: np.ndarray) -> None:
    """Nothing; the first epochs, which are far below, do not squeeze the rest of a line of panels."""
    for line in places:
        values = [np.asarray(curve.get_ydata()) for place in line for curve in place.get_lines()]
        values = np.concatenate([each[np.isfinite(each)] for each in values]) if values else np.zeros(0)
        if len(values):
            low, high = np.quantile(values, 0.05), values.max()
            line[0].set_ylim(low - 0.1 * (high - low) - 1e-9, high + 0.1 * (high - low) + 1e-9)


def _figure(width: float, height: float) -> Figure:
    picture = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(picture)
    return picture


def _name(row: Row) -> str:
    """What a curve is called beside others of its model: what is after the comma of its title, if anything is."""
    return row.title.rpartition(", ")[2]


def _add_legend(picture: Figure, place: Axes, where: Where, title: str | None = None) -> None:
    handles, names = place.get_legend_handles_labels()
    if names:
        look = {"ncols": len(names), "frameon": False, "fontsize": 9, "title": title, "title_fontsize": 8}
        picture.legend(handles, names, loc=where, **look)


def _save(picture: Figure, path: Path) -> None:
    with replacing(path) as file:
        picture.savefig(file, format="png", dpi=100, metadata={"Software": None})
