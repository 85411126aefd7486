"""What defines a data set: where its files are, how it is cited, and three parts without common series."""

import dataclasses
import hashlib
import io
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vsdn.errors import DataError, SettingsError
from vsdn.tables.table import Table

FOLDER_VARIABLE = "VSDN_DATA"


class Parts(NamedTuple):
    """Training, validation and test series; if frames were removed, those of the test series, under the same ids."""

    train: Table
    valid: Table
    test: Table
    removed: Table | None = None


class Source(NamedTuple):
    """A file or folder that holds a data set, by its name in the data folder."""

    name: str
    sha256: str | None  # of the unpacked content; None where it varies
    where: str  # where to get it; shown in brackets after the name


@dataclass(frozen=True)
class Dataset:
    """A data set by name. Any one of its sources is enough: the first that exists is read; without any, it is made."""

    name: str
    about: str
    citation: str
    sources: tuple[Source, ...]
    num_folds: int
    load: Callable[[Path, int], Parts]  # from the data folder and the fold's number

    def found(self, folder: Path) -> Source | None:
        """The source that would be read from this data folder."""
        return next((source for source in self.sources if (folder / source.name).exists()), None)


def data_folder(given: Path | None = None) -> Path:
    """The given folder, else that of the environment variable VSDN_DATA, else `data`."""
    return given or Path(os.environ.get(FOLDER_VARIABLE) or "data")


def find_source(sources: Sequence[Source], folder: Path) -> tuple[Source, Path]:
    """The first source that exists, and its path; else an error that says where to get one."""
    for source in sources:
        if (folder / source.name).exists():
            return source, folder / source.name
    wanted = ", or ".join(f"{source.name} ({source.where})" for source in sources)
    raise DataError(
        f"the data folder {folder} should hold {wanted}, but does not: get it and put it there, "
        f"or name another folder by --data or {FOLDER_VARIABLE}"
    )


def check_fold(fold: int, num_folds: int) -> None:
    """Refuses a fold that does not exist."""
    if not 0 <= fold < num_folds:
        raise SettingsError(f"the fold should be one of 0 to {num_folds - 1}, but got {fold}")


def read_source(path: Path) -> bytes:
    """The contents of a file."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error


def checksum_notes(source: Source, content: bytes) -> tuple[str, ...]:
    """A remark if the content differs from that used for the documented results."""
    if source.sha256 in (None, hashlib.sha256(content).hexdigest()):
        return ()
    return (f"{source.name} has another checksum than expected: scores may differ from published ones",)


def read_arrays(path: Path, content: bytes, names: Sequence[str]) -> list[np.ndarray]:
    """The arrays of these names in an .npz file; refuses one with pickled objects."""
    try:
        file = np.load(io.BytesIO(content), allow_pickle=False)
        return [file[name] for name in names]
    except Exception as error:  # a damaged archive fails in numpy, zipfile or zlib, each in its own way
        wanted = ", ".join(names)
        raise DataError(f"{path} should be an .npz file with the arrays {wanted}: {shorten_error(error)}") from error


def shorten_error(error: Exception) -> str:
    """The first line of an error message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:120]


def tabulate(
    series: np.ndarray, times: np.ndarray, values: np.ndarray, mask: np.ndarray, variables: tuple[str, ...]
) -> Table:
    """Rows in any order as a table, sorted by series and time."""
    order = np.lexsort((times, series))
    ids, counts = np.unique(series, return_counts=True)
    starts = np.concatenate([[0], np.cumsum(counts)])
    return Table(ids, starts, times[order], values[order], mask[order], variables)


def concatenate(tables: Sequence[Table]) -> Table:
    """The series of all tables, in order, with the notes of the first."""
    first = tables[0]
    join = lambda field: np.concatenate([getattr(table, field) for table in tables])
    lengths = np.concatenate([np.diff(table.starts) for table in tables])
    starts = np.concatenate([[0], np.cumsum(lengths)])
    columns = {field: join(field) for field in ("ids", "times", "values", "mask")}
    return dataclasses.replace(first, starts=starts, **columns)


def with_notes(parts: Parts, notes: tuple[str, ...]) -> Parts:
    """The same parts, each with these notes."""
    noted = (None if table is None else dataclasses.replace(table, notes=notes) for table in parts)
    return Parts(*noted)  # pyright: ignore[reportArgumentType]
