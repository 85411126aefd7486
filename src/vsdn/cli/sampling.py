"""The commands that draw series at random: sample (given a table), simulate (without data)."""

from typing import Annotated

import typer

import vsdn
from vsdn.cli.console import warnings_as_remarks
from vsdn.cli.options import (
    At,
    Data,
    EveryWithin,
    IdColumn,
    Json,
    Out,
    Quiet,
    Run,
    Seed,
    Smoothing,
    TimeColumn,
    Times,
    Until,
    words,
)
from vsdn.cli.tables import check_outputs, give, open_run, times_asked
from vsdn.settings import MOST_PATHS
from vsdn.tables.frames import Columns


def sample(
    run: Run,
    data: Data,
    times: Times = None,
    every: EveryWithin = None,
    until: Until = None,
    at: At = None,
    out: Out = None,
    draws: Annotated[int, typer.Option(min=1, max=MOST_PATHS, help="How many draws of each series.")] = 100,
    method: Smoothing = None,
    seed: Seed = 0,
    id: IdColumn = None,
    time: TimeColumn = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Draw joint values at the times asked for, given everything seen: those of one draw go together.

    Example: vsdn sample run patients.csv --times 3.0,3.5,4.0 --draws 20 --out draws.csv
    """
    check_outputs(out)
    columns = Columns(id, time)
    fitted, table = open_run(run, data, columns, quiet)
    asked = times_asked(times, every, until, at, columns)
    with warnings_as_remarks(quiet):
        frame = fitted.sample(table, **asked, draws=draws, method=method, seed=seed)
    give(frame, out, as_json)


def simulate(
    run: Run,
    times: Annotated[
        str, typer.Option(help="When the new series are observed, e.g. 0,0.5,1 or 2024-03-01,2024-03-02.")
    ],
    series: Annotated[int, typer.Option(min=1, help="How many new series.")] = 1,
    out: Out = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Draw whole new series, as the model thinks that they come about.

    Example: vsdn simulate run --series 50 --times 0,0.5,1,1.5,2 --out new.csv
    """
    check_outputs(out)
    give(vsdn.load(run).simulate(series, words(times), seed=seed), out, as_json)
