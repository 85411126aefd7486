"""The fitted model behind an online state: variables, units, compiled steps; parses and checks updates."""

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from vsdn.answers.requests import check_draws, check_whole
from vsdn.errors import DataError
from vsdn.online.stepping import Stepper
from vsdn.tables.files import listing, shorten
from vsdn.tables.frames import parse_times
from vsdn.tables.table import Layout, TimeAxis

MOST_ROWS = 10**6  # most updates of a series that a window may keep


class Row(NamedTuple):
    """The observation of one series at one time, in the user's units."""

    time: float
    values: np.ndarray  # 0 where unobserved
    mask: np.ndarray


@dataclass(frozen=True, eq=False)
class Subject:
    """The fitted model and the options of an online state; the same for all states that follow from it."""

    stepper: Stepper
    variables: tuple[str, ...]
    axis: TimeAxis
    layout: Layout
    draws: int
    seed: int
    window: int  # how many updates of each series can be replayed

    def __post_init__(self):
        check_draws(self.draws, self.seed)
        check_whole("window", self.window, least=0, most=MOST_ROWS)

    @functools.cached_property
    def channels(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.variables)}

    def read_time(self, time: Any) -> float:
        """A time as a number in the axis' unit."""
        if type(time) in (int, float) and self.axis.kind == "number" and math.isfinite(time):
            return float(time)  # a shortcut with the same result
        return float(parse_times([time], self.axis)[0])

    @functools.cached_property
    def largest(self) -> np.ndarray:
        """The largest value of each variable that the model's numbers can hold: infinity would never leave a state."""
        return np.minimum(np.finfo(np.float32).max * self.stepper.scaler.std, np.finfo(np.float64).max)

    def read_row(self, time: Any, values: Mapping[str, Any]) -> Row:
        """The checked observation of one update."""
        row = Row(self.read_time(time), np.zeros(len(self.variables)), np.zeros(len(self.variables), bool))
        for name, value in values.items():
            channel = self.channels.get(name)
            if channel is None:
                raise DataError(f"the model's variables are {listing(self.variables)}, but not {shorten(name)}")
            number = _read_number(name, value)
            if abs(number) > self.largest[channel]:
                raise self.too_large(channel, number)
            if number == number:  # not NaN
                row.values[channel], row.mask[channel] = number, True
        return row

    def read_values(self, values: Any, count: int) -> np.ndarray:
        """The checked observations of many updates, NaN where nothing was observed."""
        try:
            numbers = np.asarray(values, np.float64)
        except (TypeError, ValueError):
            raise DataError("numbers were expected as values, NaN where nothing was seen") from None
        if numbers.shape != (count, len(self.variables)):
            raise DataError(
                f"{count} × {len(self.variables)} values were expected, a row for each id and a column for each of "
                f"{listing(self.variables)}, not {' × '.join(map(str, numbers.shape))}"
            )
        for row, channel in np.argwhere(np.abs(numbers) > self.largest):
            raise self.too_large(channel, float(numbers[row, channel]))
        return numbers

    def too_large(self, channel: int, value: float) -> DataError:
        what = "a finite number" if math.isinf(value) else "a number of the order of those that the model was fitted to"
        return DataError(f"variable {shorten(self.variables[channel])}: {what} was expected, not {value}")

    def show(self, time: float) -> float | str:
        """A time as JSON represents it: a number, or an ISO date."""
        return self.axis.show(time)


def _read_number(name: str, value: Any) -> float:
    """The value as a number, NaN if unobserved."""
    if value is None:
        return math.nan
    if isinstance(value, Real | np.bool_):
        try:
            return float(value)
        except OverflowError:
            return math.inf
    what = f"the text {shorten(value)}" if isinstance(value, str) else shorten(value)
    raise DataError(f"variable {shorten(name)}: a number was expected, not {what}")
