"""Small tables and models that many tests share."""

import jax.random as jr
import numpy as np

from vsdn.data import Scaler, Table
from vsdn.grids import Grid, Marching, make_grids
from vsdn.models import MODELS
from vsdn.settings import ModelSettings

MARCHING = Marching(max_step=0.3, periods=(2.5,))
SIZES = {"hidden_size": 5, "latent_size": 3, "width": 7, "init_width": 4}
VARIABLES = ("a", "b")


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


def make_scaler(table: Table) -> Scaler:
    return Scaler.fit(table, time_scale=1.5)


def make_model(name: str, clock_size: int = 2, **settings):
    """A model with fresh weights."""
    model_settings = ModelSettings(model=name, **(SIZES | settings))  # pyright: ignore[reportArgumentType]
    return MODELS[name](len(VARIABLES), clock_size, model_settings, key=jr.key(3))


def make_grid(
    table: Table, series: int = 0, marching: Marching = MARCHING, pad: int = 1, scaler: Scaler | None = None
) -> Grid:
    """One series on its grid, padded by `pad` points."""
    grids = make_grids(table, scaler or make_scaler(table), marching)
    batch = grids.pad(np.array([series]), int(grids.num_points[series]) + pad, int(grids.num_rows[series]) + pad - 1)
    return Grid(*(part[0] for part in batch))


def make_batch(table: Table, marching: Marching = MARCHING) -> Grid:
    """All series of a table with a leading batch axis."""
    grids = make_grids(table, make_scaler(table), marching)
    return grids.pad(np.arange(table.num_series), int(grids.num_points.max()) + 1, int(grids.num_rows.max()))
