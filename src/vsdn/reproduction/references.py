"""Reference forecasters that need no training: functions of a data set's parts and a question."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from vsdn.answers import evaluation
from vsdn.datasets import double_ou, ushcn
from vsdn.datasets.base import Parts
from vsdn.errors import SettingsError
from vsdn.reproduction.plans import Asked

Reference = Callable[[Parts, Asked], dict[str, Any]]


def bayes_optimal(parts: Parts, asked: Asked) -> dict[str, Any]:
    """The best possible forecaster on Double-OU: the floor of all scores."""
    if isinstance(asked.after, tuple):
        raise SettingsError("the best forecaster of Double-OU is asked about what comes after one time, not several")
    law = double_ou.bayes_optimal(parts.test, cut=asked.after or 0.0, num_rows=asked.next or 1)
    return {**law.scores(), "num_values": int(law.mask.sum()), "num_rows": len(law.rows)}


def seasonal_mean(parts: Parts, asked: Asked) -> dict[str, Any]:
    """A Gaussian about USHCN's seasonal mean, with the spread of the training part."""
    train = parts.train
    away = np.where(train.mask, train.values - ushcn.seasonal_mean(train, train.times), 0.0)
    std = np.sqrt(np.sum(away**2, axis=0) / np.maximum(train.mask.sum(axis=0), 1))
    task = evaluation.prediction(parts.test, after=asked.after, num_rows=asked.next, from_start=True)
    z = (task.truth - ushcn.seasonal_mean(train, task.times)) / std
    return evaluation.summary(*_gaussian_scores(z, std), task.mask)


def _gaussian_scores(z: np.ndarray, std: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """NLL, squared error, CRPS and PIT at `z` standard deviations above a Gaussian's mean."""
    pit = 0.5 * (1 + np.vectorize(math.erf, otypes=[float])(z / math.sqrt(2)))
    density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    nll = 0.5 * z**2 + np.log(std) + 0.5 * math.log(2 * math.pi)
    return nll, (std * z) ** 2, std * (z * (2 * pit - 1) + 2 * density - 1 / math.sqrt(math.pi)), pit


REFERENCES: dict[str, Reference] = {"bayes-optimal": bayes_optimal, "seasonal-mean": seasonal_mean}
