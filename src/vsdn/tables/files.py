"""Reads tables of any kind as arrow columns, and writes them; `frames` interprets the columns."""

import contextlib
import csv
import gzip
import io
import itertools
import os
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import narwhals.stable.v2 as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from narwhals.exceptions import DuplicateError

from vsdn.errors import DataError
from vsdn.files import is_special, replacing

compute: Any = pyarrow.compute  # its functions are created at import, unseen by type checkers
DELIMITERS = {".csv": ",", ".tsv": "\t"}
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
ROW_INDEX = re.compile(r"|Unnamed: \d+|__index_level_\d+__")  # names that pandas gives to a written row index


class Source(NamedTuple):
    """A table as it was given: its columns, and how to name it in errors and return answers in its kind."""

    table: pa.Table
    backend: str = "pyarrow"  # pandas, polars or pyarrow
    path: Path | None = None
    is_text: bool = False  # from CSV: every column is still text
    notes: tuple[str, ...] = ()

    @contextlib.contextmanager
    def named(self) -> Iterator[None]:
        """A block whose errors start with the file's name, if there is a file."""
        try:
            yield
        except DataError as error:
            if self.path is None:
                raise
            raise DataError(f"{self.path}: {error}") from error


def shorten(value: Any, width: int = 60) -> str:
    """The value's repr (hence on one line), cut to `width` characters."""
    text = repr(value) if isinstance(value, str) else " ".join(str(value).split())
    return text if len(text) <= width else text[: width - 1] + "…"


def listing(values: Iterable[Any], most: int = 8) -> str:
    """The first `most` names or ids, on one line."""
    shown = [shorten(value) for value in itertools.islice(values, most + 1)]
    return ", ".join(shown[:most] + ["…"] * (len(shown) > most))


# ---------------------------------------------------------------------------------------------------------- reading


def load(source: Any) -> Source:
    """The columns of a path or frame, with at least one row, unique names and no row index."""
    found = _read_file(Path(source)) if isinstance(source, str | os.PathLike) else _from_frame(source)
    with found.named():
        names = found.table.column_names
        if twice := [name for name, count in Counter(names).items() if count > 1]:
            raise DataError(f"every column needs a name of its own, but two are called {shorten(twice[0])}")
        if not found.table.num_rows:
            raise DataError("rows were expected, but the table has none")
    index = [name for name in names if ROW_INDEX.fullmatch(name)]
    notes = tuple(f"column {shorten(name)} looks like a row index and was ignored" for name in index)
    return found._replace(table=found.table.drop_columns(index), notes=found.notes + notes)


def _read_file(path: Path) -> Source:
    suffix = path.name.lower().removesuffix(".gz")[-len(".csv") :]
    try:
        if path.is_dir() or not path.exists():
            raise DataError(f"{path} is a folder, not a file" if path.is_dir() else f"there is no file {path}")
        if suffix in DELIMITERS:
            return _read_csv(path, DELIMITERS[suffix])
        if path.suffix.lower() == ".parquet":
            # not read_table, which adds a column for a folder called a=b
            with pq.ParquetFile(path, page_checksum_verification=True) as file:
                return Source(_plain(file.read()), path=path)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is not a whole gzip file, it may be cut off: {_first_line(error)}") from error
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        hint = "" if isinstance(error, OSError) and error.strerror else ", it may be cut off or damaged"
        raise DataError(f"{path} cannot be read{hint}: {_first_line(error)}") from error
    raise DataError(f"a file ending in .csv, .csv.gz, .tsv or .parquet was expected, not {path}")


