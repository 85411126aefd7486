"""Online states: the answers of the whole table at once, immutable, as bytes, late rows replayed, faults named."""

import dataclasses
import functools

import numpy as np
import pytest
from examples import SIZES, VARIABLES, make_model, make_scaler

from vsdn.answers.inference import Request, forecast
from vsdn.checkpoint import Config, Source
from vsdn.errors import DataError, SettingsError
from vsdn.fitted import Fitted
from vsdn.models import MODELS
from vsdn.online import stepping
from vsdn.online.tracking import Online
from vsdn.settings import Settings
from vsdn.tables.frames import Columns, table_frame
from vsdn.tables.table import Layout, Table, TimeAxis

DATA = {"max_step": 0.3, "time_scale": 1.5, "num_buckets": 1}
SOURCE = Source(data=None, valid=None, columns=Columns(), fingerprint="")
LEVELS = (0.05, 0.5, 0.95)
ONLINE = [name for name in MODELS if not name.startswith("latent")]


@functools.cache
def make_rows(num_rows: int = 12, series: int = 1, seed: int = 0) -> Table:
    """Irregular rows, some steps shorter than Δt/2 and some of several, with missing entries."""
    rng = np.random.default_rng(seed)
    times = np.concatenate([np.cumsum(rng.choice([0.07, 0.3, 0.41, 1.2], num_rows)) for _ in range(series)])
    mask = rng.random((len(times), 2)) < 0.6
    mask[~mask.any(axis=1), 1] = True
    values = np.where(mask, rng.normal(size=mask.shape), 0.0)
    starts = np.arange(series + 1) * num_rows
    return Table(np.arange(series), starts, times, values, mask, VARIABLES, layout=Layout(id="id"))


@functools.cache
def make_fitted(name: str = "vsdn-f", axis: TimeAxis = TimeAxis(), x64: bool = False, **values) -> Fitted:
    """A model with fresh weights; those of 64 bits are not those of 32."""
    settings = Settings().with_values({"model": name, "periods": (2.5,), **DATA, **SIZES, **values})
    config = Config(settings=settings, variables=VARIABLES, axis=axis, source=SOURCE)
    kept = {key: value for key, value in values.items() if key.startswith("keep_") or key == "tell_error"}
    return Fitted(make_model(name, **kept), config, make_scaler(make_rows()))


def updates(table: Table):
    """Each row as `update` wants it, series by series."""
    for series, time, values, mask in zip(table.series_of_row, table.times, table.values, table.mask, strict=True):
        cells = {
            name: float(value) if seen else None for name, value, seen in zip(VARIABLES, values, mask, strict=True)
        }
        yield float(time), cells, int(table.ids[series])


def follow(fitted: Fitted, table: Table, **options) -> Online:
    state = fitted.online([], **options)
    for time, values, id in updates(table):
        state = state.update(time, values, id)
    return state


def ask(state: Online, times) -> np.ndarray:
    answer = state.foretell(np.zeros(len(times), int), np.asarray(times), LEVELS)
    return np.concatenate([answer.mean[..., None], answer.std[..., None], answer.quantiles], axis=-1)


def offline(fitted: Fitted, table: Table, times: np.ndarray, draws: int) -> np.ndarray:
    """What the whole table at once says of times of its first series."""
    request = Request(table, np.zeros(len(times), int), times)
    answer = forecast(fitted.model, fitted.frame, request, levels=LEVELS, num_samples=draws, seed=0)
    return np.concatenate([answer.mean[..., None], answer.std[..., None], answer.quantiles], axis=-1)


# ---------------------------------------------------------------------------------------------- the same as offline


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("name", "num_rows"),
    [pytest.param("vsdn-f", 1000, marks=pytest.mark.slow), *((name, 40) for name in ONLINE if name != "vsdn-f")],
)
def test_every_update_leaves_what_the_whole_series_says(name, num_rows):
    start = None if num_rows == 1000 else -0.4
    fitted, table = make_fitted(name, start=start, x64=True), make_rows(num_rows)
    wanted = offline(fitted, table, table.times[1:], draws=2)
    state, got = fitted.online([0], draws=2), []
    for (time, values, id), following in zip(updates(table), table.times[1:], strict=False):
        state = state.update(time, values, id)
        got.append(ask(state, [following])[0])
    np.testing.assert_allclose(np.stack(got), wanted, rtol=1e-9, atol=1e-10)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("kept", ["keep_last", "keep_usual", "keep_trend", "keep_linear", "tell_error"])
def test_what_is_kept_goes_along(kept):
    fitted, table = make_fitted("ode-rnn", start=-0.4, x64=True, **{kept: True}), make_rows(20)
    assert fitted.model.memory.kept(fitted.model.memory.begin()) is not None
    state = follow(fitted, table, draws=2)
    wanted = offline(fitted, table, table.times[-1] + np.array([0.1, 4.0]), draws=2)
    np.testing.assert_allclose(ask(state, table.times[-1] + np.array([0.1, 4.0])), wanted, rtol=1e-9, atol=1e-10)


