"""USHCN with nine times as many questions: the next three rows after each of t = 142, 144 … 158, of the test stations.

After t = 150 alone a fold has some 365 values, and one storm decides its MSE; around it there are nine times as many.
Beside each score stands what it is of the first run of the same fold, the rival (for NLL, what is added to it).

Example: python experiments/origins_ushcn.py runs/ushcn/paper-{gru-ode-vae,vsdn-f-vae-even}-{0,1} --data data
"""

from looking import fold_of, make_parser, write_rows

import vsdn
from vsdn.datasets import ushcn

ORIGINS = tuple(range(142, 160, 2))
SCORES = ("mse", "crps", "nll")


def main() -> None:
    options, rows, rivals = make_parser(__doc__, "ushcn-origins.csv", draws=64).parse_args(), [], {}
    for run in options.runs:
        fold = fold_of(run)
        asked = {"after": ORIGINS, "next": ushcn.NUM_NEXT, "draws": options.draws}
        scores = vsdn.load(run).evaluate(ushcn.load(options.data, fold).test, **asked)
        rival = rivals.setdefault(fold, scores)
        row = {"run": run.name.removesuffix(f"-{fold}"), "fold": fold, "values": scores["num_values"]}
        row |= {name: round(scores[name], 4) for name in SCORES}
        row |= {f"{name}, of the rival's": round(scores[name] / rival[name], 4) for name in SCORES[:2]}
        rows.append(row | {"nll, more than the rival's": round(scores["nll"] - rival["nll"], 4)})
        print(rows[-1], flush=True)
    write_rows(options.results, rows)


if __name__ == "__main__":
    main()
