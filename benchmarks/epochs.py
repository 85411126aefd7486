"""One epoch of every model on Double-OU and on USHCN, at the size of GRU-ODE-Bayes' own code.

Example: python benchmarks/epochs.py --model vsdn-f
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import timing

from vsdn import training
from vsdn.datasets import double_ou
from vsdn.fitting import make_model
from vsdn.models import MODELS
from vsdn.settings import Settings
from vsdn.tables.frames import read_table
from vsdn.tables.table import Table
from vsdn.training import planning

USHCN = Path(os.environ.get("VSDN_DATA", "../shared/data")) / "ushcn" / "ushcn_sporadic_gob_recipe.csv.gz"
SIZES = {"hidden_size": 50, "latent_size": 15, "width": 50, "num_paths": 5, "start": 0.0}
DATASETS = {  # settings, and the CPU-seconds of an epoch by the code of GRU-ODE-Bayes' authors
    "Double-OU": ({"time_scale": 1.0, "max_step": 0.25, "batch_size": 250}, 20),
    "USHCN": ({"time_scale": 10.0, "max_step": 1.0, "batch_size": 100}, 50),
}


def ushcn() -> Table:
    """The five variables of the rebuilt file, unseen cells empty."""
    raw = csv.read_csv(USHCN)
    columns = {"id": raw["ID"], "time": raw["Time"]}
    for number in range(5):
        value, mask = (raw[f"{name}_{number}"].to_numpy() for name in ("Value", "Mask"))
        columns[f"v{number}"] = pa.array(np.where(mask == 1, value, np.nan))
    return read_table(pa.table(columns))


def epoch_of(model: str, data: str) -> dict[str, float]:
    """Wall and CPU seconds of a compiled epoch, without validation, and its steps; nothing if nothing is learned."""
    table = ushcn() if data == "USHCN" else double_ou.make(8_000, seed=0)
    settings = Settings().with_values(SIZES | DATASETS[data][0] | {"model": model, "epochs": 3})
    few = table.select(np.arange(5))  # the epoch that compiles ends with a validation
    plan = planning.make_plan(table.select(np.arange(table.num_series * 9 // 10)), few, settings)
    fresh = make_model(plan.settings, table)
    state = training.first_state(fresh, plan.train, plan.settings)
    steps = training.train(fresh, plan.train, plan.valid, plan.settings, state)
    if next((record for _, record in steps if record is not None), None) is None:
        return {}
    wall, cpu, count = time.perf_counter(), time.process_time(), len(plan.train.epoch())
    for _ in range(count):
        state, _ = next(steps)
    float(state.loss_sum)
    return {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu, "steps": count}


def ask(model: str, data: str, cores: int) -> dict[str, float]:
    """The answer of a process of its own, on so many cores."""
    command = [sys.executable, __file__, "--model", model, "--data", data, "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    os.sched_setaffinity(process.pid, sorted(os.sched_getaffinity(0))[:cores])  # long before it counts the cores
    lines = process.communicate()[0]
    return json.loads(lines.splitlines()[-1])


def rows_of(model: str, data: str) -> Iterator[str]:
    one, all_cores = ask(model, data, 1), ask(model, data, timing.num_cores())
    if one:
        theirs = DATASETS[data][1]
        cells = f"{one['cpu']:.1f} | {one['cpu'] / theirs:.2f} | {all_cores['wall']:.1f} | {all_cores['cpu']:.1f}"
        yield f"| {data} | {model} | {cells} | {one['steps']:.0f} |"


def report(models: Iterable[str] = tuple(MODELS)) -> str:
    """Everything measured, as Markdown."""
    text = [
        "## One epoch",
        "Hidden 50, networks of 50, latent 15, 5 paths, nine tenths of the series; seconds, without validation. The",
        "code of GRU-ODE-Bayes' authors takes about 20 CPU-seconds on Double-OU and 50 on USHCN on such a machine.",
        "",
        "| data | model | one core | of theirs | all cores | their CPU | steps |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for data in DATASETS:
        if data == "USHCN" and not USHCN.exists():
            text.append(f"| USHCN | left out: there is no {USHCN.name} in the data folder (VSDN_DATA) | | | | | |")
            continue
        for model in models:
            text += rows_of(model, data)
            print(text[-1], flush=True)
    return "\n".join(text) + "\n"


def main() -> None:
    about, _, example = (__doc__ or "").partition("Example: ")
    parser = argparse.ArgumentParser(description=about, epilog=f"Example: {example}")
    parser.add_argument("--model", choices=MODELS, help="one of them; all if not given")
    parser.add_argument("--data", choices=DATASETS, default="Double-OU", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.json:
        print(json.dumps(epoch_of(options.model, options.data)))
    else:
        print(report([options.model] if options.model else tuple(MODELS)))


if __name__ == "__main__":
    main()
