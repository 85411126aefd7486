"""The command line: a thin door to the Python functions."""

import contextlib
import json
import math
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

import vsdn
from vsdn import demonstration, exported, streaming
from vsdn.cli import datasets
from vsdn.cli.console import Json, Quiet, print_rows, remark
from vsdn.cli.reproduce import reproduce
from vsdn.cli.skeleton import skeleton
from vsdn.data import Table
from vsdn.errors import DataError, SettingsError, VsdnError, VsdnWarning
from vsdn.exported import Exported
from vsdn.files import check_writable
from vsdn.fitted import Fitted
from vsdn.frames import Columns, check_suffix, csv_bytes, write_frame
from vsdn.models import MODELS
from vsdn.plots import SUFFIXES
from vsdn.questions import DRAWS, QUANTILES
from vsdn.settings import LAST_SEED, MOST_PATHS, parse_assignments, preset_names, read_config

app = typer.Typer(
    no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, help=vsdn.__doc__
)

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, made by vsdn fit.")]
Data = Annotated[Path, typer.Argument(metavar="DATA", help="A CSV or Parquet table: id, time, a column a variable.")]
DRAWS_HELP = "Latent paths a series: more are more exact, and slower."
Draws = Annotated[int, typer.Option(min=1, max=MOST_PATHS, help=DRAWS_HELP)]
Seed = Annotated[int, typer.Option(min=0, max=LAST_SEED, help="Same seed, same answer.")]
IdColumn = Annotated[str | None, typer.Option(help="Name of the id column, if it is not 'id'.")]
TimeColumn = Annotated[str | None, typer.Option(help="Name of the time column, if it is not 'time'.")]
Times = Annotated[str | None, typer.Option(help="Times, e.g. 1.5,2.5 or 2024-03-01,2024-03-02.")]
Until = Annotated[str | None, typer.Option(help="... until this time.")]
At = Annotated[Path | None, typer.Option(help="A table of id and time: one answer a row.")]
Out = Annotated[Path | None, typer.Option(help="A .csv or .parquet file; else CSV is printed.")]
Quantiles = Annotated[str, typer.Option(help="Levels of the quantiles.")]
Smoothing = Annotated[
    str | None,
    typer.Option(
        help="linearised or tried; vsdn-f, vsdn-s: posterior or particles, too. [default: what suits its training]"
    ),
]
Latent = Annotated[bool, typer.Option("--latent", help="The latent state in place of the variables.")]
LEVELS = ",".join(map(str, QUANTILES))

NO_MEMORY = "there is not enough memory for this: try fewer draws or times, or a smaller batch_size"


def main(arguments: list[str] | None = None) -> int:
    """The exit code: 0; 2 and one line on bad input; 130 when interrupted."""
    try:
        result = typer.main.get_command(app).main(arguments, prog_name="vsdn", standalone_mode=False)
        sys.stdout.flush()  # a full disk is found here, not after the exit code is settled
        return result if isinstance(result, int) else 0
    except VsdnError as error:
        return _fail(str(error))
    except (KeyboardInterrupt, typer.Abort):
        print("interrupted", file=sys.stderr)
        return 130
    except (BrokenPipeError, SystemExit):  # the reader has seen enough, as in `| head`; typer makes it an exit
        _give_up_stdout()
        return 0
    except MemoryError:
        return _fail(NO_MEMORY)
    except OSError as error:
        _give_up_stdout()
        return _fail(f"{error.filename or 'standard output'}: {error.strerror or error}")
    except Exception as error:
        if "RESOURCE_EXHAUSTED" in str(error):  # JAX's MemoryError
            return _fail(NO_MEMORY)
        said = getattr(error, "format_message", None)  # typer has its own copy of click, whose errors it keeps inside
        if said is None:
            raise
        if type(error).__name__ == "NoArgsIsHelpError":
            print(said(), file=sys.stderr)
            return 2
        return _fail(said())


def _fail(message: str) -> int:
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return 2


def _give_up_stdout() -> None:
    """Nothing; what is still to be printed goes nowhere, so that Python does not fail over it while it ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _finite(rows: dict[str, Any]) -> dict[str, Any]:
    """The same without infinity and NaN, for which JSON has no word."""
    return {name: None if isinstance(v, float) and not math.isfinite(v) else v for name, v in rows.items()}


def _show(rows: dict[str, Any], as_json: bool) -> None:
    """Prints names and values, for a person or a program."""
    if as_json:
        print(json.dumps(_finite(rows)))
        return
    text = lambda value: f"{value:.4g}" if isinstance(value, float) else str(value)
    print_rows((name, text(value)) for name, value in rows.items())


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the run, the table and the picture.")] = Path("vsdn-demo"),
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Fit and forecast the built-in Double-OU set; write a table and a picture.

    Example: vsdn demo --out vsdn-demo
    """
    demonstration.run(out, seed=seed, progress=not quiet)


