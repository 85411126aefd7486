"""Exports the forecast of a fitted model as a StableHLO program, in one file that runs without the model's code."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.random as jr
from jaxtyping import Array
from pydantic import ValidationError

from vsdn.answers.inference import statistics
from vsdn.answers.questions import Frame
from vsdn.errors import SettingsError
from vsdn.exported import About, lower, write
from vsdn.files import check_writable
from vsdn.grids.grid import Grid, Queries
from vsdn.models import AbstractModel
from vsdn.settings import first_fault
from vsdn.tables.frames import Columns
from vsdn.tables.table import TimeAxis

KEYS = "threefry2x32"  # the kind of random key that the program expects


def export(model: AbstractModel, about: About, path: Path, *, version: str) -> None:
    """Writes the model's forecast to a file, as a program that includes the weights, with its description."""
    if jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        raise SettingsError("a forecaster is exported in 32 bits: turn jax_enable_x64 off before the model is loaded")
    check_writable(path)
    with _naming_no_files():
        lowered = lower(make_program(model, about), about)
    write(path, about, lowered.mlir_module_serialized, version=version)


@contextlib.contextmanager
def _naming_no_files() -> Iterator[None]:
    """A block in which lowered programs do not reveal the paths of source files on this machine."""
    option = "jax_traceback_in_locations_limit"
    limit = getattr(jax.config, option)
    jax.config.update(option, 0)
    try:
        yield
    finally:
        jax.config.update(option, limit)


def make_about(
    name: str,
    variables: tuple[str, ...],
    axis: TimeAxis,
    frame: Frame,
    *,
    draws: int,
    quantiles: Sequence[float],
    columns: Columns = Columns(),
) -> About:
    """The description of a model's exported forecast; refuses an invalid number of draws or invalid quantiles."""
    numbers: dict[str, Any] = (
        frame.scaler.to_json() | dataclasses.asdict(frame.marching) | {"num_buckets": frame.num_buckets}
    )
    try:
        asked = {"draws": draws, "quantiles": tuple(quantiles)}
        return About(model=name, variables=variables, columns=columns, axis=axis, **asked, **numbers)
    except ValidationError as error:
        raise SettingsError(f"cannot be exported: {first_fault(error)}") from None


def make_program(model: AbstractModel, about: About) -> Callable[..., tuple[Array, Array, Array]]:
    """A function from the inputs that `about` lists to mean, std and quantiles.

    It simulates paths series by series, which any platform can compile, not by the batch kernel.
    """

    def forecast(grid: Grid, queries: Queries, key_data: Array) -> tuple[Array, Array, Array]:
        key = jr.wrap_key_data(key_data, impl=KEYS)
        mixture = model.forecast(grid, queries, num_samples=about.draws, key=key)
        return statistics(model.likelihood, mixture, levels=about.quantiles)

    def program(*inputs: Array) -> tuple[Array, Array, Array]:
        split = len(inputs) - 1 - len(Queries._fields)
        return jax.vmap(forecast)(Grid(*inputs[:split]), Queries(*inputs[split:-1]), inputs[-1])

    return program
