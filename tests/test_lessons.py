"""Lessons: series are cut, begun, hidden, stretched and shifted as asked; what a step is not shown changes nothing."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pyarrow as pa
import pytest
from examples import make_model, make_table

from vsdn.batches import Batches
from vsdn.grids.marching import Marching, make_grids
from vsdn.tables.frames import read_table
from vsdn.tables.table import Scaler
from vsdn.training import lessons

pytestmark = pytest.mark.usefixtures("lenient")


@pytest.fixture
def parts():
    table = make_table(16, max_rows=7)
    scaler = Scaler.fit(table)
    grids = make_grids(table, scaler, Marching(0.5))
    return Batches.make(grids, 8, 1), Batches.make(grids, 16, 1)


@pytest.mark.parametrize("name", ["ode-rnn", "vsdn-f", "latent-ode"])
def test_rows_that_are_not_given_tell_nothing_of_those_after_them(parts, name):
    """Nothing that is foretold changes with them, and the first rows are as ever."""
    batch = next(iter(parts[0]))
    model, given = make_model(name, clock_size=0), lessons.give(batch, 2)
    keys = jr.split(jr.key(0), batch.weight.shape[0])
    late = jnp.cumsum(batch.grid.mask.any(axis=2), axis=1) > 2
    moved = given.grid._replace(values=given.grid.values + late[..., None])
    foretell = jax.jit(lambda grid: model.batch_predict(grid, num_samples=2, keys=keys))
    np.testing.assert_array_equal(foretell(given.grid), foretell(moved))
    np.testing.assert_allclose(foretell(given.grid)[:, :, :3], foretell(batch.grid)[:, :, :3], rtol=1e-5, atol=1e-6)
    assert not np.allclose(foretell(given.grid)[:, :, 4:], foretell(batch.grid)[:, :, 4:])


def test_a_cut_series_ends_after_one_of_its_rows_and_loses_nothing_before(parts, key):
    whole = parts[0].load(parts[0].epoch()[0])
    ended = lessons.cut(whole, 1.0, key=key)
    for before, after in zip(*(np.asarray(batch.grid.mask.any(axis=2)) for batch in (whole, ended)), strict=True):
        last = np.flatnonzero(after)[-1]  # never nothing at all
        np.testing.assert_array_equal(after, before & (np.arange(len(before)) <= last))
    last = [np.flatnonzero(seen)[-1] for seen in np.asarray(ended.grid.mask.any(axis=2))]
    beyond = np.arange(whole.grid.dt.shape[1]) > np.array(last)[:, None]
    np.testing.assert_array_equal(ended.grid.dt, np.where(beyond, 0.0, whole.grid.dt))
    np.testing.assert_array_equal(ended.weight, whole.weight)
    np.testing.assert_array_equal(ended.grid.rows, whole.grid.rows)


def test_series_are_cut_by_their_share_and_after_any_row_alike(parts, key):
    whole = parts[0].load(parts[0].epoch()[0])
    counts = lambda batch: batch.grid.mask.any(axis=2).sum(axis=1)
    one = lambda share: jax.vmap(lambda key: counts(lessons.cut(whole, share, key=key)))
    draw = lambda share: jax.jit(one(share))(jr.split(key, 4000))
    rows = np.asarray(counts(whole))
    for series, kept in enumerate(np.asarray(draw(1.0)).T):
        shares = np.bincount(kept, minlength=rows[series] + 1)[1:] / len(kept)
        assert np.all(np.abs(shares - 1 / rows[series]) < 4.5 * (1 / rows[series] / len(kept)) ** 0.5)
    shorter = np.asarray(draw(0.3)) < rows
    expected = 0.3 * (1 - 1 / rows)
    assert np.all(np.abs(shorter.mean(axis=0) - expected) < 4.5 * (expected / len(shorter)) ** 0.5)
    assert lessons.cut(whole, 0.0, key=key) is whole


def test_series_begin_by_their_share_at_any_row_alike_and_enough_rows_are_left(parts, key):
    whole = parts[0].load(parts[0].epoch()[0])
    counts = lambda batch: batch.grid.mask.any(axis=2).sum(axis=1)
    one = lambda share: jax.vmap(lambda key: counts(lessons.begin(whole, share, 3, key=key)))
    draw = lambda share: np.asarray(jax.jit(one(share))(jr.split(key, 4000)))
    rows = np.asarray(counts(whole))
    choices = np.maximum(rows - 2, 1)
    assert rows.min() == 2  # too short to begin later
    for series, left in enumerate(draw(1.0).T):
        shares = np.bincount(rows[series] - left, minlength=choices[series]) / len(left)
        assert len(shares) == choices[series]
        assert np.all(np.abs(shares - 1 / choices[series]) < 4.5 * (1 / choices[series] / len(left)) ** 0.5)
    later, expected = (draw(0.3) < rows).mean(axis=0), 0.3 * (1 - 1 / choices)
    assert np.all(np.abs(later - expected) <= 4.5 * (expected / 4000) ** 0.5)
    assert lessons.begin(whole, 0.0, 3, key=key) is whole


@pytest.mark.parametrize("name", ["ode-rnn", "vsdn-s", "latent-ode"])
def test_what_came_before_a_series_began_is_never_read(parts, name, key):
    whole = parts[0].load(parts[0].epoch()[0])
    begun = lessons.begin(whole, 1.0, 2, key=key)
    gone = whole.grid.mask.any(axis=2).sum(axis=1) - begun.grid.mask.any(axis=2).sum(axis=1)
    early = jnp.cumsum(whole.grid.mask.any(axis=2), axis=1) <= gone[:, None]
    moved = whole._replace(grid=whole.grid._replace(values=whole.grid.values + early[..., None]))
    model, keys = make_model(name, clock_size=0), jr.split(key, len(gone))
    evidence = jax.jit(lambda batch: model.batch_evidence(batch.grid, num_samples=2, keys=keys).log_lik)
    assert gone.max() > 1
    np.testing.assert_array_equal(evidence(begun), evidence(lessons.begin(moved, 1.0, 2, key=key)))
    changed = np.any(evidence(whole) != evidence(moved), axis=1)
    np.testing.assert_array_equal(changed, gone > 0)


def test_given_rows_are_shifted_together_and_no_others(parts, key):
    given = lessons.give(parts[0].load(parts[0].epoch()[0]), 2)
    told = np.asarray(given.grid.told[..., None] & given.grid.mask)
    check_shifts(given, told, lessons.shift_given, key)


def test_whole_series_are_shifted_together_and_nothing_unseen(parts, key):
    whole = parts[0].load(parts[0].epoch()[0])
    check_shifts(whole, np.asarray(whole.grid.mask), lessons.shift, key)


def check_shifts(batch, told, shift, key):
    """What is told is shifted, in every row of a series by as much, by numbers of the deviation asked for."""
    moved = jax.jit(jax.vmap(lambda key: shift(batch, 0.3, key=key).grid.values))(jr.split(key, 500))
    by = np.asarray(moved - batch.grid.values)
    assert not by[:, ~told].any()
    least, most = np.where(told, by, np.inf).min(axis=2), np.where(told, by, -np.inf).max(axis=2)
    some = least[:, told.any(axis=1)]
    np.testing.assert_allclose(some, most[:, told.any(axis=1)], atol=1e-5)
    assert abs(some.std() - 0.3) < 4.5 * 0.3 / (2 * some.size) ** 0.5
    assert np.abs(np.corrcoef(some.T) - np.eye(some.shape[1])).max() < 4.5 / 500**0.5
    assert shift(batch, 0.0, key=key) is batch


def test_a_stretched_series_moves_as_fast_as_its_rates_say(key):
    """Ways that are walked at a steady speed, which is a variable, too; what is no rate is as it was."""
    speeds, times = np.array([1.0, 2.0, 5.0, 9.0]), np.arange(6.0)
    way, speed = speeds[:, None] * times, np.broadcast_to(speeds[:, None], (4, 6))
    frame = {"id": np.repeat(np.arange(4), 6), "time": np.tile(times, 4), "way": way.ravel(), "speed": speed.ravel()}
    table = read_table(pa.table(frame))
    scaler = Scaler.fit(table, 2.0)
    batch = next(iter(Batches.make(make_grids(table, scaler, Marching(10.0)), 4, 1)))
    rest = jnp.asarray(scaler.scale(np.array([np.nan, 0.0])), batch.grid.dt.dtype)
    run = jax.jit(jax.vmap(lambda key: lessons.stretch(batch, 0.2, rest, key=key).grid))(jr.split(key, 2000))
    values, dt = scaler.unscale(np.asarray(run.values))[:, :, :6], scaler.time_scale * np.asarray(run.dt)[:, :, 1:6]
    np.testing.assert_allclose(np.diff(values[..., 0], axis=2) / dt, values[:, :, 1:, 1], rtol=1e-5)
    np.testing.assert_array_equal(run.values[..., 0], jnp.broadcast_to(batch.grid.values[..., 0], (2000, 4, 7)))
    pace = np.log(values[:, :, 0, 1] / speeds)
    assert abs(pace.std() - 0.2) < 4.5 * 0.2 / (2 * pace.size) ** 0.5
    assert np.abs(np.corrcoef(pace.T) - np.eye(4)).max() < 4.5 / 2000**0.5
    assert lessons.stretch(batch, 0.0, rest, key=key) is batch
    unseen = batch._replace(grid=batch.grid._replace(mask=jnp.zeros_like(batch.grid.mask)))
    np.testing.assert_array_equal(lessons.stretch(unseen, 0.2, rest, key=key).grid.values, batch.grid.values)


def test_rows_are_hidden_from_the_memory_by_their_share_and_scored_all_the_same(parts, key):
    whole = parts[0].load(parts[0].epoch()[0])
    hide = jax.jit(jax.vmap(lambda key: lessons.hide(whole, 0.3, key=key).grid.told))
    told = hide(jr.split(key, 2000))
    hidden = 1.0 - np.asarray(told, float)
    each = hidden.mean(axis=(0, 2))  # of a series, whose rate is uniform in (0, 0.6)
    assert np.all(np.abs(each - 0.3) < 4.5 * hidden.mean(axis=2).std() / 2000**0.5)
    rates = hidden.mean(axis=2).ravel()
    assert rates.std() > 0.9 * 0.6 / 12**0.5  # series differ: some keep nearly all
    np.testing.assert_array_equal(lessons.hide(whole, 0.3, key=key).grid.mask, whole.grid.mask)
    assert lessons.hide(whole, 0.0, key=key) is whole


def test_a_thinned_batch_foretells_some_rows_and_sees_all(parts):
    batch = next(iter(parts[1]))
    thin = lessons.thinned(batch, 3)
    assert lessons.thinned(batch, None) is batch
    assert thin.grid.rows.shape == thin.scored.shape == (16, 3)
    np.testing.assert_array_equal(thin.grid.mask, batch.grid.mask)
    for rows, scored, grid_rows, mask in zip(
        thin.grid.rows, thin.scored, batch.grid.rows, batch.grid.mask, strict=True
    ):
        seen = np.asarray(grid_rows)[: int(mask.any(axis=1).sum())]
        assert {int(seen[0]), int(seen[-1])} <= set(np.asarray(rows).tolist()) <= set(seen.tolist())
        assert len(set(np.asarray(rows)[np.asarray(scored)].tolist())) == int(scored.sum())


def test_what_is_known_of_a_batch_ends_before_its_scored_rows(parts):
    """As if the series had never had the rows that are held out."""
    table = make_table(16, max_rows=7)
    number = np.arange(len(table.times)) - table.starts[table.series_of_row]
    scored = number >= 1 + np.arange(16)[table.series_of_row] % 3
    grids_of = lambda table, **flags: make_grids(table, Scaler.fit(make_table(16, max_rows=7)), Marching(0.5), **flags)
    batch = lessons.known(Batches.make(grids_of(table, scored=scored), 16, 1).load(np.arange(16)))
    alone = Batches.make(grids_of(table.keep_rows(~scored)), 16, 1)
    seen = np.asarray(batch.grid.mask.any(axis=2).sum(axis=1))
    order = np.argsort(Batches.make(grids_of(table, scored=scored), 16, 1).grids.num_points, kind="stable")
    np.testing.assert_array_equal(seen, alone.grids.num_rows[order])
    span = np.asarray(batch.grid.dt.sum(axis=1))
    lengths = np.array([alone.grids.dt[alone.grids.starts[i] : alone.grids.starts[i + 1]].sum() for i in order])
    np.testing.assert_allclose(span, lengths, rtol=1e-5)
