"""USHCN: daily climate of U.S. stations, five variables, of which 5 % are kept; four years, by GRU-ODE-Bayes' recipe.

Values are standardised. One unit of time is 7.45 days. Protocol: given everything at Time ≤ 150, predict the next 3
rows.
"""

import gzip
import hashlib
import math
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv

from vsdn.datasets.base import Dataset, Parts, Source, check_fold, find_source, read_source, tabulate, with_notes
from vsdn.errors import DataError
from vsdn.tables.table import Table

VARIABLES = ("prcp", "snow", "snwd", "tmax", "tmin")
COLUMNS = ("ID", "Time", *(f"{kind}_{i}" for kind in ("Value", "Mask") for i in range(5)))
CUT = 150.0  # everything up to here is shown, ...
NUM_NEXT = 3  # ... and so many rows after it are scored
DAYS = 18627 / 2500  # days per unit of time
YEAR = 365.25 / DAYS  # 49.02 units
NUM_PUBLISHED = 5  # published folds, numbered first
NUM_TENTHS = 10  # folds of our own, numbered after them, which test every station once
NUM_FOLDS = NUM_PUBLISHED + NUM_TENTHS
SEED = 432
MOST_ID = 2**53  # up to which floats represent all whole numbers
PUBLISHED = "671eb8d121522e98891c84197742a6c9e9bb5015e42b328a93ebdf2cfd393ecf"
REBUILT = "875f2b05ae1b9398da6fbe3da8ec20a63c3e4f160c27b1c41b462994c5339368"  # unpacked
KINDS = {PUBLISHED: "the published file", REBUILT: "rebuilt from GHCN-Daily, with another 5 % than the published file"}
UNKNOWN = "neither the published nor the rebuilt file, by its checksum"
SOURCES = (
    Source(
        "ushcn/small_chunked_sporadic.csv",
        PUBLISHED,
        "from gru_ode_bayes/datasets/Climate of github.com/edebrouwer/gru_ode_bayes",
    ),
    Source(
        "ushcn/ushcn_sporadic_gob_recipe.csv.gz",
        REBUILT,
        "made of NOAA's GHCN-Daily by the recipe in docs/datasets.md",
    ),
)


def load(folder: Path, fold: int = 0) -> Parts:
    """The parts of a fold, from the published or the rebuilt file; their notes say which was read."""
    check_fold(fold, NUM_FOLDS)
    source, path = find_source(SOURCES, folder)
    content = _unpack(path)
    kind = KINDS.get(hashlib.sha256(content).hexdigest(), UNKNOWN)
    return with_notes(split(_read(path, content), fold), (f"USHCN was read from {source.name}: {kind}",))


def read(path: str | Path) -> Table:
    """All stations of a file in the published layout, `.csv` or `.csv.gz`."""
    return _read(Path(path), _unpack(Path(path)))


def split(table: Table, fold: int) -> Parts:
    """Training, validation and test stations of one of the published folds (0 to 4), or of the tenths (5 to 14)."""
    check_fold(fold, NUM_FOLDS)
    parts = _folds(table.num_series)[fold]
    if not all(map(len, parts)):
        raise DataError(f"fold {fold} of USHCN should have stations in each part, but the table has {table.num_series}")
    train, valid, test = map(table.select, parts)
    return Parts(train, valid, test)


def seasonal_mean(train: Table, times: np.ndarray, width: float = 10.0) -> np.ndarray:
    """The mean of each variable at the time of year of each of these times: (time, channel).

    Computed from the training part by day of the year, smoothed by a periodic Gaussian kernel with a standard deviation
    of `width` days. It knows nothing of the station that it forecasts.
    """
    day, num_days = _day_of_year(train.times), 366
    total, count = np.zeros((num_days, len(train.variables))), np.zeros((num_days, len(train.variables)))
    np.add.at(total, day, np.where(train.mask, train.values, 0.0))
    np.add.at(count, day, train.mask)
    apart = np.arange(num_days)[:, None] - np.arange(num_days)
    apart = (apart + num_days / 2) % num_days - num_days / 2
    kernel = np.exp(-0.5 * (apart / width) ** 2)
    return ((kernel @ total) / np.maximum(kernel @ count, 1e-300))[_day_of_year(times)]


