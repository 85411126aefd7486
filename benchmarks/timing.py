"""How programs are timed: in turn, a round of each, so that whatever else the machine does falls on all alike."""

import os
import platform
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import numpy as np

WARM_UP = 2
SLOW = 2.0  # seconds: a program that takes longer runs in a few rounds alone
FEW_ROUNDS = 2


class Timing(NamedTuple):
    wall: np.ndarray  # milliseconds, one a round; NaN where the program sat out
    cpu: np.ndarray  # of all threads

    @property
    def median(self) -> float:
        return float(np.nanmedian(self.wall))


def time_in_turn(named: dict[str, Callable[[], object]], repeats: int) -> dict[str, Timing]:
    """Wall and CPU time of each program in each round, the rounds of warm-up left out."""
    times = np.full((2, len(named), WARM_UP + repeats), np.nan)
    for number in range(WARM_UP + repeats):
        for place, run in enumerate(named.values()):
            slow = number >= 1 and np.nanmin(times[0, place]) > SLOW
            if slow and not WARM_UP <= number < WARM_UP + FEW_ROUNDS:
                continue
            if not slow:
                run()  # as in training, the step before was of the same program
            wall, cpu = time.perf_counter(), time.process_time()
            run()
            times[:, place, number] = time.perf_counter() - wall, time.process_time() - cpu
    times = 1e3 * times[:, :, WARM_UP:]
    return {name: Timing(times[0, place], times[1, place]) for place, name in enumerate(named)}


def time_rows(timings: dict[str, Timing], ours: str = "vsdn", label: str = "") -> list[str]:
    """A table row a program; ratios are medians over rounds of its time to ours in the same round."""
    base, rows = timings[ours], []
    for name, timing in timings.items():
        low, middle, high = np.nanquantile(timing.wall, [0.25, 0.5, 0.75])
        spread = f"{middle:.4g} | {np.nanmin(timing.wall):.4g} | {low:.4g}–{high:.4g} | {np.nanmedian(timing.cpu):.4g}"
        ratio = f"{np.nanmedian(timing.wall / base.wall):.2f} | {np.nanmedian(timing.cpu / base.cpu):.2f}"
        rows.append(f"| {label}{name} | {spread} | {ratio} |")
    return rows


HEAD = "| {} | wall | least | quartiles | CPU | wall × vsdn | CPU × vsdn |\n|---|--:|--:|--:|--:|--:|--:|"


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
