"""What another kind of learner makes of USHCN: boosted trees beside runs, on validation stations, for the MSE alone.

Each value of the three rows after a cut is foretold from what was seen up to it: the last values of every variable and
their ages, means over windows, over all of the past and over the same season of earlier years, how often and how much
it rains and snows there, the season itself. Trees learn from random cuts of the training stations; rain and snow, which
are never negative, by a Poisson loss, which such values want. If runs and trees, which err in ways of their own, come
to the same error, and their mean is hardly better, little is left to be had.

Example: pip install scikit-learn && python experiments/trees_ushcn.py runs/ushcn/paper-vsdn-f-vae-linear-1 --data data
"""

from typing import NamedTuple

import numpy as np
from looking import fold_of, make_parser, write_rows
from origins_ushcn import ORIGINS
from sklearn.ensemble import HistGradientBoostingRegressor  # not a part of the project's environment

import vsdn
from vsdn.answers import evaluation, inference
from vsdn.answers.evaluation import Task
from vsdn.datasets import ushcn
from vsdn.fitted import Fitted
from vsdn.tables.table import Table

CUTS = np.random.default_rng(0).uniform(40.0, 195.0, 40)  # of the training stations
WINDOWS = (1.0, 3.0, 8.0)
SEASON = 4.0  # a deviation of the kernel by which the season is near
SEEDS = (0, 1, 2)  # their mean is taken
TREES = {"learning_rate": 0.03, "max_leaf_nodes": 8, "min_samples_leaf": 200, "max_features": 0.3}
LOSSES = ("poisson", "poisson", "poisson", "squared_error", "squared_error")
COUNTS = (200, 200, 400, 300, 300)  # of trees


class Past(NamedTuple):
    """What was seen of a station."""

    times: np.ndarray
    values: np.ndarray
    mask: np.ndarray


def main() -> None:
    options, rows = make_parser(__doc__, "ushcn-trees.csv", draws=64).parse_args(), []
    for run in options.runs:
        fitted, parts = vsdn.load(run), ushcn.load(options.data, fold_of(run))
        asked = ask(parts.valid, np.array(ORIGINS))
        own, other = foretell(fitted, asked, options.draws), grow(parts.train, asked)
        at_cut = asked.series // parts.valid.num_series == ORIGINS.index(int(ushcn.CUT))
        for name, mean in (("the run", own), ("trees", other), ("the mean of both", (own + other) / 2)):
            square = np.where(asked.mask, (mean - asked.truth) ** 2, 0.0)
            both = (square[some].sum() / asked.mask[some].sum() for some in (at_cut, slice(None)))
            scores = zip(("after t = 150", "nine times"), both, strict=True)
            rows.append({"run": run.name, "by": name} | {when: round(float(mse), 4) for when, mse in scores})
            print(rows[-1], flush=True)
    write_rows(options.results, rows)


def ask(table: Table, cuts: np.ndarray) -> Task:
    return evaluation.prediction(table, after=cuts, num_rows=ushcn.NUM_NEXT, from_start=True)


def foretell(fitted: Fitted, asked: Task, draws: int) -> np.ndarray:
    """What a run foretells: (query, channel)."""
    request = inference.Request(asked.visible, asked.series, asked.times)
    how = {"levels": (0.5,), "num_samples": draws, "seed": 0, "method": fitted.ways.forecast}
    return inference.forecast(fitted.model, fitted.frame, request, **how).mean


def grow(train: Table, asked: Task) -> np.ndarray:
    """What trees foretell that learned from the training stations: (query, channel)."""
    lessons = [ask(train, part) for part in np.array_split(CUTS, 8)]  # a few at once: each is a copy of all stations
    features, wanted = np.concatenate([features_of(lesson) for lesson in lessons]), features_of(asked)
    truth, mask = (np.concatenate([getattr(lesson, name) for lesson in lessons]) for name in ("truth", "mask"))
    least, mean = truth.min(axis=0), np.zeros_like(asked.truth)
    for channel, (loss, count) in enumerate(zip(LOSSES, COUNTS, strict=True)):
        seen, below = mask[:, channel], least[channel] if loss == "poisson" else 0.0
        for seed in SEEDS:
            trees = HistGradientBoostingRegressor(
                loss=loss, max_iter=count, early_stopping=False, l2_regularization=5.0, random_state=seed, **TREES
            ).fit(features[seen], truth[seen, channel] - below)
            mean[:, channel] += (trees.predict(wanted) + below) / len(SEEDS)
    return mean


def features_of(asked: Task) -> np.ndarray:
    """What trees read of each query; they are in the order of their series."""
    starts, features = asked.visible.starts, []
    for series in np.unique(asked.series):
        rows = slice(starts[series], starts[series + 1])
        past = Past(asked.visible.times[rows], asked.visible.values[rows], asked.visible.mask[rows])
        known = known_at_cut(past)
        for time in asked.times[asked.series == series]:
            age = time - past.times[-1] if len(past.times) else np.nan
            angle = 2 * np.pi * time / ushcn.YEAR * np.array([1, 2])
            features.append([*known, *season_of(past, time), age, *np.sin(angle), *np.cos(angle)])
    return np.array(features)


def known_at_cut(past: Past) -> list[float]:
    """Of every variable its last two values and their ages, means over windows and of all, and of rain and snow how
    often there was any and how much of it."""
    features = []
    for channel in range(past.values.shape[1]):
        seen = past.mask[:, channel]
        values, ages = past.values[seen, channel], past.times[-1:].sum() - past.times[seen]
        for number in (1, 2):
            features += [values[-number], ages[-number]] if number <= len(values) else [np.nan, np.nan]
        features += [mean_of(values[ages < window]) for window in (*WINDOWS, np.inf)]
        more = values - values.min(initial=np.inf) if len(values) else values
        features += [mean_of(more > 0), mean_of(np.log1p(more)), mean_of(more[ages < WINDOWS[1]] > 0)]
    return features


def season_of(past: Past, time: float) -> list[float]:
    """Of every variable its mean in the season of this time, how much was seen then, and how often it was not at its
    least."""
    apart = (time - past.times + ushcn.YEAR / 2) % ushcn.YEAR - ushcn.YEAR / 2
    weights, features = np.exp(-0.5 * (apart / SEASON) ** 2), []
    for channel in range(past.values.shape[1]):
        seen = past.mask[:, channel]
        near, values = weights[seen], past.values[seen, channel]
        total = near.sum()
        more = values > values.min(initial=np.inf)
        features += [near @ values / total if total > 0.1 else np.nan, total, near @ more / (total + 0.5)]
    return features


def mean_of(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else np.nan


if __name__ == "__main__":
    main()
