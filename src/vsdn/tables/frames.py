"""The entry point of tables: any table in, any table out. Every fault in a table is found and named here."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from vsdn.errors import DataError
from vsdn.tables.columns import Rows, as_names, check_finite, first_empty, first_true, read_numbers, read_times
from vsdn.tables.files import (
    Source,
    check_suffix,
    compute,
    csv_bytes,
    from_objects,
    listing,
    load,
    shorten,
    to_frame,
    write_frame,
)
from vsdn.tables.table import Layout, Table, TimeAxis, Unit

__all__ = [
    "Columns",
    "answer_columns",
    "check_suffix",
    "csv_bytes",
    "parse_times",
    "read_queries",
    "read_table",
    "table_frame",
    "time_column",
    "to_frame",
    "write_frame",
]

PAIRED = re.compile(r"(value|mask)_(.+)", re.IGNORECASE)  # the published layout of GRU-ODE-Bayes


@dataclass(frozen=True)
class Columns:
    """The column names that the user gives; None means recognised: by the name in the table that the model was fitted
    to, else by role, ignoring case."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}  # for when they are read from a run's file

    id: str | None = None
    time: str | None = None
    variable: str | None = None
    value: str | None = None


def read_table(
    source: Any,
    *,
    columns: Columns = Columns(),
    known: Columns = Columns(),
    variables: tuple[str, ...] | None = None,
    axis: TimeAxis | None = None,
    unit: Unit = "day",
) -> Table:
    """The checked table of a path or frame; `variables` and `axis` are those of the model that it must fit, `known` the
    column names of the model's table."""
    if isinstance(source, Table):  # already checked
        return _fitting(source, variables, axis)
    found = load(source)
    with found.named():
        layout = _layout(found, columns, known)
        keys = _keys(found, layout, axis, unit)
        read_cells = _long_cells if layout.form == "long" else _wide_cells
        return read_cells(found, layout, keys, variables)


def _fitting(table: Table, variables: tuple[str, ...] | None, axis: TimeAxis | None) -> Table:
    """A checked table, if it has this model's variables and kind of time."""
    if variables is not None and table.variables != variables:
        raise DataError(f"the model's variables are {listing(variables)}, the table's {listing(table.variables)}")
    if axis is not None and axis.kind != table.axis.kind:
        raise DataError(f"the model's times are {axis.kind}s, the table's {table.axis.kind}s")
    return table


def table_frame(table: Table) -> Any:
    """A table as a wide frame of its own kind: id, time, one column per variable, empty where nothing was observed."""
    layout = table.layout
    cells = np.where(table.mask, table.values, np.nan)
    columns = answer_columns(
        (layout.id, table.ids[table.series_of_row]),
        (layout.time, time_column(table.times, table.axis)),
        *zip(table.variables, cells.T, strict=True),
    )
    return to_frame(columns, layout.backend, timezone=table.axis.timezone)


def answer_columns(*columns: tuple[str | None, np.ndarray]) -> dict[str, np.ndarray]:
    """These columns by name, without unnamed ones; refuses duplicate names."""
    named: dict[str, np.ndarray] = {}
    for name, cells in columns:
        if name in named:
            raise DataError(
                f"every column of the answer needs a name of its own, but two would be called {shorten(name)}: "
                "call that column or variable of the data something else"
            )
        if name is not None:
            named[name] = cells
    return named


def read_queries(
    source: Any, *, axis: TimeAxis, columns: Columns = Columns(), known: Columns = Columns()
) -> tuple[np.ndarray | None, np.ndarray]:
    """The ids (None without an id column) and times that are asked for, row by row."""
    found = load(source)
    with found.named():
        layout = _layout(found, Columns(columns.id, columns.time), Columns(known.id, known.time))
        keys = _keys(found, layout, axis, axis.unit)
    return None if layout.id is None else keys.ids[keys.series], keys.times