@pytest.mark.thorough
def test_the_frame_is_that_of_forecast_in_32_bits_too():
    fitted, table = make_fitted(start=-0.4), make_rows(12, series=3)
    times = [20.0, 20.25]
    state = follow(fitted, table, draws=3)
    got, wanted = state.forecast(times), fitted.forecast(table_frame(table), times, draws=3)
    assert got.schema == wanted.schema
    assert got.select(["id", "time", "variable"]) == wanted.select(["id", "time", "variable"])
    for column in ("mean", "std", "q05", "q50", "q95"):
        np.testing.assert_allclose(got[column].to_numpy(), wanted[column].to_numpy(), rtol=2e-4, atol=2e-4)


def test_one_series_needs_no_id_and_begins_before_anything_was_seen():
    fitted, table = (
        make_fitted("ode-rnn", start=-0.4),
        dataclasses.replace(make_rows(), ids=np.array(["series"], object)),
    )
    state = fitted.online(draws=3)
    assert state.forecast([-0.4, 0.1]).column_names[:2] == ["time", "variable"]
    for time, values, _ in updates(dataclasses.replace(table, ids=np.arange(1))):
        state = state.update(time, values)
    wanted = offline(fitted, table, np.array([20.0]), draws=3)
    np.testing.assert_allclose(ask(state, [20.0]), wanted, rtol=2e-4, atol=2e-4)


def test_the_phase_is_exact_however_late_it_is():
    stepper, since = make_fitted("mean").stepper, np.array([1e7 + 0.75])
    phase = stepper.gaps(since, since + 1.0).rest[:, 1].astype(np.float32)
    np.testing.assert_allclose(np.sin(phase), stepper.marching.clock(since)[:, 0], atol=1e-6)


def test_dates_are_read_and_given_back():
    fitted = make_fitted("last-value", axis=TimeAxis("date", whole_days=True))
    state = fitted.online(["p"]).update("2024-03-01", {"a": 1.0}, "p").update("2024-03-03T12:00:00", {"a": 2.0}, "p")
    assert state.last_time("p") == 19785.5
    frame = state.forecast(["2024-03-05", "2024-03-06"], quantiles=(0.5,))
    assert [str(day) for day in frame["time"].to_pylist()[::2]] == ["2024-03-05", "2024-03-06"]
    with pytest.raises(DataError, match=r"at time 2024-03-02 that comes too late, after the one at 2024-03-03T12:00"):
        state.update("2024-03-02", {"a": 1.0})


def test_one_time_one_series_and_one_level_need_no_lists():
    state = make_fitted("last-value").online([1, 2]).update_many([1, 2], [0.0, 0.0], [[1.0, 2.0], [3.0, 4.0]])
    wanted = state.forecast([4.0], ids=[2], quantiles=[0.5])
    assert state.forecast(4.0, ids=2, quantiles=0.5) == wanted
    assert state.forecast(np.array(4), ids=2, quantiles=np.float32(0.5)) == wanted
    assert make_fitted("last-value").online(7).ids == (7,)


def test_dates_are_given_back_in_the_zone_of_the_table():
    state = make_fitted("last-value", axis=TimeAxis("date", timezone="Europe/Berlin")).online()
    state = state.update("2024-03-30T12:00", {"a": 1.0})
    assert state.subject.show(state.last_time()) == "2024-03-30T12:00:00+01:00"
    assert state.subject.show(state.last_time() + 1) == "2024-03-31T13:00:00+02:00"
    assert state.forecast("2024-04-02")["time"].to_pylist()[0].isoformat() == "2024-04-02T00:00:00+02:00"
    with pytest.raises(DataError, match=r"time 289999-12-31.* is more than 100,000,000 steps"):
        state.update(np.datetime64("290000-01-01", "s"), {"a": 1.0})


# ------------------------------------------------------------------------------------------------------ many at once


@pytest.mark.parametrize("name", [pytest.param("vsdn-f", marks=pytest.mark.slow), "last-value", "mean"])
def test_many_at_once_are_as_one_by_one(name, monkeypatch):
    monkeypatch.setattr(stepping, "AT_ONCE", 4)  # five series are in two parts then
    fitted, table = make_fitted(name), make_rows(6, series=5)
    values = np.where(table.mask, table.values, np.nan)
    state = fitted.online([], draws=2)
    for rows in np.split(np.argsort(table.times, kind="stable"), 3):  # several series, some of them twice
        state = state.update_many(table.series_of_row[rows], table.times[rows], values[rows])
    one_by_one = follow(fitted, table, draws=2)
    slots = np.array([state.slots[str(id)] for id in one_by_one.ids])
    assert sorted(state.ids) == list(range(5))
    np.testing.assert_array_equal(state.last[slots], one_by_one.last)
    for many, single in zip(state.states, one_by_one.states, strict=True):
        np.testing.assert_allclose(many[slots], single[:5], rtol=1e-5, atol=1e-6)


