"""Options common to several commands, and their parsing."""

from pathlib import Path
from typing import Annotated

import typer

from vsdn.answers.requests import QUANTILES
from vsdn.errors import SettingsError
from vsdn.settings import LAST_SEED, MOST_PATHS

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, made by vsdn fit.")]
Data = Annotated[Path, typer.Argument(metavar="DATA", help="A CSV or Parquet table: id, time, a column a variable.")]
IdColumn = Annotated[str | None, typer.Option(help="Name of the id column, if it is not 'id'; a run remembers it.")]
TimeColumn = Annotated[
    str | None, typer.Option(help="Name of the time column, if it is not 'time'; a run remembers it.")
]

Times = Annotated[str | None, typer.Option(help="Times, e.g. 1.5,2.5 or 2024-03-01,2024-03-02.")]
EveryAfter = Annotated[
    float | None,
    typer.Option(
        help="Ask at this step after each series' last observation, up to --until. For dates it is in the run's time "
        "unit (days, unless time_unit was set)."
    ),
]
EveryWithin = Annotated[
    float | None,
    typer.Option(
        help="Ask at this step, from each series' first observation to its last, or --until. For dates it is in the "
        "run's time unit (days, unless time_unit was set)."
    ),
]
Until = Annotated[str | None, typer.Option(help="The last time that --every may reach.")]
At = Annotated[Path | None, typer.Option(help="A table of id and time: one answer a row.")]

DRAWS_HELP = "Latent paths a series: more are more exact, and slower."
Draws = Annotated[int, typer.Option(min=1, max=MOST_PATHS, help=DRAWS_HELP)]
Seed = Annotated[int, typer.Option(min=0, max=LAST_SEED, help="Same seed, same answer.")]
LEVELS = ",".join(map(str, QUANTILES))
Quantiles = Annotated[str, typer.Option(help="Levels of the quantiles.")]
Smoothing = Annotated[
    str | None,
    typer.Option(
        help="linearised or tried; vsdn-f, vsdn-s: posterior or particles, too. [default: what suits its training]"
    ),
]
Latent = Annotated[bool, typer.Option("--latent", help="The latent state in place of the variables.")]

Out = Annotated[Path | None, typer.Option(help="A .csv or .parquet file; else CSV is printed.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar and no remarks.")]


def numbers(text: str, option: str) -> list[float]:
    """The numbers in a comma-separated option."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise SettingsError(f"{option} wants numbers with commas between, but got {text!r}") from None


def words(text: str) -> list[str]:
    """The texts in a comma-separated option: times, ids."""
    return [part.strip() for part in text.split(",")]