def parse_times(values: Any, axis: TimeAxis) -> np.ndarray:
    """Times of any kind (texts, numbers, dates; one or many) as float64 in the axis' unit."""
    shape = getattr(values, "shape", None)
    values = [values] if isinstance(values, str) or not isinstance(values, Iterable) else values
    values = values.reshape(1) if isinstance(values, np.ndarray) and shape == () else values
    if shape is not None and len(shape) > 1:
        raise DataError(f"a list of times was expected, not a table of {' × '.join(map(str, shape))}")
    plain = isinstance(values, np.ndarray) and values.dtype != object
    column = pa.array(values, from_pandas=True) if plain else from_objects(values)
    return read_times(pa.chunked_array([column]), "times", Rows(noun="value"), axis, axis.unit)[0]


def time_column(times: np.ndarray, axis: TimeAxis) -> np.ndarray:
    """Times as the user's kind: numbers, or datetime64 in UTC (`to_frame` restores `axis.timezone`)."""
    return axis.to_datetimes(times) if axis.kind == "date" else times


# ---------------------------------------------------------------------------------------------------- who and when


def _layout(found: Source, columns: Columns, known: Columns) -> Layout:
    names = found.table.column_names
    role = {role: _find(names, role, given, getattr(known, role)) for role, given in vars(columns).items()}
    is_long = role["variable"] is not None and role["value"] is not None
    lacking = [] if is_long else [name for name in ("variable", "value") if role[name] is None]
    if role["time"] is None or (lacking and (columns.variable or columns.value)):
        wanted = "time" if role["time"] is None else lacking[0]
        raise DataError(f"a column called {wanted!r} was expected, but the columns are {listing(names)}")
    form = {"form": "long", "variable": role["variable"], "value": role["value"]} if is_long else {}
    return Layout(id=role["id"], time=role["time"], backend=found.backend, **form)


def _find(names: list[str], role: str, given: str | None, known: str | None) -> str | None:
    """The column with this role: the one that is given, else one with the known name, else one named like the role."""
    if given is not None and given not in names:
        raise DataError(f"a column called {shorten(given)} was expected, but the columns are {listing(names)}")
    if given is not None or known in names:
        return given if given is not None else known
    alike = [name for name in names if name.strip().casefold() == role]
    if len(alike) > 1:
        raise DataError(f"one {role} column was expected, but {listing(alike)} could each be it")
    return alike[0] if alike else None


class Keys(NamedTuple):
    """The series and the time of each of the user's rows."""

    series: np.ndarray  # index into ids
    ids: np.ndarray
    times: np.ndarray
    axis: TimeAxis
    rows: Rows


def _keys(found: Source, layout: Layout, axis: TimeAxis | None, unit: Unit) -> Keys:
    ids = None if layout.id is None else as_names(found.table[layout.id], trim=found.is_text)
    rows = Rows(ids, found.table[layout.time])
    times, axis = read_times(found.table[layout.time], layout.time, rows, axis, unit)
    if ids is None or layout.id is None:
        return Keys(np.zeros(len(times), np.int32), np.array(["series"], object), times, axis, rows)
    series, names = _encode(ids, layout.id, rows, "an id")
    names = _whole_numbers(names) if found.is_text else names
    return Keys(series, names.to_numpy(zero_copy_only=False), times, axis, rows)


def _encode(column: pa.ChunkedArray, name: str, rows: Rows, wanted: str) -> tuple[np.ndarray, pa.Array]:
    """The distinct cells in order of first appearance, and each row's index among them."""
    if (row := first_empty(column)) is not None:
        raise rows.refusal(row, name, wanted)
    if pa.types.is_nested(column.type):
        raise DataError(f"column {shorten(name)}: texts or whole numbers were expected, not {shorten(column.type)}")
    coded = column.dictionary_encode().combine_chunks()
    return coded.indices.to_numpy(), coded.dictionary


def _whole_numbers(texts: pa.Array) -> pa.Array:
    """The ids of a CSV file as int64 where nothing is lost: 007 stays a text."""
    plain = compute.match_substring_regex(texts, "^(0|-?[1-9][0-9]{0,17})$")
    return texts.cast(pa.int64()) if compute.all(plain).as_py() else texts


# ------------------------------------------------------------------------------------------------------------ cells


