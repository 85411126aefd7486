"""A fitted model and all that it can do: forecast, interpolate, sample, evaluate, plot, go online, export."""

import dataclasses
import functools
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vsdn.answers import evaluation, inference
from vsdn.answers.methods import (
    OF_MEMORY,
    Method,
    by_filter,
    by_interpolation,
    by_particles,
    find_forecast,
    find_interpolation,
)
from vsdn.answers.replies import answer_frame, draws_frame, warn_of_few
from vsdn.answers.requests import (
    DRAWS,
    QUANTILES,
    Step,
    as_list,
    check_draws,
    check_whole,
    find_series,
    make_request,
    read_levels,
)
from vsdn.caching import use_compilation_cache
from vsdn.errors import PriorWarning, SettingsError
from vsdn.exporting import export, make_about
from vsdn.grids.branching import make_queries
from vsdn.grids.marching import check_steps
from vsdn.models import MODELS
from vsdn.models.base import AbstractOnline
from vsdn.online.stepping import Stepper
from vsdn.online.subject import Subject
from vsdn.online.tracking import ALONE, Online
from vsdn.plots import charts
from vsdn.runs import AbstractRun, read_run
from vsdn.tables.frames import Columns, answer_columns, parse_times, to_frame
from vsdn.tables.table import BACKENDS, Layout, Table, empty_table
from vsdn.training.planning import CUT_SHARES
from vsdn.version import __version__

ENOUGH_TO_RANK = 64  # draws needed for ranks that capture the dependence
PARTICLES = 16  # particles per draw, where later rows weight it


