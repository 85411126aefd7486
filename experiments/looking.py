"""What the programs that look into fitted runs share: their options, a run's fold, scores by value, and their table."""

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vsdn.answers import inference
from vsdn.answers.evaluation import Task
from vsdn.fitted import Fitted


def make_parser(about: str | None, results: str, draws: int) -> argparse.ArgumentParser:
    """Options: run folders, the data, how many draws, and where the table goes."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="run folders; the last part of a name is its fold")
    parser.add_argument("--data", type=Path, required=True, help="folder of the data files")
    parser.add_argument("--draws", type=int, default=draws, help="latent paths, or particles, a series")
    parser.add_argument("--results", type=Path, default=Path("experiments/results") / results)
    return parser


def fold_of(run: Path) -> int:
    return int(run.name.rpartition("-")[2])


def score_values(fitted: Fitted, asked: Task, draws: int) -> inference.Scores:
    """How well each value of a task is foretold, by the model's own way."""
    request = inference.Request(asked.visible, asked.series, asked.times)
    how = {"num_samples": draws, "seed": 0, "method": fitted.ways.forecast}
    return inference.score(fitted.model, fitted.frame, request, asked.truth, **how)


def write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Nothing; a CSV table with the columns of the first row."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
