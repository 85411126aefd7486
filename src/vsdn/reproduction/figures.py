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
FAR_APART = 10  # largest over smallest score, above which the axis is logarithmic
BEHIND = {"fc": "white", "ec": "none", "pad": 1}  # a number at the edge
Where = Literal["outside upper center", "outside lower center"]  # a legend, beside all panels
FAR_OUT = 6  # interquartile ranges beyond the quartiles, from which scores are named at the edge
WIDE_OUT = 1.5  # the same for scores with outlying standard deviations


class Dot(NamedTuple):
    """A mean with its standard deviation, and its vertical position."""

    mean: float
    std: float
    height: float


def draw_scores(plan: Plan, runs: Sequence[Finished], task: str, path: Path) -> None:
    """Draws one panel per score, with a dot for each model and kind of settings; whiskers are standard deviations."""
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
    """The axis label, e.g. MSE a frame; the CRPS is always per value."""
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
    """Sets the scale and returns the dots to be named at the edge: those so far out, or with standard deviations so
    large, that the others would be squeezed; scores of different magnitudes get a logarithmic axis."""
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
    """Writes a score beyond the axis as a number at its edge, with its standard deviation if that is large."""
    left, right = place.get_xlim()
    number = _number(dot.mean) + (f" ± {_number(dot.std)}" if wide else "")
    text, at, side = (f"{number} →", right, "right") if dot.mean > right else (f"← {number}", left, "left")
    place.text(at, dot.height, text, ha=side, va="center", fontsize=7, bbox=BEHIND)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _printed(row: Row, task: str, score: str) -> Spread | None:
    """The paper's figure."""
    figure = row.paper.get(task, {}).get(score)
    return None if figure is None else Spread(*figure, 1)


def draw_curves(plan: Plan, curves: Sequence[CurveOf], path: Path) -> None:
    """Draws bounds against epochs: training above, validation below, one column per model and objective, one line per
    number of paths (the mean over runs)."""
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
    """Limits the axis of a row of panels, so that much lower first epochs do not squeeze the rest; their bounds are
    named at the edge of the axis."""
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
            text = f"← {_number(bound)}"  # rotated: reads upward
            place.text(epoch, bottom - margin, text, rotation=90, ha="center", va="bottom", fontsize=7, bbox=BEHIND)


def _figure(width: float, height: float) -> Figure:
    picture = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(picture)
    return picture


def _names(row: Row) -> tuple[str, str]:
    """The panel title for a row's model and the label of its curve: the row's title up to the comma, and after it."""
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
