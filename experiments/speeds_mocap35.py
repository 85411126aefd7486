"""Do three frames tell the pace of a walk of subject 35?

Training walks are run at paces from 0.8 to 1.2, and the logarithm of the pace is read from three frames by kernel ridge
regression: with the root's speed growing with the pace, with the speed left as it was, as the values of a stretched
walk are if nobody thinks of it, and with the speed not shown. Judged on training walks that were held out, four at a
time; then the validation walks are read, whose pace after the fact `paces_mocap35.py` tells.

Example: python experiments/speeds_mocap35.py --data data
"""

import argparse
from pathlib import Path

import numpy as np
from looking import write_rows
from paces_mocap35 import between, walks

from vsdn.datasets import mocap35

ROOT = len(mocap35.REST)  # the first variables: the root's speeds
WAYS = ("grows", "stays", "not shown")  # what the root's speed does in a walk that is stretched
READINGS = 150  # three frames each, of a walk
FEWEST, MOST = np.log(0.8), np.log(1.2)
RIDGE = 0.01


def frames_at(walk: np.ndarray, start: float, pace: float, way: str) -> np.ndarray:
    """Three frames of a walk that is run at this pace."""
    frames = between(walk, start + pace * np.arange(3))
    rest = np.array(list(mocap35.REST.values()))
    if way == "grows":
        frames[:, :ROOT] = rest + pace * (frames[:, :ROOT] - rest)
    return frames[:, ROOT:] if way == "not shown" else frames


def readings(some: np.ndarray, way: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Threes of frames of walks at many paces, as where they are and how they move, and the logarithms of the paces."""
    log_paces = rng.uniform(FEWEST, MOST, (len(some), READINGS))
    starts = rng.uniform(0, some.shape[1] - 1 - 2 * np.exp(MOST), log_paces.shape)
    threes = [
        frames_at(walk, start, np.exp(log_pace), way)
        for walk, *at in zip(some, starts, log_paces, strict=True)
        for start, log_pace in zip(*at, strict=True)
    ]
    return features(np.stack(threes)), log_paces.ravel()


def features(threes: np.ndarray) -> np.ndarray:
    return np.concatenate([threes.mean(axis=1), (threes[:, 2] - threes[:, 0]) / 2], axis=1)


class Reader:
    """Kernel ridge regression, with a bell as wide as the readings lie apart."""

    def __init__(self, seen: np.ndarray, log_paces: np.ndarray) -> None:
        self.mean, self.deviation = seen.mean(axis=0), seen.std(axis=0)
        self.seen, self.log_pace = self._scaled(seen), log_paces.mean()
        self.width = np.median(_squares(self.seen[:500], self.seen[:500]))
        kernel = self._kernel(self.seen) + RIDGE * np.eye(len(seen))
        self.weights = np.linalg.solve(kernel, log_paces - self.log_pace)

    def __call__(self, seen: np.ndarray) -> np.ndarray:
        return self.log_pace + self._kernel(self._scaled(seen)) @ self.weights

    def _scaled(self, seen: np.ndarray) -> np.ndarray:
        return (seen - self.mean) / self.deviation

    def _kernel(self, seen: np.ndarray) -> np.ndarray:
        return np.exp(-_squares(seen, self.seen) / self.width)


def _squares(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2 * a @ b.T


def held_out(train: np.ndarray, way: str, rng: np.random.Generator) -> float:
    """How far the logarithm of the pace is read off, in a root mean square over held-out walks."""
    errors = []
    for fold in range(4):
        out = np.arange(len(train)) % 4 == fold
        seen, log_paces = readings(train[out], way, rng)
        errors.append(Reader(*readings(train[~out], way, rng))(seen) - log_paces)
    return float(np.sqrt(np.mean(np.square(errors))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data files")
    parser.add_argument("--results", type=Path, default=Path("experiments/results/mocap35-speeds.csv"))
    options, rows = parser.parse_args(), []
    parts, rng = mocap35.load(options.data), np.random.default_rng(0)
    train, valid = walks(parts.train), walks(parts.valid)
    for way in WAYS:
        reader = Reader(*readings(train, way, rng))
        paces = np.exp(reader(features(np.stack([frames_at(walk, 0.0, 1.0, way) for walk in valid]))))
        rows.append({"root's speed": way, "error of log pace, held out": round(held_out(train, way, rng), 3)})
        rows[-1] |= {str(name): round(float(pace), 3) for name, pace in zip(parts.valid.ids, paces, strict=True)}
        print(rows[-1], flush=True)
    write_rows(options.results, rows)


if __name__ == "__main__":
    main()
