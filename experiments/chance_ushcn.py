"""How much of a ratio of MSE on USHCN is chance: test stations are drawn again, with replacement, in each fold.

Of a model and its rival, run by run, the ratio of their MSE (means over folds) after t = 150, the published cut, and
over nine times around it; and between what it lies for 90 % of the draws. What all stations share, the weather of those
days, is not drawn again: chance is larger than this.

Example: python experiments/chance_ushcn.py runs/vsdn-f-vae-{0,1} --rivals runs/gru-ode-vae-{0,1} --data data
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from looking import fold_of, make_parser, score_values, write_rows
from origins_ushcn import ORIGINS

import vsdn
from vsdn.answers import evaluation
from vsdn.datasets import ushcn

NUM_DRAWS = 4000


class Stations(NamedTuple):
    """Of the test stations of a fold: squared errors summed, and how many they are."""

    squares: np.ndarray
    counts: np.ndarray


def main() -> None:
    parser = make_parser(__doc__, "ushcn-chance.csv", draws=64)
    parser.add_argument("--rivals", nargs="+", type=Path, required=True, help="run folders of the rival, same folds")
    options, rows = parser.parse_args(), []
    if [fold_of(run) for run in options.runs] != [fold_of(run) for run in options.rivals]:
        parser.error("the rival needs a run for each fold of the model, in the same order")
    for name, times in (("after t = 150", (ushcn.CUT,)), ("nine times", ORIGINS)):
        look = lambda run, times=times: errors_of(run, options.data, times, options.draws)
        own, rival = [look(run) for run in options.runs], [look(run) for run in options.rivals]
        low, high = np.quantile(drawn_ratios(own, rival, np.random.default_rng(0)), [0.05, 0.95])
        scores = {"mse": mean_mse(own), "mse of the rival": mean_mse(rival), "ratio": mean_mse(own) / mean_mse(rival)}
        scores |= {"from": low, "to": high}
        count = int(sum(fold.counts.sum() for fold in own))
        rows.append({"asked": name, "values": count} | {key: round(float(one), 4) for key, one in scores.items()})
        print(rows[-1], flush=True)
    write_rows(options.results, rows)


def errors_of(run: Path, data: Path, times: tuple[float, ...], draws: int) -> Stations:
    """The errors of a run in the three rows after each of these times, station by station."""
    fitted, test = vsdn.load(run), ushcn.load(data, fold_of(run)).test
    asked = evaluation.prediction(fitted.read(test), after=times, num_rows=ushcn.NUM_NEXT, from_start=True)
    square = np.where(asked.mask, score_values(fitted, asked, draws).square, 0.0).sum(axis=1)
    station = asked.series % test.num_series  # a series of its own for each time
    total = lambda each: np.bincount(station, each, minlength=test.num_series)
    return Stations(total(square), total(asked.mask.sum(axis=1)))


def mean_mse(folds: list[Stations]) -> float:
    return float(np.mean([fold.squares.sum() / fold.counts.sum() for fold in folds]))


def drawn_ratios(own: list[Stations], rival: list[Stations], rng: np.random.Generator) -> np.ndarray:
    """The ratio of mean MSE for each draw of stations, the same of both."""
    ratios = []
    for _ in range(NUM_DRAWS):
        drawn = [rng.integers(0, len(fold.counts), len(fold.counts)) for fold in own]
        pick = lambda folds, drawn=drawn: [
            Stations(*(part[some] for part in fold)) for fold, some in zip(folds, drawn, strict=True)
        ]
        ratios.append(mean_mse(pick(own)) / mean_mse(pick(rival)))
    return np.array(ratios)


if __name__ == "__main__":
    main()
