"""Results as pictures: the scores of all models with their spread, and bounds against epochs."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from vsdn.files import replacing
from vsdn.plots.panels import COLOURS
from vsdn.reproduction.curves import CURVE_DIGITS, PARTS, CurveOf
from vsdn.reproduction.plans import SCORES, Plan, Row
from vsdn.reproduction.tables import HEADINGS, Book, Finished, Spread

SHOWN = ("nll", "mse", "crps")
FAR_APART = 10  # scores of which the largest is so many times the least are drawn by their logarithms
BEHIND = {"fc": "white", "ec": "none", "pad": 1}  # a number at the edge
Where = Literal["outside upper center", "outside lower center"]  # a legend, beside all panels
FAR_OUT = 6  # what lies so many times the middle half's width beyond it is named at the edge
WIDE_OUT = 1.5  # the same of scores whose deviation is unlike the others': it would squeeze them by itself


class Dot(NamedTuple):
    """A mean with its deviation, and where it is drawn."""

    mean: float
    std: float
    height: float


def draw_scores(plan: Plan, runs: Sequence[Finished], task: str, path: Path) -> None:
    """Nothing; a picture with a panel a score: a dot a model and kind of settings, its whisker the deviation."""
    done = {run.job.row for run in runs if task in run.result["scores"]}
    book, rows = Book(plan, runs), [row for row in plan.rows if row.name in done]
    if not rows:
        return
    picture = _figure(3.4 * len(SHOWN) + 1.2, 0.32 * len(rows) + 1.2)
    places = picture.subplots(1, len(SHOWN), sharey=True, squeeze=False)[0]
    for place, score in zip(places, SHOWN, strict=True):
        _draw_score(place, book, rows, task, score)
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


def _draw_score(place: Axes, book: Book, rows: Sequence[Row], task: str, score: str) -> None:
    kinds = {"the paper": "the paper"} | {preset: about.title for preset, about in book.plan.presets.items()}
    dots: dict[str, list[Dot]] = {kind: [] for kind in kinds}
    for number, kind in enumerate(kinds):
        for at, row in enumerate(rows):
            found = _printed(row, task, score) if number == 0 else book.spread(task, kind, row, score)
            if found is not None and math.isfinite(found.mean):
                dots[kind].append(Dot(found.mean, found.std or 0.0, at + 0.2 * (number - (len(kinds) - 1) / 2)))
    away = lay_scale(place, [dot for each in dots.values() for dot in each])
    for number, (kind, each) in enumerate(dots.items()):
        if each:
            shown = np.array([dot for dot in each if dot not in away]).reshape(-1, 3).T
            look = {"fmt": "osD"[number], "ms": 4, "lw": 1, "color": COLOURS[number]}
            place.errorbar(shown[0], shown[2], xerr=shown[1], label=kinds[kind], **look)


def lay_scale(place: Axes, dots: Sequence[Dot]) -> list[Dot]:
    """Those of the scores that are named at the edge, since they, or their deviations, are so far out that the others
    could not be told apart; the axis shows scores far apart by their logarithms."""
    means, stds = np.array([dot.mean for dot in dots]), np.array([dot.std for dot in dots])
    if not len(means):
        return []
    if 0 < FAR_APART * means.min() < means.max():
        place.set_xscale("log")
        place.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        place.xaxis.set_major_formatter(FuncFormatter(lambda at, _: f"{at:g}"))
        place.xaxis.set_minor_formatter(NullFormatter())
        return []
    low, high = np.percentile(means, [25, 75])
    wide = max(high - low, FAR_OUT * np.median(stds))
    reach = np.where(stds > wide, WIDE_OUT, FAR_OUT) * (high - low)
    near = means[(means >= low - reach) & (means <= high + reach)]
    if len(near) == len(means) or near.min() == near.max():  # nothing far out, or nothing to be far from
        return []
    margin = 0.08 * (near.max() - near.min())
    left, right = place.set_xlim(near.min() - margin, near.max() + margin)
    away = [dot for dot in dots if not left <= dot.mean <= right]
    for dot in away:
        _name_at_edge(place, dot, wide=dot.std > wide)
    return away


def _name_at_edge(place: Axes, dot: Dot, *, wide: bool) -> None:
    """Nothing; a score that the axis does not reach is there as a number, with its deviation where that is wide."""
    left, right = place.get_xlim()
    number = _number(dot.mean) + (f" ± {_number(dot.std)}" if wide else "")
    text, at, side = (f"{number} →", right, "right") if dot.mean > right else (f"← {number}", left, "left")
    place.text(at, dot.height, text, ha=side, va="center", fontsize=7, bbox=BEHIND)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _printed(row: Row, task: str, score: str) -> Spread | None:
    """What the paper reports."""
    figure = row.paper.get(task, {}).get(score)
    return None if figure is None else Spread(*figure, 1)


def draw_curves(plan: Plan, curves: Sequence[CurveOf], path: Path) -> None:
    """Nothing; a picture of bounds against epochs: training above, validation below, a column a model and objective,
    a line a number of paths (the mean over runs)."""
    columns: dict[str, list[Row]] = {}
    for row in plan.rows:
        if row.model is not None:
            columns.setdefault(f"{row.model} {row.objective}", []).append(row)
    picture = _figure(3.0 * len(columns) + 0.6, 5.7)
    places = picture.subplots(2, len(columns), sharex=True, sharey="row", squeeze=False)
    for column, rows in enumerate(columns.values()):
        places[0, column].set_title(_names(rows[0])[0], fontsize=9)
        places[1, column].set_xlabel("epoch", fontsize=9)
        for line, (part, name) in enumerate(PARTS.items()):
            _draw_column(places[line, column], rows, curves, part)
            places[line, 0].set_ylabel(f"bound, {name}\n(nats a value)", fontsize=9)
    for line in places:
        _limit(line)
    picture.suptitle(plan.title, fontsize=9)
    _add_legend(picture, places[0, 0], "outside lower center")
    _save(picture, path)


def _draw_column(place: Axes, rows: Sequence[Row], curves: Sequence[CurveOf], part: str) -> None:
    for number, row in enumerate(rows):
        kept = lambda losses: [round(loss, CURVE_DIGITS) for loss in losses]  # as `curves.csv` has them
        mine = [kept(curve.losses[part]) for curve in curves if curve.row == row.name]
        if not mine:
            continue
        length = min(map(len, mine))
        mean, name = -np.mean([losses[:length] for losses in mine], axis=0), _names(row)[1]
        place.plot(np.arange(1, length + 1), mean, color=COLOURS[number % len(COLOURS)], lw=1.1, label=name)
    place.grid(lw=0.3)


def _limit(line: Sequence[Axes]) -> None:
    """Nothing; first epochs far below do not squeeze the rest of a line of panels: the least bound of each is named at
    the edge."""
    points = {place: [np.asarray(curve.get_xydata()) for curve in place.get_lines()] for place in line}
    drawn = [curve[:, 1] for curves in points.values() for curve in curves]
    values = np.concatenate([each[np.isfinite(each)] for each in drawn]) if drawn else np.zeros(0)
    if not len(values):
        return
    low, high = np.percentile(values, [25, 75])
    bottom, top = values[values >= low - FAR_OUT * (high - low)].min(), values.max()
    margin = 0.1 * (top - bottom) + 1e-9
    line[0].set_ylim(bottom - margin, top + margin)
    for place, curves in points.items():
        least: dict[float, float] = {}
        for epoch, bound in np.concatenate(curves) if curves else ():
            if bound < bottom:
                least[epoch] = min(bound, least.get(epoch, bound))
        for epoch, bound in least.items():
            text = f"← {_number(bound)}"  # read from below
            place.text(epoch, bottom - margin, text, rotation=90, ha="center", va="bottom", fontsize=7, bbox=BEHIND)


def _figure(width: float, height: float) -> Figure:
    picture = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(picture)
    return picture


def _names(row: Row) -> tuple[str, str]:
    """What the panel of a row's model is called, and what its curve in it: its title before and after the comma."""
    model, _, rest = row.title.partition(", ")
    return model, rest or model


def _add_legend(picture: Figure, place: Axes, where: Where, title: str | None = None) -> None:
    handles, names = place.get_legend_handles_labels()
    if names:
        look = {"ncols": len(names), "frameon": False, "fontsize": 9, "title": title, "title_fontsize": 8}
        picture.legend(handles, names, loc=where, **look)


def _save(picture: Figure, path: Path) -> None:
    with replacing(path) as file:
        picture.savefig(file, format="png", dpi=100, metadata={"Software": None})
