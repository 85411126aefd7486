"""USHCN with nine times as many questions: the next three rows after each of t = 142, 144 … 158, of the test stations.

After t = 150 alone a fold has some 365 values, and one storm decides its MSE; around it there are nine times as many.
Beside each score stands what it is of GRU-ODE's with the same settings (for NLL, what is added to it). The table keeps
the rows of runs that are not named.

Example: python experiments/origins_ushcn.py runs/ushcn/paper-{gru-ode-vae,vsdn-f-vae-even}-{0,1} --data data
"""

import csv
from pathlib import Path
from typing import Any

from looking import fold_of, make_parser, write_rows

import vsdn
from vsdn.datasets import ushcn

ORIGINS = tuple(range(142, 160, 2))
SCORES = ("mse", "crps", "nll")
RIVAL = "gru-ode-vae"
Rows = dict[tuple[str, int], dict[str, Any]]  # by run and fold


def read_rows(path: Path) -> Rows:
    """What was asked before."""
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        lines = list(csv.DictReader(file))
    number = lambda line: {"values": int(line["values"])} | {name: float(line[name]) for name in SCORES}
    return {(line["run"], int(line["fold"])): number(line) for line in lines}


def against_rival(rows: Rows) -> list[dict[str, Any]]:
    """All rows, those of appendix C first, with what they are of the rival's, if it was asked on the same fold."""
    out = []
    for run, fold in sorted(rows, key=lambda name: (not name[0].startswith("paper-"), name)):
        own = rows[run, fold]
        rival = rows.get((f"paper-{RIVAL}" if run.startswith("paper-") else RIVAL, fold))
        parts = {f"{name}, of the rival's": rival and round(own[name] / rival[name], 4) for name in SCORES[:2]}
        more = {"nll, more than the rival's": rival and round(own["nll"] - rival["nll"], 4)}
        out.append({"run": run, "fold": fold, **own, **parts, **more})
    return out


def main() -> None:
    options = make_parser(__doc__, "ushcn-origins.csv", draws=64).parse_args()
    rows = read_rows(options.results)
    for run in options.runs:
        fold = fold_of(run)
        asked = {"after": ORIGINS, "next": ushcn.NUM_NEXT, "draws": options.draws}
        scores = vsdn.load(run).evaluate(ushcn.load(options.data, fold).test, **asked)
        own = {"values": scores["num_values"]} | {name: round(scores[name], 4) for name in SCORES}
        rows[run.name.removesuffix(f"-{fold}"), fold] = own
        print(run.name, own, flush=True)
        write_rows(options.results, against_rival(rows))


if __name__ == "__main__":
    main()
