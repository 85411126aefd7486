"""What experiments do by the command line, as a user would: a stopped run is resumed, a finished one never repeated."""

import subprocess
import sys
from pathlib import Path


def vsdn(*arguments: object) -> str:
    """What a command prints."""
    command = [sys.executable, "-m", "vsdn.cli", *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def make_data(folder: Path, parts: tuple[str, ...] = ("train", "valid", "test")) -> None:
    """The published Double-OU set in its parts, where they are not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    for part in parts:
        if not (folder / f"{part}.csv").exists():
            vsdn("datasets", "make", "double-ou", "--legacy", "--part", part, "--out", folder / f"{part}.csv")


def train(out: Path, folder: Path, *choice: object) -> None:
    """A run by `choice`; a stopped one is resumed."""
    if (out / "config.json").exists():
        vsdn("resume", out, "--quiet")
    else:
        vsdn("fit", folder / "train.csv", "--valid", folder / "valid.csv", *choice, "--out", out, "--quiet")
