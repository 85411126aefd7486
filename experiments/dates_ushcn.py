"""Were USHCN's dates learned by heart? All stations share one calendar: a day's weather could be known by its number.

Validation stations without their first year are foretold row by row twice: as they are, and a whole year early. The
season is the same, the days are others: what a model knows by heart of the days of its training stations is wrong then.
An honest year-to-year difference remains, and is the same for all models; `mean` and `last-value` show its size.

Example: python experiments/dates_ushcn.py runs/ushcn/gru-ode-vae-0 runs/ushcn/vsdn-s-iwae-0 --data data
"""

import argparse
import csv
import dataclasses
from pathlib import Path

import vsdn
from vsdn.data import Table
from vsdn.datasets import ushcn

YEAR = 49.0216  # in the file's unit of time
SCORES = ("nll", "mse", "crps")


def moved(table: Table, by: float) -> Table:
    """The table without its first year, with all times moved."""
    later = table.keep_rows(table.times > YEAR)
    return dataclasses.replace(later, times=later.times - by)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="run folders of a fold")
    parser.add_argument("--data", type=Path, required=True, help="folder of the data files")
    parser.add_argument("--fold", type=int, default=0)
    parser.add_argument("--draws", type=int, default=32, help="latent paths, or particles, a series")
    parser.add_argument("--results", type=Path, default=Path("experiments/results/ushcn-dates.csv"))
    options = parser.parse_args()
    valid = ushcn.load(options.data, options.fold).valid
    rows = []
    for run in options.runs:
        fitted = vsdn.load(run)
        for calendar, by in (("its own", 0.0), ("a year early", YEAR)):
            scores = fitted.evaluate(moved(valid, by), "prediction", draws=options.draws)
            rows.append({"run": run.name, "calendar": calendar, **{score: scores[score] for score in SCORES}})
            print(rows[-1], flush=True)
    with options.results.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["run", "calendar", *SCORES])
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
