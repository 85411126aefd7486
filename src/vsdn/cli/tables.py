"""Reading tables and giving answers, for all commands that use a model."""

import datetime as dt
import json
import sys
from pathlib import Path
from typing import Any

import vsdn
from vsdn.cli.console import finite, remark
from vsdn.cli.options import words
from vsdn.errors import SettingsError
from vsdn.exported import Exported
from vsdn.files import check_writable
from vsdn.fitted import Fitted
from vsdn.plots.panels import SUFFIXES
from vsdn.tables.frames import Columns, check_suffix, csv_bytes, write_frame
from vsdn.tables.table import Table


def open_run(run: Path, data: Path, columns: Columns, quiet: bool) -> tuple[Fitted, Table]:
    """The run and the table."""
    fitted = vsdn.load(run)
    return fitted, read_table(fitted, data, columns, quiet)


def read_table(fitted: Fitted | Exported, data: Path, columns: Columns, quiet: bool) -> Table:
    """The checked table; prints what is odd about it."""
    table = fitted.read(data, columns)
    remark(table.notes, quiet)
    return table


def times_asked(
    times: str | None, every: float | None, until: str | None, at: Path | None, columns: Columns
) -> dict[str, Any]:
    """The requested times, as arguments for the methods of a fitted model."""
    moments = None if times is None else words(times)
    return {"times": moments, "every": every, "until": until, "at": at, "columns": columns}


def check_outputs(out: Path | None = None, plot: Path | None = None) -> None:
    """Refuses files that cannot be written, before any work is done and before either is written."""
    if out is not None:
        check_suffix(out)
    if plot is not None and plot.suffix.lower() not in SUFFIXES:
        raise SettingsError(f"a picture is a {', '.join(SUFFIXES)} file, but got {plot}")
    for path in (out, plot):
        if path is not None:
            check_writable(path)


def _spell(value: Any) -> str:
    """The text of a value that JSON cannot express: a date in ISO format, anything else by str."""
    return value.isoformat() if isinstance(value, dt.date) else str(value)


def give(frame: Any, out: Path | None, as_json: bool) -> None:
    """Writes or prints an answer."""
    if as_json:
        print(json.dumps([finite(row) for row in frame.to_pylist()], default=_spell))
    elif out is None:
        sys.stdout.buffer.write(csv_bytes(frame))
    if out is not None:
        write_frame(frame, out)
