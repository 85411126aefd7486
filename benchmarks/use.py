"""What a user waits for: reading ten million observations, forecasting ten thousand series.

Example: python benchmarks/use.py
"""

import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import timing

import vsdn
from vsdn.datasets import double_ou
from vsdn.settings import Settings
from vsdn.tables.frames import read_table, table_frame
from vsdn.training import planning

OBSERVATIONS, SERIES, VARIABLES = 10_000_000, 100_000, 5


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
        before, began = timing.peak() / 1e3, time.perf_counter()
        table = read_table(str(path))
        read = time.perf_counter()
        plan = planning.make_plan(table, None, Settings())
        planned = time.perf_counter()
        count = sum(1 for _ in plan.train)
        done = time.perf_counter()
    shapes, most = len(plan.train.num_points), timing.peak() / 1e3
    return [
        "## Data: a Parquet file of ten million observations to ready batches",
        f"{num_rows:,} rows of {SERIES:,} series, {int(table.mask.sum()):,} observations of {VARIABLES} variables.",
        "",
        "| read and checked | planned, on grids | all batches made | in all | rows a second | peak memory |",
        "|--:|--:|--:|--:|--:|--:|",
        f"| {read - began:.1f} s | {planned - read:.1f} s | {done - planned:.1f} s ({count}, {shapes} shapes) | "
        f"{done - began:.1f} s | {num_rows / (done - began):,.0f} | {most:.1f} GB ({before:.1f} before) |",
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


def report() -> str:
    """Everything measured, as Markdown."""
    return "\n".join([*forecasting(), "", *reading()]) + "\n"


if __name__ == "__main__":
    print(report())
