"""Runs jobs in parallel, each in a process of its own; finished jobs are never repeated, stopped ones are resumed."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from vsdn.errors import RunError
from vsdn.files import fault_of_folder
from vsdn.progress import interruptible
from vsdn.reproduction.jobs import Job, Result, read_result
from vsdn.reproduction.provenance import num_cores

WORKER = (sys.executable, "-m", "vsdn.reproduction.worker")
POLL = 0.2  # seconds between two polls of the processes
QUICK = {  # a quick run mostly compiles: do less of it, and share the results
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
}
LOCK = ".lock"  # a file in the folder, locked while a command works there
GRACE = 30.0  # seconds that a process asked to stop has for its last checkpoint


@dataclass(frozen=True, eq=False)
class Running:
    """An active job, and when it started."""

    job: Job
    process: subprocess.Popen[str]
    began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def end(self) -> None:
        """Kills the process if it still runs, and cleans up after it."""
        self.process.kill()
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()


@dataclass
class Outcome:
    """The outcome of the jobs so far: results, failures with reasons, and whether it was stopped."""

    done: dict[str, Result] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    stopped: bool = False


class Watcher(Protocol):
    """An observer of the progress."""

    def began(self, job: Job) -> None: ...
    def ended(self, job: Job, result: Result | None, why: str) -> None: ...
    def look(self, running: Sequence[Running], left: Sequence[Job]) -> None: ...


def run(
    jobs: Sequence[Job], out: Path, data: Path, watcher: Watcher, *, at_once: int, command: Sequence[str] = WORKER
) -> Outcome:
    """The outcome of these jobs, `at_once` in parallel. Ctrl-C lets each write a checkpoint; a second kills them."""
    outcome, waiting, running = Outcome(), list(jobs), list[Running]()
    order = {"out": str(out.absolute()), "data": str(data.absolute())}
    with interruptible() as interrupt:
        try:
            while (waiting and not interrupt.asked) or running:
                while waiting and len(running) < at_once and not interrupt.asked:
                    job = waiting.pop(0)
                    watcher.began(job)
                    running.append(Running(job, _start(job, order, out, at_once, command)))
                running = _collect(running, out, outcome, watcher)
                watcher.look(running, waiting)
                if interrupt.asked:
                    _stop(running)
                    running = _collect(running, out, outcome, watcher, stopping=True)
                    break
                time.sleep(POLL)
        finally:
            for each in running:
                each.end()
    outcome.stopped = interrupt.asked
    return outcome


def _start(job: Job, order: dict[str, str], out: Path, at_once: int, command: Sequence[str]) -> subprocess.Popen[str]:
    """A process that works on a job. Its input stays open: the process ends when we do, however we end."""
    threads = str(max(1, num_cores() // at_once))
    environment = {**os.environ, "NPROC": threads, "PJRT_NPROC": threads}  # threads of XLA's pool, and so of our kernel
    if job.series is not None:
        environment |= QUICK | {"JAX_COMPILATION_CACHE_DIR": f"{order['out']}/compiled"}
    with log_path(out, job).open("w") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            start_new_session=True,  # Ctrl-C reaches the process only through us, once
        )
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps({"job": job.model_dump(mode="json"), "key": job.key, **order}) + "\n")
        process.stdin.flush()
    except BrokenPipeError:
        pass  # it is gone already; its log says why
    return process


def _collect(
    running: list[Running], out: Path, outcome: Outcome, watcher: Watcher, *, stopping: bool = False
) -> list[Running]:
    """The jobs that are still running; records the outcome of the others."""
    ended = [each for each in running if each.process.poll() is not None]
    for each in ended:
        code = each.process.returncode
        each.end()
        if stopping and code in (130, -signal.SIGTERM):  # it stopped as asked, in training or elsewhere
            continue
        result = read_result(out, each.job) if code == 0 else None
        why = "" if result else _why(log_path(out, each.job), code)
        if result:
            outcome.done[each.job.name] = result
        else:
            outcome.failed[each.job.name] = why
        watcher.ended(each.job, result, why)
    return [each for each in running if each not in ended]


def _stop(running: Sequence[Running]) -> None:
    """Asks every process to stop, and waits until all have or the time is up."""
    for each in running:
        each.process.terminate()
    until = time.monotonic() + GRACE
    while any(each.process.poll() is None for each in running) and time.monotonic() < until:
        time.sleep(POLL)  # a second Ctrl-C raises here


def log_path(out: Path, job: Job) -> Path:
    return out / f"{job.name}.log"


def _why(log: Path, code: int) -> str:
    """The last line of a process's output."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    said = lines[-1].removeprefix("error: ") if lines else "it said nothing"
    return f"{said} (exit code {code})"


def make_folder(out: Path) -> None:
    """Makes the folder, or raises an error that says why not."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot make the folder {out}: {error.strerror or error}") from None


def check_folder(folder: Path) -> None:
    """Refuses, before any work is done, a folder that cannot be made or written to."""
    nearest = folder.absolute()
    while not os.path.lexists(nearest):
        nearest = nearest.parent
    if fault := fault_of_folder(nearest):
        raise RunError(f"cannot write results into {folder}: {fault}")


@contextlib.contextmanager
def alone(out: Path) -> Iterator[None]:
    """A block in which no other command works in the folder, which is made; the operating system releases the lock when
    the process ends. Without an effect where files cannot be locked or created."""
    make_folder(out)
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            _lock(stack.enter_context((out / LOCK).open("w")).fileno(), out)
        yield


def _lock(file: int, out: Path) -> None:
    try:
        import fcntl
    except ImportError:  # not on every system
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise RunError(
            f"another command is running in {out}: wait until it has finished, or choose another --out"
        ) from None
