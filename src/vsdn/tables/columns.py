"""Reads one column of a user's table as numbers or times, or refuses it, saying where and why."""

import bisect
import dataclasses
import re
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from vsdn.errors import DataError
from vsdn.tables.files import compute, shorten
from vsdn.tables.table import TimeAxis, Unit

EMPTY_WORDS = [*pa_csv.ConvertOptions().null_values, "None", "NaT", "<NA>"]
NUMBER_TYPES = (pa.float64(), pa.bool_())
DATE_TYPES = (pa.date32(), *(pa.timestamp(unit, zone) for unit in ("us", "ns") for zone in (None, "UTC")))
ISO_DATE = "an ISO date such as 2024-03-01 or 2024-03-01T12:30:00"
FITTED = "as in the table that the model was fitted to"


class Rows(NamedTuple):
    """The user's rows, for error messages that say where a fault is."""

    ids: pa.ChunkedArray | None = None
    times: pa.ChunkedArray | None = None
    noun: str = "row"

    def key(self, row: int) -> str:
        """The id and time of a row, as far as they are known, for an error message."""
        cells = [("id", self.ids), ("time", self.times)]
        known = [f"{what} {shorten(cell(c, row))}" for what, c in cells if c is not None and c[row].is_valid]
        return f" ({', '.join(known)})" if known else ""

    def refusal(self, row: int, column: str, wanted: str, came: str = "but the cell is empty") -> DataError:
        """The error for one cell."""
        return DataError(
            f"{self.noun} {row + 1}{self.key(row)}, column {shorten(column)}: {wanted} was expected, {came}"
        )


def cell(column: pa.ChunkedArray, row: int) -> object:
    """One cell as a Python value, without nanoseconds, which Python's datetime cannot hold."""
    kind = column.type
    scalar = column[row].cast(pa.timestamp("us", kind.tz), safe=False) if pa.types.is_timestamp(kind) else column[row]
    return scalar.as_py()


