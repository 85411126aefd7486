"""Writes docs/cli.md, the reference of the command line, from what `--help` says: `make docs`."""

from pathlib import Path
from typing import Any

import typer.main
from typer.testing import CliRunner

from vsdn.cli import app

PATH = Path(__file__).with_name("cli.md")
HEAD = """# The command line

Made from `--help` by `make docs`; do not edit. Every command ends with exit code 0, or with 2 and one line that says
what was wrong, or with 130 when it was interrupted.
"""


def reference() -> str:
    """The whole page: what `vsdn --help` says, then a section a command."""
    pages = [HEAD, *(_section(words) for words in _commands(typer.main.get_command(app), []))]
    return "\n".join(pages)


def _commands(command: Any, words: list[str]) -> list[list[str]]:
    """The words of this command and of all below it."""
    below = getattr(command, "commands", {})
    return [words] + [found for name, each in below.items() for found in _commands(each, [*words, name])]


def _section(words: list[str]) -> str:
    done = CliRunner().invoke(app, [*words, "--help"], prog_name="vsdn", env={"COLUMNS": "80"})
    if done.exit_code:
        raise RuntimeError(f"vsdn {' '.join(words)} --help failed: {done.output}")
    title = f"## {' '.join(['vsdn', *words])}\n\n" if words else ""
    return f"{title}```text\n{done.output.strip()}\n```\n"


if __name__ == "__main__":
    PATH.write_text(reference(), encoding="utf-8")
