"""Double-OU with the shipped preset: VSDN-F and VSDN-S, VAE and IWAE, against the exact floor.

Everything is done by the command line, as a user would. A finished run is never repeated, a stopped one is resumed.

Example: python experiments/double_ou.py --out runs/double-ou --jobs 2
"""

import argparse
import csv
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from vsdn.datasets import double_ou

CUT = 4.0
COLUMNS = ("nll", "mse", "crps", "coverage_50", "coverage_90")


class Run(NamedTuple):
    model: str
    objective: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.model}-{self.objective}-{self.seed}"


SEEDS = (10, 11, 12)  # none that a choice was made with
RUNS = [
    *(Run(model, objective, SEEDS[0]) for model in ("vsdn-f", "vsdn-s") for objective in ("vae", "iwae")),
    *(Run("vsdn-f", "vae", seed) for seed in SEEDS[1:]),
]


def vsdn(*arguments: object) -> str:
    """What a command prints."""
    command = [sys.executable, "-m", "vsdn.cli", *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def make_data(folder: Path, parts: tuple[str, ...] = ("train", "valid", "test")) -> None:
    """The published set in its parts, where they are not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    for part in parts:
        if not (folder / f"{part}.csv").exists():
            vsdn("datasets", "make", "double-ou", "--legacy", "--part", part, "--out", folder / f"{part}.csv")


def train(out: Path, folder: Path, *choice: object) -> None:
    """A run of the shipped preset, or of what `choice` changes of it; a stopped one is resumed."""
    if (out / "config.json").exists():
        vsdn("resume", out, "--quiet")
    else:
        tables = (folder / "train.csv", "--valid", folder / "valid.csv")
        vsdn("fit", *tables, "--preset", "double-ou", *choice, "--out", out, "--quiet")


def do(run: Run, folder: Path) -> dict:
    """The scores of a run on the test part, and the seconds that its training took."""
    result = folder / f"{run.name}.json"
    if result.exists():
        return json.loads(result.read_text())
    out, began = folder / run.name, time.monotonic()
    train(out, folder, "--model", run.model, "--objective", run.objective, "--seed", run.seed)
    seconds = time.monotonic() - began
    scores = json.loads(vsdn("evaluate", out, folder / "test.csv", "--after", CUT, "--next", 1, "--json"))
    result.write_text(json.dumps({**run._asdict(), **scores, "seconds": round(seconds)}))
    return json.loads(result.read_text())


def write_table(results: list[dict], path: Path) -> None:
    """Nothing; prints the table in Markdown and writes it as CSV, the floor last."""
    rows = [
        [f"{r['model']} ({r['objective']}), seed {r['seed']}", *(r[c] for c in COLUMNS), r["seconds"]] for r in results
    ]
    test = double_ou.split(double_ou.make(legacy=True))[2]
    floor = double_ou.bayes_optimal(test, cut=CUT).scores()
    rows.append(["Bayes-optimal (the floor)", *(floor[c] for c in COLUMNS), ""])
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([["model", *COLUMNS, "seconds"], *rows])
    print("| model | NLL | MSE | CRPS | 50 % covers | 90 % covers | seconds |\n|---|---|---|---|---|---|---|")
    for name, nll, mse, crps, half, most, seconds in rows:
        print(f"| {name} | {nll:.3f} | {mse:.5f} | {crps:.4f} | {half:.3f} | {most:.3f} | {seconds} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/double-ou"), help="folder for data, runs and scores")
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side")
    parser.add_argument("--table", type=Path, default=Path("experiments/results/double-ou.csv"))
    options = parser.parse_args()
    make_data(options.out)
    with ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(lambda run: do(run, options.out), RUNS))
    write_table(results, options.table)


if __name__ == "__main__":
    main()