@app.command()
def fit(
    data: Data,
    out: Annotated[Path, typer.Option(help="The run folder to make.")],
    model: Annotated[str | None, typer.Option(help=f"One of {', '.join(MODELS)}. [default: vsdn-s]")] = None,
    objective: Annotated[str | None, typer.Option(help="vae or iwae. [default: iwae]")] = None,
    valid: Annotated[Path | None, typer.Option(help="Validation table; else a part of DATA is held out.")] = None,
    preset: Annotated[str | None, typer.Option(help=f"Settings that ship: {', '.join(preset_names())}.")] = None,
    config: Annotated[Path | None, typer.Option(help="Settings from a TOML or JSON file.")] = None,
    set: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="One setting, e.g. epochs=12.")] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, max=LAST_SEED, help="Same seed, same weights. [default: 0]")
    ] = None,
    id: IdColumn = None,
    time: TimeColumn = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a run that is already there.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Fit a model to a table.

    Example: vsdn fit patients.csv --out run --set epochs=30
    """
    values = (read_config(config) if config else {}) | parse_assignments(set or [])
    fitted = vsdn.fit(
        data,
        model=model,
        objective=objective,
        valid=valid,
        seed=seed,
        preset=preset,
        settings=values,
        out=out,
        overwrite=overwrite,
        columns=Columns(id, time),
        progress=not quiet,
    )
    return _report_training(fitted, out, as_json, quiet)


@app.command()
def resume(
    run: Run,
    data: Annotated[Path | None, typer.Option(help="The training table, if it has moved.")] = None,
    valid: Annotated[Path | None, typer.Option(help="The validation table, if it has moved.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Go on with a run that was stopped, to the same weights as if it never had been.

    Example: vsdn resume run
    """
    return _report_training(vsdn.resume(run, data, valid=valid, progress=not quiet), run, as_json, quiet)


def _report_training(fitted: Fitted, folder: Path, as_json: bool, quiet: bool) -> int:
    remark(fitted.notes, quiet)
    _show(_info(fitted, folder), as_json)
    if fitted.interrupted:
        print(f"stopped; go on with: vsdn resume {folder}", file=sys.stderr)
    return 130 if fitted.interrupted else 0


