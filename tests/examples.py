"""Small tables and models that many tests share."""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from vsdn.answers import inference
from vsdn.answers.methods import by_filter, by_memory, by_prior
from vsdn.grids.grid import Grid
from vsdn.grids.marching import Marching, make_grids
from vsdn.models import MODELS
from vsdn.settings import ModelSettings
from vsdn.tables.table import Scaler, Table

# Of two models of one kind, `make test` takes one through the tests of all models, `make test-all` both.
TWINS = ("vsdn-f", "gru-decay", "latent-sde", "mean")


def thorough(*names: object) -> list:
    """Parameters that only `make test-all` takes."""
    return [pytest.param(name, marks=pytest.mark.thorough) for name in names]


EVERY_MODEL = [*thorough(*TWINS), *(name for name in MODELS if name not in TWINS)]
TIME_SCALE = 1.5
MARCHING = Marching(max_step=0.3, periods=(2.5,))
SPEED = 2 * np.pi * TIME_SCALE / 2.5  # of its clock, in the model's unit of time
SIZES = {"hidden_size": 5, "latent_size": 3, "width": 7, "init_width": 4}
VARIABLES = ("a", "b")
UNIT = Scaler(np.zeros(1), np.ones(1), 1.0)  # of one variable, as it is


def make_table(num_series: int = 4, seed: int = 0, max_rows: int = 9) -> Table:
    """Series with irregular times and missing entries, each row with something seen."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(2, max_rows, num_series)
    starts = np.concatenate([[0], np.cumsum(counts)])
    times = np.concatenate([np.sort(rng.choice(100, count, replace=False)) for count in counts]) / 16
    mask = rng.random((starts[-1], 2)) < 0.6
    mask[~mask.any(axis=1), 0] = True
    values = np.where(mask, rng.normal(size=mask.shape), 0.0)
    return Table(np.arange(num_series), starts, times, values, mask, VARIABLES)


def one_series(times) -> Table:
    """One variable, seen at each of these times."""
    times = np.asarray(times, float)
    ones = np.ones((len(times), 1))
    return Table(np.array(["s"]), np.array([0, len(times)]), times, ones, ones.astype(bool), ("a",))


def make_scaler(table: Table) -> Scaler:
    return Scaler.fit(table, time_scale=TIME_SCALE)


def make_model(name: str, clock_size: int = 2, **settings):
    """A model with fresh weights, made once for all tests."""
    return _make_model(name, clock_size, jnp.result_type(float), tuple((SIZES | settings).items()))


@functools.cache
def _make_model(name: str, clock_size: int, precision: np.dtype, settings: tuple[tuple[str, object], ...]):
    model_settings = ModelSettings(model=name, **dict(settings))  # pyright: ignore[reportArgumentType]
    return MODELS[name](len(VARIABLES), (SPEED,) * (clock_size // 2), model_settings, key=jr.key(3))


def make_grid(
    table: Table, series: int = 0, marching: Marching = MARCHING, pad: int = 1, scaler: Scaler | None = None
) -> Grid:
    """One series on its grid, padded by `pad` points."""
    grids = make_grids(table, scaler or make_scaler(table), marching)
    batch = grids.pad(np.array([series]), int(grids.num_points[series]) + pad, int(grids.num_rows[series]) + pad - 1)
    return jax.tree.map(lambda part: part[0], batch)


def make_batch(table: Table, marching: Marching = MARCHING) -> Grid:
    """All series of a table with a leading batch axis."""
    grids = make_grids(table, make_scaler(table), marching)
    return grids.pad(np.arange(table.num_series), int(grids.num_points.max()) + 1, int(grids.num_rows.max()))


NUM_ASKED, LONG_ROWS, LONG_SPAN, LONG_QUERIES = 8, 20, 17.0, 40


class Told(NamedTuple):
    mean: np.ndarray
    std: np.ndarray
    quantiles: np.ndarray


def ask(
    model, table, series, times, *, marching=MARCHING, scaler=None, method=by_prior, num_samples=4, levels=(0.1, 0.9)
):
    """Mean, deviation and quantiles at queries of a table; by the filter, at all rows of these series.

    Long series keep them company, so that all questions to a model have one shape and are compiled once.
    """
    series, times = np.asarray(series), np.asarray(times, float)
    count = NUM_ASKED - len(np.unique(series))
    company = _long_series(count, 0.0 if marching.start is None else marching.start)
    whole = _join(table, company)
    if method in (by_filter, by_memory):
        own, when = company.series_of_row, company.times
    else:
        own = np.repeat(np.arange(count), LONG_QUERIES)
        when = np.tile(company.times[0] + np.linspace(0.1, LONG_SPAN, LONG_QUERIES), count)
    request = inference.Request(whole, np.concatenate([series, table.num_series + own]), np.concatenate([times, when]))
    frame = inference.Frame(scaler or make_scaler(make_table()), marching, 1)
    answer = inference.forecast(model, frame, request, levels=levels, num_samples=num_samples, seed=0, method=method)
    return Told(*(part[: len(times)] for part in answer[:3]))


def _long_series(count: int, start: float) -> Table:
    rng = np.random.default_rng(5)
    times = start + np.sort(rng.choice(1000, LONG_ROWS, replace=False)) * LONG_SPAN / 1000
    times[0], times[-1] = start, start + LONG_SPAN
    values = rng.normal(size=(count * LONG_ROWS, len(VARIABLES)))
    starts = LONG_ROWS * np.arange(count + 1)
    return Table(-1 - np.arange(count), starts, np.tile(times, count), values, np.ones(values.shape, bool), VARIABLES)


def _join(one: Table, other: Table) -> Table:
    """The series of both."""
    return dataclasses.replace(
        one,
        ids=np.concatenate([one.ids, other.ids]),
        starts=np.concatenate([one.starts, one.starts[-1] + other.starts[1:]]),
        times=np.concatenate([one.times, other.times]),
        values=np.concatenate([one.values, other.values]),
        mask=np.concatenate([one.mask, other.mask]),
    )
