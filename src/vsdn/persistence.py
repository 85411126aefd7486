"""How long what was seen lasts: how much of a variable's value is left when it is seen next."""

from typing import NamedTuple

import numpy as np

from vsdn.data import Scaler, Table

MOST_PAIRS = 20_000  # of a variable, that are looked at
RATES = np.geomspace(1e-4, 10.0, 101)  # to be tried, by the usual gap


class Persistence(NamedTuple):
    """share·exp(−rate·gap) of a value is left after a gap, one each a variable, in the model's units."""

    share: np.ndarray  # between 0 and 1
    rate: np.ndarray  # above 0


def measure_persistence(table: Table, scaler: Scaler) -> Persistence:
    """The least squares of each value against the last one of its series."""
    values, times, series = scaler.scale(table.values), table.times / scaler.time_scale, table.series_of_row
    each = [_measure(values[seen, channel], times[seen], series[seen]) for channel, seen in enumerate(table.mask.T)]
    share, rate = np.array(each).T
    return Persistence(share, rate)


def _measure(values: np.ndarray, times: np.ndarray, series: np.ndarray) -> tuple[float, float]:
    """Share and rate of one variable; all of a value lasts where no series has a second one."""
    first = np.flatnonzero(series[1:] == series[:-1])
    first = first[:: max(1, len(first) // MOST_PAIRS)]
    before, after, gap = values[first], values[first + 1], times[first + 1] - times[first]
    usual = np.median(gap) if len(gap) else 1.0
    tried = [_least_squares(before * np.exp(-rate * gap), after, rate) for rate in RATES / usual]
    _, share, rate = min(tried)
    return share, rate


def _least_squares(left: np.ndarray, after: np.ndarray, rate: float) -> tuple[float, float, float]:
    """The squared error of `after` as a share of what is left, that share, and the rate that it was tried with."""
    square = left @ left
    share = float(np.clip((left @ after) / square, 0.0, 1.0)) if square > 0 else 1.0
    return float(np.sum((after - share * left) ** 2)), share, rate
