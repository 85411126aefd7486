"""A run on disk: a folder of JSON and safetensors files that can be loaded and resumed after a kill at any moment."""

import contextlib
import hashlib
import json
import math
import os
import secrets
import shutil
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_safetensors

from vsdn.errors import RunError
from vsdn.files import fault_of_folder, read_json, write_bytes, write_json
from vsdn.settings import Section, Settings, first_fault
from vsdn.tables.frames import Columns
from vsdn.tables.table import Scaler, TimeAxis
from vsdn.training.loop import Epoch, TrainState

SCHEMA = 1
ASIDE = ".old.part"  # suffix of a run that is being replaced
LONG_AGO = 86400.0  # seconds


class Source(Section):
    """Where the tables came from (None: memory), how they were read, and their fingerprint."""

    data: str | None
    valid: str | None
    columns: Columns
    fingerprint: str


class Config(Section):
    """The contents of `config.json`, apart from the versions."""

    settings: Settings  # every setting, none left open
    variables: tuple[str, ...]
    axis: TimeAxis
    source: Source


@contextlib.contextmanager
def creating(folder: Path, config: Config, scaler: Scaler, *, version: str, overwrite: bool = False) -> Iterator[Path]:
    """A temporary sibling folder with configuration and scaler, to be filled; replaces `folder` only once complete."""
    check_free(folder, overwrite)
    folder = folder.resolve()
    for left in folder.parent.glob(f".{folder.name}.*.part"):
        if time.time() - left.stat().st_mtime > LONG_AGO:  # left by a process that was killed
            shutil.rmtree(left, ignore_errors=True)
    beside = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.part")
    aside = beside.with_suffix(ASIDE)
    try:
        (beside / "checkpoint").mkdir(parents=True)
        write_json(beside / "scaler.json", scaler.to_json())
        write_json(beside / "config.json", {"schema": SCHEMA, "vsdn": version, **config.model_dump(mode="json")})
        yield beside
        if overwrite and folder.exists():
            os.replace(folder, aside)  # the place never holds half a run
        os.replace(beside, folder)
        shutil.rmtree(aside, ignore_errors=True)
    except OSError as error:
        if aside.exists() and not folder.exists():
            os.replace(aside, folder)
        raise RunError(f"cannot make the run folder {folder}: {error.strerror}") from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def restore(folder: Path) -> None:
    """Puts back the run that a process had moved aside when it was killed before the new one took its place."""
    aside = sorted(folder.absolute().parent.glob(f".{folder.name}.*{ASIDE}"))
    if aside and not folder.exists():
        with contextlib.suppress(OSError):  # then the caller finds no run
            os.replace(aside[-1], folder)


def check_free(folder: Path, overwrite: bool = False) -> None:
    """Refuses, before any work is done, a folder that is in use or cannot be written."""
    restore(folder)
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise RunError(f"cannot make the run folder {folder}: a file of that name is in the way")
    holds_run = (folder / "config.json").exists()
    if holds_run and not overwrite:
        raise RunError(f"{folder} already holds a run: choose another folder, or overwrite it")
    if folder.exists() and not holds_run and any(folder.iterdir()):
        raise RunError(f"{folder} is not empty and holds no run: choose another folder")
    nearest = folder.absolute().parent
    while not nearest.exists():
        nearest = nearest.parent
    if fault := fault_of_folder(nearest):
        raise RunError(f"cannot make the run folder {folder}: {fault}")


def remove_parts(folder: Path) -> None:
    """Deletes files that a kill left half written."""
    for part in (*folder.glob(".*.part"), *folder.glob("checkpoint/.*.part")):
        with contextlib.suppress(OSError):  # a leftover file does no harm
            part.unlink()


def checkpoint_path(folder: Path) -> Path:
    return folder / "checkpoint" / "state.safetensors"


def read_config(folder: Path) -> Config:
    """The configuration of a run; refuses a newer schema and anything invalid."""
    if folder.is_file():
        exported = "a file that vsdn export wrote, which vsdn forecast takes"
        what = exported if zipfile.is_zipfile(folder) else "a file"
        raise RunError(f"a run folder was expected, but {folder} is {what}")
    restore(folder)
    if not folder.is_dir():
        raise RunError(f"there is no run folder {folder}")
    fields = read_json(folder / "config.json")
    path = folder / "config.json"
    if not isinstance(fields, dict) or "schema" not in fields:
        raise RunError(f"{path} is not the configuration of a run")
    if fields["schema"] != SCHEMA:
        raise RunError(f"{path} has schema {fields['schema']}, but this version of vsdn reads schema {SCHEMA}")
    try:
        return Config.model_validate({name: value for name, value in fields.items() if name not in ("schema", "vsdn")})
    except ValidationError as error:
        raise RunError(f"{path} is damaged: {first_fault(error)}") from None


