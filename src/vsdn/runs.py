"""A fitted model in its stored form: settings, units and epochs, and the folder that holds them."""

import dataclasses
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.random as jr

from vsdn import checkpoint
from vsdn.answers import inference
from vsdn.answers.methods import Ways, own_ways
from vsdn.answers.questions import NUM_BUCKETS
from vsdn.checkpoint import Config
from vsdn.grids.marching import Marching
from vsdn.models import MODELS, AbstractModel
from vsdn.settings import Settings
from vsdn.tables.frames import Columns, read_table
from vsdn.tables.table import Scaler, Table, TimeAxis
from vsdn.training.loop import Epoch
from vsdn.training.planning import clock_speeds, make_marching
from vsdn.version import __version__


@dataclasses.dataclass(frozen=True, eq=False)
class AbstractRun:
    """The parts of a run, and what can be derived from them alone."""

    model: AbstractModel
    config: Config
    scaler: Scaler
    epochs: tuple[Epoch, ...] = ()
    notes: tuple[str, ...] = ()  # what was ignored, held out, or ended early
    interrupted: bool = False

    @property
    def settings(self) -> Settings:
        return self.config.settings

    @property
    def best(self) -> Epoch | None:
        """The record of the epoch whose weights were kept; None if there is none."""
        kept = [record for record in self.epochs if record.epoch == self.epochs[-1].best_epoch]
        return kept[0] if kept else None

    @property
    def axis(self) -> TimeAxis:
        return self.config.axis

    @property
    def columns(self) -> Columns:
        """The column names that were given for the training table."""
        return self.config.source.columns

    @property
    def marching(self) -> Marching:
        return make_marching(self.settings.data, self.axis)

    @property
    def ways(self) -> Ways:
        """The default methods of the model."""
        training = self.settings.training
        return own_ways(self.model, by_memory_alone=training.hide_share == 0 and training.select_by != "bound")

    @property
    def num_params(self) -> int:
        return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(self.model, eqx.is_inexact_array)))

    def read(self, data: Any, columns: Columns = Columns()) -> Table:
        """A checked table with this model's variables and kind of time."""
        return read_table(data, columns=columns, known=self.columns, variables=self.config.variables, axis=self.axis)

    @property
    def frame(self) -> inference.Frame:
        """How to interpret the model's numbers."""
        buckets = min(self.settings.data.num_buckets or 1, NUM_BUCKETS)
        return inference.Frame(self.scaler, self.marching, buckets)

    def save(self, folder: str | Path) -> None:
        """Writes a run folder that `load` reads."""
        folder = Path(folder)
        params = eqx.filter(self.model, eqx.is_inexact_array)
        with checkpoint.creating(folder, self.config, self.scaler, version=__version__) as fresh:
            checkpoint.save_weights(fresh, params)
            checkpoint.write_metrics(fresh, list(self.epochs))


def read_run(folder: Path) -> tuple[AbstractModel, Config, Scaler, tuple[Epoch, ...]]:
    """The contents of a run folder, in the order of the fields of `AbstractRun`."""
    config = checkpoint.read_config(folder)
    scaler = checkpoint.read_scaler(folder, config)
    like = model_shapes(config.settings, len(config.variables), config.axis)
    shapes, static = eqx.partition(like, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
    params = checkpoint.read_weights(folder, shapes)
    return eqx.combine(params, static), config, scaler, tuple(checkpoint.read_metrics(folder))


def model_shapes(settings: Settings, num_variables: int, axis: TimeAxis) -> AbstractModel:
    """The model that the settings name, with shapes in place of arrays."""
    make, key = MODELS[settings.model.model], jr.key(settings.training.seed)
    return eqx.filter_eval_shape(make, num_variables, clock_speeds(settings.data, axis), settings.model, key=key)
