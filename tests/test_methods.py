"""What holds of every way to ask, for every model."""

import dataclasses

import equinox as eqx
import jax.random as jr
import numpy as np
import pytest
from examples import EVERY_MODEL, MARCHING, SIZES, VARIABLES, ask, make_model, make_scaler, make_table, thorough

from vsdn.answers import inference
from vsdn.answers.methods import (
    by_filter,
    by_interpolation,
    by_linearising,
    by_memory,
    by_particles,
    by_prior,
    by_trying,
    find_forecast,
    find_interpolation,
    own_ways,
)
from vsdn.errors import SettingsError
from vsdn.models import MODELS
from vsdn.models.base import AbstractOnline
from vsdn.settings import ModelSettings
from vsdn.tables.table import TimeAxis, empty_table

pytestmark = pytest.mark.usefixtures("x64")
models = pytest.mark.parametrize("name", EVERY_MODEL)
FRAME = inference.Frame(make_scaler(make_table()), MARCHING, 1)


def has_paths(name):
    """Whether a model has them, asked of its shapes: nothing is compiled while tests are collected."""
    settings = ModelSettings(model=name, **SIZES)
    return eqx.filter_eval_shape(MODELS[name], len(VARIABLES), (), settings, key=jr.key(0)).has_paths


def change_after(table, cut, by=2.0):
    """The same table with other values after a time."""
    late = (table.times > cut)[:, None] & table.mask
    return dataclasses.replace(table, values=np.where(late, table.values + by, table.values))


@models
def test_the_filter_sees_its_row_and_nothing_later(name):
    table, model = make_table(3), make_model(name)
    at_rows = lambda table: ask(model, table, table.series_of_row, table.times, method=by_filter)
    answer, cut = at_rows(table), float(np.median(table.times))
    other, early = at_rows(change_after(table, cut)), table.times <= cut
    np.testing.assert_allclose(answer.mean[early], other.mean[early], rtol=1e-9)
    assert np.any(~early)
    assert name == "mean" or not np.allclose(answer.mean[~early], other.mean[~early])
    poisoned = dataclasses.replace(table, values=np.where(table.mask, table.values, 1e9))
    np.testing.assert_array_equal(at_rows(poisoned).mean, answer.mean)


@pytest.mark.parametrize("name", ["vsdn-f", *thorough("vsdn-s", "gru-ode")])
def test_company_changes_no_answer_of_the_filter(name):
    """Longer series beside it, so that there is padding behind its last row."""
    table, model = make_table(2, max_rows=9), make_model(name)
    short = int(np.diff(table.starts).argmin())
    alone = table.select([short])
    company = dataclasses.replace(table, ids=np.array(["other", "another"]))
    company.ids[short] = table.ids[short]

    def at_rows(table):
        request = inference.Request(table, table.series_of_row, table.times)
        asked = {"levels": (0.5,), "num_samples": 4, "seed": 0, "method": by_filter}
        return inference.forecast(model, FRAME, request, **asked).mean

    assert np.diff(table.starts).min() < np.diff(table.starts).max()
    own = slice(table.starts[short], table.starts[short + 1])
    np.testing.assert_allclose(at_rows(alone), at_rows(company)[own], rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vsdn-f", *thorough("vsdn-s")])
def test_the_memory_of_vsdn_can_be_asked_like_that_of_others(name):
    table, model = make_table(3), make_model(name)
    cut = float(np.median(table.times))
    early, changed = table.times <= cut, change_after(table, cut)
    filtered = [ask(model, t, t.series_of_row, t.times, method=by_memory).mean for t in (table, changed)]
    np.testing.assert_allclose(filtered[0][early], filtered[1][early], rtol=1e-9)
    assert np.all(np.abs(filtered[0] - filtered[1])[~early].max(axis=1) > 0)
    tried = [ask(model, t, [0, 1, 2], [cut] * 3, method=by_trying).mean for t in (table, changed)]
    assert not np.allclose(*tried, rtol=1e-6)


def test_a_vsdn_is_asked_by_what_it_learned_to_keep_things_in():
    model = make_model("vsdn-s")
    assert own_ways(model, by_memory_alone=True) == (by_prior, by_memory, by_linearising)
    assert own_ways(model, by_memory_alone=False) == (by_particles, by_filter, by_interpolation)
    assert own_ways(make_model("ode-rnn"), by_memory_alone=False) == (by_prior, by_filter, by_interpolation)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["vsdn-s", "linear", *thorough(*(name for name in MODELS if name not in ("vsdn-s", "linear")))]
)
def test_interpolation_sees_what_comes_later_and_needs_no_company(name):
    table, model = make_table(2), make_model(name)
    first, last = table.times[table.starts[:-1]], table.times[table.starts[1:] - 1]
    times = np.concatenate([0.6 * first + 0.4 * last, last + 0.8])
    between = lambda table, series, times: ask(model, table, series, times, method=by_interpolation)
    answer = between(table, [0, 1, 0, 1], times)
    changed = between(change_after(table, float(times[0])), [0, 1, 0, 1], times)
    assert name == "mean" or not np.allclose(answer.mean[0], changed.mean[0])
    alone = between(table.select([1]), [0], times[1:2])
    np.testing.assert_allclose(alone.mean[0], answer.mean[1], rtol=1e-8)
    np.testing.assert_allclose(between(table, [1], times[3:]).mean[0], answer.mean[3], rtol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in MODELS if has_paths(name) or name == "linear"])
