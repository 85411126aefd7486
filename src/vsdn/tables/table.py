"""Many sporadic series as flat columns (`Table`), and the scaling to the model's units."""

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from vsdn.errors import DataError

SECONDS = {"second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86400.0, "week": 604800.0}
BACKENDS = ("pandas", "polars", "pyarrow")
Unit = Literal["second", "minute", "hour", "day", "week"]


@dataclass(frozen=True)
class TimeAxis:
    """The kind of a table's times: plain numbers, or dates counted in `unit` since 1970-01-01."""

    kind: Literal["number", "date"] = "number"
    unit: Unit = "day"
    whole_days: bool = False  # dates without a time of day, to be returned as such
    timezone: str | None = None

    @property
    def seconds(self) -> float:
        """The length of `unit`."""
        return SECONDS[self.unit]

    def from_datetimes(self, times: np.ndarray) -> np.ndarray:
        """datetime64 values as numbers of `unit` since 1970-01-01."""
        return times.astype("datetime64[us]").astype(np.int64) / (1e6 * self.seconds)

    def to_datetimes(self, times: np.ndarray) -> np.ndarray:
        """Times as datetime64[us] (datetime64[D] if all are whole days and the input was too)."""
        stamps = np.round(times * (1e6 * self.seconds)).astype(np.int64).astype("datetime64[us]")
        days = stamps.astype("datetime64[D]")
        return days if self.whole_days and np.array_equal(days.astype("datetime64[us]"), stamps) else stamps

    def show(self, time: float) -> float | str:
        """A time as JSON represents it: a number, or an ISO date, in the axis' time zone if it has one."""
        if self.kind == "number":
            return float(time)
        moment = self.to_datetimes(np.array([time]))[0]
        if isinstance(moment.item(), int):  # the year is out of range for Python's dates
            return str(moment)
        if self.timezone is None:
            return moment.item().isoformat()
        return pa.scalar(int(moment.astype(np.int64)), pa.timestamp("us", self.timezone)).as_py().isoformat()

    def spell(self, time: float) -> str:
        """A time as text in a sentence: 3 rather than 3.0, seconds since an epoch with all their digits."""
        return f"{time:.15g}" if self.kind == "number" else str(self.show(time))


@dataclass(frozen=True)
class Layout:
    """The layout of the user's table, so that answers look the same."""

    form: Literal["wide", "long"] = "wide"
    id: str | None = "id"  # None: one series, no id column
    time: str = "time"
    variable: str = "variable"
    value: str = "value"
    backend: str = "pyarrow"  # pandas, polars or pyarrow


@dataclass(frozen=True, eq=False)
class Table:
    """Checked series side by side: rows `starts[i]:starts[i + 1]` are series i, sorted by time."""

    ids: np.ndarray  # one per series, in order of first appearance
    starts: np.ndarray  # int64, one more than series
    times: np.ndarray  # float64, one per row, in the axis' unit
    values: np.ndarray  # float64 (row, channel); 0 where unobserved
    mask: np.ndarray  # bool (row, channel); True means observed
    variables: tuple[str, ...]
    axis: TimeAxis = TimeAxis()
    layout: Layout = Layout()
    notes: tuple[str, ...] = ()  # what was ignored, with counts

    @property
    def num_series(self) -> int:
        return len(self.ids)

    @property
    def num_observations(self) -> int:
        return int(self.mask.sum())

    @property
    def series_of_row(self) -> np.ndarray:
        return np.repeat(np.arange(self.num_series), np.diff(self.starts))

    def select(self, series: Sequence[int] | np.ndarray) -> "Table":
        """The table with only these series, in this order."""
        series = np.asarray(series, dtype=np.int64)
        lengths = np.diff(self.starts)[series]
        starts = np.concatenate([[0], np.cumsum(lengths)])
        rows = np.repeat(self.starts[series] - starts[:-1], lengths) + np.arange(starts[-1])
        return dataclasses.replace(
            self,
            ids=self.ids[series],
            starts=starts,
            times=self.times[rows],
            values=self.values[rows],
            mask=self.mask[rows],
        )

    def keep_rows(self, keep: np.ndarray) -> "Table":
        """The table with only the rows where `keep` is True; a series may become empty."""
        counts = np.bincount(self.series_of_row[keep], minlength=self.num_series)
        starts = np.concatenate([[0], np.cumsum(counts)])
        return dataclasses.replace(
            self, starts=starts, times=self.times[keep], values=self.values[keep], mask=self.mask[keep]
        )

    def with_times(self, series: np.ndarray, times: np.ndarray) -> tuple["Table", np.ndarray]:
        """The table with a row without observations at each new time of a series, and the row numbers of these
        times."""
        whole = np.concatenate([np.stack([self.series_of_row, self.times], 1), np.stack([series, times], 1)])
        rows, place = np.unique(whole, axis=0, return_inverse=True)
        own = place[: len(self.times)]
        values, mask = np.zeros((len(rows), len(self.variables))), np.zeros((len(rows), len(self.variables)), bool)
        values[own], mask[own] = self.values, self.mask
        counts = np.bincount(rows[:, 0].astype(np.int64), minlength=self.num_series)
        starts = np.concatenate([[0], np.cumsum(counts)])
        merged = dataclasses.replace(self, starts=starts, times=rows[:, 1], values=values, mask=mask)
        return merged, place[len(self.times) :]

    def fingerprint(self) -> str:
        """A hash of everything that a model can learn from, to tell whether two tables are the same."""
        digest = hashlib.sha256(repr((self.variables, [str(i) for i in self.ids.tolist()])).encode())
        for column in (self.starts, self.times, self.values, self.mask):
            digest.update(np.ascontiguousarray(column).tobytes())
        return digest.hexdigest()


def empty_table(num_series: int, times: np.ndarray, variables: tuple[str, ...], axis: TimeAxis) -> Table:
    """A table of `num_series` series with a row at each of these times, without observations."""
    shape = (num_series * len(times), len(variables))
    starts = len(times) * np.arange(num_series + 1)
    values, mask = np.zeros(shape), np.zeros(shape, bool)
    return Table(np.arange(num_series), starts, np.tile(times, num_series), values, mask, variables, axis)


@dataclass(frozen=True, eq=False)
class Scaler:
    """The model's units: mean 0 and standard deviation 1 on the training part, times in units of `time_scale`."""

    mean: np.ndarray
    std: np.ndarray
    time_scale: float

    @classmethod
    def fit(cls, table: Table, time_scale: float | None = None) -> "Scaler":
        """The scaler of a training table; a variable that is constant, up to rounding, keeps its own unit."""
        mean = _means(table)
        square = np.sum((table.values - mean) ** 2, axis=0, where=table.mask) / np.maximum(table.mask.sum(axis=0), 1)
        constant = _reach(table, mean) <= 8 * np.finfo(float).eps * _reach(table)
        for channel in np.flatnonzero(~constant & (square < np.finfo(float).tiny)):
            name = table.variables[channel]
            raise DataError(f"the values of variable {name!r} are too small to be scaled: choose another unit for it")
        return cls(mean, np.where(constant, 1.0, np.sqrt(square)), time_scale or default_time_scale(table))

    def scale(self, values: np.ndarray) -> np.ndarray:
        return (values - self.mean) / self.std

    def unscale(self, values: np.ndarray) -> np.ndarray:
        return values * self.std + self.mean

    def to_json(self) -> dict:
        return {"mean": self.mean.tolist(), "std": self.std.tolist(), "time_scale": self.time_scale}

    @classmethod
    def from_json(cls, fields: dict) -> "Scaler":
        return cls(np.asarray(fields["mean"], float), np.asarray(fields["std"], float), float(fields["time_scale"]))


def _means(table: Table) -> np.ndarray:
    """The mean of each variable, accurate to the last digits, which a plain sum of many large values loses."""
    count = np.maximum(table.mask.sum(axis=0), 1)
    mean = table.values.sum(axis=0, where=table.mask) / count
    lost = np.sum(table.values - mean, axis=0, where=table.mask) / count
    return np.where(np.abs(lost) > 1e-9 * _reach(table, mean), mean + lost, mean)


def _reach(table: Table, centre: np.ndarray | float = 0.0) -> np.ndarray:
    """The largest distance of each variable's values from its centre."""
    return np.max(np.abs(table.values - centre), axis=0, where=table.mask, initial=0.0)


def spans(table: Table) -> np.ndarray:
    """The time from first to last row, for each series with more than one."""
    first, last = table.starts[:-1], table.starts[1:] - 1
    long = last > first
    return table.times[last[long]] - table.times[first[long]]


def gaps(table: Table) -> np.ndarray:
    """All times between one row and the next of the same series."""
    same = np.diff(table.series_of_row) == 0
    return np.diff(table.times)[same]


def default_time_scale(table: Table) -> float:
    """A tenth of the median span: a typical series lasts ten units, so that rates of order one are natural."""
    lengths = spans(table)
    return float(np.median(lengths)) / 10 if lengths.size else 1.0


def default_max_step(table: Table) -> float:
    """Half the median gap, but no more than some 200 steps along a typical series (Double-OU: 0.2; USHCN: 1)."""
    lengths = spans(table)
    if not lengths.size:
        return 0.1 * default_time_scale(table)
    return float(max(np.median(gaps(table)) / 2, np.median(lengths) / 200))
