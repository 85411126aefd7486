"""From a table and settings to a training plan: chooses open settings, holds out a validation part, makes batches."""

from typing import NamedTuple

import numpy as np

from vsdn.batches import Batches
from vsdn.errors import DataError, SettingsError
from vsdn.grids.marching import Marching, check_steps, make_grids
from vsdn.models import HEEDS, able
from vsdn.settings import DataSettings, ModelSettings, Settings
from vsdn.tables.files import listing
from vsdn.tables.frames import parse_times
from vsdn.tables.table import Scaler, Table, TimeAxis, default_max_step, default_time_scale

PERIODS = {"hour": 3600.0, "day": 86400.0, "week": 604800.0, "month": 2629746.0, "year": 31556952.0}  # seconds
ENOUGH_SERIES = 10  # with fewer, the last rows of each series are held out, not whole series
NETWORKS = (*able("spread_memory"), "gru-decay")  # the models whose densities come from networks
REFUSED = ("save_memory", "hide_share", "given_rows")  # by models that cannot use them; other settings they ignore
WINDOW = 200  # rows per training piece, if a series is more than twice as long

# A model that reads a series from its end predicts from prefixes of it, so it must be trained on prefixes.
CUT_SHARES = {"latent-ode": 1.0, "latent-sde": 1.0}


class Parts(NamedTuple):
    """A training table, and a validation table of which some rows are scored."""

    train: Table
    valid: Table
    scored: np.ndarray


class Plan(NamedTuple):
    """Everything that a run is made of, except the model."""

    settings: Settings  # none left open
    scaler: Scaler
    table: Table  # the training part
    train: Batches
    valid: Batches
    notes: tuple[str, ...]


def make_plan(table: Table, valid: Table | None, settings: Settings, scaler: Scaler | None = None) -> Plan:
    """The plan of a run; `scaler` is given when a run is resumed."""
    if table.num_observations < 2:
        raise DataError(f"there is only {table.num_observations} observation in all: nothing can be learned from it")
    parts = hold_out(table, valid, settings.training.valid_share, settings.training.seed)
    settings = choose(settings, parts.train)
    scaler = scaler or fit_scaler(parts.train, settings.data.time_scale)
    marching = make_marching(settings.data, table.axis)
    for part in (parts.train, parts.valid):
        check_steps(part, marching)
    train = parts.train if settings.data.window is None else cut_windows(parts.train, settings.data.window)
    size, buckets = settings.training.batch_size, settings.data.num_buckets
    return Plan(
        settings,
        scaler,
        parts.train,
        Batches.make(make_grids(train, scaler, marching), size, buckets or 1, rest=rest_of(settings, table, scaler)),
        Batches.make(make_grids(parts.valid, scaler, marching, scored=parts.scored), min(size, 256), 1),
        notes=(_say(parts, valid), *_unheeded(settings.model), *_on_values(parts.train, settings.model)),
    )


def fit_scaler(table: Table, time_scale: float | None) -> Scaler:
    """The scaler of the training part; refuses a variable whose standard deviation is not a finite number."""
    with np.errstate(over="ignore", invalid="ignore"):
        scaler = Scaler.fit(table, time_scale)
    for name, mean, std in zip(table.variables, scaler.mean, scaler.std, strict=True):
        if not np.isfinite([mean, std]).all():
            raise DataError(f"the values of variable {name!r} are too large to be scaled: choose another unit for it")
    return scaler


def hold_out(table: Table, valid: Table | None, share: float, seed: int) -> Parts:
    """The parts: the given validation table, or whole series of the table, or the last rows when series are few."""
    if valid is not None:
        return Parts(table, valid, np.ones(len(valid.times), bool))
    if table.num_series >= ENOUGH_SERIES:
        order = np.random.default_rng([seed, table.num_series]).permutation(table.num_series)
        count = max(1, round(share * table.num_series))
        held = table.select(np.sort(order[:count]))
        return Parts(table.select(np.sort(order[count:])), held, np.ones(len(held.times), bool))
    length = np.diff(table.starts)
    last = np.where(length >= 5, np.ceil(share * length), 0).astype(int)
    place = np.arange(len(table.times)) - table.starts[table.series_of_row]
    scored = place >= (length - last)[table.series_of_row]
    if not scored.any():
        return Parts(table, table, np.ones(len(table.times), bool))
    return Parts(table.keep_rows(~scored), table, scored)


def _say(parts: Parts, valid: Table | None) -> str:
    count = int(parts.valid.mask[parts.scored].sum())
    if valid is not None:
        return f"validation: {valid.num_series} series, {count} values"
    if parts.train is parts.valid:
        return "validation: the training table itself, which is too short to hold out a part"
    if parts.scored.all():
        return f"validation: {parts.valid.num_series} series held out at random, {count} values"
    return f"validation: the last rows of each series held out, {count} values"


def _on_values(train: Table, model: ModelSettings) -> tuple[str, ...]:
    """Notes on variables that never change, whose density may become too narrow, and on variables that mostly have one
    value, whose narrow densities may drown all others."""
    same = np.array([_sameness(train.values[seen, number]) for number, seen in enumerate(train.mask.T)])
    remedy = "likelihood=student forgives a change, a larger scale_floor leaves room for one"
    narrow = f"never changes in the training part, so that its forecasts may be too narrow ({remedy})"
    remedy = "even_pull=0.5 with select_by=crps lets all values pull alike"
    loud = f"is mostly one value, which may drown the others in training ({remedy})"
    uneven = model.model in NETWORKS and not model.even_pull
    asked = [(narrow, same == 1.0), (loud, (same > 0.5) & (same < 1.0) & uneven)]
    return tuple(f"{said}: {_listed(train.variables, which)}" for said, which in asked if which.any())


