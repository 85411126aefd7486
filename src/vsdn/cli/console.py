"""How things are said: results on standard output, remarks where they are in no program's way."""

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

WIDE = 10_000  # of a line where no person reads it: nothing is wrapped or cut


def remark(notes: Iterable[str], quiet: bool = False) -> None:
    """Nothing; what a user should know is said where it is in no program's way."""
    for note in () if quiet else notes:
        print(note, file=sys.stderr)


@contextlib.contextmanager
def warnings_as_remarks(quiet: bool = False) -> Iterator[None]:
    """Nothing; what the library warns of is said as a remark, once the work is done."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", VsdnWarning)
        yield
    remark((str(each.message) for each in caught if issubclass(each.category, VsdnWarning)), quiet)


def print_rows(rows: Iterable[tuple[str, str]]) -> None:
    """Nothing; names and what is said of each, in two columns."""
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, text in rows:
        table.add_row(name, text)
    width = None if sys.stdout.isatty() else WIDE
    Console(width=width).print(table)


def print_values(values: dict[str, Any], as_json: bool) -> None:
    """Nothing; names and values, for a program or for a person, who is spared what has no value."""
    if as_json:
        print(json.dumps(finite(values)))
        return
    print_rows((name, _text(value)) for name, value in values.items() if value is not None)


def _text(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return ", ".join(value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def finite(values: dict[str, Any]) -> dict[str, Any]:
    """The same without infinity and NaN, for which JSON has no word."""
    return {name: None if isinstance(v, float) and not math.isfinite(v) else v for name, v in values.items()}
