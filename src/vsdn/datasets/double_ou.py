"""Double-OU: two correlated Ornstein–Uhlenbeck processes, observed sporadically, with their exact best predictor.

dX = (r − X) dt + 0.1 dW by Euler–Maruyama from X = 0, corr(dW₁, dW₂) = 0.99; r is uniform in a unit square.
"""

import lzma
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import csv

from vsdn.datasets.base import Dataset, Parts, check_fold, tabulate
from vsdn.errors import DataError, SettingsError
from vsdn.tables.table import Table

STEP = 0.05
NUM_STEPS = 199  # grid points, from 0 to 9.9
DECAY = 1.0 - STEP  # x ← DECAY x + STEP r + noise
NOISE = STEP * 0.1**2 * np.array([[1.0, 0.99], [0.99, 1.0]])
LEVEL = np.array([1.0, -1.0])  # the middle of r's square
COLUMNS = ("ID", "Time", "Value_1", "Value_2", "Mask_1", "Mask_2", "Cov")
VARIABLES = ("value_1", "value_2")
CUT = 4.0  # everything up to here is visible, ...
NUM_NEXT = 1  # ... and this many rows after it are scored
PUBLISHED_SHA256 = "ab045b0005fb1ad5202e4850e9c3ca223d4dd4aba42c2e1eca6067530058aaa0"  # of `published_csv()`
SEES = np.array([[True, False], [False, True], [True, True]])  # the variables observed in each kind of row
ODDS = np.array([0.4, 0.4, 0.2])


def make(num_series: int = 10_000, *, seed: int = 432, legacy: bool = False) -> Table:
    """New series; `legacy` draws them in the published order, so that its defaults give the published ones."""
    series, steps, values, mask = (_draw_legacy if legacy else _draw)(num_series, seed)
    return tabulate(series, STEP * steps, values, mask, VARIABLES)


def published_csv(num_series: int = 10_000, *, seed: int = 432) -> bytes:
    """The published file `double_OU.csv`, byte for byte."""
    series, steps, values, mask = _draw_legacy(num_series, seed)
    numbers = np.column_stack([series, STEP * steps, values, mask, np.zeros(len(series))])
    lines = [",".join(COLUMNS), *(",".join(map(repr, row)) for row in numbers.tolist())]
    return ("\n".join(lines) + "\n").encode()


def load(path: str | Path) -> Table:
    """The series of a file in the published layout, `.csv` or `.csv.xz`."""
    path, options = Path(path), csv.ConvertOptions(column_types=dict.fromkeys(COLUMNS, pa.float64()))
    try:
        with lzma.open(path) if path.suffix == ".xz" else path.open("rb") as file:
            frame = csv.read_csv(file, convert_options=options)
        series, times, *cells = (frame.column(name).to_numpy() for name in COLUMNS)
    except (OSError, EOFError, KeyError, lzma.LZMAError, pa.ArrowInvalid) as error:
        raise DataError(f"{path} should be a Double-OU table with columns {', '.join(COLUMNS)}: {error}") from error
    mask = np.column_stack(cells[2:4]) == 1
    values = np.where(mask, np.column_stack(cells[:2]), 0.0)
    return tabulate(series.astype(np.int64), times, values, mask, VARIABLES)


