"""From a table to a fitted model: `fit`, and `resume` for a run that was stopped."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.random as jr

from vsdn import checkpoint, fused, training
from vsdn.caching import use_compilation_cache
from vsdn.checkpoint import Config, Source
from vsdn.errors import RunError, SettingsError
from vsdn.fitted import Fitted
from vsdn.models import MODELS, AbstractModel
from vsdn.progress import TrainingBar, interruptible
from vsdn.runs import model_shapes
from vsdn.settings import Settings, read_preset
from vsdn.tables.frames import Columns, read_table
from vsdn.tables.table import Table
from vsdn.training.loop import Epoch, TrainState
from vsdn.training.planning import Plan, clock_speeds, make_plan
from vsdn.training.priming import prime
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
    """Fits a model to a table. With `out`, the run folder is kept there and can be resumed at any moment.

    `settings` are flat, e.g. {"epochs": 12}; they override `preset`, and model, objective and seed override both.
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
    source = _source(data, valid, columns, fingerprint(table, valid_table))
    config = Config(settings=plan.settings, variables=table.variables, axis=table.axis, source=source)
    fresh = prime(make_model(plan.settings, table), plan.table, plan.scaler, spread=plan.settings.model.spread_memory)
    state = training.first_state(fresh, plan.train, plan.settings)
    if folder is not None:
        with checkpoint.creating(folder, config, plan.scaler, version=__version__, overwrite=overwrite) as made:
            checkpoint.save_weights(made, state.params)
            checkpoint.save_state(made, state)
    return _run(fresh, config, plan, state, folder=folder, notes=table.notes, progress=progress)


def resume(
    folder: str | Path, data: Any = None, *, valid: Any = None, columns: Columns | None = None, progress: bool = True
) -> Fitted:
    """Continues the run in a folder from its last checkpoint, to the same weights as if it had never stopped.

    The tables are read from where they were, unless they are given.
    """
    folder = Path(folder)
    config = checkpoint.read_config(folder)
    source, scaler = config.source, checkpoint.read_scaler(folder, config)
    columns = source.columns if columns is None else columns
    data, valid = source.data if data is None else data, source.valid if valid is None else valid
    if data is None:
        raise RunError(f"{folder} was fitted to a frame in memory: give the same frame to resume it")
    table = read_table(data, columns=columns, unit=config.settings.data.time_unit)
    valid_table = _read_valid(valid, table, columns)
    if fingerprint(table, valid_table) != source.fingerprint:
        given = data if isinstance(data, str | Path) else "the frame"
        raise RunError(f"{given} is not the table that {folder} was fitted to: it has changed since")
    plan = make_plan(table, valid_table, config.settings, scaler)
    use_compilation_cache()
    shapes = model_shapes(plan.settings, len(table.variables), table.axis)
    like = eqx.filter_eval_shape(training.first_state, shapes, plan.train, plan.settings)
    state = checkpoint.read_state(folder, like)
    model = eqx.combine(state.params, eqx.filter(shapes, eqx.is_inexact_array, inverse=True))
    records = [record for record in checkpoint.read_metrics(folder) if record.epoch <= int(state.epoch)]
    checkpoint.remove_parts(folder)
    return _run(model, config, plan, state, records=records, folder=folder, notes=table.notes, progress=progress)


def make_model(settings: Settings, table: Table) -> AbstractModel:
    """The model that the settings name, with fresh weights."""
    use_compilation_cache()
    _check_size(model_shapes(settings, len(table.variables), table.axis))
    make, speeds = MODELS[settings.model.model], clock_speeds(settings.data, table.axis)
    return make(len(table.variables), speeds, settings.model, key=jr.key(settings.training.seed))


def _check_size(shapes: AbstractModel) -> None:
    """Refuses a model that cannot be trained in this machine's memory, before building any of it."""
    sizes = [leaf.size for leaf in jax.tree.leaves(shapes) if isinstance(leaf, jax.ShapeDtypeStruct)]
    needed = 5 * 4 * sum(sizes)  # weights, gradient, two moments and the best weights, four bytes each
    if needed > os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"):
        raise SettingsError(
            f"a model of {sum(sizes):,} parameters needs {needed / 1e9:,.0f} GB, more than this machine has: "
            "choose a smaller hidden_size, latent_size or width"
        )


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
    valid_offset = plan.valid.log_unit(plan.scaler.std)
    with interruptible() as interrupt, TrainingBar(steps, batches, offset, show=progress) as bar:
        for state, record in training.train(model, plan.train, plan.valid, plan.settings, begun):
            if record is not None:
                record = record.moved(offset, valid_offset, by=settings.select_by)
                records.append(record)
            stop = interrupt.asked  # read once, so that the run stops exactly where it was saved
            if folder is not None:
                over = training.why_ended(state, settings) is not None  # perhaps in the middle of an epoch
                now = stop or over or int(state.step) % settings.checkpoint_every == 0
                _keep(folder, state, records, new_epoch=record is not None, now=now)
            bar.update(state, record)
            if stop:
                break
    why = training.why_ended(state, settings)
    static = eqx.partition(model, eqx.is_inexact_array)[1]
    if folder is not None:
        checkpoint.save_weights(folder, state.best_params)
    ended = (f"ended early: {why}",) if why not in (None, "all epochs done") else ()
    were = "steps without a finite gradient were" if int(state.skipped) > 1 else "step without a finite gradient was"
    skipped = (f"{int(state.skipped)} {were} skipped",) if int(state.skipped) else ()
    best = eqx.combine(state.best_params, static)
    lost = fused.what_is_lost()
    said = notes + plan.notes + skipped + ended + (() if lost is None else (lost,))
    return Fitted(best, config, plan.scaler, tuple(records), said, interrupted=why is None)


def _keep(folder: Path, state: TrainState, records: list[Epoch], *, new_epoch: bool, now: bool) -> None:
    """Writes what is needed to resume; the state comes last, so that it never refers to anything not yet written."""
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


def _source(data: Any, valid: Any, columns: Columns, told: str) -> Source:
    path = lambda source: str(Path(source).absolute()) if isinstance(source, str | Path) else None
    return Source(data=path(data), valid=path(valid), columns=columns, fingerprint=told)


def fingerprint(table: Table, valid: Table | None) -> str:
    """A hash of the training and validation data."""
    return table.fingerprint() + ("" if valid is None else "+" + valid.fingerprint())
