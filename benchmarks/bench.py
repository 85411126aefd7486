"""All benchmarks in one run, written to RESULTS.md with pictures beside it: `make bench`.

Example: python benchmarks/bench.py --out benchmarks/RESULTS.md --only growth compilation
"""

import argparse
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import compilation
import epochs
import growth
import online
import sde_step
import solver
import time_to_score
import timing
import training_step
import use

PACKAGES = ("jax", "torch", "torchsde", "diffrax", "numpy")
MARK = "<!-- {} -->"
HEADINGS = {f"sde-step-{sde_step.NAMES[0]}": f"{sde_step.HEADING}\n"}  # of sections that belong together


def sections(pictures: Path) -> dict[str, Callable[[], str]]:
    """What there is, in the order of the report."""
    return {
        "training-step": lambda: training_step.report(["vsdn-f", "vsdn-s"], 0.25, 250, 20),
        **{f"sde-step-{name}": lambda name=name: sde_step.report(name, out=pictures) for name in sde_step.NAMES},
        "epochs": epochs.report,
        "use": use.report,
        "online": online.report,
        "growth": lambda: growth.report(pictures),
        "compilation": compilation.report,
        "solver": solver.report,
        "time-to-score": time_to_score.report,  # last: it takes longest
    }


def read_parts(path: Path) -> dict[str, str]:
    """The sections of a report that was written before."""
    if not path.exists():
        return {}
    text = path.read_text("utf-8")
    for heading in HEADINGS.values():
        text = text.replace(heading, "")
    parts = (part.partition(" -->\n") for part in text.split("<!-- ")[1:])
    return {name: text.removesuffix("\n") for name, _, text in parts}


def main() -> None:
    about, _, example = (__doc__ or "").partition("Example: ")
    parser = argparse.ArgumentParser(description=about, epilog=f"Example: {example}")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/RESULTS.md"), help="the report")
    parser.add_argument("--only", nargs="*", help="sections to measure again; the others stay as they are")
    options = parser.parse_args()
    known, parts = sections(options.out.parent / "pictures"), read_parts(options.out)
    failed = []
    for name in options.only or known:
        loads, began = [os.getloadavg()[0]], time.monotonic()
        try:
            text = known[name]()
        except Exception:  # one that fails must not lose the hours of the others
            traceback.print_exc()
            failed.append(name)
            continue
        loads.append(os.getloadavg()[0])
        minutes = (time.monotonic() - began) / 60
        parts[name] = f"{text}\n*{timing.machine(PACKAGES, loads)} {minutes:.0f} minutes.*\n"
        print(parts[name], flush=True)
        body = [f"{HEADINGS.get(name, '')}{MARK.format(name)}\n{parts[name]}" for name in known if name in parts]
        options.out.write_text(
            "\n".join(["# Benchmarks\nMade by `make bench`.\n", *body]), "utf-8"
        )  # what was measured is kept
    if failed:
        sys.exit(f"these sections failed and stand as they were: {', '.join(failed)}")


if __name__ == "__main__":
    main()
