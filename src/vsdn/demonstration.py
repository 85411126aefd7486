"""The demo: the complete workflow on built-in data, from generated series to a table and a picture."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable

from vsdn.datasets import double_ou
from vsdn.files import write_bytes
from vsdn.fitting import fit

CUT = double_ou.CUT
NUM_SERIES = 3000
HEADINGS = {"nll": "NLL", "mse": "MSE", "crps": "CRPS", "coverage_50": "50 % covers", "coverage_90": "90 % covers"}


def run(out: Path, *, seed: int = 0, progress: bool = True) -> dict[str, dict[str, Any]]:
    """The scores by model; writes the data, the run, the table and the picture to `out`."""
    console = Console()
    train, valid, test = double_ou.split(double_ou.make(NUM_SERIES, seed=seed))
    console.print(f"{train.num_series} series to learn from, {test.num_series} to be tested on; fitting vsdn-f …")
    fitted = fit(train, valid=valid, preset="demo", seed=seed, out=out / "run", overwrite=True, progress=progress)
    if fitted.interrupted:
        raise KeyboardInterrupt
    rivals = {
        name: fit(train, valid=valid, preset="demo", model=name, progress=progress) for name in ("last-value", "mean")
    }
    ours = {f"{fitted.settings.model.model} ({fitted.settings.objective.objective})": fitted}
    scores = {name: model.evaluate(test, after=CUT, next=1) for name, model in (ours | rivals).items()}
    scores["Bayes-optimal (the floor)"] = double_ou.bayes_optimal(test, cut=CUT).scores()
    chart = out / "forecast.png"
    fitted.plot(test, chart, after=CUT, until=10.0)
    rows = [["model", *HEADINGS], *([name, *(f"{each[key]:.6g}" for key in HEADINGS)] for name, each in scores.items())]
    write_bytes(out / "scores.csv", "".join(",".join(row) + "\n" for row in rows).encode())
    console.print(score_table(scores))
    console.print(
        f"Given everything up to t = {CUT:g}, the first row after it is forecast; means over observed values.",
        soft_wrap=True,
    )
    console.print(f"run: {out / 'run'}   table: {out / 'scores.csv'}   picture: {chart}", soft_wrap=True)
    return scores


def score_table(scores: dict[str, dict[str, Any]]) -> RichTable:
    """The scores, one row per model."""
    table = RichTable("model", box=None, pad_edge=False)
    for heading in HEADINGS.values():
        table.add_column(heading, justify="right")
    digits = {"nll": 3, "mse": 5, "crps": 4, "coverage_50": 3, "coverage_90": 3}
    for name, each in scores.items():
        table.add_row(name, *(f"{each[key]:.{places}f}" for key, places in digits.items()))
    return table
