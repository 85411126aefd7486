"""What lies in how the values of a frame go together, in nats a frame: what no decoder of single values can have.

Every frame is foretold from those before it, and each of its values becomes the normal deviate of its place in what was
foretold. Were the values of a frame independent, their deviates would be, too; a Gaussian copula, whose correlations
are those of the validation part, tells on the test part how much the joint density of a frame gains. Beside it stands
what the run's own latent paths make of that: its log-likelihood less the sum of what it says of each value.

Example: python experiments/together_mocap.py runs/mocap/ode-rnn-vae-trend-0 runs/mocap/vsdn-f-iwae-0 --data data
"""

import numpy as np
from looking import fold_of, make_parser, score_values, write_rows
from scipy.stats import norm

import vsdn
from vsdn.answers import evaluation, inference
from vsdn.datasets import mocap
from vsdn.fitted import Fitted
from vsdn.tables.table import Table

LEAST_PLACE = 1e-6  # 32 bits tell no finer
LEAST_DEVIATION = 1e-3  # of the deviates: a dimension that never moves tells nothing
RIDGE = 1e-3


def main() -> None:
    options, rows = make_parser(__doc__, "mocap-together.csv", draws=64).parse_args(), []
    for run in options.runs:
        parts, fitted = mocap.load(options.data, fold_of(run)), vsdn.load(run)
        known, _ = deviates(fitted, parts.valid, options.draws)
        asked, nll = deviates(fitted, parts.test, options.draws)
        joint = -np.sum(log_likelihoods(fitted, parts.test, options.draws)) / len(parts.test.times)
        rows.append({"run": run.name, "nll, value by value": nll, "gain of a copula": copula_gain(known, asked)})
        rows[-1] |= {"nll, jointly": joint, "gain of its own paths": nll - joint}
        rows[-1] = {key: value if key == "run" else round(float(value), 2) for key, value in rows[-1].items()}
        print(rows[-1], flush=True)
    write_rows(options.results, rows)


def deviates(fitted: Fitted, table: Table, draws: int) -> tuple[np.ndarray, float]:
    """The normal deviate of each value of every frame, and the mean over frames of the sum of their NLL."""
    scores = score_values(fitted, evaluation.prediction(fitted.read(table), from_start=True), draws)
    places = np.clip(scores.pit, LEAST_PLACE, 1 - LEAST_PLACE)
    return norm.ppf(places), float(scores.nll.sum(axis=1).mean())  # every value of a frame was seen


def copula_gain(known: np.ndarray, asked: np.ndarray) -> float:
    """The mean log-density of the copula at what is asked, a frame: zero where values are independent."""
    moving = known.std(axis=0) > LEAST_DEVIATION
    related = np.corrcoef(known[:, moving].T) + RIDGE * np.eye(moving.sum())
    spread = np.sqrt(np.mean(known[:, moving] ** 2, axis=0))
    z = asked[:, moving] / spread  # intervals that are too wide or narrow are another matter
    more = np.einsum("fi,ij,fj->f", z, np.linalg.inv(related) - np.eye(len(related)), z)
    return float(np.mean(-0.5 * more) - 0.5 * np.linalg.slogdet(related)[1])


def log_likelihoods(fitted: Fitted, table: Table, draws: int) -> np.ndarray:
    return inference.log_likelihoods(fitted.model, fitted.frame, fitted.read(table), num_samples=draws, seed=0)[0]


if __name__ == "__main__":
    main()
