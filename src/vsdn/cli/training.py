"""The commands that make and describe a run: demo, fit, resume, info."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import vsdn
from vsdn import demonstration
from vsdn.cli.console import print_values, remark
from vsdn.cli.options import Data, IdColumn, Json, Quiet, Run, Seed, TimeColumn
from vsdn.errors import RunError
from vsdn.fitted import Fitted
from vsdn.models import MODELS
from vsdn.settings import LAST_SEED, parse_assignments, preset_names, read_config
from vsdn.tables.frames import Columns


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the run, the table and the picture.")] = Path("vsdn-demo"),
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Fit and forecast the built-in Double-OU set; write a table and a picture.

    Example: vsdn demo --out vsdn-demo
    """
    demonstration.run(out, seed=seed, progress=not quiet)


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
    _check_free(out, overwrite)
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


def _check_free(out: Path, overwrite: bool) -> None:
    """Refuses to replace a run that is already there, and names the option that would."""
    if not overwrite and (out / "config.json").exists():
        raise RunError(f"{out} already holds a run: choose another folder, or give --overwrite to replace it")


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
    rows = _info(fitted, folder)
    print_values(rows if as_json else _told(rows), as_json)
    if fitted.interrupted:
        print(f"stopped; go on with: vsdn resume {folder}", file=sys.stderr)
    return 130 if fitted.interrupted else 0


def info(run: Run, as_json: Json = False) -> None:
    """Show a run: model, data, settings and scores.

    Example: vsdn info run
    """
    fitted = vsdn.load(run)
    rows, settings = _info(fitted, run), fitted.settings.model_dump(mode="json")
    if as_json:
        print_values(rows | {"settings": settings}, as_json)
    else:
        flat = {key: value for section in settings.values() for key, value in section.items()}
        print_values(_told(rows) | flat | _told(rows), as_json)  # "3 of 5" epochs, not 5


def _told(rows: dict[str, Any]) -> dict[str, Any]:
    """The rows for a person, with the epochs done and planned in one."""
    told = {name: value for name, value in rows.items() if name != "planned epochs"}
    return told | {"epochs": f"{rows['epochs']} of {rows['planned epochs']}"}


def _info(fitted: Fitted, folder: Path) -> dict[str, Any]:
    """The rows that describe a run; the validation score is in nats per observed value."""
    last = fitted.epochs[-1] if fitted.epochs else None
    return {
        "run": str(folder),
        "model": fitted.settings.model.model,
        "objective": fitted.settings.objective.objective,
        "variables": list(fitted.config.variables),
        "parameters": fitted.num_params,
        "epochs": 0 if last is None else last.epoch,
        "planned epochs": fitted.settings.training.epochs,
        "best epoch": None if last is None else last.best_epoch,
        "validation nll": None if fitted.best is None else fitted.best.valid_nll,
        "skipped steps": 0 if last is None else last.skipped,
    }