def test_other_series_change_nothing():
    fitted, table = make_fitted(), make_rows(6, series=3)
    together, alone = follow(fitted, table, draws=2), follow(fitted, table.select([2]), draws=2)
    got, wanted = (state.forecast([20.0], ids=[2])["mean"].to_numpy() for state in (together, alone))
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


# ----------------------------------------------------------------------------------------------------------- as bytes


@pytest.mark.parametrize("window", [0, 3])
@pytest.mark.parametrize("series", [0, 1, 3])
def test_bytes_come_back_equal_and_go_on_alike(window, series):
    fitted = make_fitted()
    state = follow(fitted, make_rows(5, series=max(series, 1)).select(range(series)), draws=2, window=window)
    state = state.update(0.0, {}, "nobody")
    back = Online.from_bytes(fitted, state.to_bytes())
    assert back == state
    assert back.num_ignored == 1
    assert back.update(30.0, {"b": 2.0}, 0) == state.update(30.0, {"b": 2.0}, 0)
    assert back.update(30.0, {"b": 2.0}, 0) != state
    if window and series:
        late = state.last_time(0) - 0.01
        assert back.update(late, {"a": 1.0}, 0) == state.update(late, {"a": 1.0}, 0)


@pytest.mark.slow
def test_a_state_is_a_few_kilobytes():
    fitted = make_fitted(hidden_size=32, latent_size=16, width=32)  # the demo's
    model = make_model("vsdn-f", hidden_size=32, latent_size=16, width=32)
    state = dataclasses.replace(fitted, model=model).online(draws=16).update(0.0, {"a": 1.0})
    assert len(state.to_bytes()) < 2048


def test_damaged_or_foreign_bytes_are_refused():
    fitted, other = make_fitted(), make_fitted("ode-rnn")
    whole = follow(fitted, make_rows(), draws=2, window=2).to_bytes()
    for place in range(0, len(whole), 41):
        flipped = bytearray(whole)
        flipped[place] ^= 4
        with pytest.raises(DataError, match="the state is damaged"):
            Online.from_bytes(fitted, bytes(flipped))
    for size in (0, 7, 100, len(whole) - 1):
        with pytest.raises(DataError, match="the state is damaged"):
            Online.from_bytes(fitted, whole[:size])
    with pytest.raises(DataError, match="one of another model"):
        Online.from_bytes(other, whole)


# --------------------------------------------------------------------------------------------------- late and faulty


@pytest.mark.parametrize(("start", "lateness"), [(None, 1), (-0.4, 3)])
def test_a_late_row_is_replayed_as_if_it_had_come_in_time(start, lateness):
    fitted, table = make_fitted(start=start), make_rows(8, series=2)
    rows = list(updates(table))
    in_order = follow(fitted, table, draws=2, window=4)
    for late in (0, 4, 6):  # the first of all, one in the middle, one near the end
        order = np.insert(np.delete(np.arange(16), late), min(late + lateness, 7), late)
        state = fitted.online([0, 1], draws=2, window=4)
        for row in order:
            time, values, id = rows[row]
            state = state.update(time, values, id)
        assert state == in_order
    many = fitted.online([0, 1], draws=2, window=4)
    values = np.where(table.mask, table.values, np.nan)
    for chosen in ([0, 8], [2, 9], [1, 10], [3, 11], [4, 12], [6, 13], [5, 14], [7, 15]):
        many = many.update_many(table.series_of_row[chosen], table.times[chosen], values[chosen])
    np.testing.assert_allclose(ask(many, [20.0]), ask(in_order, [20.0]), rtol=1e-5, atol=1e-6)


def test_what_is_older_than_the_window_is_refused():
    state = make_fitted("last-value").online(window=2)
    for time in (1.0, 2.0, 3.0, 4.0):
        state = state.update(time, {"a": time})
    assert state.update(2.5, {"a": 0.0}).last_time() == 4.0
    with pytest.raises(DataError, match=r"'series' .* time 1\.5 that comes too late, .* 4\.0: only the last 2"):
        state.update(1.5, {"a": 0.0})
    with pytest.raises(DataError, match=r"already has an observation at time 3\.0"):
        state.update(3.0, {"a": 0.0})


