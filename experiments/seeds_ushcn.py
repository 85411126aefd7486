"""USHCN with more seeds: rows of appendix C's sizes, trained anew, after t = 150 and nine times around it.

The record has one run a fold, whose seed is the fold's number; here are two more with seeds of their own. The table
keeps what is not asked for, and what is there is not trained again. A second table has the MSE of each row as a part of
GRU-ODE's, of the same seed and fold.

Example: python experiments/seeds_ushcn.py gru-ode-vae-plain vsdn-s-iwae-usual --data data --out runs/seeds
"""

import argparse
import csv
from collections.abc import Sequence
from math import isnan, nan
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from looking import write_rows
from origins_ushcn import ORIGINS, SCORES
from rows import fit_row

from vsdn.datasets import ushcn
from vsdn.fitted import Fitted
from vsdn.tables.table import Table

RESULTS = Path("experiments/results")
SEEDS, RATIOS, RECORD = RESULTS / "ushcn-seeds.csv", RESULTS / "ushcn-seeds-ratios.csv", RESULTS / "ushcn" / "runs.csv"
ASKED = {"": (ushcn.CUT,), ", nine times": ORIGINS}
FOLDS = range(ushcn.NUM_PUBLISHED)
RIVALS = ("gru-ode-vae-plain", "gru-ode-vae")
Lines = list[dict[str, Any]]


def seeds_of(fold: int) -> list[int]:
    """The record's seed, and two others."""
    return [fold, *[seed for seed in (1, 2, 3) if seed != fold][:2]]


def key_of(line: dict[str, Any]) -> tuple[int, int, str]:
    """What the table is sorted by."""
    return int(line["fold"]), int(line["seed"]), line["row"]


def read_lines(path: Path) -> Lines:
    """What was trained before."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def scores_of(fitted: Fitted, test: Table) -> dict[str, float]:
    """Of the next three rows after each of these times."""
    found = {}
    for name, times in ASKED.items():
        scores = fitted.evaluate(test, after=times, next=ushcn.NUM_NEXT)
        found |= {f"{score}{name}": round(scores[score], 4) for score in SCORES}
    return found


def ratios(lines: Lines) -> Lines:
    """Of each row, by turns of a seed a fold and of all of them: the mean of the runs' ratios of MSE, and the ratio of
    the means."""
    found, rows = {key_of(line): line for line in lines}, dict.fromkeys(line["row"] for line in lines)
    out: Lines = []
    for row, rival in ((row, rival) for row in rows for rival in RIVALS if row not in RIVALS):
        for turns in ((0,), (1,), (2,), (0, 1, 2)):
            of_turns = [(fold, seeds_of(fold)[turn]) for turn in turns for fold in FOLDS]
            pairs = [(found.get((*run, row)), found.get((*run, rival))) for run in of_turns]
            out.append({"row": row, "rival": rival, "turns": " ".join(map(str, turns))})
            for name in ASKED:
                mses = [(mse_of(own, name), mse_of(other, name)) for own, other in pairs]
                out[-1] |= {f"{key}{name}": value for key, value in compared(mses).items()}
    return out


def mse_of(line: dict[str, Any] | None, name: str) -> float:
    """NaN where nothing was asked: the record knows t = 150 alone."""
    return float((line or {}).get(f"mse{name}") or nan)


def compared(mses: Sequence[tuple[float, float]]) -> dict[str, float | str]:
    """Two models' errors, run by run; empty where one is missing."""
    names = ("mean of ratios", "deviation", "ratio of means")
    if any(isnan(mse) for pair in mses for mse in pair):
        return dict.fromkeys(names, "")
    of_runs, (own, other) = [one / two for one, two in mses], zip(*mses, strict=True)
    return dict(
        zip(names, (round(x, 3) for x in (mean(of_runs), stdev(of_runs), mean(own) / mean(other))), strict=True)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="+", help="names of the plan `ushcn`, trained with appendix C's sizes")
    parser.add_argument("--data", type=Path, required=True, help="folder of the data files")
    parser.add_argument("--out", type=Path, default=Path("runs/seeds"), help="folder for the runs")
    options = parser.parse_args()
    wanted = [(fold, seeds_of(fold)[turn], row) for turn in (1, 2) for fold in FOLDS for row in options.rows]
    for fold, seed, row in wanted:
        if (fold, seed, row) in map(key_of, read_lines(SEEDS)):
            continue
        parts = ushcn.load(options.data, fold)
        fitted = fit_row("ushcn", "paper", row, parts, {"seed": seed}, options.out / f"{row}-seed-{seed}-{fold}")
        line = {"row": row, "fold": fold, "seed": seed, **scores_of(fitted, parts.test)}
        print(line, flush=True)
        write_rows(SEEDS, sorted([*read_lines(SEEDS), line], key=key_of))  # read anew: others may run beside
    lines = read_lines(SEEDS)
    rows = {line["row"] for line in lines}
    recorded = [line for line in read_lines(RECORD) if line["preset"] == "paper" and line["row"] in rows]
    write_rows(RATIOS, ratios([*recorded, *lines]))


if __name__ == "__main__":
    main()