def as_names(column: pa.ChunkedArray, *, trim: bool) -> pa.ChunkedArray:
    """Ids or variable names in a type that arrow can compare: as texts, stripped of surrounding spaces if `trim`, if
    they are texts or of an extension type (UUIDs)."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        column = pa.chunked_array([[None if name is None else str(name) for name in column.to_pylist()]], pa.string())
    if not trim or not _is_text(column.type):
        return column
    column = compute.utf8_trim_whitespace(column)
    return compute.if_else(compute.equal(column, ""), pa.scalar(None, column.type), column)


def first_true(flags: np.ndarray) -> int | None:
    """The index of the first True, or None."""
    row = int(np.argmax(flags)) if len(flags) else 0
    return row if len(flags) and flags[row] else None


def first_empty(column: pa.ChunkedArray) -> int | None:
    """The first row that is null or NaN, or None."""
    return first_true(column.is_null(nan_is_null=True).to_numpy())


# ---------------------------------------------------------------------------------------------------------- numbers


def read_numbers(column: pa.ChunkedArray, name: str, rows: Rows) -> np.ndarray:
    """The column as float64, NaN where empty; true and false are 1 and 0."""
    if _is_text(column.type):
        column = _parse(column, NUMBER_TYPES, name, rows, "a number or an empty cell")
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    if not _is_number(column.type):
        raise DataError(f"column {shorten(name)}: numbers were expected, not {shorten(column.type)}")
    return column.cast(pa.float64(), safe=False).to_numpy()


def check_finite(values: np.ndarray, name: str, rows: Rows) -> None:
    """Refuses the first infinite value."""
    if (row := first_true(np.isinf(values))) is not None:
        raise rows.refusal(row, name, "a finite number", f"not {values[row]}")


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _is_number(kind: pa.DataType) -> bool:
    return any(
        is_kind(kind) for is_kind in (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_null)
    )


def _parse(texts: pa.ChunkedArray, types: tuple, name: str, rows: Rows, wanted: str) -> pa.ChunkedArray:
    """The texts converted to the first of the types that fits them all."""
    if (parsed := _cast(texts, types)) is not None:
        return parsed
    texts = compute.utf8_trim_whitespace(texts)
    empty = compute.is_in(texts, pa.array(EMPTY_WORDS, texts.type))
    texts = compute.if_else(empty, pa.scalar(None, texts.type), texts)
    if (parsed := _cast(texts, types)) is not None:
        return parsed
    row = bisect.bisect_left(range(len(texts)), True, key=lambda i: _cast(texts[: i + 1], types) is None)
    raise rows.refusal(row, name, wanted, f"not the text {shorten(texts[row].as_py())}")


def _cast(texts: pa.ChunkedArray, types: tuple) -> pa.ChunkedArray | None:
    for kind in types:
        try:
            return texts.cast(kind)
        except pa.ArrowInvalid:
            continue
    return None


# ------------------------------------------------------------------------------------------------------------ times


def read_times(
    column: pa.ChunkedArray, name: str, rows: Rows, axis: TimeAxis | None, unit: Unit
) -> tuple[np.ndarray, TimeAxis]:
    """Times as float64 in the unit (of `axis`, if given), and their axis."""
    if _is_text(column.type):
        column = _parse_times(column, name, rows)
    if (row := first_empty(column)) is not None:
        raise rows.refusal(row, name, "a number or a date")
    is_date = pa.types.is_date(column.type) or pa.types.is_timestamp(column.type)
    if not is_date and not _is_number(column.type):
        raise DataError(f"column {shorten(name)}: numbers or dates were expected, not {shorten(column.type)}")
    found = TimeAxis("date" if is_date else "number", axis.unit if axis else unit)
    if axis is not None and axis.kind != found.kind and len(column):
        wanted = "numbers" if axis.kind == "number" else "dates such as 2024-03-01"
        came = f"{found.kind}s such as {shorten(cell(column, 0))}"
        raise DataError(f"column {shorten(name)}: {wanted} were expected, {FITTED}, not {came}")
    if is_date:
        return _dates(column, name, axis, found)
    times = read_numbers(column, name, rows)
    check_finite(times, name, rows)
    return times, found


def _parse_times(texts: pa.ChunkedArray, name: str, rows: Rows) -> pa.ChunkedArray:
    """The texts as numbers or dates, whichever the first one looks like."""
    sample = "".join(texts.drop_null()[:1].to_pylist())
    if re.match(r"\s*\d{4}-\d", sample):
        return _parse(texts, DATE_TYPES, name, rows, f"{ISO_DATE}, with a time zone in every row or in none,")
    return _parse(texts, NUMBER_TYPES[:1], name, rows, f"a number or {ISO_DATE}")


def _dates(column: pa.ChunkedArray, name: str, axis: TimeAxis | None, found: TimeAxis) -> tuple[np.ndarray, TimeAxis]:
    """Dates as numbers; if the model's table had a time zone and these have none, they are local times in that zone."""
    zone = column.type.tz if pa.types.is_timestamp(column.type) else None
    whole_days = pa.types.is_date(column.type)
    if zone and axis is not None and axis.timezone is None:
        raise DataError(f"column {shorten(name)}: dates without a time zone were expected, {FITTED}, not with {zone}")
    stamps = column.cast(pa.timestamp("us", zone), safe=False)
    if axis is not None and axis.timezone is not None and zone is None:
        zone, whole_days = axis.timezone, False
        try:
            stamps = compute.assume_timezone(stamps, zone, ambiguous="earliest", nonexistent="earliest")
        except pa.ArrowInvalid as error:
            raise DataError(f"column {shorten(name)}: a time zone known here was expected, not {zone}") from error
    found = dataclasses.replace(found, whole_days=whole_days, timezone=zone)
    return found.from_datetimes(stamps.cast(pa.int64()).to_numpy().view("datetime64[us]")), found
