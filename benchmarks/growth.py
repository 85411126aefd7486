"""How time and memory grow with steps, paths, batch, dimensions and series, each alone; the exponents are fitted.

Example: python benchmarks/growth.py
"""

import argparse
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pictures
import timing

import vsdn
from vsdn import training
from vsdn.batches import Batch
from vsdn.datasets import double_ou
from vsdn.grids.grid import Grid
from vsdn.models import MODELS
from vsdn.settings import Settings
from vsdn.tables.frames import table_frame

ROW_EVERY, CHANNELS, REPEATS = 5, 2, 3


@dataclass(frozen=True)
class Case:
    """A training step of VSDN-F on a uniform grid with a row at every fifth point."""

    steps: int = 200
    paths: int = 5
    batch: int = 32
    size: int = 16  # of latent state, memory and networks
    save_memory: bool = False


class Cost(NamedTuple):
    seconds: float
    megabytes: float


STEPS, LONG = (100, 1_000, 10_000, 100_000), Case(batch=2)
SWEEPS: dict[str, dict[str, list[tuple[float, Case]]]] = {
    "steps": {
        "all states kept": [(n, replace(LONG, steps=n)) for n in STEPS],
        "save_memory": [(n, replace(LONG, steps=n, save_memory=True)) for n in STEPS],
    },
    "paths": {"": [(n, Case(paths=n)) for n in (2, 8, 32, 128)]},
    "batch": {"": [(n, Case(batch=n)) for n in (16, 64, 256, 1024)]},
    "dimensions": {"": [(n, Case(size=n)) for n in (16, 64, 256)]},
}
SERIES = (1_000, 4_000, 16_000)


def uniform_batch(case: Case) -> Batch:
    points = case.steps + 1
    seen = np.repeat((np.arange(points) % ROW_EVERY == 0)[:, None], CHANNELS, 1)
    dt = np.where(np.arange(points) > 0, 10.0 / case.steps, 0.0).astype(np.float32)
    values = np.where(seen, np.sin(np.arange(points))[:, None], 0.0).astype(np.float32)
    clock, rows = np.zeros((points, 0), np.float32), np.flatnonzero(seen[:, 0]).astype(np.int32)
    many = lambda part: jnp.asarray(np.broadcast_to(part, (case.batch, *part.shape)))
    scored = np.ones((case.batch, len(rows)), bool)
    return Batch(Grid(*map(many, (dt, values, seen, clock, rows))), jnp.ones(case.batch), jnp.asarray(scored))


def cost_of(case: Case) -> Cost:
    """Of loss and gradient: seconds a step, and the temporary memory of the compiled program."""
    sizes = {"hidden_size": case.size, "latent_size": case.size, "width": case.size}
    values = {"model": "vsdn-f", "num_paths": case.paths, "save_memory": case.save_memory}
    settings = Settings().with_values(sizes | values)
    model = MODELS["vsdn-f"](CHANNELS, (), settings.model, key=jr.key(0))
    params, static = eqx.partition(model, eqx.is_inexact_array)
    batch, key = uniform_batch(case), jr.key(1)

    def loss(params: Any, batch: Batch, key: jax.Array) -> jax.Array:
        model = eqx.combine(params, static)
        return training.mean_loss(model, batch, jnp.ones(()), settings=settings.objective, key=key)

    step: Any = jax.jit(jax.value_and_grad(loss)).lower(params, batch, key).compile()
    seconds = []
    for _ in range(1 + REPEATS):
        began = time.perf_counter()
        jax.block_until_ready(step(params, batch, key))
        seconds.append(time.perf_counter() - began)
    return Cost(min(seconds[1:]), step.memory_analysis().temp_size_in_bytes / 1e6)


def forecast_program(num_series: int):
    """Forecasts of so many series by an unfitted model, as a user asks for them."""
    frame = table_frame(double_ou.make(num_series, seed=0))
    few = table_frame(double_ou.make(50, seed=1))
    fitted = vsdn.fit(few, model="vsdn-f", preset="double-ou", settings={"epochs": 1}, progress=False)
    return lambda: float(len(fitted.forecast(frame, times=[10.5])))


def series_costs() -> list[Cost]:
    costs = []
    for number in SERIES:
        worker = timing.Worker([__file__, "--series", str(number)])
        if "error" in worker.first:
            raise RuntimeError(worker.first["error"])
        costs.append(Cost(worker.turn()[0], worker.first["memory"]))
        worker.close()
    return costs


def rows_of(sweep: str, name: str, sizes: list[float], costs: list[Cost]) -> str:
    cells = " | ".join(
        f"{n:,.0f}: {cost.seconds:.3g} s, {cost.megabytes:.3g} MB" for n, cost in zip(sizes, costs, strict=True)
    )
    label = f"{sweep}, {name}" if name else sweep
    return f"| {label} | {cells}{' |' * (len(STEPS) - len(sizes))} | {exponents(sizes, costs)} |"


def exponents(sizes: list[float], costs: list[Cost]) -> str:
    seconds, megabytes = ([cost[part] for cost in costs] for part in (0, 1))
    return f"{timing.exponent(sizes, seconds):.2f} | {timing.exponent(sizes, megabytes):.2f}"


def report(out: Path | None = None) -> str:
    """Everything measured, as Markdown; a picture goes into the folder `out`."""
    rows, times, memory = [], {}, {}
    prices: dict[str, list[Cost]] = {}
    for sweep, curves in SWEEPS.items():
        for name, cases in curves.items():
            sizes, costs = [n for n, _ in cases], [cost_of(case) for _, case in cases]
            prices[name], label = costs, name or "a training step"
            rows.append(rows_of(sweep, name, sizes, costs))
            times.setdefault(f"{sweep}: seconds", {})[label] = (sizes, [cost.seconds for cost in costs])
            memory.setdefault(f"{sweep}: MB", {})[label] = (sizes, [cost.megabytes for cost in costs])
            print(rows[-1], flush=True)
    sizes, costs = list(map(float, SERIES)), series_costs()
    rows.append(rows_of("series (forecasting)", "", sizes, costs))
    slower = [b.seconds / a.seconds for a, b in zip(prices["all states kept"], prices["save_memory"], strict=True)]
    text = [
        "## Growth",
        "A training step of VSDN-F (loss and gradient), one size changed at a time: 200 steps, 5 paths, batch 32, 16",
        "units everywhere; batch 2 where steps grow. Seconds are the least of three runs, memory is what the compiled",
        "program needs beside its arguments; for series it is what the process needs at its peak. The exponents are",
        "fitted over all sizes; small sizes have fixed costs, so that they are below their limit.",
        "",
        f"| grows |{' |' * len(STEPS)} time ∝ n^ | memory ∝ n^ |",
        f"|---|{'---|' * len(STEPS)}--:|--:|",
        *rows,
        "",
        f"`save_memory` takes {' / '.join(f'{each:.2f}' for each in slower)} times as long at "
        f"{' / '.join(f'{n:,}' for n in STEPS)} steps.",
    ]
    if out is not None:
        text += ["", pictures.growth(times | memory, out / "growth.svg", "growth of time and memory")]
    return "\n".join(text) + "\n"


def main() -> None:
    about, _, example = (__doc__ or "").partition("Example: ")
    parser = argparse.ArgumentParser(description=about, epilog=f"Example: {example}")
    parser.add_argument("--series", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.series:
        timing.serve(lambda: forecast_program(options.series), warm=lambda: forecast_program(50)())
    else:
        print(report())


if __name__ == "__main__":
    main()
