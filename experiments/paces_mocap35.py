"""How well could a walk of subject 35 be foretold, if its pace and phase were known?

For each validation walk, the training walk that fits it best, moved in time and run faster or slower as fits best, all
after the fact; with and without the offset of each variable that stays the whole walk.

Example: python experiments/paces_mocap35.py --data data
"""

import argparse
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from looking import write_rows

from vsdn.datasets import mocap35
from vsdn.tables.table import Table

OWN_PACE, PACES = (1.0,), np.arange(0.76, 1.2, 0.02)
MOVES = np.arange(-60.0, 61.0, 3.0)  # frames
LEAST_FRAMES = 230  # that two walks share once one is moved


class Fit(NamedTuple):
    """How far a training walk is from another, in mean squares a value, and what was done to it."""

    mse: float
    without_offset: float
    pace: float
    move: float


def walks(table: Table) -> np.ndarray:
    return table.values.reshape(table.num_series, mocap35.NUM_FRAMES, -1)


def fits(walk: np.ndarray, other: np.ndarray, paces: Sequence[float] | np.ndarray) -> Iterator[Fit]:
    """Every pace and move of the other walk that leaves enough frames to compare."""
    for pace, move in itertools.product(paces, MOVES):
        at = np.arange(len(walk)) * pace + move
        inside = (at >= 0) & (at <= len(other) - 1)
        if inside.sum() < LEAST_FRAMES:
            continue
        error = walk[inside] - between(other, at[inside])
        yield Fit(np.mean(error**2), np.mean(error.var(axis=0)), pace, move)


def between(walk: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The walk at times between its frames, along straight lines."""
    before = np.minimum(at.astype(int), len(walk) - 2)
    part = (at - before)[:, None]
    return (1 - part) * walk[before] + part * walk[before + 1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data files")
    parser.add_argument("--results", type=Path, default=Path("experiments/results/mocap35-paces.csv"))
    options, rows = parser.parse_args(), []
    parts = mocap35.load(options.data)
    for name, walk in zip(parts.valid.ids, walks(parts.valid), strict=True):
        for allowed, paces in (("its own", OWN_PACE), ("any", PACES)):
            best = min(fit for other in walks(parts.train) for fit in fits(walk, other, paces))
            rows.append(
                {"walk": name, "pace allowed": allowed, **{k: round(float(v), 3) for k, v in best._asdict().items()}}
            )
            print(rows[-1], flush=True)
    write_rows(options.results, rows)


if __name__ == "__main__":
    main()
