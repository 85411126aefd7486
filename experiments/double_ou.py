"""Double-OU with the shipped presets: every model, three seeds, against the exact floor.

Everything is done by the command line, as a user would. A finished run is never repeated, a stopped one is resumed.

Example: python experiments/double_ou.py --out runs/double-ou --jobs 2
"""

import argparse
import csv
import json
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from vsdn.datasets import double_ou

CUT = 4.0
SCORES = ("nll", "mse", "crps", "coverage_50", "coverage_90")
SEEDS = (10, 11, 12)  # none that a choice was made with


class Run(NamedTuple):
    model: str
    objective: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.model}-{self.objective}-{self.seed}"


MODELS = (  # with the objective of those that have latent paths
    *((model, objective) for model in ("vsdn-f", "vsdn-s") for objective in ("vae", "iwae")),
    ("ode-rnn", "vae"),
    ("gru-ode", "vae"),
    ("latent-ode", "vae"),
    ("latent-sde", "vae"),
    ("gru-decay", "vae"),
    ("linear", "vae"),
    ("last-value", "vae"),
    ("mean", "vae"),
)
RUNS = [Run(model, objective, seed) for model, objective in MODELS for seed in SEEDS]
FEWER = ("--preset", "double-ou", "--set", "epochs=20")  # their validation reads every beginning, which takes long
CHOICES = {  # where the preset is not double-ou as it is; but for FEWER, chosen on the validation part
    "latent-ode": FEWER,
    "latent-sde": FEWER,
    "linear": ("--preset", "double-ou-linear"),
    "last-value": ("--preset", "double-ou", "--set", "learning_rate=0.05"),
}


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
    """A run by `choice`; a stopped one is resumed."""
    if (out / "config.json").exists():
        vsdn("resume", out, "--quiet")
    else:
        vsdn("fit", folder / "train.csv", "--valid", folder / "valid.csv", *choice, "--out", out, "--quiet")


def do(run: Run, folder: Path) -> dict:
    """The scores of a run on the test part, what it is, and the seconds that its training took."""
    result = folder / f"{run.name}.json"
    if not result.exists():
        out, began = folder / run.name, time.monotonic()
        which = ("--model", run.model, "--objective", run.objective, "--seed", run.seed)
        train(out, folder, *CHOICES.get(run.model, ("--preset", "double-ou")), *which)
        seconds = time.monotonic() - began
        scores = json.loads(vsdn("evaluate", out, folder / "test.csv", "--after", CUT, "--next", 1, "--json"))
        result.write_text(json.dumps({**run._asdict(), **scores, "seconds": round(seconds)}))
        print(f"{run.name}: NLL {scores['nll']:.4f}, {seconds:.0f} s", flush=True)
    about = json.loads(vsdn("info", folder / run.name, "--json"))
    epochs = int(about["epochs"].split()[0])
    return {**json.loads(result.read_text()), "epochs": epochs, "parameters": about["parameters"]}


def write_results(results: list[dict], path: Path) -> None:
    """Nothing; every run as a line of CSV."""
    columns = ("model", "objective", "seed", *SCORES, "epochs", "seconds", "parameters")
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(results)


def print_table(results: list[dict]) -> None:
    """Nothing; the mean ± deviation over seeds in Markdown, the floor last."""
    print("| model | NLL | MSE | CRPS | 50 % covers | 90 % covers | seconds an epoch | parameters |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    for model, objective in MODELS:
        mine = [result for result in results if (result["model"], result["objective"]) == (model, objective)]
        cells = " | ".join(_spread([result[score] for result in mine], score) for score in SCORES)
        seconds = statistics.mean(result["seconds"] / max(result["epochs"], 1) for result in mine)
        name = f"{model} ({objective})" if model.startswith("vsdn") else model
        print(f"| {name} | {cells} | {seconds:.1f} | {mine[0]['parameters']:,} |")
    test = double_ou.split(double_ou.make(legacy=True))[2]
    floor = double_ou.bayes_optimal(test, cut=CUT).scores()
    print(f"| Bayes-optimal (the floor) | {' | '.join(_rounded(floor[score], score) for score in SCORES)} | | |")


def _rounded(value: float, score: str) -> str:
    return f"{value:.5f}" if score == "mse" else f"{value:.4f}" if score == "crps" else f"{value:.3f}"


def _spread(values: list[float], score: str) -> str:
    return f"{_rounded(statistics.mean(values), score)} ± {_rounded(statistics.stdev(values), score)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/double-ou"), help="folder for data, runs and scores")
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side")
    parser.add_argument("--model", nargs="*", help="these models alone, and no table")
    parser.add_argument("--results", type=Path, default=Path("experiments/results/double-ou.csv"))
    options = parser.parse_args()
    make_data(options.out)
    runs = [run for run in RUNS if not options.model or run.model in options.model]
    with ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(lambda run: do(run, options.out), runs))
    if not options.model:
        write_results(results, options.results)
        print_table(results)


if __name__ == "__main__":
    main()
