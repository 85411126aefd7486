"""One epoch of every model on Double-OU and on USHCN, at the size of GRU-ODE-Bayes' own code.

Example: python benchmarks/epochs.py --model vsdn-f
"""

import argparse
import os
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv

from vsdn import planning, training
from vsdn.data import Table
from vsdn.datasets import double_ou
from vsdn.fitting import make_model
from vsdn.frames import read_table
from vsdn.models import MODELS
from vsdn.settings import Settings

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


def epoch_of(name: str, table: Table, values: dict) -> tuple[float, float, int] | None:
    """Wall and CPU seconds of a compiled epoch, without validation, and its steps; None if nothing is learned."""
    settings = Settings().with_values(SIZES | values | {"model": name, "epochs": 3})
    plan = planning.make_plan(table, None, settings)
    model = make_model(plan.settings, table)
    state = training.first_state(model, plan.train, plan.settings)
    steps = training.train(model, plan.train, plan.valid, plan.settings, state)
    if next((record for _, record in steps if record is not None), None) is None:  # an epoch to compile
        return None
    wall, cpu = time.perf_counter(), time.process_time()
    count = len(plan.train.epoch())
    for _ in range(count):
        state, _ = next(steps)
    float(state.loss_sum)
    return time.perf_counter() - wall, time.process_time() - cpu, count


def report(models: Iterable[str] = tuple(MODELS)) -> str:
    """Everything measured, as Markdown."""
    text = [
        "## One epoch",
        "Hidden 50, networks of 50, latent 15, 5 paths, nine tenths of the series; seconds, without validation.",
        "",
        "| data | model | wall | CPU | steps | CPU of GRU-ODE-Bayes' own code |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for name, (values, theirs) in DATASETS.items():
        if name == "USHCN" and not USHCN.exists():
            text.append(f"| USHCN | left out: there is no {USHCN.name} in the data folder (VSDN_DATA) | | | | |")
            continue
        table = ushcn() if name == "USHCN" else double_ou.make(8_000, seed=0)
        for model in models:
            cost = epoch_of(model, table, values)
            if cost is not None:
                text.append(f"| {name} | {model} | {cost[0]:.1f} | {cost[1]:.1f} | {cost[2]} | about {theirs} |")
                print(text[-1], flush=True)
    return "\n".join(text) + "\n"


def main() -> None:
    about, _, example = (__doc__ or "").partition("Example: ")
    parser = argparse.ArgumentParser(description=about, epilog=f"Example: {example}")
    parser.add_argument("--model", choices=MODELS, help="one of them; all if not given")
    options = parser.parse_args()
    print(report([options.model] if options.model else tuple(MODELS)))


if __name__ == "__main__":
    main()
