"""All benchmarks in one run, written to RESULTS.md: `make bench`.

Example: python benchmarks/bench.py --out benchmarks/RESULTS.md
"""

import argparse
import os
import time
from pathlib import Path

import sde_step
import timing
import training_step
import use

PACKAGES = ("jax", "torch", "torchsde", "diffrax", "numpy")


def main() -> None:
    about, _, example = (__doc__ or "").partition("Example: ")
    parser = argparse.ArgumentParser(description=about, epilog=f"Example: {example}")
    parser.add_argument("--out", type=Path, help="write the report to this file too")
    options = parser.parse_args()
    loads, began, parts = [os.getloadavg()[0]], time.monotonic(), []
    for section in (lambda: training_step.report(["vsdn-f", "vsdn-s"], 0.25, 250, 20), sde_step.report, use.report):
        parts.append(section())
        print(parts[-1], flush=True)
        loads.append(os.getloadavg()[0])
        made = f"Made by `make bench` in {(time.monotonic() - began) / 60:.0f} minutes."
        if options.out is not None:  # after each section: what was measured is kept
            options.out.write_text(
                "\n".join([f"# Benchmarks\n{timing.machine(PACKAGES, loads)} {made}\n", *parts]), "utf-8"
            )


if __name__ == "__main__":
    main()