def _first_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _read_csv(path: Path, delimiter: str) -> Source:
    """Every column as text: arrow infers a type from the first block only, and rejects later values that do not fit."""
    data = path.read_bytes()
    data = gzip.decompress(data) if path.suffix.lower() == ".gz" else data
    if not data or data.isspace():
        raise DataError(f"{path} is empty; a header line and rows were expected")
    _check_quotes(path, data, delimiter)
    try:
        header = re.split(rb"[\r\n]", data[:1_000_000].lstrip(), maxsplit=1)[0].decode("utf-8-sig")
        names = next(csv.reader(io.StringIO(header), delimiter=delimiter))
        _check_separator(path, names, delimiter)
        table = pa_csv.read_csv(
            pa.BufferReader(data),
            pa_csv.ReadOptions(use_threads=False),  # no slower on two cores, and errors then name their row
            pa_csv.ParseOptions(delimiter=delimiter),
            pa_csv.ConvertOptions(
                column_types={name: pa.string() for name in names}, null_values=[""], strings_can_be_null=True
            ),
        )
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise DataError(f"{path}: {_retell(data, error)}") from error
    whole = data.endswith((b"\n", b"\r"))
    notes = () if whole else ("the last line has no line end and may be cut off",)
    return Source(table.rename_columns([name.strip() for name in table.column_names]), "pyarrow", path, True, notes)


def _check_separator(path: Path, names: list[str], delimiter: str) -> None:
    """Refuses a header that we read as one name but that was probably meant as several."""
    for other, called in SEPARATORS.items():
        if len(names) == 1 and other != delimiter and other in names[0]:
            raise DataError(f"{path}: {SEPARATORS[delimiter]} were expected, but {called} seem to separate the columns")


def _check_quotes(path: Path, data: bytes, delimiter: str) -> None:
    """Refuses a quote that opens a cell and is never closed, which arrow would take as a long last cell."""
    last = data.rfind(b'"')
    opens = last == 0 or data[last - 1 : last] in (delimiter.encode(), b"\n", b"\r", b'"')
    if opens and data.count(b'"') % 2:
        line = data.count(b"\n", 0, last) + 1
        raise DataError(f"{path}: the quote on line {line} is never closed, the file may be cut off")


def _retell(data: bytes, error: Exception) -> str:
    """What is wrong with a CSV file, from arrow's error."""
    try:
        data.decode()
    except UnicodeDecodeError as fault:
        line = data.count(b"\n", 0, fault.start) + 1
        return f"UTF-8 text was expected, but line {line} is not"
    if "Empty CSV" in str(error):
        return "rows were expected, but the table has none"
    found = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+): (.*)", str(error), re.DOTALL)
    if found is None:
        return _first_line(error)
    row, wanted, came, text = int(found[1]) - 1, found[2], found[3], found[4]
    cut = ", the file may be cut off there" if data.rstrip().endswith(text.encode()) else ""
    return f"row {row} has {came} cells where the header has {wanted}{cut}: {shorten(text)}"


def _from_frame(source: Any) -> Source:
    if isinstance(source, pa.Table):
        return Source(_plain(source))
    try:
        frame = nw.from_native(source)
        columns = [*_index_levels(frame), *_columns(frame)]
    except DuplicateError as error:
        raise DataError(f"every column needs a name of its own, but two are the same in {listing(source)}") from error
    except TypeError as error:
        kind = type(source).__name__
        raise DataError(f"a path or a pandas, polars or pyarrow table was expected, not {shorten(kind)}") from error
    table = pa.table([_to_arrow(column) for column in columns], names=[str(column.name) for column in columns])
    backend = str(frame.implementation.name).lower()
    return Source(_plain(table), backend if backend in ("pandas", "polars") else "pyarrow")


def _columns(frame: Any) -> Iterator[Any]:
    """The columns of a frame, which may be lazy."""
    return (frame.collect() if isinstance(frame, nw.LazyFrame) else frame).iter_columns()


def _index_levels(frame: Any) -> list[Any]:
    """The named levels of a pandas index, as columns; an ordinary column of the same name takes precedence."""
    if not frame.implementation.is_pandas():
        return []
    index = frame.to_native().index
    named = [place for place, name in enumerate(index.names) if name is not None and name not in frame.columns]
    levels = [index.get_level_values(place).to_frame(index=False, name=str(index.names[place])) for place in named]
    return [column for level in levels for column in _columns(nw.from_native(level))]


