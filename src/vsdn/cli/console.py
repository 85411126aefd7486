"""What the commands share: options that mean the same everywhere, and how things are said."""

import sys
from collections.abc import Iterable
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar and no remarks.")]


def remark(notes: Iterable[str], quiet: bool = False) -> None:
    """Nothing; what a user should know is said where it is in no program's way."""
    for note in () if quiet else notes:
        print(note, file=sys.stderr)


def print_rows(rows: Iterable[tuple[str, str]]) -> None:
    """Nothing; names and what is said of each, in two columns."""
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, text in rows:
        table.add_row(name, text)
    Console().print(table)
