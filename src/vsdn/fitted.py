"""A fitted model, ready to be asked: forecast, evaluate, plot, save, load."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.random as jr
import numpy as np

from vsdn import checkpoint, evaluation, inference
from vsdn.caching import use_compilation_cache
from vsdn.checkpoint import Config
from vsdn.data import Scaler, Table, TimeAxis
from vsdn.errors import DataError, SettingsError
from vsdn.exporting import export, make_about
from vsdn.frames import Columns, parse_times, read_table
from vsdn.grids import Marching
from vsdn.models import MODELS, AbstractModel
from vsdn.planning import check_steps, make_marching
from vsdn.plots import BANDS, Fan, fan_chart
from vsdn.questions import DRAWS, NUM_BUCKETS, QUANTILES, answer_frame, check_levels, make_request
from vsdn.settings import Settings
from vsdn.training import Epoch
from vsdn.version import __version__


@dataclasses.dataclass(frozen=True, eq=False)
class Fitted:
    """A trained model with the units it was trained in."""

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
    def axis(self) -> TimeAxis:
        return self.config.axis

    @property
    def marching(self) -> Marching:
        return make_marching(self.settings.data, self.axis)

    @property
    def num_params(self) -> int:
        return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(self.model, eqx.is_inexact_array)))

    def read(self, data: Any, columns: Columns = Columns()) -> Table:
        """A table of this model's variables and kind of time."""
        return read_table(data, columns=columns, variables=self.config.variables, axis=self.axis)

    def forecast(
        self,
        data: Any,
        times: Sequence[Any] | np.ndarray | None = None,
        *,
        every: float | None = None,
        until: Any = None,
        at: Any = None,
        quantiles: Sequence[float] = QUANTILES,
        draws: int = DRAWS,
        seed: int = 0,
        columns: Columns = Columns(),
    ) -> Any:
        """A frame of mean, std and quantiles of every variable, at `times` of each series (or `every` step after its
        last observation `until` a time, or the id, time rows of the table `at`), each from what was seen before it."""
        check_levels(quantiles)
        table = self.read(data, columns)
        request = make_request(table, self.axis, times, every=every, until=until, at=at, columns=columns)
        check_steps(table, self.marching, request.series, request.times)
        answer = inference.forecast(
            self.model, self.frame, request, levels=tuple(quantiles), num_samples=draws, seed=seed
        )
        return answer_frame(request, self.axis, answer, quantiles)

    def evaluate(
        self,
        data: Any,
        task: str = "prediction",
        *,
        after: Any = None,
        next: int | None = None,
        share: float = 0.5,
        draws: int = DRAWS,
        seed: int = 0,
        columns: Columns = Columns(),
    ) -> dict[str, Any]:
        """NLL, MSE, CRPS, coverage and PIT, means over observed values in the table's units.

        prediction: each row from the rows before it; with `after`, the `next` rows from everything up to then.
        interpolation: a random `share` of the rows is hidden, each foretold from the visible rows before it.
        """
        table = self.read(data, columns)
        check_steps(table, self.marching)
        from_start = self.marching.start is not None
        if next is not None and after is None:
            raise SettingsError("next goes with after: so many rows are scored after that time")
        if task == "interpolation" and after is not None:
            raise SettingsError("after and next go with the task prediction, not with interpolation")
        if task == "prediction":
            moment = None if after is None else float(parse_times([after], self.axis)[0])
            asked = evaluation.prediction(table, after=moment, num_rows=next, from_start=from_start)
        elif task == "interpolation":
            asked = evaluation.interpolation(table, share=share, seed=seed, from_start=from_start)
        else:
            raise SettingsError(f"the tasks are prediction and interpolation, but not {task!r}")
        request = inference.Request(asked.visible, asked.series, asked.times)
        scores = inference.score(self.model, self.frame, request, asked.truth, num_samples=draws, seed=seed)
        return {"task": task, **evaluation.summary(*scores, asked.mask)}

    def plot(
        self,
        data: Any,
        path: str | Path,
        *,
        until: Any,
        after: Any = None,
        most: int = 6,
        draws: int = DRAWS,
        seed: int = 0,
        columns: Columns = Columns(),
    ) -> None:
        """Nothing; a fan chart of the first `most` series: forecasts from the last observation (or the last up to
        `after`; what comes later is drawn as hidden) until a time."""
        table = self.read(data, columns)
        end = float(parse_times([until], self.axis)[0])
        cut = None if after is None else float(parse_times([after], self.axis)[0])
        visible = table if cut is None else table.keep_rows(table.times <= cut)
        series = np.flatnonzero(np.diff(visible.starts))[:most]
        if not len(series):
            raise DataError(f"no series has an observation up to {after}")
        last = visible.times[visible.starts[series + 1] - 1]
        if not (last < end).any():
            raise DataError(f"until {until} comes before the last observation of every series")
        series, last = series[last < end], last[last < end]
        times = np.linspace(last, end, 80, axis=1)[:, 1:]
        request = inference.Request(visible, np.repeat(series, times.shape[1]), times.ravel())
        check_steps(table, self.marching, request.series, request.times)
        answer = inference.forecast(self.model, self.frame, request, levels=BANDS, num_samples=draws, seed=seed)
        mean, bands = (part.reshape(*times.shape, *part.shape[1:]) for part in (answer.mean, answer.quantiles))
        fan_chart(
            table,
            [Fan(int(n), *each) for n, *each in zip(series, times, mean, bands, strict=True)],
            Path(path),
            cut=cut,
        )

    def save(self, folder: str | Path) -> None:
        """Nothing; the folder holds a run that `load` reads."""
        folder = Path(folder)
        params = eqx.filter(self.model, eqx.is_inexact_array)
        with checkpoint.creating(folder, self.config, self.scaler, version=__version__) as fresh:
            checkpoint.save_weights(fresh, params)
            checkpoint.write_metrics(fresh, list(self.epochs))

    def export(self, path: str | Path, *, draws: int = DRAWS, quantiles: Sequence[float] = QUANTILES) -> None:
        """Nothing; the file holds the forecaster, which `vsdn.exported.load` runs without the code of its model."""
        name, variables = self.settings.model.model, self.config.variables
        about = make_about(name, variables, self.axis, self.frame, draws=draws, quantiles=quantiles)
        export(self.model, about, Path(path), version=__version__)

    @property
    def frame(self) -> inference.Frame:
        """What the model's numbers mean."""
        buckets = min(self.settings.data.num_buckets or 1, NUM_BUCKETS)
        return inference.Frame(self.scaler, self.marching, buckets)


def load(folder: str | Path) -> Fitted:
    """The fitted model of a run folder, with the best weights so far."""
    use_compilation_cache()
    folder = Path(folder)
    config = checkpoint.read_config(folder)
    scaler = checkpoint.read_scaler(folder, config)
    like = model_shapes(config.settings, len(config.variables), config.axis)
    shapes, static = eqx.partition(like, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
    params = checkpoint.read_weights(folder, shapes)
    return Fitted(eqx.combine(params, static), config, scaler, tuple(checkpoint.read_metrics(folder)))


def model_shapes(settings: Settings, num_variables: int, axis: TimeAxis) -> AbstractModel:
    """The model that the settings name, with the shape of each array in the place of the array."""
    clock_size = 2 * len(make_marching(settings.data, axis).periods)
    make, key = MODELS[settings.model.model], jr.key(settings.training.seed)
    return eqx.filter_eval_shape(make, num_variables, clock_size, settings.model, key=key)