def split(table: Table, seed: int = 432) -> tuple[Table, Table, Table]:
    """Training, validation and test series: the published test fifth, and a tenth of the rest for validation.

    The test part is that of scikit-learn's train_test_split(test_size=0.2, random_state=seed).
    """
    order = np.random.RandomState(seed).permutation(table.num_series)
    test, rest = np.split(order, [math.ceil(0.2 * table.num_series)])
    valid, train = np.split(rest, [len(rest) // 10])
    return table.select(train), table.select(valid), table.select(test)


def load_parts(_folder: Path, fold: int = 0) -> Parts:
    """The published series and split; generated, no file is read."""
    check_fold(fold, 1)
    return Parts(*split(make(legacy=True)))


def _draw(num_series: int, seed: int) -> tuple[np.ndarray, ...]:
    """Series, steps, values and mask of rows in no particular order."""
    _check_count(num_series)
    rng = np.random.Generator(np.random.PCG64(seed))
    levels = LEVEL + rng.uniform(-0.5, 0.5, (num_series, 2))
    increments = rng.standard_normal((num_series, NUM_STEPS - 1, 2)) @ np.linalg.cholesky(NOISE).T
    counts = rng.integers(16, 24, num_series)
    shuffled = rng.permuted(np.tile(np.arange(NUM_STEPS), (num_series, 1)), axis=1)
    steps = shuffled[np.arange(NUM_STEPS) < counts[:, None]]
    return _observe_rows(_simulate(levels, increments), counts, steps, rng.choice(3, len(steps), p=ODDS))


def _draw_legacy(num_series: int, seed: int) -> tuple[np.ndarray, ...]:
    """Rows drawn in the published order: all levels, all increments, then one series after another."""
    _check_count(num_series)
    random = np.random.RandomState(seed)
    levels = random.uniform(-0.5, 0.5, (num_series, 2)) + LEVEL
    # multivariate_normal takes this root of NOISE from an SVD, whose signs another LAPACK might flip
    common, own = np.sqrt(STEP * 0.1**2 * np.array([1.99, 0.01]) / 2)
    increments = random.standard_normal((num_series, NUM_STEPS, 2)) @ np.array([[-common, -common], [-own, own]])
    paths = _simulate(levels, increments[:, 1:]).astype(np.float32)
    counts, steps, kinds = zip(*(_draw_rows_legacy(random) for _ in range(num_series)), strict=True)
    return _observe_rows(paths, np.array(counts), np.concatenate(steps), np.concatenate(kinds))


def _draw_rows_legacy(random: np.random.RandomState) -> tuple[int, np.ndarray, np.ndarray]:
    count = random.randint(16, 24)  # the published code then calls randint(0, 1), which draws nothing
    return count, random.choice(NUM_STEPS, count, replace=False), random.choice(3, count, p=ODDS)


def _check_count(num_series: int) -> None:
    if num_series < 1:
        raise SettingsError(f"num_series should be at least 1, not {num_series}")


def _simulate(levels: np.ndarray, increments: np.ndarray) -> np.ndarray:
    """Paths (series, step, channel) from 0, by Euler–Maruyama."""
    paths = np.zeros((len(levels), NUM_STEPS, 2))
    for i in range(1, NUM_STEPS):
        paths[:, i] = paths[:, i - 1] - (paths[:, i - 1] - levels) * STEP + increments[:, i - 1]
    return paths


def _observe_rows(
    paths: np.ndarray, counts: np.ndarray, steps: np.ndarray, kinds: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Series, steps, values and mask of rows: `counts` per series, each with its step and kind."""
    series, mask = np.repeat(np.arange(len(counts)), counts), SEES[kinds]
    return series, steps, np.where(mask, paths[series, steps], 0.0).astype(np.float64), mask


class BayesOptimal(NamedTuple):
    """The exact predictive law of each hidden row, a mixture of Gaussians over r, and its scores (NaN: unobserved)."""

    series: np.ndarray  # int (row,): the series in the table
    rows: np.ndarray  # int (row,): the row in the table
    values: np.ndarray  # (row, channel), as all that follow
    mask: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    log_prob: np.ndarray
    pit: np.ndarray  # the predictive distribution function at the value
    crps: np.ndarray

    def scores(self) -> dict[str, float]:
        """NLL, MSE, CRPS and the coverage of the central 50 % and 90 % intervals, all means over observed values."""
        off_centre = np.abs(2 * self.pit[self.mask] - 1)
        return {
            "nll": -float(np.mean(self.log_prob[self.mask])),
            "mse": float(np.mean((self.values - self.mean)[self.mask] ** 2)),
            "crps": float(np.mean(self.crps[self.mask])),
            "coverage_50": float(np.mean(off_centre <= 0.5)),
            "coverage_90": float(np.mean(off_centre <= 0.9)),
        }


def bayes_optimal(table: Table, cut: float = 4.0, num_rows: int = 1, grid_size: int = 48) -> BayesOptimal:
    """The best possible forecast of each series' first `num_rows` rows after `cut`, given all rows up to it.

    r is integrated over the midpoints of `grid_size` × `grid_size` cells; 48 cells give the NLL to 1e-4. All else is
    exact.
    """
    rows, mean, cov = _filter(table, cut, num_rows)
    if not len(rows):
        raise DataError(f"there should be a row to forecast after {cut}, but no series has one")
    chunks = np.split(np.arange(len(rows)), range(64, len(rows), 64))  # small enough for the cache
    parts = [_score(table.values[rows[i]], table.mask[rows[i]], mean[i], cov[i], grid_size) for i in chunks]
    laws = (np.concatenate(part) for part in zip(*parts, strict=True))
    return BayesOptimal(table.series_of_row[rows], rows, table.values[rows], table.mask[rows], *laws)


def _filter(table: Table, cut: float, num_rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The hidden rows, and the mean and covariance of (x, r) at each, by a Kalman filter of all series at once.

    It uses the prior N(LEVEL, I) for r, which `_mix` replaces by the uniform one.
    """
    steps = _count_steps(table, cut)
    num_seen = np.bincount(table.series_of_row[table.times <= cut], minlength=table.num_series)
    last = np.minimum(np.diff(table.starts), num_seen + num_rows)
    now, mean = np.zeros(table.num_series, dtype=int), np.tile([0.0, 0.0, *LEVEL], (table.num_series, 1))
    cov = np.tile(np.diag([0.0, 0.0, 1.0, 1.0]), (table.num_series, 1, 1))
    hidden = [(np.zeros(0, dtype=int), mean[:0], cov[:0])]
    for k in range(last.max(initial=0)):
        on, seen = k < last, k < num_seen
        rows = np.where(on, table.starts[:-1] + k, 0)
        mean, cov = _advance(mean, cov, np.where(on, steps[rows] - now, 0))
        now = np.where(on, steps[rows], now)
        hidden.append((rows[on & ~seen], mean[on & ~seen], cov[on & ~seen]))
        mean, cov = _observe(mean, cov, table.values[rows], table.mask[rows] & seen[:, None])
    rows, mean, cov = map(np.concatenate, zip(*hidden, strict=True))
    order = np.argsort(rows)
    return rows[order], mean[order], cov[order]


def _count_steps(table: Table, cut: float) -> np.ndarray:
    """Each row's time in steps of the simulation; refuses times in between."""
    steps = np.rint(table.times / STEP).astype(int)
    if table.values.shape[1] != 2 or np.any(steps < 0) or not np.allclose(table.times, STEP * steps, rtol=0, atol=1e-6):
        raise DataError(f"a Double-OU table should have two variables and times 0, {STEP}, {2 * STEP}, …; this has not")
    if cut < 0:
        raise SettingsError(f"cut should be 0 or later, not {cut}")
    return steps


def _advance(mean: np.ndarray, cov: np.ndarray, num_steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of (x, r) after `num_steps` of the simulation."""
    decay = DECAY ** num_steps[:, None, None]
    flow = np.tile(np.eye(4), (len(mean), 1, 1))
    flow[:, :2, :2], flow[:, :2, 2:] = decay * np.eye(2), (1 - decay) * np.eye(2)
    cov = flow @ cov @ flow.swapaxes(1, 2)
    cov[:, :2, :2] += (1 - decay**2) / (1 - DECAY**2) * NOISE
    return np.einsum("sij,sj->si", flow, mean), cov


def _observe(mean: np.ndarray, cov: np.ndarray, values: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of (x, r) given noise-free observations of x where the mask is set."""
    for j in range(2):
        told = mask[:, j] & (cov[:, j, j] > 1e-12)  # X(0) is known: observing it adds nothing
        gain = np.where(told[:, None], cov[:, j] / np.where(told, cov[:, j, j], 1.0)[:, None], 0.0)
        mean = mean + gain * (values[:, j] - mean[:, j])[:, None]
        cov = cov - gain[:, :, None] * cov[:, None, j]
    return mean, cov


def _score(values: np.ndarray, mask: np.ndarray, mean: np.ndarray, cov: np.ndarray, grid_size: int) -> list[np.ndarray]:
    """Mean, std, log_prob, pit and crps, each (row, channel)."""
    log_weights, centres, slope, scale = _mix(mean, cov, grid_size)
    weights = np.exp(log_weights)[:, None]
    average = np.sum(weights * centres, axis=2)
    std = np.sqrt(scale**2 + np.sum(weights * (centres - average[..., None]) ** 2, axis=2))
    scores = np.full((3, *values.shape), np.nan)
    z = (centres[mask] - values[mask][:, None]) / scale[mask][:, None]
    scores[:, mask] = _score_mixture(log_weights[np.nonzero(mask)[0]], z, slope[mask], scale[mask])
    return [average, std, *scores]


def _mix(mean: np.ndarray, cov: np.ndarray, grid_size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The distribution of x as a mixture over the grid of r: log-weights (row, point), centres (row, channel, point),
    their slope in r (row, channel, channel), and the scale about each centre (row, channel)."""
    middles = (np.arange(grid_size) + 0.5) / grid_size - 0.5
    points = np.stack(np.meshgrid(middles, middles, indexing="ij"), axis=-1).reshape(-1, 2)  # of r − LEVEL
    away = points - (mean[:, None, 2:] - LEVEL)
    precision = np.linalg.inv(cov[:, 2:, 2:])
    # posterior under the Gaussian stand-in prior, divided by that prior
    log_weights = 0.5 * np.sum(points**2, axis=1) - 0.5 * np.sum((away @ precision) * away, axis=2)
    slope = cov[:, :2, 2:] @ precision
    centres = mean[:, :2, None] + slope @ away.swapaxes(1, 2)
    scale = np.sqrt(np.einsum("rii->ri", cov[:, :2, :2] - slope @ cov[:, 2:, :2]))
    return log_weights - np.logaddexp.reduce(log_weights, axis=1)[:, None], centres, slope, scale


def _score_mixture(log_weights: np.ndarray, z: np.ndarray, slope: np.ndarray, scale: np.ndarray) -> list[np.ndarray]:
    """Log-density, distribution function and CRPS at y of mixtures with means `z` scales above y: (row, point)."""
    weights = np.exp(log_weights)
    log_prob = np.logaddexp.reduce(log_weights - 0.5 * z**2, axis=1) - np.log(scale * math.sqrt(2 * math.pi))
    pit = np.sum(weights * _normal_cdf(-z), axis=1)
    to_value = scale * np.sum(weights * _mean_distance(z), axis=1)
    return [log_prob, pit, to_value - 0.5 * _mean_difference(weights, slope, scale)]


def _mean_difference(weights: np.ndarray, slope: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """E|X − X′| of two draws, by the law of the difference of grid points: the weights' autocorrelation."""
    size = math.isqrt(weights.shape[1])
    spectrum = np.fft.rfft2(weights.reshape(-1, size, size), s=(2 * size, 2 * size))
    law = np.fft.irfft2(np.abs(spectrum) ** 2, s=(2 * size, 2 * size))[..., :size]
    law[..., 1:] *= 2  # a difference and its negative count equally
    down, along = np.fft.fftfreq(2 * size, 0.5)[:, None], np.arange(size) / size
    width = math.sqrt(2) * scale[:, None, None]
    means = slope[:, 0, None, None] * down + slope[:, 1, None, None] * along
    return np.sum(width * law * _mean_distance(means / width), axis=(1, 2))


def _mean_distance(z: np.ndarray) -> np.ndarray:
    """E|N(z, 1)|."""
    return z * (2 * _normal_cdf(z) - 1) + math.sqrt(2 / math.pi) * np.exp(-0.5 * z**2)


KNOTS = np.linspace(-9, 9, 18 * 64 + 1)
CDF_AT_KNOTS = np.array([0.5 * math.erfc(-x / math.sqrt(2)) for x in KNOTS])


def _normal_cdf(x: np.ndarray) -> np.ndarray:
    """Φ to 1e-12, by a Taylor series from the nearest knot: numpy has no erf."""
    x = np.clip(x, -9, 9)
    near = np.rint((x + 9) * 64).astype(np.intp)
    knot = KNOTS[near]
    d, density = x - knot, np.exp(-0.5 * knot**2) / math.sqrt(2 * math.pi)
    return CDF_AT_KNOTS[near] + density * d * (
        1 - d / 2 * (knot - d / 3 * (knot**2 - 1 - d / 4 * knot * (knot**2 - 3)))
    )


DATASET = Dataset(
    name="double-ou",
    about="Two correlated Ornstein–Uhlenbeck processes, seen sporadically, with their exact best predictor; generated.",
    citation="De Brouwer, Simm, Arany, Moreau (2019), arXiv:1905.12374",
    sources=(),
    num_folds=1,
    load=load_parts,
)
