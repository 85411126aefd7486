"""What a user waits for: reading ten million observations, forecasting ten thousand series, an epoch of each model.

Example: python benchmarks/use.py
"""

import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import vsdn
from vsdn import planning, training
from vsdn.batches import Batches
from vsdn.datasets import double_ou
from vsdn.fitting import make_model
from vsdn.frames import read_table, table_frame
from vsdn.models import MODELS
from vsdn.settings import Settings, read_preset

OBSERVATIONS, SERIES, VARIABLES = 10_000_000, 100_000, 5


def peak() -> float:
    """The process' peak of memory so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def write_parquet(path: Path) -> int:
    """A wide table of which two fifths of the cells are seen; returns its rows."""
    rng = np.random.default_rng(0)
    num_rows = int(OBSERVATIONS / (0.4 * VARIABLES))
    series = np.sort(rng.integers(0, SERIES, num_rows))
    columns: dict[str, pa.Array] = {"id": pa.array(series), "time": pa.array(np.arange(num_rows) * 1e-3)}
    for number in range(VARIABLES):
        hidden = rng.random(num_rows) > 0.4
        columns[f"v{number}"] = pa.array(rng.standard_normal(num_rows), mask=hidden)
    pq.write_table(pa.table(columns), path)
    return num_rows


def reading() -> list[str]:
    """From a Parquet file to ready batches."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.parquet"
        num_rows = write_parquet(path)
        before, began = peak(), time.perf_counter()
        table = read_table(str(path))
        read = time.perf_counter()
        plan = planning.make_plan(table, None, Settings())
        planned = time.perf_counter()
        count = sum(1 for _ in plan.train)
        done = time.perf_counter()
    shapes = len(plan.train.num_points)
    return [
        "## Data: a Parquet file of ten million observations to ready batches",
        f"{num_rows:,} rows of {SERIES:,} series, {int(table.mask.sum()):,} observations of {VARIABLES} variables.",
        "",
        "| read and checked | planned, on grids | all batches made | in all | rows a second | peak memory |",
        "|--:|--:|--:|--:|--:|--:|",
        f"| {read - began:.1f} s | {planned - read:.1f} s | {done - planned:.1f} s ({count}, {shapes} shapes) | "
        f"{done - began:.1f} s | {num_rows / (done - began):,.0f} | {peak():.1f} GB ({before:.1f} before) |",
    ]


def forecasting() -> list[str]:
    """Ten thousand series, two times each, as many paths as is the default."""
    frame = table_frame(double_ou.make(10_000, seed=0))
    settings = {"epochs": 1, "batch_size": 250}
    fitted = vsdn.fit(frame, preset="double-ou", settings=settings, progress=False)
    seconds = []
    for _ in range(2):
        began = time.perf_counter()
        fitted.forecast(frame, times=[10.5, 11.0])
        seconds.append(time.perf_counter() - began)
    first, again = seconds
    return [
        "## Forecasting ten thousand series",
        f"Double-OU preset, two times each, reading and checking the table included: {first:.1f} s, once compiled "
        f"{again:.1f} s ({10_000 / again:,.0f} series a second).",
    ]


def epochs() -> list[str]:
    """One epoch of each model on the 8,000 series of Double-OU, at hidden 50 as GRU-ODE-Bayes' own code has it."""
    rows = []
    table = double_ou.make(8_000, seed=0)
    for name in MODELS:
        values = read_preset("double-ou") | {"model": name, "hidden_size": 50, "latent_size": 15, "width": 50}
        settings = Settings().with_values(values | {"num_paths": 5, "batch_size": 250})
        plan = planning.make_plan(table, None, settings)
        model = make_model(plan.settings, table)
        batches: Batches = plan.train
        state = training.first_state(model, batches, plan.settings)
        steps = training.train(model, batches, plan.valid, plan.settings, state)
        one = lambda steps=steps: next((record for _, record in steps if record is not None), None)
        if one() is None:  # compiles; a model without weights has no epochs
            continue
        wall, cpu = time.perf_counter(), time.process_time()
        one()
        rows.append(f"| {name} | {time.perf_counter() - wall:.1f} | {time.process_time() - cpu:.1f} |")
    return [
        "## One epoch on Double-OU",
        "8,000 series, hidden 50, networks of 50, 5 paths, batch 250, Δt = 0.25, validation included, seconds. (The",
        "code of GRU-ODE-Bayes' authors takes about 20 CPU-seconds an epoch at hidden 50.)",
        "",
        "| model | wall | CPU |",
        "|---|--:|--:|",
        *rows,
    ]


def report() -> str:
    return "\n".join([*epochs(), "", *forecasting(), "", *reading()]) + "\n"


if __name__ == "__main__":
    print(report())
