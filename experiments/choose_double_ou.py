"""How the Double-OU preset's epochs and weight decay are chosen: on the training and validation parts alone.

The rule, fixed before the runs: VSDN-F with the VAE bound and a seed that no result uses; of the candidates, cheapest
first, a later one is taken only if its best validation NLL is lower by more than 0.002. The test part is never made.

Example: python experiments/choose_double_ou.py --out runs/choose --jobs 2
"""

import argparse
import csv
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from commands import make_data, train

CANDIDATES = [(20, 1e-4), (40, 1e-4), (40, 0.1), (80, 1e-4)]  # epochs, weight decay
MARGIN, SEED = 0.002, 100


def do(epochs: int, weight_decay: float, folder: Path) -> float:
    """The best validation NLL of a candidate; a finished run is never repeated, a stopped one is resumed."""
    out = folder / f"epochs-{epochs}-decay-{weight_decay:g}"
    which = ("--model", "vsdn-f", "--objective", "vae", "--seed", SEED)
    values = (f"epochs={epochs}", f"patience={epochs}", f"weight_decay={weight_decay}")
    train(out, folder, "--preset", "double-ou", *which, *(word for value in values for word in ("--set", value)))
    lines = (out / "metrics.jsonl").read_text().splitlines()
    return json.loads(lines[-1])["best_nll"]


def choose(scores: list[float]) -> int:
    """The place of the candidate that the rule takes."""
    taken = 0
    for place, score in enumerate(scores):
        taken = place if score < scores[taken] - MARGIN else taken
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/choose"), help="folder for data and runs")
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side")
    parser.add_argument("--table", type=Path, default=Path("experiments/results/double-ou-choice.csv"))
    options = parser.parse_args()
    make_data(options.out, ("train", "valid"))
    with ThreadPoolExecutor(options.jobs) as pool:
        scores = list(pool.map(lambda candidate: do(*candidate, options.out), reversed(CANDIDATES)))[::-1]
    taken = choose(scores)
    rows = [[*candidate, round(score, 4), "taken" * (place == taken)] for place, (candidate, score) in
            enumerate(zip(CANDIDATES, scores, strict=True))]  # fmt: skip
    with options.table.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([["epochs", "weight_decay", "valid_nll", ""], *rows])
    print(*rows, sep="\n")


if __name__ == "__main__":
    main()