@app.command()
def forecast(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or a file made by vsdn export.")],
    data: Data,
    times: Times = None,
    every: Annotated[float | None, typer.Option(help="A step after each series' last observation, ...")] = None,
    until: Until = None,
    at: At = None,
    out: Out = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the forecasts too: a .png, .svg, .pdf or .html file.")] = None,
    quantiles: Annotated[str | None, typer.Option(help=f"Levels of the quantiles. [default: {LEVELS}]")] = None,
    draws: Annotated[int | None, typer.Option(min=1, max=MOST_PATHS, help=f"{DRAWS_HELP} [default: {DRAWS}]")] = None,
    method: Annotated[
        str | None,
        typer.Option(help="prior or (vsdn-f, vsdn-s) particles. [default: prior; particles if hide_share was set]"),
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
    _check_outputs(out, plot)
    fitted, columns = exported.load(run) if run.is_file() else vsdn.load(run), Columns(id, time)
    table, asked = _read(fitted, data, times, every, until, at, columns, quiet)
    choices = _choices(fitted, quantiles=quantiles, draws=draws, method=method, plot=plot)
    with _remarks(quiet):
        frame = fitted.forecast(table, **asked, **choices, seed=seed)
    if plot is not None and isinstance(fitted, Fitted):
        end = max(frame[table.layout.time].to_pylist())
        fitted.plot(table, plot, until=end, draws=choices["draws"], seed=seed)
    _give(frame, out, as_json)


def _choices(fitted: Fitted | Exported, **options: Any) -> dict[str, Any]:
    """What a forecast is told of quantiles, draws and method; nothing by an exported file, which has its own."""
    if isinstance(fitted, Fitted):
        levels, draws = options["quantiles"] or LEVELS, options["draws"] or DRAWS
        return {"quantiles": _numbers(levels, "--quantiles"), "draws": draws, "method": options["method"]}
    for option, given in options.items():
        if given is not None:
            raise SettingsError(f"--{option} wants a run folder: what an exported file answers is settled")
    return {}


@app.command()
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
    with _remarks(quiet=False):
        vsdn.load(run).export(out, draws=draws, quantiles=_numbers(quantiles, "--quantiles"))


@app.command()
def interpolate(
    run: Run,
    data: Data,
    times: Times = None,
    every: Annotated[
        float | None, typer.Option(help="A step from each series' first observation to its last, ...")
    ] = None,
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
    _check_outputs(out, None)
    fitted, table, asked = _open(run, data, times, every, until, at, id, time, quiet)
    levels = _numbers(quantiles, "--quantiles")
    with _remarks(quiet):
        frame = fitted.interpolate(
            table, **asked, quantiles=levels, draws=draws, method=method, latent=latent, seed=seed
        )
    _give(frame, out, as_json)


@app.command()
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
    _check_outputs(out, None)
    fitted, table, _ = _open(run, data, None, None, None, None, id, time, quiet)
    levels = _numbers(quantiles, "--quantiles")
    with _remarks(quiet):
        frame = fitted.filter(table, quantiles=levels, draws=draws, latent=latent, seed=seed)
    _give(frame, out, as_json)


@app.command()
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
    _check_outputs(out, None)
    fitted, table, _ = _open(run, data, None, None, None, None, id, time, quiet)
    levels = _numbers(quantiles, "--quantiles")
    with _remarks(quiet):
        frame = fitted.smooth(table, quantiles=levels, draws=draws, method=method, latent=latent, seed=seed)
    _give(frame, out, as_json)


@app.command()
def sample(
    run: Run,
    data: Data,
    times: Times = None,
    every: Annotated[
        float | None, typer.Option(help="A step from each series' first observation to its last, ...")
    ] = None,
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
    _check_outputs(out, None)
    fitted, table, asked = _open(run, data, times, every, until, at, id, time, quiet)
    with _remarks(quiet):
        frame = fitted.sample(table, **asked, draws=draws, method=method, seed=seed)
    _give(frame, out, as_json)


@app.command()
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
    _check_outputs(out, None)
    _give(vsdn.load(run).simulate(series, _moments(times), seed=seed), out, as_json)


@app.command()
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
    """Tell the log-likelihood of each series: which ones does the model find strange?

    Example: vsdn likelihood run patients.csv --out likelihood.csv
    """
    _check_outputs(out, None)
    fitted, table, _ = _open(run, data, None, None, None, None, id, time, quiet)
    with _remarks(quiet):
        frame = fitted.log_likelihood(table, draws=draws, seed=seed)
    _give(frame, out, as_json)


@app.command()
def online(
    run: Run,
    ahead: Annotated[str | None, typer.Option(help="Forecast so long after each observation, e.g. 0.5,1.")] = None,
    state: Annotated[Path | None, typer.Option(help="Go on from this file, if it is there; saved at the end.")] = None,
    quantiles: Quantiles = LEVELS,
    window: Annotated[
        int | None, typer.Option(min=0, help="Updates a series to keep for late ones. [default: 0]")
    ] = None,
    draws: Annotated[
        int | None, typer.Option(min=1, max=MOST_PATHS, help="Latent paths a series. [default: 128]")
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
    horizons = [] if ahead is None else _numbers(ahead, "--ahead")
    asking = streaming.Asking(horizons, _numbers(quantiles, "--quantiles"))
    with _remarks(quiet):
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


@app.command("plot")
def draw_plot(
    run: Run,
    data: Data,
    out: Annotated[Path, typer.Option(help="A .png, .svg or .pdf file, or an .html page that can be zoomed.")],
    what: Annotated[str, typer.Option(help="forecast, interpolation, latent or drift.")] = "forecast",
    until: Annotated[str | None, typer.Option(help="Forecast: until this time.")] = None,
    after: Annotated[str | None, typer.Option(help="Forecast: hide what was seen after this time.")] = None,
    series: Annotated[str | None, typer.Option(help="The ids to show, with commas between.")] = None,
    most: Annotated[int, typer.Option(min=1, max=400, help="Else so many, from the first on.")] = 6,
    draws: Draws = DRAWS,
    seed: Seed = 0,
    id: IdColumn = None,
    time: TimeColumn = None,
    quiet: Quiet = False,
) -> None:
    """Draw forecasts, interpolations, latent paths, or drift and diffusion along time.

    Example: vsdn plot run patients.csv --until 12 --out forecast.html
    """
    _check_outputs(None, out)
    fitted, table, _ = _open(run, data, None, None, None, None, id, time, quiet)
    chosen = None if series is None else [text.strip() for text in series.split(",")]
    with _remarks(quiet):
        fitted.plot(table, out, what, until=until, after=after, series=chosen, most=most, draws=draws, seed=seed)


def _open(
    run: Path,
    data: Path,
    times: str | None,
    every: float | None,
    until: str | None,
    at: Path | None,
    id: str | None,
    time: str | None,
    quiet: bool,
) -> tuple[Fitted, Table, dict[str, Any]]:
    """The run, the table, and the times that are asked for."""
    fitted, columns = vsdn.load(run), Columns(id, time)
    return fitted, *_read(fitted, data, times, every, until, at, columns, quiet)


def _read(
    fitted: Fitted | Exported,
    data: Path,
    times: str | None,
    every: float | None,
    until: str | None,
    at: Path | None,
    columns: Columns,
    quiet: bool,
) -> tuple[Table, dict[str, Any]]:
    """The table, and the times that are asked for."""
    table = fitted.read(data, columns)
    remark(table.notes, quiet)
    moments = None if times is None else _moments(times)
    return table, {"times": moments, "every": every, "until": until, "at": at, "columns": columns}


def _moments(times: str) -> list[str]:
    return [text.strip() for text in times.split(",")]


@contextlib.contextmanager
def _remarks(quiet: bool) -> Iterator[None]:
    """Shows warnings as remarks."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", VsdnWarning)
        yield
    remark(tuple(str(each.message) for each in caught if issubclass(each.category, VsdnWarning)), quiet)


def _give(frame: Any, out: Path | None, as_json: bool) -> None:
    """Writes or prints an answer."""
    if as_json:
        print(json.dumps([_finite(row) for row in frame.to_pylist()], default=str))
    elif out is None:
        sys.stdout.buffer.write(csv_bytes(frame))
    if out is not None:
        write_frame(frame, out)


def _check_outputs(out: Path | None, plot: Path | None) -> None:
    """Refuses a file that cannot be written, before the work is done and before the other one is there."""
    if out is not None:
        check_suffix(out)
    if plot is not None and plot.suffix.lower() not in SUFFIXES:
        raise SettingsError(f"a picture is a {', '.join(SUFFIXES)} file, but got {plot}")
    for path in (out, plot):
        if path is not None:
            check_writable(path)


def _numbers(text: str, option: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise SettingsError(f"{option} wants numbers with commas between, but got {text!r}") from None


@app.command()
def evaluate(
    run: Run,
    data: Data,
    task: Annotated[str, typer.Option(help="prediction or interpolation.")] = "prediction",
    after: Annotated[str | None, typer.Option(help="Prediction: show everything up to this time, ...")] = None,
    next: Annotated[int | None, typer.Option(min=1, help="... and score so many rows after it. [default: all]")] = None,
    share: Annotated[float, typer.Option(min=0, max=1, help="Interpolation: the part of the rows to hide.")] = 0.5,
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

    Example: vsdn evaluate run patients.csv --task prediction --after 4 --next 1
    """
    fitted, table, _ = _open(run, data, None, None, None, None, id, time, quiet)
    rows = None if hidden is None else fitted.read(hidden, Columns(id, time))
    asked = {"after": after, "next": next, "share": share, "hidden": rows}
    _show(fitted.evaluate(table, task, **asked, draws=draws, method=method, seed=seed), as_json)


@app.command()
def info(run: Run, as_json: Json = False) -> None:
    """Tell what a run is: model, data, settings and scores.

    Example: vsdn info run
    """
    fitted = vsdn.load(run)
    rows = _info(fitted, run)
    settings = fitted.settings.model_dump(mode="json")
    flat = settings if as_json else {key: value for section in settings.values() for key, value in section.items()}
    _show(rows | ({"settings": flat} if as_json else flat | rows), as_json)  # "3 of 5" epochs, not 5


def _info(fitted: Fitted, folder: Path) -> dict[str, Any]:
    """The rows that describe a run; the validation score is in nats an observed value."""
    last = fitted.epochs[-1] if fitted.epochs else None
    return {
        "run": str(folder),
        "model": fitted.settings.model.model,
        "objective": fitted.settings.objective.objective,
        "variables": ", ".join(fitted.config.variables),
        "parameters": fitted.num_params,
        "epochs": f"{0 if last is None else last.epoch} of {fitted.settings.training.epochs}",
        "best epoch": None if last is None else last.best_epoch,
        "validation nll": None if last is None else last.best_nll,
        "skipped steps": 0 if last is None else last.skipped,
    }


app.command()(reproduce)
app.add_typer(datasets.app, name="datasets")
app.command()(skeleton)


def run() -> None:
    """The console script."""
    sys.exit(main())
