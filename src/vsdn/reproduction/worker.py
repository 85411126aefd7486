"""One run in a process of its own: `python -m vsdn.reproduction.worker`, with its job as a line of JSON.

The line arrives on standard input, which stays open while the parent lives: when it closes, this process ends too.
"""

import json
import math
import os
import shutil
import sys
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from vsdn import checkpoint
from vsdn.checkpoint import Config
from vsdn.datasets import DATASETS
from vsdn.datasets.base import Parts
from vsdn.errors import RunError, VsdnError
from vsdn.files import read_json, write_json
from vsdn.fitted import Fitted
from vsdn.fitting import fingerprint, fit, resume
from vsdn.reproduction.jobs import Job, Result, result_path, write_result
from vsdn.reproduction.provenance import versions
from vsdn.reproduction.references import REFERENCES
from vsdn.runs import model_shapes
from vsdn.settings import Settings
from vsdn.tables.table import Table
from vsdn.training.loop import first_state
from vsdn.training.planning import choose, make_plan

TICK = 5.0  # seconds between two writes of the cost


class Clock:
    """The cost of a run so far, across stops and kills: wall-clock seconds and CPU seconds; kept in a file.

    The cost `before` may be unknown (None): then so is the total.
    """

    def __init__(self, path: Path, before: dict[str, float] | None):
        self.path, self.before = path, before
        self.began, self.over = (time.monotonic(), time.process_time()), threading.Event()
        self.total: dict[str, float] = {}

    def __enter__(self) -> "Clock":
        threading.Thread(target=self._tick, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.total = self.cost()  # computed once, so that result and file agree to the digit
        write_json(self.path, self.total)

    def cost(self) -> dict[str, float]:
        now = {"seconds": time.monotonic() - self.began[0], "cpu_seconds": time.process_time() - self.began[1]}
        fresh = dict.fromkeys(now, 0.0)
        known = {} if self.before is None else self.before or fresh  # what was not counted before stays unknown
        return {name: round(known[name] + spent, 1) for name, spent in now.items() if name in known}

    def _tick(self) -> None:
        while not self.over.wait(TICK):
            write_json(self.path, self.cost())


class Trained(NamedTuple):
    """A fitted model, what it cost, and remarks."""

    fitted: Fitted
    cost: dict[str, float]
    notes: tuple[str, ...]


def do(job: Job, out: Path, data: Path) -> Result | None:
    """The result of a job, after whatever training is left; None if it was asked to stop."""
    parts = limited(DATASETS[job.dataset].load(data, job.fold), job.series)
    origin: dict[str, Any] = {
        "versions": versions(),
        "data": fingerprint(parts.train, parts.valid),
        "notes": list(parts.train.notes),
    }
    if job.settings is None:
        asks = REFERENCES[job.reference or ""]
        return {"scores": {name: asks(parts, asked) for name, asked in job.tasks.items()}, **origin}
    trained = train(job, job.settings, parts, out)
    if trained.fitted.interrupted:
        return None
    scores = {name: _score(trained.fitted, parts, job, name) for name in job.tasks}
    notes = [*origin.pop("notes"), *trained.notes]
    return {"scores": scores, **_about(trained.fitted), **trained.cost, **origin, "notes": notes}


def limited(parts: Parts, count: int | None) -> Parts:
    """The parts with at most the first `count` series each."""
    if count is None:
        return parts
    first = lambda table: table.select(np.arange(min(count, table.num_series)))
    train, valid, test = first(parts.train), first(parts.valid), first(parts.test)
    return Parts(train, valid, test, None if parts.removed is None else _alike(parts.removed, test))


def _alike(table: Table, other: Table) -> Table:
    """The series of a table that the other also has."""
    return table.select(np.flatnonzero(np.isin(table.ids, other.ids)))


def train(job: Job, wanted: Settings, parts: Parts, out: Path) -> Trained:
    """The fitted model; continues a started run, replaces one with other settings or data.

    A run in the folder counts as started, whoever made it, if its settings and data are exactly those of the job.
    """
    folder, cost = out / job.name, out / f"{job.name}.cost.json"
    for left in out.glob(f".{job.name}.*.part"):  # left by a kill
        shutil.rmtree(left, ignore_errors=True)
    why = _why_anew(folder, wanted, parts)
    values = {key: value for section in wanted.model_dump().values() for key, value in section.items()}
    given = {key: value for key, value in values.items() if value is not None}
    begun = why is None and (folder / "config.json").exists()
    with Clock(cost, _cost_before(job, out) if begun else {}) as clock:
        if begun:
            fitted = resume(folder, parts.train, valid=parts.valid, progress=False)
        else:
            fitted = fit(parts.train, valid=parts.valid, settings=given, out=folder, overwrite=True, progress=False)
    return Trained(fitted, clock.total, () if why is None else (f"{why}: trained anew",))


def _why_anew(folder: Path, wanted: Settings, parts: Parts) -> str | None:
    """Why the run in a folder cannot be continued (other settings or data, damage); None if it can or does not
    exist."""
    if not (folder / "config.json").exists():
        return None
    try:
        config = checkpoint.read_config(folder)
    except VsdnError as error:
        return str(error)
    if choose(config.settings, parts.train) != choose(wanted, parts.train):
        return "the run that was there has other settings"
    if config.source.fingerprint != fingerprint(parts.train, parts.valid):
        return "the run that was there was fitted to other data"
    try:
        _check_state(folder, config, parts)
    except VsdnError as error:
        return str(error)
    return None


def _check_state(folder: Path, config: Config, parts: Parts) -> None:
    """Refuses a run whose checkpoint cannot be read."""
    plan = make_plan(parts.train, parts.valid, config.settings, checkpoint.read_scaler(folder, config))
    shapes = model_shapes(plan.settings, len(parts.train.variables), parts.train.axis)
    checkpoint.read_state(folder, eqx.filter_eval_shape(first_state, shapes, plan.train, plan.settings))
    checkpoint.read_metrics(folder)


def _cost_before(job: Job, out: Path) -> dict[str, float] | None:
    """The cost of the run so far, from its own file or an existing result; None if unknown."""
    for path in (out / f"{job.name}.cost.json", result_path(out, job)):
        if path.exists():
            return _read_cost(path)
    return {}


def _read_cost(path: Path) -> dict[str, float] | None:
    try:
        found = read_json(path)
        cost = {name: float(found[name]) for name in ("seconds", "cpu_seconds") if name in found}
    except (RunError, TypeError, ValueError):
        return None
    return cost if cost and all(map(math.isfinite, cost.values())) else None


def _score(fitted: Fitted, parts: Parts, job: Job, task: str) -> dict[str, Any]:
    asked = job.tasks[task]
    how: dict[str, Any] = {"draws": job.draws, "method": asked.method, "seed": 0}
    if asked.removed:
        return fitted.evaluate(parts.test, asked.task, hidden=parts.removed, **how)
    return fitted.evaluate(parts.test, asked.task, after=asked.after, next=asked.next, **how)


def _about(fitted: Fitted) -> dict[str, Any]:
    last = fitted.epochs[-1] if fitted.epochs else None
    return {
        "epochs": 0 if last is None else last.epoch,
        "best_epoch": None if last is None else last.best_epoch,
        "valid_nll": None if fitted.best is None else fitted.best.valid_nll,
        "skipped": 0 if last is None else last.skipped,
        "parameters": fitted.num_params,
        "settings": fitted.settings.model_dump(mode="json"),
    }


def _end_with_parent() -> None:
    """Ends this process as soon as standard input closes; what is on disk is valid at any moment."""

    def watch() -> None:
        while os.read(0, 4096):  # not sys.stdin, whose lock would be held at exit
            pass
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main() -> int:
    """The exit code: 0 when the result is written, 130 when asked to stop first, 2 with one line on an error."""
    order = json.loads(sys.stdin.readline())
    _end_with_parent()
    job, out = Job.model_validate(order["job"]), Path(order["out"])
    try:
        if job.key != order["key"]:
            raise RunError("the program was changed while it ran: start it again")
        result = do(job, out, Path(order["data"]))
        if result is not None:
            write_result(out, job, result)
    except VsdnError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 130 if result is None else 0


if __name__ == "__main__":
    sys.exit(main())
