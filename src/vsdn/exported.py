"""An exported forecaster, which runs without its model's code: one file with a StableHLO program and its description.

The file is a plain zip of `model.stablehlo`, the program, and `about.json`, which describes its inputs and outputs.
"""

import dataclasses
import functools
import json
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import jax
import jax.export
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array
from pydantic import Field, ValidationError

from vsdn.answers.questions import Chunk, Frame, ask
from vsdn.answers.replies import answer_frame, in_units
from vsdn.answers.requests import make_request
from vsdn.caching import use_compilation_cache
from vsdn.errors import RunError
from vsdn.files import replacing
from vsdn.grids.marching import Marching, check_steps
from vsdn.settings import MOST_PATHS, Section, first_fault
from vsdn.tables.frames import Columns, read_table
from vsdn.tables.table import Scaler, Table, TimeAxis

FORMAT = 1
ABOUT, PROGRAM = "about.json", "model.stablehlo"
MAGIC = b"ML\xefR\rStableHLO_v"  # how a program begins; what else is given to XLA may end the process
Above0 = Annotated[float, Field(gt=0)]


class About(Section):
    """The contents of `about.json`, apart from the versions."""

    model: str
    variables: tuple[str, ...]
    columns: Columns = Columns()
    axis: TimeAxis
    mean: tuple[float, ...]  # with `std`: the program's unit of each variable
    std: tuple[Above0, ...]
    time_scale: Above0
    max_step: Above0
    start: float | None
    periods: tuple[Above0, ...]
    num_buckets: int = Field(ge=1)
    draws: int = Field(ge=1, le=MOST_PATHS)
    quantiles: tuple[Annotated[float, Field(gt=0, lt=1)], ...]
    platforms: tuple[str, ...] = ("cpu", "cuda", "tpu")
    calling_convention: int = jax.export.maximum_supported_calling_convention_version

    @property
    def frame(self) -> Frame:
        """How to interpret the program's numbers."""
        scaler = Scaler(np.asarray(self.mean), np.asarray(self.std), self.time_scale)
        return Frame(scaler, Marching(self.max_step, self.start, self.periods), self.num_buckets)

    @property
    def inputs(self) -> dict[str, str]:
        """Type and shape of the program's inputs, in this order: the fields of a grid, of queries, and the keys."""
        channels, clock = len(self.variables), 2 * len(self.periods)
        return {
            "dt": "float32[batch, point]",
            "values": f"float32[batch, point, {channels}]",
            "mask": f"bool[batch, point, {channels}]",
            "clock": f"float32[batch, point, {clock}]",
            "rows": "int32[batch, row]",
            "query_point": "int32[batch, query]",
            "query_length": "float32[batch, query]",
            "max_step": "float32[batch]",
            "query_clock": f"float32[batch, query, {clock}]",
            "keys": "uint32[batch, 2]",
        }

    @property
    def outputs(self) -> dict[str, str]:
        """Type and shape of the program's outputs, in the model's units."""
        channels = f"float32[batch, query, {len(self.variables)}"
        return {"mean": f"{channels}]", "std": f"{channels}]", "quantiles": f"{channels}, {len(self.quantiles)}]"}

    @property
    def shapes(self) -> tuple[list[jax.ShapeDtypeStruct], list[jax.ShapeDtypeStruct]]:
        """The shapes of inputs and outputs; batch, point (at least 2), row and query are free."""
        scope = jax.export.SymbolicScope(["point >= 2"])
        parse = lambda text: _parse_shape(text, scope)
        return [parse(text) for text in self.inputs.values()], [parse(text) for text in self.outputs.values()]


def _parse_shape(text: str, scope: jax.export.SymbolicScope) -> jax.ShapeDtypeStruct:
    """The type and shape that a text such as 'float32[batch, 2]' names."""
    kind, sizes = text.rstrip("]").split("[")
    return jax.ShapeDtypeStruct(jax.export.symbolic_shape(sizes, scope=scope), kind)


def lower(program: Callable[..., Sequence[Array]], about: About) -> jax.export.Exported:
    """A function of the inputs lowered to StableHLO, for all platforms and any batch size."""
    entry = jax.jit(program, keep_unused=True)
    return jax.export.export(entry, platforms=about.platforms)(*about.shapes[0])


