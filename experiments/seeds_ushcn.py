"""USHCN with more seeds: rows of appendix C's sizes, trained anew, after t = 150 and nine times around it.

The record has one seed a fold (0); here are others. The table keeps what is not asked for, and what is there is not
trained again.

Example: python experiments/seeds_ushcn.py gru-ode-vae-plain vsdn-s-iwae-usual --data data --out runs/seeds
"""

import argparse
import csv
from pathlib import Path
from typing import Any

from looking import write_rows
from origins_ushcn import ORIGINS, SCORES
from rows import fit_row

from vsdn.datasets import ushcn
from vsdn.fitted import Fitted

RESULTS = Path("experiments/results/ushcn-seeds.csv")
ASKED = {"": (ushcn.CUT,), ", nine times": ORIGINS}


def key_of(line: dict[str, Any]) -> tuple[int, int, str]:
    """What the table is sorted by."""
    return int(line["seed"]), int(line["fold"]), line["row"]


def read_lines() -> list[dict[str, Any]]:
    """What was trained before."""
    if not RESULTS.exists():
        return []
    with RESULTS.open(newline="") as file:
        return list(csv.DictReader(file))


def scores_of(fitted: Fitted, test: Any) -> dict[str, float]:
    """Of the next three rows after each of these times."""
    found = {}
    for name, times in ASKED.items():
        scores = fitted.evaluate(test, after=times, next=ushcn.NUM_NEXT)
        found |= {f"{score}{name}": round(scores[score], 4) for score in SCORES}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="+", help="names of the plan `ushcn`, trained with appendix C's sizes")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--folds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--data", type=Path, required=True, help="folder of the data files")
    parser.add_argument("--out", type=Path, default=Path("runs/seeds"), help="folder for the runs")
    options = parser.parse_args()
    wanted = [(seed, fold, row) for seed in options.seeds for fold in options.folds for row in options.rows]
    for seed, fold, row in wanted:
        if (seed, fold, row) in map(key_of, read_lines()):
            continue
        parts = ushcn.load(options.data, fold)
        fitted = fit_row("ushcn", "paper", row, parts, {"seed": seed}, options.out / f"{row}-seed-{seed}-{fold}")
        line = {"row": row, "fold": fold, "seed": seed, **scores_of(fitted, parts.test)}
        print(line, flush=True)
        write_rows(RESULTS, sorted([*read_lines(), line], key=key_of))  # read anew: others may run beside


if __name__ == "__main__":
    main()