@dataclasses.dataclass(frozen=True, eq=False)
class Fitted(AbstractRun):
    """A trained model, with the units that it was trained in."""

    def forecast(
        self,
        data: Any,
        times: Any = None,
        *,
        every: Step | None = None,
        until: Any = None,
        at: Any = None,
        quantiles: Sequence[float] | float = QUANTILES,
        draws: int = DRAWS,
        method: str | None = None,
        seed: int = 0,
        columns: Columns = Columns(),
    ) -> Any:
        """A frame of mean, std and quantiles of every variable, at `times` of each series (or every `every` after its
        last observation `until` a time, or at the (id, time) rows of the table `at`), each given the observations
        before it.

        method: "prior" (the paper's) or, for VSDN, "particles": latent paths conditioned on the observations, the
        default if the model was trained for its paths (hide_share, or select_by="bound").
        """
        table, way = self.read(data, columns), find_forecast(self.model, method, self.ways.forecast)
        request = self._request(table, times, every=every, until=until, at=at, columns=columns)
        return self._say(request, way, quantiles, draws, seed)

    def interpolate(
        self,
        data: Any,
        times: Any = None,
        *,
        every: Step | None = None,
        until: Any = None,
        at: Any = None,
        quantiles: Sequence[float] | float = QUANTILES,
        draws: int = DRAWS,
        method: str | None = None,
        latent: bool = False,
        seed: int = 0,
        columns: Columns = Columns(),
    ) -> Any:
        """A frame like that of `forecast`, but each time given everything before and after it; `every` runs from the
        first observation of each series to its last, or `until` a time.

        method: for models with a memory, "linearised" (the default; fast, in any number of dimensions) or "tried"
        (importance sampling; densities of any shape, few dimensions); for VSDN, by its latent paths, "posterior"
        (vsdn-s) or "particles", whose accuracy grows with the draws; one of these two is the default if the model was
        trained for its paths (hide_share, or select_by="bound"). latent: the latent state instead of the variables.
        """
        table, way = self.read(data, columns), self._interpolation(method, latent=latent)
        request = self._request(table, times, every=every, until=until, at=at, columns=columns, within=True)
        return self._say(request, way, quantiles, draws, seed, latent=latent)

    def filter(
        self,
        data: Any,
        *,
        quantiles: Sequence[float] | float = QUANTILES,
        draws: int = DRAWS,
        latent: bool = False,
        seed: int = 0,
        columns: Columns = Columns(),
    ) -> Any:
        """A frame of what a repeated measurement at each observation time would show, given that observation and those
        before it. latent: the latent state instead of the variables."""
        way = by_filter if latent else self.ways.filter
        return self._at_rows(self.read(data, columns), way, quantiles, draws, seed, latent)

    def smooth(
        self,
        data: Any,
        *,
        quantiles: Sequence[float] | float = QUANTILES,
        draws: int = DRAWS,
        method: str | None = None,
        latent: bool = False,
        seed: int = 0,
        columns: Columns = Columns(),
    ) -> Any:
        """Like `filter`, but given all observations; the methods are those of `interpolate`."""
        way = self._interpolation(method, latent=latent)
        return self._at_rows(self.read(data, columns), way, quantiles, draws, seed, latent)

    def sample(
        self,
        data: Any,
        times: Any = None,
        *,
        every: Step | None = None,
        until: Any = None,
        at: Any = None,
        draws: int = 100,
        method: str | None = None,
        seed: int = 0,
        columns: Columns = Columns(),
    ) -> Any:
        """A frame of joint draws: one row per draw and time, one column per variable. A draw is joint over all times
        and variables, given everything in the table; its distribution at each single time is that of `interpolate`,
        whatever other times are asked for."""
        check_draws(draws, seed)
        table, way = self.read(data, columns), self._interpolation(method)
        request = self._request(table, times, every=every, until=until, at=at, columns=columns, within=True)
        check_steps(table, self.marching, request.series, request.times)
        if self.model.has_paths and way not in OF_MEMORY:  # paths carry the dependence, else the memory does
            values = inference.draws(self.model, self.frame, request, num_samples=draws, seed=seed, method=way)
        else:
            values = self._row_draws(request, way, draws, seed)
        return draws_frame(request, self.axis, values)

    def simulate(self, series: int = 1, times: Any = (), *, seed: int = 0, backend: str = "pyarrow") -> Any:
        """A wide frame (pandas, polars or pyarrow) of new series drawn from the model, observed at these times."""
        moments = np.unique(parse_times(times, self.axis))
        check_whole("series", series)
        check_draws(1, seed)
        if not len(moments):
            raise SettingsError("say at which times the new series are observed")
        if backend not in BACKENDS:
            raise SettingsError(f"a frame is of {', '.join(BACKENDS)}, but not of {backend!r}")
        empty = empty_table(series, moments, self.config.variables, self.axis)
        empty = dataclasses.replace(empty, layout=self._layout(backend))
        check_steps(empty, self.marching)
        request = inference.Request(empty, empty.series_of_row, empty.times)
        if isinstance(self.model, AbstractOnline):
            values = inference.row_draws(self.model, self.frame, empty, num_samples=1, seed=seed)
        else:
            values = inference.draws(self.model, self.frame, request, num_samples=1, seed=seed, method=by_interpolation)
        return draws_frame(request, self.axis, values, with_draw=False)

    def log_likelihood(self, data: Any, *, draws: int = DRAWS, seed: int = 0, columns: Columns = Columns()) -> Any:
        """A frame of the log-likelihood of each series: exact, or, for models with latent paths, estimated from draws
        so that the likelihood is unbiased; then with the smallest effective number of paths."""
        check_draws(draws, seed)
        table = self.read(data, columns)
        check_steps(table, self.marching)
        log_lik, least = inference.log_likelihoods(self.model, self.frame, table, num_samples=draws, seed=seed)
        warn_of_few(table, np.arange(table.num_series), least)
        size = None if np.isnan(least).all() else "ess"
        named = answer_columns((table.layout.id, table.ids), ("log_likelihood", log_lik), (size, least))
        return to_frame(named, table.layout.backend)

    def _request(self, table: Table, times: Any, **asked: Any) -> inference.Request:
        """The request for these times, in the model's kind of time and with the column names of its table."""
        return make_request(table, self.axis, times, **asked, known=self.columns)

    def _interpolation(self, method: str | None, *, latent: bool = False) -> Method:
        """The method of interpolation; a memory knows nothing of the latent state, for which paths are used."""
        return find_interpolation(self.model, method, by_interpolation if latent else self.ways.interpolate)

    def _at_rows(
        self, table: Table, way: Method, quantiles: Sequence[float] | float, draws: int, seed: int, latent: bool
    ) -> Any:
        request = inference.Request(table, table.series_of_row, table.times)
        return self._say(request, way, quantiles, draws, seed, latent=latent)

    def _say(
        self,
        request: inference.Request,
        way: Method,
        quantiles: Sequence[float] | float,
        draws: int,
        seed: int,
        *,
        latent: bool = False,
    ) -> Any:
        """The answer to a request as a frame."""
        levels = read_levels(quantiles)
        check_draws(draws, seed)
        check_steps(request.table, self.marching, request.series, request.times)
        if latent and not self.model.has_states:
            raise SettingsError(f"{self.settings.model.model} has no latent state")
        asked = {"levels": levels, "num_samples": draws, "seed": seed, "method": way, "latent": latent}
        answer = inference.forecast(self.model, self.frame, request, **asked)
        if answer.size is not None:
            warn_of_few(request.table, request.series, answer.size)
        names = tuple(f"x{number + 1}" for number in range(answer.mean.shape[1])) if latent else None
        return answer_frame(request, self.axis, answer, levels, names)

    def _row_draws(self, request: inference.Request, way: Method, draws: int, seed: int) -> np.ndarray:
        """Joint draws of a model that draws row by row: the requested times become rows without observations."""
        make_queries(request.table, self.scaler, self.marching, request.series, request.times)  # none before the start
        merged, places = request.table.with_times(request.series, request.times)
        assert isinstance(self.model, AbstractOnline)
        last = request.table.times[request.table.starts[request.series + 1] - 1]
        many = {
            "num_samples": max(draws, ENOUGH_TO_RANK) if self.model.in_turn else draws,
            "num_particles": PARTICLES if np.any(request.times < last) else 1,
        }
        values = inference.row_draws(self.model, self.frame, merged, **many, seed=seed)[places]
        if self.model.in_turn:
            values = inference.coupled(self.model, self.frame, request, values, seed=seed, method=way)
        return values[:, :draws]

    def evaluate(
        self,
        data: Any,
        task: str = "prediction",
        *,
        after: Any = None,
        next: int | None = None,
        share: float | None = None,
        hidden: Any = None,
        draws: int = DRAWS,
        method: str | None = None,
        seed: int = 0,
        columns: Columns = Columns(),
    ) -> dict[str, Any]:
        """NLL, MSE, CRPS, coverage and PIT, as means over observed values in the table's units.

        prediction: each row from the rows before it; with `after`, the `next` rows from everything up to then, pooled
        over all times if there are several.

        interpolation: a random `share` of the rows (by default half) is hidden, and each is predicted from the visible
        rows before it; with method="smooth" (or one of those of `interpolate`) from the visible rows after it too. With
        `hidden`, a table of the same series, all of `data` is visible and the rows of `hidden` are scored.
        """
        check_draws(draws, seed)
        table = self.read(data, columns)
        check_steps(table, self.marching)
        asked = evaluation.make_task(
            table,
            task,
            after=None if after is None else parse_times(after, self.axis),
            num_rows=next,
            share=share,
            hidden=None if hidden is None else self.read(hidden, columns),
            seed=seed,
            from_start=self.marching.start is not None,
        )
        request = inference.Request(asked.visible, asked.series, asked.times)
        past_alone = task == "prediction" or method in (None, "prior")
        name = None if method == "smooth" else method
        way = find_forecast(self.model, name, self.ways.forecast) if past_alone else self._interpolation(name)
        scores = inference.score(self.model, self.frame, request, asked.truth, num_samples=draws, seed=seed, method=way)
        return {"task": task, **evaluation.summary(*scores, asked.mask)}

    def plot(
        self,
        data: Any,
        path: str | Path,
        what: str = "forecast",
        *,
        until: Any = None,
        after: Any = None,
        series: Any = None,
        most: int = charts.MOST_SHOWN,
        draws: int = DRAWS,
        seed: int = 0,
        columns: Columns = Columns(),
    ) -> None:
        """Draws a picture (.png, .svg, .pdf, or .html that can be zoomed) of these series, or the first `most`.

        forecast: from the last observation (or the last up to `after`; later ones are drawn as hidden) until a time;
        interpolation: between the observations; latent: paths of the latent state of the first of these series; drift:
        their drift and diffusion.
        """
        table = self.read(data, columns)
        if what not in charts.KINDS:
            raise SettingsError(f"a picture is of {', '.join(charts.KINDS)}, but not of {what!r}")
        if what == "forecast" and until is None:
            raise SettingsError("a picture of forecasts wants until, a time to go to")
        if what != "forecast" and not (until is None and after is None):
            raise SettingsError("until and after go with a picture of forecasts alone")
        check_whole("most", most)
        check_draws(draws, seed)
        some = np.arange(min(most, table.num_series))
        chosen = some if series is None else find_series(table, np.array(as_list(series), object))
        end = np.array([table.times.max() if until is None else self._moment(until)])
        check_steps(table, self.marching, chosen, np.broadcast_to(end, chosen.shape))
        shown = charts.Shown(self.model, self.frame, self.ways, table, chosen, draws, seed)
        when = {"until": self._moment(until), "cut": self._moment(after)} if what == "forecast" else {}
        from vsdn.plots.drawing import draw

        draw(charts.KINDS[what](shown, **when), Path(path), self.axis, time_name=table.layout.time)

    def _moment(self, time: Any) -> float | None:
        """A time or date as a number on the model's axis."""
        return None if time is None else float(parse_times([time], self.axis)[0])

    def online(self, ids: Any = None, *, draws: int = DRAWS, seed: int = 0, window: int = 0) -> Online:
        """The online state before any observation, of one series or of those with these ids; more can be added later.

        Its forecasts equal those of `forecast` on the same data; the last `window` updates of each series are kept, so
        that a late observation can be inserted and they can be replayed.
        """
        self._warn_of_prior("an online state")
        return Online.begin(
            self.subject(draws=draws, seed=seed, window=window), (ALONE,) if ids is None else as_list(ids)
        )

    def subject(self, *, draws: int, seed: int, window: int) -> Subject:
        """The fitted model behind an online state."""
        return Subject(self.stepper, self.config.variables, self.axis, self._layout(), draws, seed, window)

    def _layout(self, backend: str = "pyarrow") -> Layout:
        """The layout of a frame about new series: columns are named as in the table of the run."""
        return Layout(id=self.columns.id or "id", time=self.columns.time or "time", backend=backend)

    @functools.cached_property
    def stepper(self) -> Stepper:
        """The compiled steps that all online states of this model share."""
        if isinstance(self.model, AbstractOnline):
            return Stepper(self.model, self.scaler, self.marching, self.axis)
        able = [name for name in MODELS if name not in CUT_SHARES]
        raise SettingsError(
            f"{self.settings.model.model} cannot go online: it reads a series from its end, so that each update would "
            f"cost more than the last; use one of {', '.join(able)}"
        )

    def export(self, path: str | Path, *, draws: int = DRAWS, quantiles: Sequence[float] | float = QUANTILES) -> None:
        """Writes the forecaster to a file, which `vsdn.exported.load` runs without the model's code."""
        check_draws(draws)
        quantiles = read_levels(quantiles)
        self._warn_of_prior("an exported forecaster")
        name, variables = self.settings.model.model, self.config.variables
        asked = {"draws": draws, "quantiles": quantiles, "columns": self.columns}
        about = make_about(name, variables, self.axis, self.frame, **asked)
        export(self.model, about, Path(path), version=__version__)

    def _warn_of_prior(self, what: str) -> None:
        if self.ways.forecast is by_particles:
            trained = "trained with hide_share or select_by=bound"
            said = f"{what} forecasts from the prior, for which a model {trained} is not made: use forecast"
            warnings.warn(said, PriorWarning, stacklevel=3)


def load(folder: str | Path) -> Fitted:
    """The fitted model in a run folder, with the best weights so far."""
    use_compilation_cache()
    return Fitted(*read_run(Path(folder)))
