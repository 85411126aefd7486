"""What particles and smoothing bring on Double-OU: the ways to ask, side by side, of runs that are there already.

The runs of the table, for NAME in vsdn-f and vsdn-s: vsdn fit train.csv --valid valid.csv --preset double-ou-paths
--model NAME --seed 10 --out runs/NAME; beside them those of `vsdn reproduce double-ou`, seed 10.

Example: python experiments/methods_double_ou.py runs/vsdn-f runs/vsdn-s runs/double-ou/linear-vae-10 --test test.csv
"""

import argparse
import csv
from pathlib import Path

import vsdn
from vsdn.tables.frames import read_table

SCORES = ("nll", "mse", "crps", "coverage_90")
NEXT = {"after": 4.0, "next": 1}
WAYS = {  # by the kind of model: task, method, and what is asked
    "vsdn": (
        ("prediction", "prior", NEXT),
        ("prediction", "particles", NEXT),
        ("interpolation", "prior", {}),
        ("interpolation", "posterior", {}),
        ("interpolation", "particles", {}),
    ),
    "vsdn, told of all rows": (
        ("prediction", "prior", NEXT),
        ("prediction", "particles", NEXT),
        ("interpolation", "prior", {}),
        ("interpolation", "tried", {}),
    ),
    "other": (("prediction", "prior", NEXT), ("interpolation", "prior", {}), ("interpolation", "smooth", {})),
}


def rows_of(folder: Path, test: Path, series: int, draws: int) -> list[dict]:
    """The scores of each way that the model of a run can be asked in."""
    fitted, table = vsdn.load(folder), read_table(str(test))
    table, name = table.select(range(min(series, table.num_series))), fitted.settings.model.model
    told = "" if fitted.settings.training.hide_share else ", told of all rows"
    kind = f"vsdn{told}" if name.startswith("vsdn") else "other"
    rows = []
    for task, method, asked in WAYS[kind]:
        if (name, method) == ("vsdn-f", "posterior"):
            continue  # its posterior knows nothing of later rows
        scores = fitted.evaluate(table, task, method=method, draws=draws, **asked)
        title = name + (told if kind != "other" else "")
        rows.append({"model": title, "task": task, "method": method, **{score: scores[score] for score in SCORES}})
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="run folders")
    parser.add_argument("--test", type=Path, required=True, help="the test table")
    parser.add_argument("--series", type=int, default=2000, help="how many of its series")
    parser.add_argument("--draws", type=int, default=128, help="latent paths, or particles, a series")
    parser.add_argument("--results", type=Path, default=Path("experiments/results/double-ou-methods.csv"))
    options = parser.parse_args()
    rows = [row for run in options.runs for row in rows_of(run, options.test, options.series, options.draws)]
    with options.results.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print("| model | task | method | NLL | MSE | CRPS | 90 % covers |\n|---|---|---|--:|--:|--:|--:|")
    for row in rows:
        scores = f"{row['nll']:.4f} | {row['mse']:.5f} | {row['crps']:.4f} | {row['coverage_90']:.3f}"
        print(f"| {row['model']} | {row['task']} | {row['method']} | {scores} |")


if __name__ == "__main__":
    main()
