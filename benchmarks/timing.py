"""How programs are timed: in turn, a round of each, so that whatever else the machine does falls on all alike; and each
in a process of its own, so that no thread, cache or allocator of one falls on another."""

import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

WARM_UP = 2
SLOW = 2.0  # seconds: a program that takes longer runs in a few rounds alone
FEW_ROUNDS = 2
ENVIRONMENT = {"OMP_WAIT_POLICY": "PASSIVE"}  # or torch's idle threads would burn the cores of a busy machine


class Timing(NamedTuple):
    wall: np.ndarray  # milliseconds, one a round; NaN where the program sat out
    cpu: np.ndarray  # of all threads
    memory: float  # megabytes that the program adds to the peak of its process
    value: float  # what it computed, to be compared

    @property
    def median(self) -> float:
        return float(np.nanmedian(self.wall))


def peak() -> float:
    """This process' peak of memory so far, in MB."""
    try:  # getrusage would count what the process that started this one had
        lines = Path("/proc/self/status").read_text("utf-8").splitlines()
        return next(float(line.split()[1]) / 1e3 for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def serve(make: Callable[[], Callable[[], float]], warm: Callable[[], object] = lambda: None) -> None:
    """The other end of `Worker`: makes a program and runs it, twice whenever a line comes and timed the second time.
    `warm` loads libraries, whose memory is not the program's."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed goes elsewhere
    say = lambda **record: print(json.dumps(record), file=answers, flush=True)
    try:
        warm()
        before = peak()
        run = make()
        say(value=run(), memory=peak() - before)
    except Exception as error:  # a peer that does not run here must not end the others
        say(error=f"{type(error).__name__}: {str(error).strip().splitlines()[0]}")
        return
    for _ in sys.stdin:
        run()  # as in training, the step before was of the same program
        wall, cpu = time.perf_counter(), time.process_time()
        run()
        say(wall=time.perf_counter() - wall, cpu=time.process_time() - cpu)


class Worker:
    """A program in a process of its own, that runs when it is its turn."""

    def __init__(self, command: list[str], cores: int | None = None):
        self.process = subprocess.Popen(
            [sys.executable, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | ENVIRONMENT,
        )
        if cores is not None:  # long before its libraries count the cores
            os.sched_setaffinity(self.process.pid, sorted(os.sched_getaffinity(0))[:cores])
        self.first = self._hear()

    def turn(self) -> tuple[float, float]:
        """Wall and CPU seconds of a run."""
        assert self.process.stdin is not None
        print(file=self.process.stdin, flush=True)
        record = self._hear()
        return record["wall"], record["cpu"]

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def _hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"error": "its process ended"}


def time_in_turn(commands: dict[str, list[str]], repeats: int, *, one_core: tuple[str, ...] = ()) -> dict[str, Timing]:
    """Wall and CPU time of each program in each round; one that does not run is said and left out. Those named in
    `one_core` may use no more than that."""
    workers = {}
    for name, command in commands.items():
        worker = Worker(command, cores=1 if name in one_core else None)
        if "error" in worker.first:
            print(f"{name}: left out, {worker.first['error']}", file=sys.stderr)
        else:
            workers[name] = worker
    times = np.full((2, len(workers), WARM_UP + repeats), np.nan)
    for number in range(WARM_UP + repeats):
        for place, worker in enumerate(workers.values()):
            slow = number >= 1 and np.nanmin(times[0, place]) > SLOW
            if not slow or WARM_UP <= number < WARM_UP + FEW_ROUNDS:
                times[:, place, number] = worker.turn()
    for worker in workers.values():
        worker.close()
    times = 1e3 * times[:, :, WARM_UP:]
    return {
        name: Timing(times[0, place], times[1, place], worker.first["memory"], worker.first["value"])
        for place, (name, worker) in enumerate(workers.items())
    }


HEAD = "| {} | wall | least | quartiles | CPU | wall × vsdn | CPU × vsdn | peak MB |\n|---|--:|--:|--:|--:|--:|--:|--:|"


def time_rows(timings: dict[str, Timing], ours: str = "vsdn", label: str = "") -> list[str]:
    """A table row a program; ratios are medians over rounds of its time to ours in the same round."""
    base, rows = timings[ours], []
    for name, timing in timings.items():
        low, middle, high = np.nanquantile(timing.wall, [0.25, 0.5, 0.75])
        spread = f"{middle:.4g} | {np.nanmin(timing.wall):.4g} | {low:.4g}–{high:.4g} | {np.nanmedian(timing.cpu):.4g}"
        ratio = f"{ratio_of(timing.wall, base.wall):.2f} | {ratio_of(timing.cpu, base.cpu):.2f}"
        rows.append(f"| {label}{name} | {spread} | {ratio} | {timing.memory:.0f} |")
    return rows


def ratio_of(theirs: np.ndarray, ours: np.ndarray) -> float:
    """The median over rounds."""
    return float(np.nanmedian(theirs / ours))


def exponent(sizes: list[float], amounts: list[float]) -> float:
    """b of amount ≈ a · size^b, fitted on logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(amounts), 1)[0])


def num_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor() -> str:
    """The processor's name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def machine(packages: tuple[str, ...], loads: list[float]) -> str:
    """The machine, the versions and what else went on, in one sentence."""
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    busy = f"load average {min(loads):.1f} to {max(loads):.1f} while it ran"
    return f"{num_cores()} cores ({processor()}), Python {platform.python_version()}, {versions}; {busy}."