class Order(NamedTuple):
    """The user's rows with a value, sorted by series (in order of first appearance) and time."""

    rows: np.ndarray
    series: np.ndarray
    times: np.ndarray
    ids: np.ndarray  # of the series with a value
    repeats: np.ndarray  # True where a row has the series and time of the one before
    notes: tuple[str, ...]


def _order(keys: Keys, seen: np.ndarray) -> Order:
    rows = np.flatnonzero(seen)
    if not len(rows):
        raise DataError("at least one observation was expected, but every value is empty")
    first = np.full(len(keys.ids), len(seen))
    first[keys.series[rows[::-1]]] = rows[::-1]  # the last assignment wins: each series' first row
    kept = np.argsort(first)[: np.count_nonzero(first < len(seen))]
    new = np.zeros(len(keys.ids), np.int64)
    new[kept] = np.arange(len(kept))
    series, times = new[keys.series[rows]], keys.times[rows]
    step = np.diff(series)
    if not np.all((step > 0) | ((step == 0) & (np.diff(times) >= 0))):
        order = np.argsort(times)  # twice as fast as lexsort
        order = order[np.argsort(series[order], kind="stable")]
        rows, series, times = rows[order], series[order], times[order]
    repeats = np.concatenate([[False], (np.diff(series) == 0) & (np.diff(times) == 0)])
    return Order(rows, series, times, keys.ids[kept], repeats, _ignored(seen, keys.ids[first == len(seen)]))


def _ignored(seen: np.ndarray, unseen_ids: np.ndarray) -> tuple[str, ...]:
    notes = []
    if count := len(seen) - int(np.count_nonzero(seen)):
        notes.append(f"{count} row{'s' * (count > 1)} with no value {'were' if count > 1 else 'was'} ignored")
    if count := len(unseen_ids):
        were = "were" if count > 1 else "was"
        notes.append(f"{count} series with no observation {were} ignored: {listing(unseen_ids.tolist())}")
    return tuple(notes)


def _twice(keys: Keys, one: np.ndarray, other: np.ndarray, key: str) -> DataError:
    """The error for rows `one[i]` and `other[i]` with the same key: it names the first pair to be complete."""
    pair = int(np.argmin(np.maximum(one, other)))
    a, b = sorted((int(one[pair]), int(other[pair])))
    each = f"one row for each {key} was expected, not two"
    hint = ", and there is no id column to tell series apart" if keys.rows.ids is None else ""
    return DataError(f"rows {a + 1} and {b + 1}{keys.rows.key(b)}: {each}{hint}")


def _table(
    order: Order,
    keys: Keys,
    layout: Layout,
    cells: tuple[np.ndarray, np.ndarray],
    variables: Sequence[str],
    notes: tuple[str, ...],
) -> Table:
    new = ~order.repeats
    starts = np.concatenate([[0], np.cumsum(np.bincount(order.series[new], minlength=len(order.ids)))])
    values, mask = cells
    unseen = np.array(variables, object)[~np.any(mask, axis=0)]
    notes = notes + order.notes + tuple(f"variable {shorten(name)} has no observation" for name in unseen)
    return Table(order.ids, starts, order.times[new], values, mask, tuple(variables), keys.axis, layout, notes)


# ------------------------------------------------------------------------------------------------------- two forms


def _wide_cells(found: Source, layout: Layout, keys: Keys, variables: tuple[str, ...] | None) -> Table:
    masks, notes = _value_columns([name for name in found.table.column_names if name not in (layout.id, layout.time)])
    if variables is not None and (strange := [name for name in masks if name not in variables]):
        raise DataError(f"the model's variables are {listing(variables)}, but there is a column {shorten(strange[0])}")
    variables = tuple(masks) if variables is None else variables
    values = np.zeros((found.table.num_rows, len(variables)))
    mask = np.zeros(values.shape, bool)
    for channel, name in enumerate(variables):
        if name in masks:
            values[:, channel], mask[:, channel] = _cells(found.table, name, masks[name], keys.rows)
    order = _order(keys, np.any(mask, axis=1))
    if order.repeats.any():
        later = np.flatnonzero(order.repeats)
        raise _twice(keys, order.rows[later - 1], order.rows[later], "id and time")
    return _table(order, keys, layout, (values[order.rows], mask[order.rows]), variables, found.notes + notes)


