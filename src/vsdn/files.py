"""Atomic file writing: a file is complete or absent; it is written under another name, synced and renamed."""

import contextlib
import json
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from vsdn.errors import RunError


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write; it replaces `path`, keeping its mode, once it is complete and on disk.

    If writing fails, `path` is unchanged. A device, a pipe or standard output is written to directly, never replaced.
    """
    if is_special(path):
        with path.open("ab") as file:  # append: standard output may be a file that already holds something
            yield file
        return
    path = path.resolve()  # a link stays a link
    if path.is_dir():
        raise IsADirectoryError(0, "it is a folder")
    part = path.with_name(f".{secrets.token_hex(8)}.part")
    try:
        with part.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            shutil.copymode(path, part)
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def is_special(path: Path) -> bool:
    """Whether this is a device, a pipe or standard output."""
    try:
        kind = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)) or path.is_relative_to("/dev")


def check_writable(path: Path) -> None:
    """Refuses, before any work is done, a `path` that cannot be written."""
    if is_special(path):
        return
    if path.is_dir():
        raise RunError(f"cannot write {path}: it is a folder")
    if fault := fault_of_folder(path.resolve().parent):
        raise RunError(f"cannot write {path}: {fault}")


def fault_of_folder(folder: Path) -> str | None:
    """Why no file can be created in a folder, or None; permissions are not enough: a disk can be read-only."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"vsdn")
    except OSError as error:
        return error.strerror or str(error)
    return None


def write_bytes(path: Path, content: bytes) -> None:
    """Writes `content` to the file, or raises an error that says why not."""
    try:
        with replacing(path) as file:
            file.write(content)
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror or error}") from None


def write_json(path: Path, content: Any) -> None:
    write_bytes(path, (json.dumps(content, indent=2) + "\n").encode())


def read_json(path: Path) -> Any:
    """The contents of a JSON file; refuses a missing or damaged one."""
    try:
        return json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise RunError(f"there is no {path.name} in {path.parent}: not the folder of a run") from None
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise RunError(f"{path} is damaged: it is not valid JSON") from None
