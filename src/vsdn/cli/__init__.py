"""The command line: a thin door to the Python functions."""

from vsdn.cli.program import app, main, run

__all__ = ["app", "main", "run"]