def test_at_its_rows_interpolation_is_at_the_points(name):
    """Smoothing at a row is what interpolation tends to from its left."""
    table, model = make_table(2), make_model(name)
    rows = table.starts[:-1] + 1
    at, before = (ask(model, table, [0, 1], table.times[rows] - gap, method=by_interpolation) for gap in (0.0, 1e-7))
    np.testing.assert_allclose(at.mean, before.mean, atol=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["linear", *thorough("vsdn-f", "last-value")])
def test_joint_draws_agree_with_the_single_answers(name):
    """Draws at rows with nothing seen have the mean that interpolation gives, in standard errors."""
    table, model = make_table(1), make_model(name)
    times = np.array([0.5 * (table.times[0] + table.times[1]), table.times[-1] + 0.5])
    request, count = inference.Request(table, np.zeros(2, int), times), 400
    if model.has_paths:
        values = inference.draws(model, FRAME, request, num_samples=count, seed=1, method=by_interpolation)
    else:
        merged, places = table.with_times(request.series, times)
        values = inference.row_draws(model, FRAME, merged, num_samples=count, num_particles=16, seed=1)[places]
    answer = inference.forecast(
        model, FRAME, request, levels=(0.5,), num_samples=count, seed=0, method=by_interpolation
    )
    size = count if answer.size is None else answer.size.min()
    error = np.sqrt(2 / min(size, count / 4)) * answer.std  # resampled draws are fewer than they seem
    assert np.all(np.abs(values.mean(axis=1) - answer.mean) < 4 * error)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gru-ode", *thorough("vsdn-s", "last-value")])
@pytest.mark.parametrize("others", [(), tuple(np.linspace(0.1, 7.3, 30))], ids=["alone", "among others"])
def test_a_time_is_drawn_with_its_own_law_whatever_else_is_asked(name, others):
    """Between rows, and after the last: mean and spread are those of `interpolate`, in standard errors, and no two
    draws are the same."""
    table, model, count = make_table(1, max_rows=6), make_model(name), 200
    inside = 0.5 * (table.times[0] + table.times[1])
    times = np.unique([inside, table.times[-1] + 1.0, *(table.times[0] + np.array(others))])
    request = inference.Request(table, np.zeros(len(times), int), times)
    merged, places = table.with_times(request.series, times)
    drawn = inference.row_draws(model, FRAME, merged, num_samples=count, num_particles=8, seed=1)[places]
    way = by_linearising
    values = inference.coupled(model, FRAME, request, drawn, seed=1, method=way)
    law = {"levels": (0.05, 0.5, 0.95), "num_samples": count, "seed": 1, "method": way}
    answer = inference.forecast(model, FRAME, request, **law)
    assert np.all(np.abs(values.mean(axis=1) - answer.mean) < 4 * answer.std / np.sqrt(count))
    for number, level in enumerate(law["levels"]):
        below = (values < answer.quantiles[:, None, :, number]).mean(axis=1)
        assert np.all(np.abs(below - level) <= 1 / count + 1e-9)  # one draw in each part of the law
    ranks = [part.argsort(axis=1).argsort(axis=1) for part in (values, drawn)]
    np.testing.assert_array_equal(*ranks)
    assert len(np.unique(values[0], axis=0)) == count


@pytest.mark.parametrize("name", ["latent-ode", *thorough("vsdn-f", "gru-ode")])
def test_simulated_series_are_ones_that_the_model_finds_likely(name):
    """New series score as well as the model expects of itself: their PIT is uniform in mean and spread."""
    model, num_series = make_model(name), 200
    times = np.array([0.0, 0.4, 1.1, 1.3, 2.5])
    empty = empty_table(num_series, times, ("a", "b"), TimeAxis())
    if isinstance(model, AbstractOnline):
        values = inference.row_draws(model, FRAME, empty, num_samples=1, seed=0)[:, 0]
    else:
        request = inference.Request(empty, empty.series_of_row, empty.times)
        values = inference.draws(model, FRAME, request, num_samples=1, seed=0, method=by_interpolation)[:, 0]
    seen = dataclasses.replace(empty, values=values, mask=np.ones_like(empty.mask))
    if not name.startswith("latent"):  # their posterior, untrained, does not know what they would do
        request = inference.Request(seen, seen.series_of_row, seen.times)
        way = by_particles if name.startswith("vsdn") else by_prior
        pit = inference.score(model, FRAME, request, values, num_samples=64, seed=1, method=way).pit
        assert abs(pit.mean() - 0.5) < 4 / np.sqrt(12 * num_series)
        assert abs(pit.std() - 12**-0.5) < 0.025
    assert np.isfinite(values).all()


def test_a_method_that_a_model_has_not_is_refused():
    with pytest.raises(SettingsError, match="'particles' is for vsdn-f and vsdn-s"):
        find_forecast(make_model("linear"), "particles")
    with pytest.raises(SettingsError, match="the methods are particles, posterior, linearised, tried, but not 'magic'"):
        find_interpolation(make_model("vsdn-f"), "magic")
