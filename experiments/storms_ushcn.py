"""What USHCN's scores are made of: the share of each variable and of the few worst values, in test rows after t = 150.

Example: python experiments/storms_ushcn.py runs/ushcn/gru-ode-vae-0 runs/ushcn/vsdn-s-iwae-0 --data data
"""

from pathlib import Path

import numpy as np
from looking import fold_of, make_parser, score_values, write_rows

import vsdn
from vsdn.answers import evaluation
from vsdn.datasets import ushcn
from vsdn.tables.table import Table

VARIABLES = ("rain", "snowfall", "snow depth", "highest temperature", "lowest temperature")


def main() -> None:
    options, rows = make_parser(__doc__, "ushcn-storms.csv", draws=128).parse_args(), []
    for run in options.runs:
        test = ushcn.load(options.data, fold_of(run)).test
        nll, errors, mask = scores_of(run, test, options.draws)
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
    write_rows(options.results, rows)


def scores_of(run: Path, table: Table, draws: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """NLL and squared error of each value of the three rows after t = 150, and which were seen."""
    fitted = vsdn.load(run)
    asked = evaluation.prediction(fitted.read(table), after=ushcn.CUT, num_rows=ushcn.NUM_NEXT, from_start=True)
    scores = score_values(fitted, asked, draws)
    return scores.nll, scores.square, asked.mask


if __name__ == "__main__":
    main()
