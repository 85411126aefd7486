"""What USHCN's MSE is made of: the share of each variable and of the few largest errors, in test rows after t = 150.

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
        errors, mask = squares(run, options.data, options.draws)
        worst = np.sort(errors[mask])[::-1]
        count = max(1, round(0.02 * len(worst)))
        row = {"run": run.name, "mse": worst.mean(), "worst 2 %": worst[:count].sum() / worst.sum()}
        row["mse without them"] = worst[count:].mean()
        for channel, name in enumerate(VARIABLES):
            row[name] = errors[mask[:, channel], channel].sum() / mask.sum()
        rows.append({key: value if key == "run" else round(float(value), 4) for key, value in row.items()})
        print(rows[-1], flush=True)
    with options.results.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def squares(run: Path, data: Path, draws: int) -> tuple[np.ndarray, np.ndarray]:
    """Squared errors of the three rows after t = 150, and which were seen."""
    fitted, fold = vsdn.load(run), int(run.name.rpartition("-")[2])
    test = fitted.read(ushcn.load(data, fold).test)
    asked = evaluation.prediction(test, after=150.0, num_rows=3, from_start=True)
    request = inference.Request(asked.visible, asked.series, asked.times)
    way = fitted.ways.forecast
    scores = inference.score(fitted.model, fitted.frame, request, asked.truth, num_samples=draws, seed=0, method=way)
    return np.asarray(scores[1]), np.asarray(asked.mask)


if __name__ == "__main__":
    main()
