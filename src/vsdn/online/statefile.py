"""An online state as bytes: safetensors with a description and a checksum, nothing executable."""

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load, save

from vsdn.errors import DataError
from vsdn.settings import Section
from vsdn.version import __version__

SCHEMA = 1


class About(Section):
    """The description of a state, beside its arrays."""

    ids: tuple[int | str, ...]
    draws: int
    seed: int
    window: int
    ignored: int
    model: str  # its fingerprint


def dump(arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> bytes:
    """The bytes that `parse` reads."""
    fields = {"schema": SCHEMA, "vsdn": __version__, **about}
    text = json.dumps(fields | {"sha256": _checksum(arrays, fields)})
    return save({name: np.ascontiguousarray(part) for name, part in arrays.items()}, {"state": text})


def parse(content: bytes) -> tuple[dict[str, np.ndarray], About]:
    """The arrays and their description; refuses bytes that do not match the checksum."""
    with refusing():
        arrays = load(content)
        size = int.from_bytes(content[:8], "little")
        fields = json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["state"])
        checksum, schema = fields.pop("sha256"), fields["schema"]
        if checksum != _checksum(arrays, fields):
            raise ValueError("the checksum is another")
    if schema != SCHEMA:
        raise DataError(f"the state has schema {schema}, but this version of vsdn reads schema {SCHEMA}")
    with refusing():
        return arrays, About.model_validate({name: fields[name] for name in About.model_fields})


@contextlib.contextmanager
def refusing() -> Iterator[None]:
    """A block in which any failure is reported as damaged bytes."""
    try:
        yield
    except DataError:
        raise
    except (SafetensorError, ValidationError, ValueError, TypeError, KeyError, RecursionError, MemoryError):
        raise DataError("the state is damaged: it is not what was written") from None


def check_alike(arrays: Mapping[str, np.ndarray], like: Mapping[str, np.ndarray]) -> None:
    """Refuses arrays whose shape or type differs from what is expected."""
    for name, part in like.items():
        if arrays[name].shape != part.shape or arrays[name].dtype != part.dtype:
            raise ValueError(f"{name} has another shape")


def _checksum(arrays: Mapping[str, np.ndarray], fields: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(fields, sort_keys=True).encode())
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape} ".encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()