def _to_arrow(column: Any) -> pa.Array | pa.ChunkedArray:
    try:
        if column.dtype != nw.Object:
            return column.to_arrow()
        return from_objects(None if empty else cell for empty, cell in zip(column.is_null(), column, strict=True))
    except pa.ArrowException as error:
        kind = shorten(column.to_native().dtype)
        raise DataError(
            f"column {shorten(str(column.name))}: texts, numbers or dates were expected, not {kind}"
        ) from error


def from_objects(values: Iterable[Any]) -> pa.Array:
    """Python objects as one column: as text if of mixed types, which arrow rejects or (dates) silently truncates."""
    values = list(values)
    dates = [value for value in values if isinstance(value, date) and value == value]  # not NaT
    kinds = {(isinstance(value, datetime), getattr(value, "tzinfo", None) is None) for value in dates}
    if len(kinds) < 2:
        with contextlib.suppress(ValueError, TypeError, OverflowError):
            return pa.array(values, from_pandas=True)
    return pa.array([None if value is None else str(value) for value in values], pa.string())


def _plain(table: pa.Table) -> pa.Table:
    """The table without types that some arrow functions do not support: dictionaries and string views."""
    for i, field in enumerate(table.schema):
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        kind = pa.large_string() if pa.types.is_string_view(kind) else kind
        if kind != field.type:
            table = table.set_column(i, field.name, table.column(i).cast(kind))
    return table


# ---------------------------------------------------------------------------------------------------------- writing


def to_frame(columns: Mapping[str, np.ndarray], backend: str, *, timezone: str | None = None) -> Any:
    """A pandas, polars or pyarrow table of these columns; NaN becomes null, and datetimes are put in `timezone`."""
    arrays = {name: pa.array(values, from_pandas=True) for name, values in columns.items()}
    if timezone is not None:
        zoned = pa.timestamp("us", timezone)
        arrays = {k: v.cast(zoned) if pa.types.is_timestamp(v.type) else v for k, v in arrays.items()}
    return nw.from_arrow(pa.table(arrays), backend=cast(Any, backend)).to_native()


def write_frame(frame: Any, path: str | os.PathLike[str]) -> None:
    """Writes CSV or Parquet, by suffix; `path` always holds either its old content or the whole table."""
    path = Path(path)
    check_suffix(path)
    table = _from_frame(frame).table
    write = _write_parquet if path.suffix.lower() == ".parquet" else _write_csv
    try:
        with replacing(path) as file:
            write(table, file)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path} cannot be written: {_first_line(error)}") from error


def check_suffix(path: Path) -> None:
    """Refuses a suffix other than .csv and .parquet; devices and pipes are allowed (as CSV)."""
    if path.suffix.lower() not in (".csv", ".parquet") and not is_special(path):
        raise DataError(f"a file ending in .csv or .parquet was expected, not {path}")


def csv_bytes(frame: Any) -> bytes:
    """The frame as CSV text."""
    buffer = io.BytesIO()
    _write_csv(_from_frame(frame).table, buffer)
    return buffer.getvalue()


def _write_parquet(table: pa.Table, file: BinaryIO) -> None:
    pq.write_table(table, file, write_page_checksum=True)


def _write_csv(table: pa.Table, file: BinaryIO) -> None:
    """Writes CSV with quotes only where needed, and without fractions of a second where there are none."""
    for i, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            with contextlib.suppress(pa.ArrowInvalid):
                table = table.set_column(i, field.name, table.column(i).cast(pa.timestamp("s", field.type.tz)))
    texts = [c for c in table.columns if pa.types.is_string(c.type) or pa.types.is_large_string(c.type)]
    texts.append(pa.chunked_array([table.column_names], pa.string()))
    needed = any(compute.any(compute.match_substring_regex(text, '[",\r\n]')).as_py() for text in texts)
    style = "needed" if needed else "none"
    pa_csv.write_csv(table, file, pa_csv.WriteOptions(quoting_style=style, quoting_header=style))
