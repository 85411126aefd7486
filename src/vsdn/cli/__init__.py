"""The command line: a thin layer over the Python functions."""

import os
import signal
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vsdn.cli.program import app, main

__all__ = ["app", "main", "run"]


def __getattr__(name: str) -> Any:
    """Imports the program on first use, since that takes seconds."""
    if name in ("app", "main"):
        return getattr(import_module("vsdn.cli.program"), name)
    raise AttributeError(f"module 'vsdn.cli' has no attribute {name!r}")


def run() -> None:
    """The console script; Ctrl-C ends it with one word and 130, also while it imports what it needs."""
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:  # else Ctrl-C is ignored, as under nohup
        signal.signal(signal.SIGINT, _end)
    program = import_module("vsdn.cli.program")
    signal.signal(signal.SIGINT, usual)
    program.run()


def _end(*_: object) -> None:
    """Ends the process at once: an exception during the import of a compiled module may crash it."""
    os.write(2, b"interrupted\n")
    os._exit(130)
