"""Progress display: on a terminal a bar and one line per active run, elsewhere one line for each run that ends."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from vsdn.reproduction.jobs import Job, Result
from vsdn.reproduction.running import Running

LOOK = 1.0  # seconds between two looks at what the runs write


class Display:
    """Shows the progress of the jobs; a `Watcher`."""

    def __init__(self, jobs: Sequence[Job], done: dict[str, Result], out: Path, *, at_once: int, quiet: bool = False):
        self.total, self.num_done, self.out, self.at_once = len(jobs), len(done), out, at_once
        self.quiet, self.console = quiet, Console(stderr=True, highlight=False, soft_wrap=True)
        self.seconds = {name: float(result.get("seconds", 0.0)) for name, result in done.items()}  # by job
        self.rows = {job.name: f"{job.preset} {job.row}" for job in jobs}
        self.left, self.looked = "", 0.0
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[said]}"),
            console=self.console,
            disable=quiet or not self.console.is_terminal,
            transient=True,
        )
        self.whole = self.bar.add_task("all runs", total=self.total, completed=self.num_done, said="")
        self.lines: dict[str, TaskID] = {}

    def __enter__(self) -> "Display":
        self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.bar.stop()

    def began(self, job: Job) -> None:
        epochs = None if job.settings is None else job.settings.training.epochs
        self.lines[job.name] = self.bar.add_task(job.name, total=epochs, said="starting")

    def ended(self, job: Job, result: Result | None, why: str) -> None:
        self.bar.remove_task(self.lines.pop(job.name))
        self.num_done += 1
        if result is not None:
            self.seconds[job.name] = float(result.get("seconds", 0.0))
        said = _say(result) if result is not None else f"FAILED: {why}"
        if not self.quiet:
            left = self.left if self.num_done < self.total else ""
            self.bar.console.print(f"[{self.num_done}/{self.total}] {job.name}: {said}{left}", markup=False)

    def look(self, running: Sequence[Running], left: Sequence[Job]) -> None:
        if time.monotonic() - self.looked < LOOK:
            return
        self.looked, remaining = time.monotonic(), self.time_left(running, left)
        self.left = "" if remaining is None else f"; about {_duration(remaining)} left"
        if self.bar.disable:
            return
        for each in running:
            epoch, said = progress_of(self.out / each.job.name)
            self.bar.update(self.lines[each.job.name], completed=epoch, said=f"{said} · {_duration(each.seconds)}")
        self.bar.update(self.whole, completed=self.num_done, said=f"{self.num_done}/{self.total}{self.left}")

    def time_left(self, running: Sequence[Running], left: Sequence[Job]) -> float | None:
        """Seconds until all is done, judging by runs of the same row (else of any); None if none is done yet."""
        if not self.seconds:
            return None
        mean = lambda values: sum(values) / len(values)
        overall = mean(list(self.seconds.values()))
        alike = lambda job: [
            spent for name, spent in self.seconds.items() if self.rows.get(name) == self.rows[job.name]
        ]
        expected = lambda job: mean(alike(job)) if alike(job) else overall
        ahead = sum(expected(job) for job in left) + sum(max(expected(r.job) - r.seconds, 0.0) for r in running)
        return ahead / self.at_once


def progress_of(folder: Path) -> tuple[int, str]:
    """The last epoch of a run and its score."""
    try:
        last = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
        return last["epoch"], f"epoch {last['epoch']}, valid {last['valid_nll']:.3f} (best: {last['best_epoch']})"
    except (OSError, ValueError, LookupError, TypeError):
        return 0, "starting"


def _say(result: Result) -> str:
    scores = next(iter(result["scores"].values()))
    spent = f", {_duration(result['seconds'])}" if "seconds" in result else ""
    notes = [note for note in result.get("notes", ()) if note.endswith("trained anew")]
    return f"NLL {scores['nll']:.4f}, MSE {scores['mse']:.5f}{spent}{''.join(f' ({note})' for note in notes)}"


def _duration(seconds: float) -> str:
    """E.g. 42 s, 12 min, 3.4 h."""
    return (
        f"{seconds:.0f} s"
        if seconds < 100
        else f"{seconds / 60:.0f} min"
        if seconds < 6000
        else f"{seconds / 3600:.1f} h"
    )
