"""What CMU MoCap's scores are made of: NLL and MSE a frame of each test piece, frames foretold from those before.

Example: python experiments/pieces_mocap.py runs/mocap/gru-ode-vae-0 runs/mocap/vsdn-s-iwae-0 --data data
"""

import argparse
import csv
from pathlib import Path

import numpy as np

import vsdn
from vsdn.data import Table
from vsdn.datasets import mocap
from vsdn.fitted import Fitted

FIELDS = ("run", "piece", "frames", "nll", "mse")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="run folders; the last part of a name is its fold")
    parser.add_argument("--data", type=Path, required=True, help="folder of the data files")
    parser.add_argument("--draws", type=int, default=64, help="latent paths, or particles, a series")
    parser.add_argument("--results", type=Path, default=Path("experiments/results/mocap-pieces.csv"))
    options = parser.parse_args()
    rows = []
    for run in options.runs:
        test = mocap.load(options.data, int(run.name.rsplit("-", 1)[1])).test
        pieces = [of_piece(vsdn.load(run), test, number, options.draws) for number in range(test.num_series)]
        rows += [{"run": run.name, **piece} for piece in pieces]
        print(summary(run.name, pieces), flush=True)
    with options.results.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        writer.writerows(rows)


def of_piece(fitted: Fitted, test: Table, number: int, draws: int) -> dict:
    """The scores of one piece of a table, a frame."""
    scores = fitted.evaluate(test.select(np.array([number])), "prediction", draws=draws)
    width = scores["num_values"] / scores["num_rows"]
    frame = {score: round(scores[score] * width, 2) for score in ("nll", "mse")}
    return {"piece": test.ids[number], "frames": scores["num_rows"], **frame}


def summary(name: str, pieces: list[dict]) -> str:
    """A line: the mean over frames, without the worst piece, and the piece in the middle."""
    by_nll = sorted(pieces, key=lambda piece: piece["nll"])
    mean = lambda score, some: np.average([p[score] for p in some], weights=[p["frames"] for p in some])
    told = [
        f"{score} {mean(score, by_nll):.2f}, without {by_nll[-1]['piece']} {mean(score, by_nll[:-1]):.2f}, "
        f"median {np.median([piece[score] for piece in by_nll]):.2f}"
        for score in ("nll", "mse")
    ]
    return f"{name}: {'; '.join(told)}"


if __name__ == "__main__":
    main()
