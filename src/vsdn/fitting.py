"""A table becomes a fitted model: fit, and resume what was stopped."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.random as jr

from vsdn import checkpoint, training
from vsdn.caching import use_compilation_cache
from vsdn.checkpoint import Config
from vsdn.data import Table
from vsdn.errors import RunError
from vsdn.fitted import Fitted
from vsdn.frames import Columns, read_table
from vsdn.models import MODELS, AbstractModel
from vsdn.planning import Plan, make_marching, make_plan
from vsdn.progress import TrainingBar, interruptible
from vsdn.settings import Settings, read_preset
from vsdn.training import Epoch, TrainState
from vsdn.version import __version__


def fit(
    data: Any,
    *,
    model: str | None = None,
    objective: str | None = None,
    valid: Any = None,
    seed: int | None = None,
    preset: str | None = None,
    settings: dict[str, Any] | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    columns: Columns = Columns(),
    progress: bool = True,
) -> Fitted:
    """A model fitted to a table. With `out`, the run folder is kept there and can be resumed at any moment.

    `settings` are flat, e.g. {"epochs": 12}; they go before `preset`, and model, objective and seed before both.
    """
    named = {"model": model, "objective": objective, "seed": seed}
    given = {key: value for key, value in named.items() if value is not None}
    chosen = Settings().with_values((read_preset(preset) if preset else {}) | (settings or {}) | given)
    folder = None if out is None else Path(out)
    if folder is not None:
        checkpoint.check_free(folder, overwrite)
    table = read_table(data, columns=columns, unit=chosen.data.time_unit)
    valid_table = _read_valid(valid, table, columns)
    plan = make_plan(table, valid_table, chosen)
    source = _source(data, valid, columns) | {"fingerprint": _fingerprint(table, valid_table)}
    config = Config(plan.settings, table.variables, dataclasses.asdict(table.axis), source)
    fresh = make_model(plan.settings, table)
    state = training.first_state(fresh, plan.train, plan.settings)
    if folder is not None:
        with checkpoint.creating(folder, config, plan.scaler, version=__version__, overwrite=overwrite) as made:
            checkpoint.save_weights(made, state.params)
            checkpoint.save_state(made, state)
    return _run(fresh, config, plan, state, folder=folder, notes=table.notes, progress=progress)


def resume(
    folder: str | Path, data: Any = None, *, valid: Any = None, columns: Columns | None = None, progress: bool = True
) -> Fitted:
    """The run of a folder, gone on with from its last checkpoint to the same weights as if it had never stopped.

    The tables are read from where they were, unless they are given.
    """
    folder = Path(folder)
    config, scaler = checkpoint.read_config(folder), checkpoint.read_scaler(folder)
    source = config.source
    columns = Columns(**source["columns"]) if columns is None else columns
    data, valid = source["data"] if data is None else data, source["valid"] if valid is None else valid
    if data is None:
        raise RunError(f"{folder} was fitted to a frame in memory: give the same frame to resume it")
    table = read_table(data, columns=columns, unit=config.settings.data.time_unit)
    valid_table = _read_valid(valid, table, columns)
    if _fingerprint(table, valid_table) != source["fingerprint"]:
        raise RunError(f"{data} is not the table that {folder} was fitted to: it has changed since")
    plan = make_plan(table, valid_table, config.settings, scaler)
    fresh = make_model(plan.settings, table)
    state = checkpoint.read_state(folder, training.first_state(fresh, plan.train, plan.settings))
    records = [record for record in checkpoint.read_metrics(folder) if record.epoch <= int(state.epoch)]
    return _run(fresh, config, plan, state, records=records, folder=folder, notes=table.notes, progress=progress)


def make_model(settings: Settings, table: Table) -> AbstractModel:
    """The model that the settings name, with fresh weights."""
    use_compilation_cache()
    clock_size = 2 * len(make_marching(settings.data, table.axis).periods)
    make = MODELS[settings.model.model]
    return make(len(table.variables), clock_size, settings.model, key=jr.key(settings.training.seed))


def _run(
    model: AbstractModel,
    config: Config,
    plan: Plan,
    begun: TrainState,
    *,
    folder: Path | None,
    notes: tuple[str, ...],
    progress: bool,
    records: Sequence[Epoch] = (),
) -> Fitted:
    """Trains to the end, or until interrupted, and keeps the folder up to date."""
    settings = plan.settings.training
    state, records, batches = begun, list(records), len(plan.train.epoch())
    steps, offset = batches * (settings.epochs or 0), plan.train.log_unit(plan.scaler.std)
    with interruptible() as interrupt, TrainingBar(steps, batches, offset, show=progress) as bar:
        for state, record in training.train(model, plan.train, plan.valid, plan.settings, begun):
            if record is not None:
                records.append(record)
            if folder is not None:
                now = interrupt.asked or int(state.step) % settings.checkpoint_every == 0
                _keep(folder, state, records, new_epoch=record is not None, now=now)
            bar.update(state, record)
            if interrupt.asked:
                break
    why = training.why_ended(state, settings)
    static = eqx.partition(model, eqx.is_inexact_array)[1]
    if folder is not None:
        checkpoint.save_weights(folder, state.best_params)
    ended = (f"ended early: {why}",) if why not in (None, "all epochs done") else ()
    skipped = (f"{int(state.skipped)} steps without a finite gradient were skipped",) if int(state.skipped) else ()
    best = eqx.combine(state.best_params, static)
    said = notes + plan.notes + skipped + ended
    return Fitted(best, config, plan.scaler, tuple(records), said, interrupted=why is None)


def _keep(folder: Path, state: TrainState, records: list[Epoch], *, new_epoch: bool, now: bool) -> None:
    """Writes what a resumed run needs; the state comes last, so that it never names what is not there yet."""
    if new_epoch and records[-1].best_epoch == records[-1].epoch:
        checkpoint.save_weights(folder, state.best_params)
    if new_epoch:
        checkpoint.write_metrics(folder, records)
    if new_epoch or now:
        checkpoint.save_state(folder, state)


def _read_valid(valid: Any, table: Table, columns: Columns) -> Table | None:
    if valid is None:
        return None
    return read_table(valid, columns=columns, variables=table.variables, axis=table.axis)


def _source(data: Any, valid: Any, columns: Columns) -> dict[str, Any]:
    path = lambda source: str(Path(source).absolute()) if isinstance(source, str | Path) else None
    return {"data": path(data), "valid": path(valid), "columns": dataclasses.asdict(columns)}


def _fingerprint(table: Table, valid: Table | None) -> str:
    return table.fingerprint() + ("" if valid is None else "+" + valid.fingerprint())
