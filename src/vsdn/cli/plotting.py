"""The command that draws a model's answers about a table."""

from pathlib import Path
from typing import Annotated

import typer

from vsdn.answers.requests import DRAWS
from vsdn.cli.console import warnings_as_remarks
from vsdn.cli.options import Data, Draws, IdColumn, Quiet, Run, Seed, TimeColumn, words
from vsdn.cli.tables import check_outputs, open_run
from vsdn.plots.charts import MOST_SHOWN
from vsdn.tables.frames import Columns


def plot(
    run: Run,
    data: Data,
    out: Annotated[Path, typer.Option(help="A .png, .svg or .pdf file, or an .html page that can be zoomed.")],
    what: Annotated[str, typer.Option(help="forecast, interpolation, latent or drift.")] = "forecast",
    until: Annotated[str | None, typer.Option(help="Forecast: until this time.")] = None,
    after: Annotated[str | None, typer.Option(help="Forecast: hide what was seen after this time.")] = None,
    series: Annotated[str | None, typer.Option(help="The ids to show, with commas between.")] = None,
    most: Annotated[int, typer.Option(min=1, max=400, help="Number of series at most, if not named.")] = MOST_SHOWN,
    draws: Draws = DRAWS,
    seed: Seed = 0,
    id: IdColumn = None,
    time: TimeColumn = None,
    quiet: Quiet = False,
) -> None:
    """Draw forecasts, interpolations, latent paths, or drift and diffusion along time.

    Example: vsdn plot run patients.csv --until 12 --out forecast.html
    """
    check_outputs(plot=out)
    fitted, table = open_run(run, data, Columns(id, time), quiet)
    chosen = None if series is None else words(series)
    with warnings_as_remarks(quiet):
        fitted.plot(table, out, what, until=until, after=after, series=chosen, most=most, draws=draws, seed=seed)
