"""Which model for which data: the models side by side on three kinds of series, each row from the rows before it.

Everything is done by the command line, as a user would. A finished run is never repeated.

Example: python experiments/which_model.py --out runs/which-model --jobs 2
"""

import argparse
import csv
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from commands import make_data, train, vsdn

from vsdn.datasets import double_ou
from vsdn.tables.frames import table_frame, write_frame

MODELS = ("vsdn-f", "vsdn-s", "ode-rnn", "gru-ode", "latent-ode", "gru-decay", "linear", "last-value", "mean")
SCORES = ("nll", "mse", "crps", "coverage_90")
COMMON = {"start": 0.0, "time_scale": 1.0, "max_step": 0.25, "hidden_size": 32, "latent_size": 8, "width": 32}
RATES = {"linear": 2e-2, "last-value": 5e-2}  # of learning; 5e-3 for the others


class Data(NamedTuple):
    make: Callable[[Path], None]  # writes train.csv, valid.csv and test.csv into a folder
    settings: dict[str, float]


def wells(num_series: int, seed: int) -> pa.Table:
    """A particle between two wells: dx = 4 (x − x³) dt + 0.9 dW, seen through noise of 0.1 at some 20 times of [0, 10].

    Steps of 0.01; from a normal start. Given a few values near 0, nobody can know which well it is in next.
    """
    rng, step = np.random.default_rng(seed), 0.01
    x, path = rng.normal(size=num_series), np.empty((num_series, 1001))
    for number in range(1001):
        path[:, number] = x
        x = x + 4 * (x - x**3) * step + 0.9 * np.sqrt(step) * rng.normal(size=num_series)
    counts = rng.integers(12, 28, num_series)
    series = np.repeat(np.arange(num_series), counts)
    number = np.concatenate([np.sort(rng.choice(1001, count, replace=False)) for count in counts])
    values = path[series, number] + 0.1 * rng.normal(size=len(series))
    return pa.table({"id": series, "time": number * step, "x": values})


def make_wells(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for seed, (part, count) in enumerate({"train": 1000, "valid": 300, "test": 1000}.items()):
        write_frame(wells(count, seed), folder / f"{part}.csv")


def make_few(folder: Path) -> None:
    """A hundred series of the published Double-OU set to learn from, fifty to validate on, all of the test part."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = double_ou.split(double_ou.make(legacy=True))
    for part, table, count in zip(("train", "valid", "test"), parts, (100, 50, None), strict=True):
        chosen = table.select(np.arange(table.num_series if count is None else count))
        write_frame(table_frame(chosen), folder / f"{part}.csv")


DATA = {
    "two wells, 1,000 series": Data(make_wells, {"epochs": 40, "batch_size": 50}),
    "Double-OU, 100 series": Data(make_few, {"epochs": 150, "batch_size": 25}),
    "Double-OU, 7,200 series": Data(make_data, {"epochs": 20, "batch_size": 50}),
}


def do(name: str, model: str, folder: Path) -> dict:
    """The scores of a model on the test part."""
    result = folder / f"{model}.json"
    if not result.exists():
        values = COMMON | DATA[name].settings | {"learning_rate": RATES.get(model, 5e-3), "num_buckets": 2}
        choice = [part for key, value in values.items() for part in ("--set", f"{key}={value}")]
        train(folder / model, folder, *choice, "--model", model, "--objective", "vae", "--seed", 0)
        scores = json.loads(vsdn("evaluate", folder / model, folder / "test.csv", "--json"))
        result.write_text(json.dumps({"data": name, "model": model, **scores}))
        print(f"{name}, {model}: NLL {scores['nll']:.3f}, CRPS {scores['crps']:.4f}", flush=True)
    return json.loads(result.read_text())


def print_tables(results: list[dict]) -> None:
    """Nothing; a table a data set, in Markdown."""
    for name in dict.fromkeys(result["data"] for result in results):
        print(f"\n**{name}**\n\n| model | NLL | MSE | CRPS | 90 % covers |\n|---|--:|--:|--:|--:|")
        for result in sorted((r for r in results if r["data"] == name), key=lambda r: r["nll"]):
            nll, mse, crps, covers = (result[score] for score in SCORES)
            print(f"| {result['model']} | {nll:.3f} | {mse:.4f} | {crps:.4f} | {covers:.3f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/which-model"), help="folder for data, runs and scores")
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side")
    parser.add_argument("--data", nargs="*", default=list(DATA), help="these data sets alone")
    parser.add_argument("--results", type=Path, default=Path("experiments/results/which-model.csv"))
    options = parser.parse_args()
    runs = []
    for name in options.data:
        folder = options.out / name.replace(",", "").replace(" ", "-")
        if not (folder / "test.csv").exists():
            DATA[name].make(folder)
        runs += [(name, model, folder) for model in MODELS]
    with ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(lambda run: do(*run), runs))
    with options.results.open("w", newline="") as file:
        writer = csv.DictWriter(file, ("data", "model", *SCORES), extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(results)
    print_tables(results)


if __name__ == "__main__":
    main()
