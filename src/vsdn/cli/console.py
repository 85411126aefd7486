"""Console output: results on standard output, remarks on standard error."""

import contextlib
import json
import math
import sys
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from rich.console import Console
from rich.table import Table

from vsdn.errors import VsdnWarning

WIDE = 10_000  # line width if not a terminal: nothing is wrapped or cut


def remark(notes: Iterable[str], quiet: bool = False) -> None:
    """Prints notes for the user on standard error, where they disturb no program."""
    for note in () if quiet else notes:
        print(note, file=sys.stderr)


@contextlib.contextmanager
def warnings_as_remarks(quiet: bool = False) -> Iterator[None]:
    """Turns the library's warnings in a block into remarks, printed at its end."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", VsdnWarning)
        yield
    remark((str(each.message) for each in caught if issubclass(each.category, VsdnWarning)), quiet)


def print_rows(rows: Iterable[tuple[str, str]]) -> None:
    """Prints names and their descriptions in two columns."""
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, text in rows:
        table.add_row(name, text)
    width = None if sys.stdout.isatty() else WIDE
    Console(width=width).print(table)


def print_values(values: dict[str, Any], as_json: bool) -> None:
    """Prints names and values, as JSON or for a person; the latter without empty values."""
    if as_json:
        print(json.dumps(finite(values)))
        return
    print_rows((name, _text(value)) for name, value in values.items() if value is not None)


def _text(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return ", ".join(value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def finite(values: dict[str, Any]) -> dict[str, Any]:
    """The values with null for infinity and NaN, which JSON cannot express."""
    return {name: None if isinstance(v, float) and not math.isfinite(v) else v for name, v in values.items()}
