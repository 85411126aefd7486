"""The command line: a thin door to the Python functions."""

import contextlib
import json
import math
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table as RichTable

import vsdn
from vsdn import demonstration, exported
from vsdn.datasets import DATASETS
from vsdn.errors import SettingsError, VsdnError
from vsdn.exported import Exported
from vsdn.files import check_writable, write_bytes
from vsdn.fitted import Fitted
from vsdn.frames import Columns, check_suffix, csv_bytes, table_frame, write_frame
from vsdn.models import MODELS
from vsdn.plots import SUFFIXES
from vsdn.questions import DRAWS, QUANTILES
from vsdn.settings import LAST_SEED, MOST_PATHS, parse_assignments, preset_names, read_config

app = typer.Typer(
    no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, help=vsdn.__doc__
)
datasets_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="The built-in data sets.")
app.add_typer(datasets_app, name="datasets")

LEVELS = ",".join(map(str, QUANTILES))
DRAWS_HELP = "Latent paths a series: more are more exact, and slower."
Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, made by vsdn fit.")]
Data = Annotated[Path, typer.Argument(metavar="DATA", help="A CSV or Parquet table: id, time, a column a variable.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Draws = Annotated[int, typer.Option(min=1, max=MOST_PATHS, help=DRAWS_HELP)]
Seed = Annotated[int, typer.Option(min=0, max=LAST_SEED, help="Same seed, same answer.")]
IdColumn = Annotated[str | None, typer.Option(help="Name of the id column, if it is not 'id'.")]
TimeColumn = Annotated[str | None, typer.Option(help="Name of the time column, if it is not 'time'.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar and no remarks.")]


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


def _remark(notes: tuple[str, ...], quiet: bool = False) -> None:
    for note in () if quiet else notes:
        print(note, file=sys.stderr)


def _show(rows: dict[str, Any], as_json: bool) -> None:
    """Prints names and values, for a person or a program."""
    if as_json:
        finite = {name: None if isinstance(v, float) and not math.isfinite(v) else v for name, v in rows.items()}
        print(json.dumps(finite))  # JSON has no word for infinity
        return
    table = RichTable(show_header=False, box=None, pad_edge=False)
    for name, value in rows.items():
        shown = f"{value:.4g}" if isinstance(value, float) else str(value)
        table.add_row(name, shown)
    Console().print(table)


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
    _remark(fitted.notes, quiet)
    _show(_info(fitted, folder), as_json)
    if fitted.interrupted:
        print(f"stopped; go on with: vsdn resume {folder}", file=sys.stderr)
    return 130 if fitted.interrupted else 0


@app.command()
def forecast(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or a file made by vsdn export.")],
    data: Data,
    times: Annotated[str | None, typer.Option(help="Times, e.g. 1.5,2.5 or 2024-03-01,2024-03-02.")] = None,
    every: Annotated[float | None, typer.Option(help="A step after each series' last observation, ...")] = None,
    until: Annotated[str | None, typer.Option(help="... until this time.")] = None,
    at: Annotated[Path | None, typer.Option(help="A table of id and time: one forecast a row.")] = None,
    out: Annotated[Path | None, typer.Option(help="A .csv or .parquet file; else CSV is printed.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the forecasts too: a .png, .svg or .pdf file.")] = None,
    quantiles: Annotated[str | None, typer.Option(help=f"Levels of the quantiles. [default: {LEVELS}]")] = None,
    draws: Annotated[int | None, typer.Option(min=1, max=MOST_PATHS, help=f"{DRAWS_HELP} [default: {DRAWS}]")] = None,
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
    choices = _choices(fitted, quantiles, draws, plot)
    moments = None if times is None else [text.strip() for text in times.split(",")]
    table = fitted.read(data, columns)
    _remark(table.notes, quiet)
    frame = fitted.forecast(table, moments, every=every, until=until, at=at, seed=seed, columns=columns, **choices)
    if plot is not None and isinstance(fitted, Fitted):
        end = max(frame[table.layout.time].to_pylist())
        fitted.plot(table, plot, until=end, draws=choices["draws"], seed=seed)
    if as_json:
        print(json.dumps(frame.to_pylist(), default=str))
    elif out is None:
        sys.stdout.buffer.write(csv_bytes(frame))
    if out is not None:
        write_frame(frame, out)


def _choices(fitted: Fitted | Exported, quantiles: str | None, draws: int | None, plot: Path | None) -> dict[str, Any]:
    """What a forecast is told of quantiles and draws; nothing if it is that of an exported file, which has its own."""
    if isinstance(fitted, Fitted):
        return {
            "quantiles": _numbers(LEVELS if quantiles is None else quantiles, "--quantiles"),
            "draws": draws or DRAWS,
        }
    for option, given in {"--quantiles": quantiles, "--draws": draws, "--plot": plot}.items():
        if given is not None:
            raise SettingsError(f"{option} wants a run folder: quantiles and draws of an exported file are settled")
    return {}


@app.command()
def export(
    run: Run,
    out: Annotated[Path, typer.Option(help="The file to write, e.g. forecaster.vsdn.")],
    quantiles: Annotated[str, typer.Option(help="Levels of the quantiles that it will give.")] = LEVELS,
    draws: Draws = DRAWS,
) -> None:
    """Write the forecaster of a run as one StableHLO file, which runs without the run and without the model's code.

    Example: vsdn export run --out forecaster.vsdn
    """
    check_writable(out)
    vsdn.load(run).export(out, draws=draws, quantiles=_numbers(quantiles, "--quantiles"))


def _check_outputs(out: Path | None, plot: Path | None) -> None:
    """Refuses a file that cannot be written, before the work is done and before the other one is there."""
    if out is not None:
        check_suffix(out)
    if plot is not None and plot.suffix.lower() not in SUFFIXES:
        raise SettingsError(f"--plot wants a {', '.join(SUFFIXES)} file, but got {plot}")
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
    draws: Draws = DRAWS,
    seed: Seed = 0,
    id: IdColumn = None,
    time: TimeColumn = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Score forecasts against a table: NLL, MSE, CRPS, and how much the 50 and 90 % intervals cover.

    Example: vsdn evaluate run patients.csv --task prediction --after 4 --next 1
    """
    fitted, columns = vsdn.load(run), Columns(id, time)
    table = fitted.read(data, columns)
    _remark(table.notes, quiet)
    _show(fitted.evaluate(table, task, after=after, next=next, share=share, draws=draws, seed=seed), as_json)


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


@datasets_app.command("list")
def list_datasets(as_json: Json = False) -> None:
    """List the data sets.

    Example: vsdn datasets list
    """
    _show({name: (module.__doc__ or "").strip().splitlines()[0] for name, module in DATASETS.items()}, as_json)


@datasets_app.command("make")
def make_dataset(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(DATASETS)}.")],
    out: Annotated[Path, typer.Option(help="A .csv or .parquet file.")],
    series: Annotated[int, typer.Option(min=1, help="How many series.")] = 10_000,
    seed: Annotated[int, typer.Option(min=0, max=LAST_SEED, help="Same seed, same data.")] = 432,
    legacy: Annotated[bool, typer.Option("--legacy", help="The published draw, and its layout in CSV.")] = False,
    part: Annotated[str, typer.Option(help="all, train, valid or test.")] = "all",
) -> None:
    """Write a data set as a table.

    Example: vsdn datasets make double-ou --out double-ou.csv --seed 432 --legacy
    """
    if name not in DATASETS:
        raise SettingsError(f"there is no data set {name!r}; the data sets are {', '.join(DATASETS)}")
    module = DATASETS[name]
    if legacy and part == "all" and out.suffix == ".csv":
        write_bytes(out, module.published_csv(series, seed=seed))
        return
    table = module.make(series, seed=seed, legacy=legacy)
    parts = {"all": table, **dict(zip(("train", "valid", "test"), module.split(table, seed), strict=True))}
    if part not in parts:
        raise SettingsError(f"--part is one of {', '.join(parts)}, but got {part!r}")
    write_frame(table_frame(parts[part]), out)


def run() -> None:
    """The console script."""
    sys.exit(main())


if __name__ == "__main__":
    run()
