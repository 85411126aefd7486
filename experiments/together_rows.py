"""What a latent path can say and a memory cannot: how the values of one row go together.

Six variables at random times share one number a row, which nothing announces: y = f + 0.2 e. A memory that is told of
every row foretells each value as well as can be, and says nothing of f; latent paths can. Scores are nats a row of
series that none was fitted to: value by value, as the model is asked by itself, and jointly, by particles. What is
known exactly stands above them. Rows lie 0.5 apart on average: a longest step of 0.25 is some two a gap, one of 0.02
some 25.

Example: python experiments/together_rows.py --epochs 80
"""

import argparse
import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
from looking import write_rows

import vsdn

NUM_VARIABLES, NUM_ROWS, SPAN, NOISE = 6, 20, 10.0, 0.2
DRAWS = 256
VSDNS = (("vsdn-f", "vae"), ("vsdn-f", "iwae"), ("vsdn-s", "vae"), ("vsdn-s", "iwae"))
RUNS = [
    *((*model, 0.25, by) for model, by in itertools.product((("ode-rnn", "vae"), *VSDNS), ("forecasts", "bound"))),
    *((*model, step, "bound") for model, step in itertools.product(VSDNS, (0.1, 0.02))),
]
SIZES = {
    "hidden_size": 16,
    "latent_size": 4,
    "width": 32,
    "num_paths": 4,
    "start": 0.0,
    "num_buckets": 1,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--results", type=Path, default=Path("experiments/results/together-rows.csv"))
    options, rng = parser.parse_args(), np.random.default_rng(0)
    train, valid, test = (make_series(count, rng) for count in (300, 40, 60))
    exactly = {"value by value": alone(), "jointly": together(), "epoch": ""}
    rows = [{"model": "exactly", "longest step": "", "kept by": ""} | exactly]
    print(rows[0], flush=True)
    for model, objective, step, by in RUNS:
        settings = SIZES | {"epochs": options.epochs, "patience": options.epochs, "learning_rate": 1e-2}
        settings |= {"max_step": step, "select_by": by}
        fitted = vsdn.fit(train, valid=valid, model=model, objective=objective, settings=settings, progress=False)
        about = {"model": f"{model} ({objective})", "longest step": step, "kept by": by}
        rows.append(about | scores_of(fitted, test))
        print(rows[-1], flush=True)
    write_rows(options.results, rows)


def make_series(count: int, rng: np.random.Generator) -> pa.Table:
    times = np.sort(rng.uniform(0, SPAN, (count, NUM_ROWS)), axis=1).ravel()
    shared = rng.normal(size=(len(times), 1))
    values = shared + NOISE * rng.normal(size=(len(times), NUM_VARIABLES))
    named = {f"y{number}": column for number, column in enumerate(values.T)}
    return pa.table({"id": np.repeat(np.arange(count), NUM_ROWS), "time": times, **named})


def alone() -> float:
    """Minus the expected log-density of a row's values, each by itself."""
    return round(0.5 * NUM_VARIABLES * float(np.log(2 * np.pi * np.e * (1 + NOISE**2))), 3)


def together() -> float:
    """Minus the expected log-density of a row."""
    joint = np.ones((NUM_VARIABLES, NUM_VARIABLES)) + NOISE**2 * np.eye(NUM_VARIABLES)
    return round(0.5 * float(NUM_VARIABLES * np.log(2 * np.pi * np.e) + np.linalg.slogdet(joint)[1]), 3)


def scores_of(fitted: vsdn.Fitted, test: pa.Table) -> dict[str, float]:
    nll = NUM_VARIABLES * fitted.evaluate(test, draws=DRAWS)["nll"]
    log_lik = fitted.log_likelihood(test, draws=DRAWS)["log_likelihood"].to_numpy()
    joint = -log_lik.sum() / len(test)
    kept = fitted.epochs[-1].best_epoch
    return {"value by value": round(nll, 3), "jointly": round(float(joint), 3), "epoch": kept}


if __name__ == "__main__":
    main()
