"""What USHCN's MSE is made of, on validation stations, and what is to be had of it: runs beside a Gaussian process.

The process knows both temperatures alone, and of a station its whole past, exactly: a mean and a season of its own,
weather that lasts for days and anomalies that last for months, with covariances between the two, learned by maximum
likelihood from the training stations. No network is asked to do better than that where what moves is nearly Gaussian.

Example: python experiments/limits_ushcn.py runs/ushcn/gru-ode-vae-1 runs/ushcn/vsdn-f-vae-1 --data data
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from looking import fold_of, make_parser, write_rows
from storms_ushcn import VARIABLES, scores_of

from vsdn.datasets import ushcn
from vsdn.datasets.base import Parts
from vsdn.tables.table import Table

TEMPERATURES = (3, 4)
MOST_VALUES = 120  # of a station, to learn from
NUM_STEPS, BATCH = 300, 24


class Station(NamedTuple):
    """Temperatures of a station, one after the other, as distances from the mean of their season."""

    row: np.ndarray
    times: np.ndarray
    which: np.ndarray  # of the two
    away: np.ndarray


def main() -> None:
    options, rows = make_parser(__doc__, "ushcn-limits.csv", draws=128).parse_args(), []
    for run in options.runs:
        parts = ushcn.load(options.data, fold_of(run))
        rows.append({"run": run.name} | by_variable(*scores_of(run, parts.valid, options.draws)[1:]))
        print(rows[-1], flush=True)
    for fold in dict.fromkeys(fold_of(run) for run in options.runs):
        parts = ushcn.load(options.data, fold)
        rows.append({"run": f"Gaussian process-{fold}"} | by_variable(*gaussian_errors(parts, learn(parts))))
        print(rows[-1], flush=True)
    write_rows(options.results, rows)


def by_variable(errors: np.ndarray, mask: np.ndarray) -> dict[str, float | str]:
    """The share of each variable in the MSE, and their sum; empty where a variable is not foretold."""
    shares = np.where(mask, errors, 0.0).sum(axis=0) / mask.sum()
    shown = {
        name: "" if np.isnan(share) else round(float(share), 4) for name, share in zip(VARIABLES, shares, strict=True)
    }
    return shown | {"all": "" if np.isnan(shares).any() else round(float(shares.sum()), 4)}


def stations(table: Table, train: Table) -> list[Station]:
    found = []
    for start, end in zip(table.starts[:-1], table.starts[1:], strict=True):
        times, values, mask = table.times[start:end], table.values[start:end], table.mask[start:end]
        away = (values - ushcn.seasonal_mean(train, times))[:, TEMPERATURES]
        which, row = np.nonzero(mask[:, TEMPERATURES].T)
        found.append(Station(row + start, times[row], which, away[row, which]))
    return found


def covariance(weights: dict, one: tuple, other: tuple) -> jax.Array:
    """Of what moves: a mean, a season, weather and anomalies, each with a covariance of the two temperatures."""
    (times, which), (others, which_others) = one, other
    apart = jnp.abs(times[:, None] - others)
    shapes = [jnp.ones_like(apart), jnp.cos(2 * jnp.pi * apart / ushcn.YEAR)]
    shapes += [jnp.exp(-apart / jnp.exp(log_span)) for log_span in weights["log_span"]]
    mixed = weights["root"] @ weights["root"].mT
    return sum(part[which[:, None], which_others] * shape for part, shape in zip(mixed, shapes, strict=True))


def minus_log_likelihood(weights: dict, station: tuple) -> jax.Array:
    times, which, away, seen = station
    noise = jnp.where(seen, jnp.exp(weights["log_noise"])[which], 1.0)
    joint = covariance(weights, (times, which), (times, which)) * jnp.outer(seen, seen) + jnp.diag(noise)
    root = jnp.linalg.cholesky(joint)
    z = jax.scipy.linalg.solve_triangular(root, away * seen, lower=True)
    return 0.5 * z @ z + jnp.sum(jnp.log(jnp.diag(root)))


def learn(parts: Parts) -> dict:
    """The covariances that make the training stations likeliest."""
    filled = [np.zeros((parts.train.num_series, MOST_VALUES)) for _ in range(4)]
    for number, station in enumerate(stations(parts.train, parts.train)):
        count = min(len(station.away), MOST_VALUES)
        for array, part in zip(filled, (station.times, station.which, station.away, np.ones(count)), strict=True):
            array[number, :count] = part[:count]
    times, which, away, seen = filled
    weights = {
        "root": jnp.stack([0.4 * jnp.eye(2)] * 4),
        "log_span": jnp.log(jnp.array([0.4, 5.0])),  # units of a week
        "log_noise": jnp.full(2, -2.0),
    }
    descent = optax.adam(0.03)

    @jax.jit
    def step(weights, state, some):
        loss = lambda weights: jnp.mean(jax.vmap(lambda one: minus_log_likelihood(weights, one))(some))
        change, state = descent.update(jax.grad(loss)(weights), state)
        return optax.apply_updates(weights, change), state

    state, rng = descent.init(weights), np.random.default_rng(0)
    for _ in range(NUM_STEPS):
        some = rng.integers(0, len(times), BATCH)
        weights, state = step(weights, state, (times[some], which[some].astype(int), away[some], seen[some]))
    return weights


def gaussian_errors(parts: Parts, weights: dict) -> tuple[np.ndarray, np.ndarray]:
    """The squared errors of the process in the three rows after t = 150, NaN of what it does not know, and which were
    seen."""
    valid = parts.valid
    errors, asked = np.full(valid.values.shape, np.nan), np.zeros(len(valid.times), bool)
    for number, station in enumerate(stations(valid, parts.train)):
        rows = np.arange(valid.starts[number], valid.starts[number + 1])
        next_rows = rows[valid.times[rows] > ushcn.CUT][: ushcn.NUM_NEXT]
        asked[next_rows] = True
        past, wanted = station.times <= ushcn.CUT, np.isin(station.row, next_rows)
        known = (station.times[past], station.which[past])
        noise = np.exp(np.asarray(weights["log_noise"]))[station.which[past]]
        across = np.asarray(covariance(weights, (station.times[wanted], station.which[wanted]), known))
        foretold = across @ np.linalg.solve(
            np.asarray(covariance(weights, known, known)) + np.diag(noise), station.away[past]
        )
        channel = np.array(TEMPERATURES)[station.which[wanted]]
        errors[station.row[wanted], channel] = (station.away[wanted] - foretold) ** 2
    return errors[asked], valid.mask[asked]


if __name__ == "__main__":
    main()
