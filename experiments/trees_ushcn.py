"""What another kind of learner makes of USHCN: boosted trees on features made by hand, for the squared error alone.

Each value of the three rows after a cut is foretold from what was seen up to it: the last four values of every
variable and their ages, means over windows, over all of the past and over the same season of earlier years, the season
itself. Trees learn from random cuts of the training stations; their number and size are chosen on random cuts of the
validation stations. They say what is to be had for the MSE after t = 150.

Example: pip install scikit-learn && python experiments/trees_ushcn.py --data data --folds 0 1 2
"""

import argparse
import csv
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor  # not a part of the project's environment

from vsdn.data import Table
from vsdn.datasets import ushcn

YEAR = 49.0216
CUT = 150.0
NUM_NEXT = 3
LEAST_PAST = 20  # rows before a random cut
CUTS = 60  # a station
WINDOWS = (1.0, 3.0, 8.0)
SEASON = 3.0  # half of a season's width
NUM_TREES = 600
SHAPES = ((0.03, 8, 100), (0.03, 15, 50), (0.02, 31, 200))  # learning rate, leaves, values a leaf


class Questions(NamedTuple):
    """Values to be foretold."""

    features: np.ndarray
    truth: np.ndarray
    channel: np.ndarray


class Station(NamedTuple):
    """The rows of one series."""

    times: np.ndarray
    values: np.ndarray
    mask: np.ndarray


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data files")
    parser.add_argument("--folds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--results", type=Path, default=Path("experiments/results/ushcn-trees.csv"))
    options = parser.parse_args()
    rows = []
    for fold in options.folds:
        parts = ushcn.load(options.data, fold)
        train, choose = ask(parts.train, seed=0), ask(parts.valid, seed=1)
        models = [fit(train, choose, channel) for channel in range(len(parts.train.variables))]
        scores = {name: mse(models, ask(part)) for name, part in (("validation", parts.valid), ("test", parts.test))}
        rows.append({"fold": fold} | {f"mse, {name}": round(score, 4) for name, score in scores.items()})
        print(rows[-1], flush=True)
    with options.results.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def fit(train: Questions, choose: Questions, channel: int) -> tuple[HistGradientBoostingRegressor, int]:
    """The trees of one variable, and how many of them are best on the questions that choose."""
    own, other = train.channel == channel, choose.channel == channel
    tried = []
    for rate, leaves, least in SHAPES:
        trees = HistGradientBoostingRegressor(
            learning_rate=rate,
            max_iter=NUM_TREES,
            max_leaf_nodes=leaves,
            min_samples_leaf=least,
            l2_regularization=5.0,
            max_features=0.3,
            early_stopping=False,
            random_state=0,
        ).fit(train.features[own], train.truth[own])
        errors = [np.mean((p - choose.truth[other]) ** 2) for p in trees.staged_predict(choose.features[other])]
        tried.append((min(errors), int(np.argmin(errors)), trees))
    _, count, trees = min(tried, key=lambda each: each[0])
    return trees, count


def mse(models: list[tuple[HistGradientBoostingRegressor, int]], asked: Questions) -> float:
    """The mean squared error over all values that are asked for."""
    errors = np.zeros(len(asked.truth))
    for channel, (trees, count) in enumerate(models):
        own = asked.channel == channel
        foretold = next(p for n, p in enumerate(trees.staged_predict(asked.features[own])) if n == count)
        errors[own] = foretold - asked.truth[own]
    return float(np.mean(errors**2))


def ask(table: Table, seed: int | None = None) -> Questions:
    """The questions after random cuts of every station, or without a seed after t = 150."""
    rng, asked = np.random.default_rng(seed), []
    for start, end in zip(table.starts[:-1], table.starts[1:], strict=True):
        station = Station(table.times[start:end], table.values[start:end], table.mask[start:end])
        if seed is None:
            cuts = [int(np.searchsorted(station.times, CUT, side="right")) - 1]
        else:
            possible = np.arange(LEAST_PAST, len(station.times) - NUM_NEXT)
            cuts = rng.choice(possible, min(CUTS, len(possible)), replace=False) if len(possible) else []
        asked += [question for row in cuts if row >= 0 for question in questions(station, int(row))]
    features, truth, channel = zip(*asked, strict=True)
    return Questions(np.array(features), np.array(truth), np.array(channel))


def questions(station: Station, row: int) -> list[tuple[list[float], float, int]]:
    """Features, truth and variable of each value in the rows after a cut."""
    times, values, mask = station
    past, asked = past_features(station, row), []
    for later in range(row + 1, min(row + 1 + NUM_NEXT, len(times))):
        apart = (times[later] - times[: row + 1] + YEAR / 2) % YEAR - YEAR / 2
        near = (np.abs(apart) < SEASON)[:, None] & mask[: row + 1]
        season = [mean(values[: row + 1, channel][near[:, channel]]) for channel in range(values.shape[1])]
        angle = 2 * np.pi * times[later] / YEAR * np.array([1, 2])
        when = [times[later] - times[row], later - row, *np.sin(angle), *np.cos(angle)]
        asked += [([*past, *season, *when], values[later, c], int(c)) for c in np.flatnonzero(mask[later])]
    return asked


def past_features(station: Station, row: int) -> list[float]:
    """What is known of every variable at a cut."""
    features = []
    for channel in range(station.values.shape[1]):
        seen = np.flatnonzero(station.mask[: row + 1, channel])
        values, ages = station.values[seen, channel], station.times[row] - station.times[seen]
        for number in range(1, 5):
            features += [values[-number], ages[-number]] if number <= len(seen) else [np.nan, np.nan]
        features += [mean(values), values.std() if len(seen) else np.nan, values.max(initial=-np.inf)]
        features += [mean(values[ages < window]) for window in WINDOWS]
    return [value if np.isfinite(value) else np.nan for value in features]


def mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else np.nan


if __name__ == "__main__":
    main()