def _value_columns(names: list[str]) -> tuple[dict[str, str | None], tuple[str, ...]]:
    """The column of each variable and of its mask, if it has one, and notes on what was ignored."""
    if not names:
        raise DataError("a column for each variable was expected, but there are only ids and times")
    found = {name: PAIRED.fullmatch(name) for name in names}
    kind = {name: match[1].lower() if match else None for name, match in found.items()}
    masks = {match[2].lower(): name for name, match in found.items() if match and kind[name] == "mask"}
    pairs = {name: masks.get(match[2].lower()) for name, match in found.items() if match and kind[name] == "value"}
    if not any(pairs.values()):
        return dict.fromkeys(names), ()
    covariate = [name for name in names if name.lower() == "cov"]
    alone = [name for name in names if not pairs.get(name) and name not in pairs.values() and name not in covariate]
    if alone:
        raise DataError(f"a Mask_ column for each Value_ column and no other was expected, but not {shorten(alone[0])}")
    return pairs, tuple(f"column {shorten(name)} was ignored" for name in covariate)


def _cells(table: pa.Table, name: str, mask_name: str | None, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """One variable's values (0 where unobserved) and mask."""
    values = read_numbers(table[name], name, rows)
    seen = ~np.isnan(values)
    if mask_name is not None:
        mask = read_numbers(table[mask_name], mask_name, rows)
        if (row := first_true((mask != 0) & (mask != 1))) is not None:
            raise rows.refusal(row, mask_name, "0 or 1", f"not {mask[row]}")
        if (row := first_true((mask == 1) & ~seen)) is not None:
            raise rows.refusal(row, name, f"a number, where {shorten(mask_name)} is 1,")
        seen = mask == 1
    values = np.where(seen, values, 0.0)
    check_finite(values, name, rows)
    return values, seen


def _long_cells(found: Source, layout: Layout, keys: Keys, variables: tuple[str, ...] | None) -> Table:
    names = as_names(found.table[layout.variable], trim=found.is_text)
    channel, variables = _channels(names, layout.variable, keys.rows, variables)
    numbers = read_numbers(found.table[layout.value], layout.value, keys.rows)
    check_finite(numbers, layout.value, keys.rows)
    order = _order(keys, ~np.isnan(numbers))
    row = np.cumsum(~order.repeats) - 1
    try:
        values = np.zeros((row[-1] + 1, len(variables)))
    except MemoryError as error:
        raise DataError(f"{row[-1] + 1} times with {len(variables)} variables are more than memory can hold") from error
    mask = np.zeros(values.shape, bool)
    place = row * len(variables) + channel[order.rows]
    values.flat[place], mask.flat[place] = numbers[order.rows], True
    if np.count_nonzero(mask) < len(place):
        sort = np.argsort(place, kind="stable")
        later = 1 + np.flatnonzero(np.diff(place[sort]) == 0)
        raise _twice(keys, order.rows[sort[later - 1]], order.rows[sort[later]], "id, time and variable")
    used = (layout.id, layout.time, layout.variable, layout.value)
    extra = [name for name in found.table.column_names if name not in used]
    notes = tuple(f"column {shorten(name)} was ignored" for name in extra)
    return _table(order, keys, layout, (values, mask), variables, found.notes + notes)


def _channels(
    column: pa.ChunkedArray, name: str, rows: Rows, variables: tuple[str, ...] | None
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Each row's variable as an index, and the variables (in order of first appearance unless given)."""
    codes, names = _encode(column, name, rows, "the name of a variable")
    names = tuple(str(name) for name in names.to_pylist())
    if variables is None:
        return codes, names
    index = {variable: i for i, variable in enumerate(variables)}
    channel = np.array([index.get(name, -1) for name in names])[codes]
    if (row := first_true(channel < 0)) is not None:
        wanted = f"one of the model's variables ({listing(variables)})"
        raise rows.refusal(row, name, wanted, f"not {shorten(names[codes[row]])}")
    return channel, variables
