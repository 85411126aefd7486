"""The commands about the future: forecast, and export of a forecaster."""

from pathlib import Path
from typing import Annotated, Any

import typer

import vsdn
from vsdn import exported
from vsdn.answers.requests import DRAWS
from vsdn.cli.console import warnings_as_remarks
from vsdn.cli.options import (
    DRAWS_HELP,
    LEVELS,
    At,
    Data,
    Draws,
    EveryAfter,
    IdColumn,
    Json,
    Out,
    Quantiles,
    Quiet,
    Run,
    Seed,
    TimeColumn,
    Times,
    Until,
    numbers,
)
from vsdn.cli.tables import check_outputs, give, read_table, times_asked
from vsdn.errors import SettingsError
from vsdn.exported import Exported
from vsdn.files import check_writable
from vsdn.fitted import Fitted
from vsdn.plots.charts import MOST_SHOWN
from vsdn.settings import MOST_PATHS
from vsdn.tables.frames import Columns, parse_times
from vsdn.tables.table import Table


def forecast(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or a file made by vsdn export.")],
    data: Data,
    times: Times = None,
    every: EveryAfter = None,
    until: Until = None,
    at: At = None,
    out: Out = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the forecasts too: a .png, .svg, .pdf or .html file.")] = None,
    quantiles: Annotated[str | None, typer.Option(help=f"Levels of the quantiles. [default: {LEVELS}]")] = None,
    draws: Annotated[int | None, typer.Option(min=1, max=MOST_PATHS, help=f"{DRAWS_HELP} [default: {DRAWS}]")] = None,
    method: Annotated[
        str | None,
        typer.Option(help="prior, or (vsdn-*) particles, which is the default with hide_share or select_by=bound"),
    ] = None,
    seed: Seed = 0,
    id: IdColumn = None,
    time: TimeColumn = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Forecast every variable of every series at the times asked for, each from what was seen before it.

    Example: vsdn forecast run patients.csv --times 3.0,3.5 --out forecast.csv
    """
    check_outputs(out, plot)
    fitted, columns = exported.load(run) if run.is_file() else vsdn.load(run), Columns(id, time)
    table, asked = read_table(fitted, data, columns, quiet), times_asked(times, every, until, at, columns)
    choices = _choices(fitted, quantiles=quantiles, draws=draws, method=method, plot=plot)
    with warnings_as_remarks(quiet):
        frame = fitted.forecast(table, **asked, **choices, seed=seed)
    give(frame, out, as_json)
    if plot is not None and isinstance(fitted, Fitted):
        when = _shown(fitted, table, frame[table.layout.time].to_pylist())
        fitted.plot(table, plot, **when, draws=choices["draws"], seed=seed)


def _shown(fitted: Fitted, table: Table, times: list[Any]) -> dict[str, Any]:
    """The options of a picture of these times: the series that end before the last of them; if there are none,
    forecasts from the first time on, with later observations."""
    first, end = min(times), max(times)
    ends_before = table.times[table.starts[1:] - 1] < parse_times([end], fitted.axis)
    if not ends_before.any():
        return {"after": first, "until": end}
    return {"until": end, "series": table.ids[ends_before][:MOST_SHOWN]}


def _choices(fitted: Fitted | Exported, **options: Any) -> dict[str, Any]:
    """The options of a forecast; refuses them for an exported file, which has its own."""
    if isinstance(fitted, Fitted):
        levels, draws = options["quantiles"] or LEVELS, options["draws"] or DRAWS
        return {"quantiles": numbers(levels, "--quantiles"), "draws": draws, "method": options["method"]}
    for option, given in options.items():
        if given is not None:
            raise SettingsError(f"--{option} wants a run folder: what an exported file answers is settled")
    return {}


def export(
    run: Run,
    out: Annotated[Path, typer.Option(help="The file to write, e.g. forecaster.vsdn.")],
    quantiles: Quantiles = LEVELS,
    draws: Draws = DRAWS,
) -> None:
    """Write the forecaster of a run as one StableHLO file, which runs without the run and without the model's code.

    Example: vsdn export run --out forecaster.vsdn
    """
    check_writable(out)
    with warnings_as_remarks():
        vsdn.load(run).export(out, draws=draws, quantiles=numbers(quantiles, "--quantiles"))