def test_a_state_is_never_changed():
    state = make_fitted().online(draws=2, window=2).update(1.0, {"a": 1.0})
    before = state.to_bytes()
    state.update(2.0, {"a": 5.0}).update(1.5, {"b": 2.0}).update_many(["x"], [3.0], [[1.0, np.nan]])
    assert state.to_bytes() == before
    with pytest.raises(dataclasses.FrozenInstanceError):
        state.last = np.zeros(1)


FAULTS = {
    "late": (lambda s: s.update(0.5, {"a": 1.0}, 7), r"series 7 has .* time 0\.5 that comes too late, .* at 1\.0"),
    "twice": (lambda s: s.update(1.0, {"a": 1.0}, 7), r"series 7 already has an observation at time 1\.0"),
    "late, many": (lambda s: s.update_many([7], [0.5], [[1.0, 2.0]]), r"series 7 has .* too late"),
    "twice in one call": (lambda s: s.update_many([7, 7], [2.0, 2.0], np.ones((2, 2))), r"7 already has .* 2\.0"),
    "strange variable": (lambda s: s.update(2.0, {"c": 1.0}), r"variables are 'a', 'b', but not 'c'"),
    "text": (lambda s: s.update(2.0, {"a": "high"}), r"variable 'a': a number .* the text 'high'"),
    "list": (lambda s: s.update(2.0, {"a": [1.0]}), r"variable 'a': a number was expected, not \[1\.0\]"),
    "infinity": (lambda s: s.update(2.0, {"a": np.inf}), r"variable 'a': a finite number was expected, not inf"),
    "huge": (lambda s: s.update(2.0, {"a": 1e300}), r"variable 'a': a number of the order .* not 1e\+300"),
    "infinity, many": (lambda s: s.update_many([7], [2.0], [[0.0, -np.inf]]), r"variable 'b': a finite number"),
    "texts, many": (lambda s: s.update_many([7], [2.0], [["x", "y"]]), r"numbers were expected"),
    "shape": (lambda s: s.update_many([7], [2.0], [[1.0]]), r"1 × 2 values were expected, .* not 1 × 1"),
    "times lacking": (lambda s: s.update_many([7], [], [[1.0, 2.0]]), r"a time for each of 1 ids .* but 0 came"),
    "no time": (lambda s: s.update(None, {"a": 1.0}), r"a number or a date was expected"),
    "infinite time": (lambda s: s.update(np.inf, {"a": 1.0}), r"a finite number was expected"),
    "date": (lambda s: s.update("2024-01-01", {"a": 1.0}), r"numbers were expected"),
    "far away": (lambda s: s.update(1e12, {"a": 1.0}), r"more than 100,000,000 steps of 0\.3 away"),
    "before the start": (
        lambda s: s.update(-1.0, {"a": 1.0}, "new"),
        r"'new' .* at time -1\.0, before the given start",
    ),
    "strange id": (lambda s: s.update(2.0, {"a": 1.0}, 1.5), r"a text or a whole number, but not 1\.5"),
    "no such series": (lambda s: s.forecast([3.0], ids=["z"]), r"series 'z' is asked for"),
    "past": (lambda s: s.forecast([3.0, 1.0]), r"time 1\.0 was asked for series 7, which is at 1\.0 already"),
    "no time asked": (lambda s: s.forecast([]), r"without a time"),
}


@pytest.mark.parametrize(("fault", "says"), FAULTS.values(), ids=FAULTS)
def test_faults_are_named_in_one_sentence(fault, says):
    state = make_fitted("mean", start=-0.4).online([7]).update(1.0, {"a": 1.0})
    with pytest.raises(DataError, match=says):
        fault(state)


def test_settings_that_do_not_fit_are_refused():
    fitted = make_fitted("mean")
    for options in ({"draws": 0}, {"draws": 2.5}, {"window": -1}, {"seed": -1}):
        with pytest.raises(SettingsError, match="wants a whole number from"):
            fitted.online(**options)
    with pytest.raises(DataError, match="once"):
        fitted.online(["1", 1])
    with pytest.raises(DataError, match="'series' has no observation yet"):
        fitted.online().forecast([1.0])
    with pytest.raises(SettingsError, match="a quantile"):
        fitted.online().update(0.0, {"a": 1.0}).forecast([1.0], quantiles=[1.5])


@pytest.mark.parametrize("name", ["latent-ode", "latent-sde"])
def test_models_that_read_from_the_end_say_why_not(name):
    with pytest.raises(SettingsError, match=f"{name} cannot go online: it reads a series from its end"):
        make_fitted(name).online()


def test_an_update_with_nothing_seen_is_counted_and_ignored():
    state = make_fitted("mean").online().update(1.0, {"a": 1.0})
    after = state.update(0.5, {"a": None, "b": float("nan")}).update_many(["x"], [1.0], [[np.nan, np.nan]])
    assert after.num_ignored == 2
    assert after.ids == state.ids
    assert after.last_time() == 1.0
