"""Replies: forecasts in the user's units, and answers as frames of the user's kind."""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from vsdn.answers.requests import Request, level_name
from vsdn.errors import FewParticlesWarning
from vsdn.tables.frames import answer_columns, time_column, to_frame
from vsdn.tables.table import Layout, Scaler, Table, TimeAxis

FEW = 5.0  # effective particles; with fewer, a warning is given


class Forecast(NamedTuple):
    """A forecast in the user's units: one row per query, one column per variable."""

    mean: np.ndarray
    std: np.ndarray
    quantiles: np.ndarray  # (query, channel, level)
    size: np.ndarray | None = None  # (query,) the effective number of particles, if they were weighed


def in_units(
    scaler: Scaler, mean: np.ndarray, std: np.ndarray, quantiles: np.ndarray, size: np.ndarray | None = None
) -> Forecast:
    """The forecast in the user's units, from numbers in the model's units."""
    centre, spread = scaler.mean, scaler.std
    return Forecast(centre + spread * mean, spread * std, centre[:, None] + spread[:, None] * quantiles, size)


def answer_frame(
    request: Request,
    axis: TimeAxis,
    answer: Forecast,
    levels: Sequence[float],
    variables: tuple[str, ...] | None = None,
) -> Any:
    """The answer to a request as a long frame of the user's kind, in the order of the request; for the table's
    variables unless others are named."""
    table, ids = request.table, request.table.ids[request.series]
    return forecast_frame(table.layout, axis, variables or table.variables, ids, request.times, answer, levels)


def forecast_frame(
    layout: Layout,
    axis: TimeAxis,
    variables: tuple[str, ...],
    ids: np.ndarray,
    times: np.ndarray,
    answer: Forecast,
    levels: Sequence[float],
) -> Any:
    """The forecast as a long frame of the user's kind, query after query; ids and times are the queries'."""
    columns = answer_columns(
        (layout.id, np.repeat(ids, len(variables))),
        (layout.time, np.repeat(time_column(times, axis), len(variables))),
        ("variable", np.tile(np.array(variables, object), len(times))),
        ("mean", answer.mean.ravel()),
        ("std", answer.std.ravel()),
        *((level_name(level), answer.quantiles[..., number].ravel()) for number, level in enumerate(levels)),
        *(() if answer.size is None else [("ess", np.repeat(answer.size, len(variables)))]),
    )
    return to_frame(columns, layout.backend, timezone=axis.timezone)


def warn_of_few(table: Table, series: np.ndarray, size: np.ndarray) -> None:
    """Warns if particles were few, and says where they were fewest."""
    if np.isnan(size).all() or np.nanmin(size) >= FEW:
        return
    worst = int(np.nanargmin(size))
    warnings.warn(
        f"series {table.ids[series[worst]]!s} has no more than {size[worst]:.1f} effective particles at its worst: "
        f"its answer is rough, and more draws would make it finer",
        FewParticlesWarning,
        stacklevel=2,
    )


def draws_frame(request: Request, axis: TimeAxis, draws: np.ndarray, *, with_draw: bool = True) -> Any:
    """Joint draws (query, draw, channel) as a wide frame: one row per draw of each query, one column per variable."""
    table, num_draws = request.table, draws.shape[1]
    layout = table.layout
    many = lambda column: np.tile(column, num_draws)
    columns = answer_columns(
        (layout.id, many(table.ids[request.series])),
        ("draw" if with_draw else None, np.repeat(np.arange(num_draws), len(request.times))),
        (layout.time, many(time_column(request.times, axis))),
        *((name, draws[..., number].T.ravel()) for number, name in enumerate(table.variables)),
    )
    return to_frame(columns, layout.backend, timezone=axis.timezone)