def _sameness(values: np.ndarray) -> float:
    """The share of values equal to the median: that of the commonest value, if it makes up more than half."""
    return float(np.mean(values == np.median(values))) if len(values) else 0.0


def _listed(names: tuple[str, ...], which: np.ndarray) -> str:
    """The first five of the names, and an ellipsis if there are more."""
    chosen = [name for name, wanted in zip(names, which, strict=True) if wanted]
    return ", ".join(chosen[:5]) + (", …" if len(chosen) > 5 else "")


def _unheeded(model: ModelSettings) -> tuple[str, ...]:
    """Notes on settings that the chosen model ignores."""
    ignored = set.union(*map(set, HEEDS.values())) - HEEDS[model.model] - set(REFUSED)
    asked = [name for name in ModelSettings.model_fields if name in ignored and getattr(model, name)]
    return tuple(f"{name} is for {', '.join(able(name))}: {model.model} goes without" for name in asked)


def choose(settings: Settings, table: Table) -> Settings:
    """The settings with every open one chosen from the training table."""
    check(settings)
    data, training, model = settings.data, settings.training, settings.model
    rows, channels = np.diff(table.starts), len(table.variables)
    size = 32 if channels <= 8 else 64 if channels <= 32 else 128
    time_scale = data.time_scale or default_time_scale(table)
    window = data.window or (WINDOW if rows.max() > 2 * WINDOW and data.start is None else None)
    pieces = table.num_series if window is None else int(np.ceil(rows / window).sum())
    batches = -(-pieces // training.batch_size)
    epochs = int(np.clip(-(-3000 // batches), 40, 300)) if training.epochs is None else training.epochs
    return settings.with_values(
        {
            "hidden_size": model.hidden_size or size,
            "latent_size": model.latent_size or (min(4 * channels, 64) if model.model == "linear" else size),
            "width": model.width or 2 * size,
            "time_scale": time_scale,
            "max_step": data.max_step or default_max_step(table),
            "window": window,
            "num_buckets": data.num_buckets or int(np.clip(batches // 10, 1, 3)),  # few batches, few shapes
            "cut_share": CUT_SHARES.get(model.model, 0.0) if training.cut_share is None else training.cut_share,
            "select_by": training.select_by or ("bound" if training.hide_share else "forecasts"),
            "epochs": 0 if model.model == "mean" else epochs,
        }
    )


def check(settings: Settings) -> None:
    """Refuses settings that contradict each other."""
    data, training, model = settings.data, settings.training, settings.model.model
    if data.window is not None and data.start is not None:
        raise SettingsError(
            "a window cuts series into pieces, which have no common start: set window or start, not both"
        )
    if training.begin_share and data.start is not None:
        raise SettingsError(
            "series that begin at a random row have no common start: set begin_share or start, not both"
        )
    if training.stretch and data.periods:
        raise SettingsError(
            "series that run faster or slower do not keep to a calendar: set stretch or periods, not both"
        )
    if training.rates and not training.stretch:
        raise SettingsError("rates grow as series run faster: set stretch, too")
    asked = {**settings.objective.model_dump(), **training.model_dump()}
    for name in REFUSED:
        if asked[name] and name not in HEEDS[model]:
            raise SettingsError(f"{name} is for {', '.join(able(name))}, not for {model}")
    if training.given_shift and not training.given_rows:
        raise SettingsError("given_shift shifts the rows that are given: set given_rows, too")


def rest_of(settings: Settings, table: Table, scaler: Scaler) -> np.ndarray:
    """For each variable that is a rate, its value when nothing moves, in the model's units; NaN for the others."""
    rest = np.full(len(table.variables), np.nan)
    for name, value in settings.training.rates.items():
        if name not in table.variables:
            raise SettingsError(f"rates names {name!r}, but the table's variables are {listing(table.variables)}")
        rest[table.variables.index(name)] = value
    return scaler.scale(rest)


def cut_windows(table: Table, window: int) -> Table:
    """The table with each series cut into pieces of at most `window` rows, which bounds the cost of a training step."""
    place = np.arange(len(table.times)) - table.starts[table.series_of_row]
    begins = np.flatnonzero(place % window == 0)
    starts = np.append(begins, len(table.times))
    return Table(
        table.ids[table.series_of_row[begins]],
        starts,
        table.times,
        table.values,
        table.mask,
        table.variables,
        table.axis,
        table.layout,
    )


def make_marching(settings: DataSettings, axis: TimeAxis) -> Marching:
    """The parameters of grids, in the axis' unit of time."""
    if settings.max_step is None:
        raise SettingsError("max_step must be chosen before grids are made")
    start = None if settings.start is None else float(parse_times([settings.start], axis)[0])
    return Marching(settings.max_step, start, tuple(period_length(period, axis) for period in settings.periods))


def clock_speeds(settings: DataSettings, axis: TimeAxis) -> tuple[float, ...]:
    """The angular speeds of the known clocks, in radians per unit of the model's time."""
    if settings.time_scale is None:
        raise SettingsError("time_scale must be chosen before a model is made")
    return tuple(2 * np.pi * settings.time_scale / period for period in make_marching(settings, axis).periods)


def period_length(period: float | str, axis: TimeAxis) -> float:
    """A period in the axis' unit: a number unchanged, a name (year, day, ...) where times are dates."""
    if isinstance(period, str):
        if period not in PERIODS or axis.kind != "date":
            known = ", ".join(PERIODS)
            raise SettingsError(f"a period is a number, or one of {known} where times are dates, but not {period!r}")
        return PERIODS[period] / axis.seconds
    if not period > 0:
        raise SettingsError(f"a period must be above 0, but {period} was given")
    return period
