"""What USHCN's scores are made of: the share of each variable and of the few worst values, in test rows after t = 150.

Example: python experiments/storms_ushcn.py runs/ushcn/gru-ode-vae-0 runs/ushcn/vsdn-s-iwae-0 --data data
"""

import argparse
import csv
from pathlib import Path

import numpy as np

import vsdn
from vsdn import evaluation, inference
from vsdn.datasets import ushcn

VARIABLES = ("rain", "snowfall", "snow depth", "highest temperature", "lowest temperature")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="run folders; the last part of a name is its fold")
    parser.add_argument("--data", type=Path, required=True, help="folder of the data files")
    parser.add_argument("--draws", type=int, default=128, help="latent paths, or particles, a series")
    parser.add_argument("--results", type=Path, default=Path("experiments/results/ushcn-storms.csv"))
    options = parser.parse_args()
    rows = []
    for run in options.runs:
        nll, errors, mask = scores_of(run, options.data, options.draws)
        row: dict = {"run": run.name}
        for name, scores in (("mse", errors), ("nll", nll)):
            worst = np.sort(scores[mask])[::-1]
            count = round(0.02 * len(worst))
            row |= {name: worst.mean(), f"{name} of the worst 2 %": worst[:count].sum() / len(worst)}
            row[f"{name} without them"] = worst[count:].mean()
        for channel, name in enumerate(VARIABLES):
            row[f"mse of {name}"] = errors[mask[:, channel], channel].sum() / mask.sum()
        rows.append({key: value if key == "run" else round(float(value), 4) for key, value in row.items()})
        print(rows[-1], flush=True)
    with options.results.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def scores_of(run: Path, data: Path, draws: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """NLL and squared error of each value of the three rows after t = 150, and which were seen."""
    fitted, fold = vsdn.load(run), int(run.name.rpartition("-")[2])
    test = fitted.read(ushcn.load(data, fold).test)
    asked = evaluation.prediction(test, after=150.0, num_rows=3, from_start=True)
    request = inference.Request(asked.visible, asked.series, asked.times)
    way = fitted.ways.forecast
    scores = inference.score(fitted.model, fitted.frame, request, asked.truth, num_samples=draws, seed=0, method=way)
    return np.asarray(scores[0]), np.asarray(scores[1]), np.asarray(asked.mask)


if __name__ == "__main__":
    main()