def write(path: Path, about: About, program: bytes, *, version: str) -> None:
    """Writes the program and its description to one file."""
    told = {"format": FORMAT, "vsdn": version, **about.model_dump(mode="json")}
    told |= {"inputs": about.inputs, "outputs": about.outputs}
    parts = {ABOUT: (json.dumps(told, indent=2) + "\n").encode(), PROGRAM: program}
    try:
        with replacing(path) as file, zipfile.ZipFile(file, "w") as archive:
            for name, content in parts.items():
                archive.writestr(zipfile.ZipInfo(name), content)  # dated 1980: same model, same bytes
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror or error}") from None


@dataclasses.dataclass(frozen=True, eq=False)
class Exported:
    """A forecaster from a file; its number of draws and its quantiles were fixed when it was exported."""

    about: About
    program: bytes

    def read(self, data: Any, columns: Columns = Columns()) -> Table:
        """A checked table with this forecaster's variables and kind of time."""
        about = self.about
        return read_table(data, columns=columns, known=about.columns, variables=about.variables, axis=about.axis)

    def forecast(
        self,
        data: Any,
        times: Sequence[Any] | np.ndarray | None = None,
        *,
        every: float | None = None,
        until: Any = None,
        at: Any = None,
        seed: int = 0,
        columns: Columns = Columns(),
    ) -> Any:
        """The frame that `Fitted.forecast` gives, up to rounding."""
        about, table = self.about, self.read(data, columns)
        asked = {"every": every, "until": until, "at": at, "columns": columns, "known": about.columns}
        request = make_request(table, about.axis, times, **asked)
        check_steps(table, about.frame.marching, request.series, request.times)
        parts = ask(self._answer, about.frame, request, num_samples=about.draws, seed=seed)
        return answer_frame(request, about.axis, in_units(about.frame.scaler, *parts), about.quantiles)

    def _answer(self, chunk: Chunk) -> Sequence[Array]:
        return self.call(*jax.tree.leaves((chunk.grid, chunk.queries)), jr.key_data(chunk.keys))

    @functools.cached_property
    def call(self) -> Callable[..., Sequence[Array]]:
        """Calls the program: mean, std and quantiles in the model's units, from the inputs that `about` lists."""
        inputs, outputs = self.about.shapes
        like = lower(lambda *_: [jnp.zeros(output.shape, output.dtype) for output in outputs], self.about)
        program = dataclasses.replace(
            like, mlir_module_serialized=self.program, calling_convention_version=self.about.calling_convention
        )
        kinds = [given.dtype for given in inputs]
        run = jax.jit(program.call)
        return lambda *given: run(*(part.astype(kind) for part, kind in zip(given, kinds, strict=True)))


def load(path: str | Path) -> Exported:
    """The forecaster in a file that `export` wrote; refuses a damaged file and any other."""
    use_compilation_cache()
    told, program = _read_parts(Path(path))
    if told.get("format") != FORMAT:
        raise RunError(f"{path} has format {told.get('format')}, but this version of vsdn reads format {FORMAT}")
    try:
        about = About.model_validate({name: told[name] for name in told.keys() & About.model_fields.keys()})
    except ValidationError as error:
        raise RunError(f"{path} is damaged: {first_fault(error)}") from None
    fits = len(about.mean) == len(about.std) == len(about.variables)
    if not fits or (told.get("inputs"), told.get("outputs")) != (about.inputs, about.outputs):
        raise RunError(f"{path} is damaged: its program is one of other variables than {ABOUT} names")
    return Exported(about, program)


def _read_parts(path: Path) -> tuple[dict[str, Any], bytes]:
    """The description and the program; refuses either if its checksum does not match."""
    try:
        with zipfile.ZipFile(path) as archive:
            stored = all(part.compress_type == zipfile.ZIP_STORED for part in archive.infolist())
            told, program = (json.loads(archive.read(ABOUT)), archive.read(PROGRAM)) if stored else (None, b"")
    except FileNotFoundError:
        raise RunError(f"there is no file {path}") from None
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror or error}") from None
    except (zipfile.BadZipFile, zlib.error, KeyError, ValueError, RuntimeError, EOFError, RecursionError):
        told, program = None, b""
    if not isinstance(told, dict) or not program.startswith(MAGIC):
        raise RunError(f"{path} is damaged, or no forecaster that vsdn exported")
    return told, program
