"""What an online update costs: after a short and a long history, for one series and for a thousand at once.

Example: python benchmarks/online.py --histories 10 1000
"""

import argparse
import copy
import itertools
import time

import jax
import numpy as np

import vsdn
from vsdn import Fitted
from vsdn.datasets import double_ou
from vsdn.online.tracking import Online

HISTORIES = (10, 1_000, 100_000)
SERIES, REPEATS, WARM_UP = 1_000, 1_000, 20
GAP = 0.3  # mean time between observations: 1.2 steps of the demo's


def fit() -> Fitted:
    """The demo's model; its weights do not matter here."""
    return vsdn.fit(double_ou.make(200, seed=0), preset="demo", settings={"epochs": 1}, progress=False)


class Feed:
    """Observations at random times, one after another, with a missing value in two thirds of them."""

    def __init__(self, variables: tuple[str, ...]):
        self.rng, self.time, self.variables = np.random.default_rng(0), 0.0, variables

    def __call__(self) -> tuple[float, dict[str, float]]:
        self.time += float(self.rng.exponential(GAP)) + 1e-3
        seen = self.variables[self.rng.integers(3) :][:1] or self.variables  # one of the two, or both
        return self.time, {name: float(self.rng.normal()) for name in seen}


def seconds(state: Online, feed: Feed, count: int) -> tuple[Online, np.ndarray]:
    """The state after so many updates, and what each took until its arrays were there."""
    taken = np.empty(count)
    for number in range(count):
        when, values = feed()
        began = time.perf_counter()
        state = state.update(when, values)
        jax.block_until_ready(state.states)
        taken[number] = time.perf_counter() - began
    return state, taken


def by_history(fitted: Fitted, histories: tuple[int, ...]) -> list[str]:
    """A row for each length of history: how long updates after it take, in turn, so that whatever else the machine
    does falls on all alike."""
    state, feed, places = fitted.online(), Feed(fitted.config.variables), []
    for before, history in itertools.pairwise((0, *histories)):
        state, _ = seconds(state, feed, history - before)
        places.append((state, copy.deepcopy(feed)))
    taken = np.empty((len(histories), REPEATS))
    for repeat in range(REPEATS):
        for number, (state, feed) in enumerate(places):
            state, taken[number, repeat : repeat + 1] = seconds(state, feed, 1)
            places[number] = state, feed
    rows = []
    for history, own, (state, _) in zip(histories, 1e3 * taken, places, strict=True):
        low, middle, high = np.quantile(own, [0.25, 0.5, 0.75])
        size = len(state.to_bytes())
        rows.append(f"| {history:,} | {middle:.3f} | {low:.3f}–{high:.3f} | {own.min():.3f} | {size:,} |")
    return rows


def rates(fitted: Fitted) -> list[str]:
    """Updates a second: of one series, and of many with a call for all of them."""
    _, taken = seconds(fitted.online(), Feed(fitted.config.variables), WARM_UP + REPEATS)
    rng, ids = np.random.default_rng(0), list(range(SERIES))
    many, calls, times = fitted.online(ids), [], np.zeros(SERIES)
    for _ in range(WARM_UP + 10):
        times = times + rng.exponential(GAP, SERIES) + 1e-3
        values = np.where(rng.random((SERIES, 2)) < 0.5, rng.normal(size=(SERIES, 2)), np.nan)
        values[:, 0] = np.where(np.isnan(values).all(axis=1), 0.0, values[:, 0])
        began = time.perf_counter()
        many = many.update_many(ids, times, values)
        jax.block_until_ready(many.states)
        calls.append(time.perf_counter() - began)
    alone, together = 1 / np.mean(taken[WARM_UP:]), SERIES / np.mean(calls[WARM_UP:])
    return [f"| 1 | {alone:,.0f} |", f"| {SERIES:,} | {together:,.0f} |"]


def report(histories: tuple[int, ...] = HISTORIES) -> str:
    """Everything measured, as Markdown."""
    fitted = fit()
    return "\n".join(
        [
            "## Online: what an update costs",
            f"The demo's VSDN-F, 128 paths, gaps of {GAP} on average with steps of at most 0.25; {REPEATS:,} updates "
            "are timed after each history.",
            "",
            "| observations before | median ms | quartiles | least | bytes of the state |",
            "|--:|--:|--:|--:|--:|",
            *by_history(fitted, histories),
            "",
            "| series updated in one call | updates a second |",
            "|--:|--:|",
            *rates(fitted),
            "",
        ]
    )


def main() -> None:
    about, _, example = (__doc__ or "").partition("Example: ")
    parser = argparse.ArgumentParser(description=about, epilog=f"Example: {example}")
    parser.add_argument("--histories", type=int, nargs="*", default=HISTORIES, help="observations before, ascending")
    print(report(tuple(parser.parse_args().histories)))


if __name__ == "__main__":
    main()