def read_scaler(folder: Path, config: Config) -> Scaler:
    """The scaler of a run; refuses one that is invalid or belongs to another run."""
    path, num_variables = folder / "scaler.json", len(config.variables)
    try:
        scaler = Scaler.from_json(read_json(path))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, RunError):
            raise
        raise RunError(f"{path} is damaged: mean, std and time_scale were expected") from None
    if scaler.mean.shape != (num_variables,) or scaler.std.shape != (num_variables,):
        raise RunError(f"{path} is damaged: a mean and a std for each of the {num_variables} variables were expected")
    scales = np.append(scaler.std, scaler.time_scale)
    if not (np.isfinite(scaler.mean).all() and np.isfinite(scales).all() and (scales > 0).all()):
        raise RunError(f"{path} is damaged: finite numbers were expected, and every std and time_scale above 0")
    if scaler.time_scale != config.settings.data.time_scale:
        raise RunError(f"{path} has another time_scale than config.json")
    return scaler


def save_state(folder: Path, state: TrainState) -> None:
    """Saves `state`, from which the run can be resumed."""
    write_tree(checkpoint_path(folder), state)


def save_weights(folder: Path, params: Any) -> None:
    """Writes these weights to `model.safetensors`."""
    write_tree(folder / "model.safetensors", params)


def read_state(folder: Path, like: TrainState) -> TrainState:
    return read_tree(checkpoint_path(folder), like)


def read_weights(folder: Path, like: Any) -> Any:
    return read_tree(folder / "model.safetensors", like)


def write_metrics(folder: Path, records: list[Epoch]) -> None:
    """Writes `metrics.jsonl`, one line per epoch."""
    lines = "".join(json.dumps(_finite(record._asdict())) + "\n" for record in records)
    write_bytes(folder / "metrics.jsonl", lines.encode())


def _finite(record: dict[str, float]) -> dict[str, float | None]:
    """The record with null for infinity, which JSON cannot express."""
    return {name: value if math.isfinite(value) else None for name, value in record.items()}


def read_metrics(folder: Path) -> list[Epoch]:
    """The epochs so far; empty if there is no file yet."""
    path = folder / "metrics.jsonl"
    try:
        return [_epoch(json.loads(line)) for line in path.read_text("utf-8").splitlines()] if path.exists() else []
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from None
    except (TypeError, ValueError, AttributeError, RecursionError):
        raise RunError(f"{path} is damaged: a line is not the record of an epoch") from None


def _epoch(fields: dict[str, Any]) -> Epoch:
    if not all(isinstance(value, int | float | None) for value in fields.values()):
        raise TypeError("an epoch is made of numbers")
    values: dict[str, Any] = {name: math.inf if value is None else value for name, value in fields.items()}
    return Epoch(**values)


def _named_leaves(tree: Any) -> dict[str, Any]:
    """The leaves of a tree by path, e.g. 'memory.cell.bias'."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def _checksum(arrays: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape} ".encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


def write_tree(path: Path, tree: Any) -> None:
    """Writes the arrays of `tree` to a file, by name, with their checksum."""
    arrays = {name: np.asarray(leaf) for name, leaf in _named_leaves(tree).items()}
    write_bytes(path, to_safetensors(arrays, {"sha256": _checksum(arrays)}))


def read_tree(path: Path, like: Any) -> Any:
    """The tree that was written, in the structure of `like`; refuses a file with wrong contents, names or shapes."""
    try:
        with safe_open(path, framework="numpy") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
            checksum = (file.metadata() or {}).get("sha256")
    except FileNotFoundError:
        raise RunError(f"there is no {path.name} in {path.parent}") from None
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror or error}") from None
    except (SafetensorError, ValueError, TypeError, MemoryError):
        raise RunError(f"{path} is damaged: it is not a whole safetensors file") from None
    if checksum != _checksum(arrays):
        raise RunError(f"{path} is damaged: its contents do not match their checksum")
    wanted = _named_leaves(like)
    if {name: leaf.shape for name, leaf in wanted.items()} != {name: leaf.shape for name, leaf in arrays.items()}:
        raise RunError(f"{path} holds other arrays than the model that config.json describes")
    leaves = [jnp.asarray(arrays[name], dtype=leaf.dtype) for name, leaf in wanted.items()]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)