def _day_of_year(times: np.ndarray) -> np.ndarray:
    """The day of the year, 0 to 365, counted from the time of year at Time 0."""
    return ((times % YEAR) * DAYS).astype(np.int64)


def _folds(num_series: int) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Training, validation and test numbers of all folds, from one stream of numpy's legacy generator.

    As in generate_folds.py of GRU-ODE-Bayes: np.random.seed(432), then for each fold train_test_split(arange(N), 0.1)
    and train_test_split(rest, 0.2). scikit-learn's draws one permutation, whose first ceil(share · N) are the test
    part. Published folds test 447 of the 1,101 stations, some more than once; the tenths test each station once.
    """
    random, numbers, folds = np.random.RandomState(SEED), np.arange(num_series), []
    for _ in range(NUM_PUBLISHED):
        rest, test = _take(random, numbers, 0.1)
        folds.append((*_take(random, rest, 0.2), test))
    for test in np.array_split(random.permutation(num_series), NUM_TENTHS):
        folds.append((*_take(random, np.setdiff1d(numbers, test), 0.2), test))
    return folds


def _take(random: np.random.RandomState, numbers: np.ndarray, share: float) -> tuple[np.ndarray, np.ndarray]:
    """The remaining numbers, and a random share."""
    order, size = random.permutation(len(numbers)), math.ceil(share * len(numbers))
    return numbers[order[size:]], numbers[order[:size]]


def _unpack(path: Path) -> bytes:
    content = read_source(path)
    try:
        return gzip.decompress(content) if path.suffix == ".gz" else content
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is not a whole gzip file: {error}") from error


def _read(path: Path, content: bytes) -> Table:
    options = csv.ConvertOptions(column_types=dict.fromkeys(COLUMNS, pa.float64()))
    try:
        frame = csv.read_csv(pa.BufferReader(content), convert_options=options)
        station, times, *cells = (frame.column(name).to_numpy() for name in COLUMNS)
    except (KeyError, pa.ArrowInvalid) as error:
        wanted = ", ".join(COLUMNS)
        raise DataError(f"{path} should be a USHCN table with columns {wanted}: {error}") from error
    masks = np.column_stack(cells[5:])
    mask = masks == 1
    values = np.where(mask, np.column_stack(cells[:5]), 0.0)
    _check(path, station, times, values, masks)
    return tabulate(station.astype(np.int64), times, values, mask, VARIABLES)


def _check(path: Path, station: np.ndarray, times: np.ndarray, values: np.ndarray, masks: np.ndarray) -> None:
    """Refuses rows that no table can hold, naming the first."""
    if not len(station):
        raise DataError(f"{path} should hold rows below its header, but it has none")
    _want(path, np.isfinite(station) & np.isfinite(times) & np.isfinite(values).all(axis=1), "finite numbers")
    _want(path, station == np.rint(station).clip(-MOST_ID, MOST_ID), f"a whole number up to {MOST_ID:g} for an ID")
    _want(path, ((masks == 0) | (masks == 1)).all(axis=1), "masks of 0 and 1")
    order = np.lexsort((times, station))
    twice = (np.diff(station[order]) == 0) & (np.diff(times[order]) == 0)
    if twice.any():
        row = order[int(np.argmax(twice))]
        raise DataError(f"{path}: two rows for ID {station[row]:g} at Time {times[row]:g}")


def _want(path: Path, good: np.ndarray, wanted: str) -> None:
    """Refuses rows that are not good, naming the first."""
    if not good.all():
        raise DataError(f"{path}: row {int(np.argmin(good)) + 1} should hold {wanted}")


DATASET = Dataset(
    name="ushcn",
    about="Climate of some 1,100 U.S. stations: rain, snowfall, snow depth, highest and lowest temperature; sporadic.",
    citation="Menne, Durre, Vose, Gleason, Houston (2012), doi:10.1175/JTECH-D-11-00103.1; "
    "De Brouwer, Simm, Arany, Moreau (2019), arXiv:1905.12374",
    sources=SOURCES,
    num_folds=NUM_FOLDS,
    load=load,
)
