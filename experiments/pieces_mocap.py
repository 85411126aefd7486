"""What CMU MoCap's scores are made of: NLL and MSE a frame of each test piece, frames foretold from those before.

Example: python experiments/pieces_mocap.py runs/mocap/gru-ode-vae-0 runs/mocap/vsdn-s-iwae-0 --data data
"""

import numpy as np
from looking import fold_of, make_parser, write_rows

import vsdn
from vsdn.datasets import mocap
from vsdn.fitted import Fitted
from vsdn.tables.table import Table


def main() -> None:
    options, rows = make_parser(__doc__, "mocap-pieces.csv", draws=64).parse_args(), []
    for run in options.runs:
        fitted, test = vsdn.load(run), mocap.load(options.data, fold_of(run)).test
        pieces = [of_piece(fitted, test, number, options.draws) for number in range(test.num_series)]
        rows += [{"run": run.name, **piece} for piece in pieces]
        print(summary(run.name, pieces), flush=True)
    write_rows(options.results, rows)


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
