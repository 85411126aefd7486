"""The contents of pictures, as panels: forecasts, interpolations, latent paths, drift and diffusion."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from vsdn.answers import inference
from vsdn.answers.methods import Method, Ways, by_interpolation
from vsdn.answers.questions import Frame, series_keys
from vsdn.answers.requests import Request
from vsdn.errors import DataError, SettingsError
from vsdn.grids.marching import make_grids
from vsdn.models import AbstractModel
from vsdn.models.base import Field
from vsdn.plots.panels import BANDS, COLOURS, Curve, Fan, Panel, fan_panels, series_name
from vsdn.tables.files import listing
from vsdn.tables.table import Table

AHEAD, INSIDE, SHOWN_PATHS, MOST_STATES = 80, 160, 30, 12
MOST_SHOWN = 6  # series shown by default


class Shown(NamedTuple):
    """A model, how to interpret its numbers, and the series to show."""

    model: AbstractModel
    frame: Frame
    ways: Ways
    table: Table
    series: np.ndarray
    draws: int
    seed: int


def forecast(shown: Shown, *, until: float, cut: float | None = None) -> list[Panel]:
    """One panel per series: forecasts from its last observation (up to `cut`; later ones are hidden) until a time."""
    table = shown.table
    visible = table if cut is None else table.keep_rows(table.times <= cut)
    known = shown.series[np.diff(visible.starts)[shown.series] > 0]
    if not len(known):
        raise DataError("no series has an observation up to the time from which to forecast")
    last = visible.times[visible.starts[known + 1] - 1]
    if not (last < until).any():
        raise DataError("the time until which to forecast comes before the last observation of every series")
    late = known[last >= until]
    known, last = known[last < until], last[last < until]
    fans = _fans(shown, visible, known, np.linspace(last, until, AHEAD, axis=1)[:, 1:], shown.ways.forecast)
    unseen = np.setdiff1d(shown.series, np.concatenate([known, late]))
    return fan_panels(table, fans, cut=cut, notes=_left_out(table, late, unseen))


def _left_out(table: Table, late: np.ndarray, unseen: np.ndarray) -> tuple[str, ...]:
    """A note on which series are not drawn, and why."""
    why = {"the forecast ends before they do": late, "nothing was seen of them before the forecast begins": unseen}
    named = {reason: listing(table.ids[series].tolist()) for reason, series in why.items() if len(series)}
    return tuple(f"Not drawn, because {reason}: series {names}." for reason, names in named.items())


def interpolation(shown: Shown) -> list[Panel]:
    """One panel per series: the values between its observations, given all of them."""
    table = shown.table
    first, last = table.times[table.starts[:-1]], table.times[table.starts[1:] - 1]
    last = np.maximum(last, first + shown.frame.marching.max_step)  # for a series with one observation
    times = np.linspace(first[shown.series], last[shown.series], INSIDE, axis=1)
    fans = _fans(shown, table, shown.series, times, shown.ways.interpolate)
    return fan_panels(table, fans)


def _fans(shown: Shown, visible: Table, series: np.ndarray, times: np.ndarray, method: Method) -> list[Fan]:
    request = Request(visible, np.repeat(series, times.shape[1]), times.ravel())
    answer = inference.forecast(
        shown.model, shown.frame, request, levels=BANDS, num_samples=shown.draws, seed=shown.seed, method=method
    )
    mean, bands = (part.reshape(*times.shape, *part.shape[1:]) for part in (answer.mean, answer.quantiles))
    return [Fan(int(number), *each) for number, *each in zip(series, times, mean, bands, strict=True)]


def latent(shown: Shown) -> list[Panel]:
    """One panel per latent state of the first series: paths given all of its observations, and their mean."""
    if not (shown.model.has_states and shown.model.has_paths):
        raise SettingsError("this model has no latent paths to be shown")
    table, series = shown.table, shown.series[:1]
    rows = slice(table.starts[series[0]], table.starts[series[0] + 1])
    times = np.linspace(table.times[rows.start], table.times[rows.stop - 1], INSIDE)
    request = Request(table, np.repeat(series, INSIDE), times)
    paths = inference.paths(
        shown.model,
        shown.frame,
        request,
        num_samples=shown.draws,
        seed=shown.seed,
        method=by_interpolation,
    )
    name = series_name(table, series[0])
    return [_states_panel(f"x{n + 1} of {name}", times, paths[:, :, n], COLOURS[0]) for n in range(_count(paths))]


def drift(shown: Shown) -> list[Panel]:
    """One panel per latent state of the first series: prior and posterior drift, and diffusion, over time."""
    field, times = _field(shown)
    name = series_name(shown.table, shown.series[0])
    panels = []
    for number in range(min(field.diffusion.shape[1], MOST_STATES)):
        prior, posterior = (
            Curve(label, colour, times, part[:, :, number].mean(axis=0), (_band(part[:, :, number]),))
            for label, colour, part in (
                ("prior drift", COLOURS[0], field.prior),
                ("posterior drift", COLOURS[1], field.posterior),
            )
        )
        spread = Curve("diffusion", COLOURS[2], times, field.diffusion[:, number], dashed=True)
        panels.append(Panel(f"x{number + 1} of {name}", [prior, posterior, spread], []))
    return panels


def _field(shown: Shown) -> tuple[Any, np.ndarray]:
    """Drift and diffusion of the first series' paths, and the time at which each step begins."""
    if not hasattr(shown.model, "field"):
        raise SettingsError("this model has no drift and diffusion to be shown")
    table, frame, series = shown.table, shown.frame, shown.series[:1]
    grids = make_grids(table, frame.scaler, frame.marching)
    count = int(grids.num_points[series[0]])
    grid = jax.tree.map(lambda part: part[0], grids.pad(series, count + 1, int(grids.num_rows[series[0]])))
    key = series_keys(table.ids[series], shown.seed)[0]
    ask: Any = eqx.filter_jit(lambda model, grid, key: model.field(grid, num_samples=shown.draws, key=key))
    parts = jax.tree.map(np.asarray, ask(shown.model, grid, key))
    begins = frame.marching.origins(table)[series[0]] + np.cumsum(np.asarray(grid.dt, float)) * frame.scaler.time_scale
    steps = slice(0, max(count - 1, 1))
    return Field(parts.prior[:, steps], parts.posterior[:, steps], parts.diffusion[steps]), begins[steps]


def _band(samples: np.ndarray) -> tuple[str, np.ndarray, np.ndarray]:
    return "90 %", *np.quantile(samples, (0.05, 0.95), axis=0)


def _count(paths: np.ndarray) -> int:
    return min(paths.shape[2], MOST_STATES)


def _states_panel(title: str, times: np.ndarray, states: np.ndarray, colour: str) -> Panel:
    paths = states[:, :SHOWN_PATHS].T
    return Panel(title, [Curve("latent state", colour, times, states.mean(axis=1), (_band(states.T),), paths)], [])


KINDS: dict[str, Callable[..., list[Panel]]] = {
    "forecast": forecast,
    "interpolation": interpolation,
    "latent": latent,
    "drift": drift,
}
