"""The command that follows series as their data arrive."""

import sys
from pathlib import Path
from typing import Annotated

import typer

import vsdn
from vsdn import streaming
from vsdn.answers.requests import DRAWS
from vsdn.cli.console import remark, warnings_as_remarks
from vsdn.cli.options import LEVELS, Quantiles, Quiet, Run, numbers
from vsdn.errors import DataError
from vsdn.settings import LAST_SEED, MOST_PATHS


def online(
    run: Run,
    ahead: Annotated[str | None, typer.Option(help="Forecast so long after each observation, e.g. 0.5,1.")] = None,
    state: Annotated[Path | None, typer.Option(help="Go on from this file, if it is there; saved at the end.")] = None,
    quantiles: Quantiles = LEVELS,
    window: Annotated[
        int | None, typer.Option(min=0, help="Updates a series to keep for late ones. [default: 0]")
    ] = None,
    draws: Annotated[
        int | None, typer.Option(min=1, max=MOST_PATHS, help=f"Latent paths a series. [default: {DRAWS}]")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, max=LAST_SEED, help="Same seed, same answer. [default: 0]")] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Report a bad line and go on, instead of ending.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Follow series as their data comes: JSON lines in, a JSON line out for every forecast.

    In: {"id": "p1", "time": 2.5, "values": {"hb": 12.1}}. A line may ask for "times": [3, 4] of its own, with or
    without an observation. Out: {"id": "p1", "time": 3.0, "forecast": {"hb": {"mean": ..., "std": ..., "q05": ...}}}.
    --ahead counts in the unit of the table's times (of dates: days, unless it was set otherwise).

    Example: vsdn online run --ahead 0.5,1 --state p.state < observations.jsonl
    """
    horizons = [] if ahead is None else numbers(ahead, "--ahead")
    asking = streaming.Asking(horizons, numbers(quantiles, "--quantiles"))
    with warnings_as_remarks(quiet):
        begun = streaming.read_state(vsdn.load(run), state, window=window, draws=draws, seed=seed)
    stream = streaming.Stream(begun)
    with streaming.saving(stream, state):
        for answer in streaming.run(stream, sys.stdin.buffer, asking):
            if isinstance(answer, DataError) and not skip_bad:
                raise answer
            if isinstance(answer, DataError):
                print(f"skipped {answer}", file=sys.stderr)
            elif answer:
                print("\n".join(answer), flush=True)
    if count := stream.state.num_ignored - begun.num_ignored:
        remark((f"{count} line{'s' * (count > 1)} with no value {'were' if count > 1 else 'was'} ignored",), quiet)
