"""What a user waits for before the first step: the demo's, compiled, and again on the second start; and how many shapes
a data set compiles.

Example: python benchmarks/compilation.py
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

BEGAN = time.perf_counter()  # before anything is imported


def first_step() -> dict[str, float]:
    """Seconds of the demo's first training step, and since this process began."""
    from vsdn import training
    from vsdn.caching import use_compilation_cache
    from vsdn.datasets import double_ou
    from vsdn.fitting import make_model
    from vsdn.settings import Settings, read_preset
    from vsdn.training import planning

    use_compilation_cache()
    table = double_ou.make(2_000, seed=0)
    plan = planning.make_plan(table, None, Settings().with_values(read_preset("demo")))
    model = make_model(plan.settings, table)
    state = training.first_state(model, plan.train, plan.settings)
    before = time.perf_counter()
    steps = training.train(model, plan.train, plan.valid, plan.settings, state)
    state, _ = next(steps)
    float(state.loss_sum)
    done = time.perf_counter()
    return {"step": done - before, "all": done - BEGAN}


def count_shapes() -> dict[str, float]:
    """Compilations of an epoch, its validation and a forecast of a table, with the library's default settings."""
    import jax

    import vsdn
    from vsdn.datasets import double_ou
    from vsdn.tables.frames import table_frame

    counts = {"step": 0.0, "score": 0.0, "forecast": 0.0}
    names = {"jit(update)": "step", "jit(score_batch)": "score", "jit(_summaries)": "forecast"}

    def listen(event: str, duration_secs: float, **about: Any) -> None:
        if event.endswith("backend_compile_duration") and about.get("fun_name") in names:
            counts[names[about["fun_name"]]] += 1

    jax.monitoring.register_event_duration_secs_listener(listen)
    frame = table_frame(double_ou.make(3_000, seed=0))
    fitted = vsdn.fit(frame, settings={"epochs": 1}, progress=False)
    fitted.forecast(frame, times=[10.5])
    return counts


def ask(what: str, cache: str) -> dict[str, float]:
    """The answer of a process of its own, which keeps what it compiles in `cache`."""
    command, place = [sys.executable, __file__, "--what", what], os.environ | {"XDG_CACHE_HOME": cache}
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=place).stdout
    return json.loads(lines.splitlines()[-1])


def report() -> str:
    """Everything measured, as Markdown."""
    with tempfile.TemporaryDirectory() as cache:
        first, again = ask("step", cache), ask("step", cache)
    with tempfile.TemporaryDirectory() as cache:
        shapes = ask("shapes", cache)
    text = [
        "## Compilation",
        "The demo's first training step, seconds; the second start finds what the first one compiled on disk.",
        "",
        "| start | first step | from the start of Python |",
        "|---|--:|--:|",
        *(
            f"| {name} | {each['step']:.1f} | {each['all']:.1f} |"
            for name, each in (("first", first), ("second", again))
        ),
        "",
        f"A fit and a forecast of 3,000 series with default settings compile {shapes['step']:.0f} shapes of the "
        f"training step, {shapes['score']:.0f} of the validation score and {shapes['forecast']:.0f} of the forecast.",
    ]
    return "\n".join(text) + "\n"


def main() -> None:
    about, _, example = (__doc__ or "").partition("Example: ")
    parser = argparse.ArgumentParser(description=about, epilog=f"Example: {example}")
    parser.add_argument("--what", choices=("step", "shapes"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.what:
        print(json.dumps(first_step() if options.what == "step" else count_shapes()))
    else:
        print(report())


if __name__ == "__main__":
    main()
