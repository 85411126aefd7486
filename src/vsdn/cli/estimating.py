"""The commands that estimate unobserved or noisily observed values: interpolate, filter, smooth."""

from vsdn.answers.requests import DRAWS
from vsdn.cli.console import warnings_as_remarks
from vsdn.cli.options import (
    LEVELS,
    At,
    Data,
    Draws,
    EveryWithin,
    IdColumn,
    Json,
    Latent,
    Out,
    Quantiles,
    Quiet,
    Run,
    Seed,
    Smoothing,
    TimeColumn,
    Times,
    Until,
    numbers,
)
from vsdn.cli.tables import check_outputs, give, open_run, times_asked
from vsdn.tables.frames import Columns


def interpolate(
    run: Run,
    data: Data,
    times: Times = None,
    every: EveryWithin = None,
    until: Until = None,
    at: At = None,
    out: Out = None,
    quantiles: Quantiles = LEVELS,
    draws: Draws = DRAWS,
    method: Smoothing = None,
    latent: Latent = False,
    seed: Seed = 0,
    id: IdColumn = None,
    time: TimeColumn = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Estimate every variable of every series at the times asked for, from everything seen before and after them.

    Example: vsdn interpolate run patients.csv --every 0.5 --out between.csv
    """
    check_outputs(out)
    columns = Columns(id, time)
    fitted, table = open_run(run, data, columns, quiet)
    asked = times_asked(times, every, until, at, columns)
    levels = numbers(quantiles, "--quantiles")
    with warnings_as_remarks(quiet):
        frame = fitted.interpolate(
            table, **asked, quantiles=levels, draws=draws, method=method, latent=latent, seed=seed
        )
    give(frame, out, as_json)


def filter(
    run: Run,
    data: Data,
    out: Out = None,
    quantiles: Quantiles = LEVELS,
    draws: Draws = DRAWS,
    latent: Latent = False,
    seed: Seed = 0,
    id: IdColumn = None,
    time: TimeColumn = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Estimate every variable at each observation, from that observation and those before it.

    Example: vsdn filter run patients.csv --out filtered.csv
    """
    check_outputs(out)
    fitted, table = open_run(run, data, Columns(id, time), quiet)
    levels = numbers(quantiles, "--quantiles")
    with warnings_as_remarks(quiet):
        frame = fitted.filter(table, quantiles=levels, draws=draws, latent=latent, seed=seed)
    give(frame, out, as_json)


def smooth(
    run: Run,
    data: Data,
    out: Out = None,
    quantiles: Quantiles = LEVELS,
    draws: Draws = DRAWS,
    method: Smoothing = None,
    latent: Latent = False,
    seed: Seed = 0,
    id: IdColumn = None,
    time: TimeColumn = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Estimate every variable at each observation, from all observations.

    Example: vsdn smooth run patients.csv --out smoothed.csv
    """
    check_outputs(out)
    fitted, table = open_run(run, data, Columns(id, time), quiet)
    levels = numbers(quantiles, "--quantiles")
    with warnings_as_remarks(quiet):
        frame = fitted.smooth(table, quantiles=levels, draws=draws, method=method, latent=latent, seed=seed)
    give(frame, out, as_json)
