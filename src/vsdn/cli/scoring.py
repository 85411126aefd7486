"""The commands that score a model on a table: likelihood, evaluate."""

from pathlib import Path
from typing import Annotated

import typer

from vsdn.answers.evaluation import SHARE
from vsdn.answers.requests import DRAWS
from vsdn.cli.console import print_values, warnings_as_remarks
from vsdn.cli.options import Data, Draws, IdColumn, Json, Out, Quiet, Run, Seed, TimeColumn, words
from vsdn.cli.tables import check_outputs, give, open_run, read_table
from vsdn.tables.frames import Columns


def likelihood(
    run: Run,
    data: Data,
    out: Out = None,
    draws: Draws = DRAWS,
    seed: Seed = 0,
    id: IdColumn = None,
    time: TimeColumn = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Score each series by its log-likelihood, to find unusual ones.

    Example: vsdn likelihood run patients.csv --out likelihood.csv
    """
    check_outputs(out)
    fitted, table = open_run(run, data, Columns(id, time), quiet)
    with warnings_as_remarks(quiet):
        frame = fitted.log_likelihood(table, draws=draws, seed=seed)
    give(frame, out, as_json)


def evaluate(
    run: Run,
    data: Data,
    task: Annotated[str, typer.Option(help="prediction or interpolation.")] = "prediction",
    after: Annotated[
        str | None, typer.Option(help="Prediction: show all rows up to this time, or up to each of several.")
    ] = None,
    next: Annotated[
        int | None, typer.Option(min=1, help="Prediction: score so many rows after that time. [default: all]")
    ] = None,
    share: Annotated[
        float | None, typer.Option(min=0, max=1, help=f"Interpolation: the share of rows to hide. [default: {SHARE}]")
    ] = None,
    hidden: Annotated[
        Path | None, typer.Option(help="Interpolation: score the rows of this table; all of DATA is shown.")
    ] = None,
    draws: Draws = DRAWS,
    method: Annotated[
        str | None,
        typer.Option(
            help="prior or particles; from later rows: smooth, linearised, tried, posterior. [default: as forecast]"
        ),
    ] = None,
    seed: Seed = 0,
    id: IdColumn = None,
    time: TimeColumn = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Score forecasts against a table: NLL, MSE, CRPS, and how much the 50 and 90 % intervals cover.

    Example: vsdn evaluate run patients.csv --task prediction --after 4,4.5,5 --next 1
    """
    fitted, table = open_run(run, data, Columns(id, time), quiet)
    rows = None if hidden is None else read_table(fitted, hidden, Columns(id, time), quiet)
    asked = {"after": None if after is None else words(after), "next": next, "share": share, "hidden": rows}
    with warnings_as_remarks(quiet):
        scores = fitted.evaluate(table, task, **asked, draws=draws, method=method, seed=seed)
    print_values(scores, as_json)
