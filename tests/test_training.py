"""The loop: it learns, keeps its best, skips what is not finite, and its noise is fresh at every step."""

import dataclasses
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from examples import make_model, make_table

from vsdn import training
from vsdn.batches import Batches
from vsdn.data import Scaler
from vsdn.grids import Marching, make_grids
from vsdn.settings import Settings

pytestmark = pytest.mark.usefixtures("lenient")
TINY = {
    "hidden_size": 4,
    "latent_size": 2,
    "width": 5,
    "init_width": 4,
    "batch_size": 8,
    "num_paths": 2,
    "lr_warmup": 2,
}


@pytest.fixture
def parts():
    table = make_table(16, max_rows=7)
    scaler = Scaler.fit(table)
    grids = make_grids(table, scaler, Marching(0.5))
    return Batches.make(grids, 8, 1), Batches.make(grids, 16, 1)


def run(model, parts, **values):
    settings = Settings().with_values(TINY | {"epochs": 3, "learning_rate": 0.02} | values)
    state = training.first_state(model, parts[0], settings)
    return list(training.train(model, *parts, settings, state)), settings


def last_value():
    return make_model("last-value", clock_size=0)


def test_it_learns_and_keeps_the_best(parts):
    history, _ = run(last_value(), parts, epochs=30, learning_rate=0.05, patience=30)
    records = [record for _, record in history if record is not None]
    assert len(records) == 30
    assert records[-1].best_nll == pytest.approx(min(record.valid_nll for record in records))
    assert records[-1].best_nll < records[0].valid_nll - 0.1
    state = history[-1][0]
    score = training.make_score(eqx.partition(last_value(), eqx.is_inexact_array)[1], Settings().training)
    assert score(state.best_params, parts[1]) == pytest.approx(records[-1].best_nll, rel=1e-6)


def test_the_best_may_be_told_by_the_bound(parts):
    history, _ = run(make_model("ode-rnn", clock_size=0), parts, epochs=2, select_by="bound", hide_share=0.5)
    records = [record for _, record in history if record is not None]
    assert records[-1].best_nll == pytest.approx(min(record.valid_loss for record in records))
    assert all(record.valid_loss > record.valid_nll + 1e-3 for record in records)  # with rows hidden, less is known


def test_the_last_epoch_may_be_kept_however_bad(parts):
    history, settings = run(
        last_value(), parts, epochs=6, learning_rate=3.0, schedule="constant", patience=1, select_by="last"
    )
    records, state = [record for _, record in history if record is not None], history[-1][0]
    assert training.why_ended(state, settings.training) == "all epochs done"
    assert records[-1].best_epoch == 6
    assert records[-1].best_nll == pytest.approx(records[-1].valid_nll)
    assert records[-1].valid_nll > min(record.valid_nll for record in records)
    assert eqx.tree_equal(state.best_params, state.params)


@pytest.mark.parametrize("name", ["ode-rnn", "vsdn-f", "latent-ode"])
def test_rows_that_are_not_given_tell_nothing_of_those_after_them(parts, name):
    """Nothing that is foretold changes with them, and the first rows are as ever."""
    batch = next(iter(parts[0]))
    model, given = make_model(name, clock_size=0), training.give(batch, 2)
    keys = jr.split(jr.key(0), batch.weight.shape[0])
    late = jnp.cumsum(batch.grid.mask.any(axis=2), axis=1) > 2
    moved = given.grid._replace(values=given.grid.values + late[..., None])
    foretell = jax.jit(lambda grid: model.batch_predict(grid, num_samples=2, keys=keys))
    np.testing.assert_array_equal(foretell(given.grid), foretell(moved))
    np.testing.assert_allclose(foretell(given.grid)[:, :, :3], foretell(batch.grid)[:, :, :3], rtol=1e-5, atol=1e-6)
    assert not np.allclose(foretell(given.grid)[:, :, 4:], foretell(batch.grid)[:, :, 4:])


def test_it_stops_when_patience_ends(parts):
    history, settings = run(last_value(), parts, epochs=50, learning_rate=1e-12, patience=2)
    assert training.why_ended(history[-1][0], settings.training) == "no better validation score for 2 epochs"
    assert int(history[-1][0].epoch) < 50


def poisoned(batches):
    """The same batches, with one value that no gradient survives."""
    values = batches.grids.values.copy()
    values[np.argmax(batches.grids.mask[:, 0]), 0] = np.inf
    return dataclasses.replace(batches, grids=dataclasses.replace(batches.grids, values=values))


def test_steps_that_are_not_finite_are_skipped_and_counted(parts):
    history, _ = run(last_value(), (poisoned(parts[0]), parts[1]))
    state = history[-1][0]
    assert int(state.skipped) == 3  # one of the two batches of each epoch
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.params))
    steps = [state for state, record in history if record is None]
    for before, after in itertools.pairwise(steps):
        if int(after.skipped) > int(before.skipped):
            assert eqx.tree_equal(before.params, after.params)
            assert eqx.tree_equal(before.opt_state, after.opt_state)
    assert np.isfinite(history[-1][1].loss)


def test_too_many_in_a_row_end_the_run(parts):
    batches = poisoned(dataclasses.replace(parts[0], batch_size=16))
    history, settings = run(last_value(), (batches, parts[1]), max_skipped=3, epochs=9)
    assert int(history[-1][0].step) == 3
    assert training.why_ended(history[-1][0], settings.training) == "3 steps in a row had no finite gradient"


@pytest.mark.slow
def test_the_kl_warms_up(parts):
    """With all weight on the KL of a posterior that differs, an early step's loss is smaller than a late one's."""
    model = make_model("vsdn-s", clock_size=0)
    settings = Settings().with_values(TINY | {"objective": "vae", "beta": 100.0, "kl_warmup": 50, "epochs": 100})
    state = training.first_state(model, parts[0], settings)
    static = eqx.partition(model, eqx.is_inexact_array)[1]
    update = training.make_update(static, training.make_optimiser(settings.training, 10), settings, 2)
    batch = parts[0].load(parts[0].epoch()[0])
    early = update(state, batch).loss_sum
    late = update(state._replace(step=jnp.asarray(99, jnp.int32)), batch).loss_sum
    assert float(late) > float(early)


@pytest.mark.slow
def test_every_step_has_noise_of_its_own(parts):
    model = make_model("vsdn-f", clock_size=0)
    settings = Settings().with_values(TINY | {"epochs": 1})
    static = eqx.partition(model, eqx.is_inexact_array)[1]
    update = training.make_update(static, training.make_optimiser(settings.training, 10), settings, 2)
    state, batch = training.first_state(model, parts[0], settings), parts[0].load(parts[0].epoch()[0])
    losses = {float(update(state._replace(step=jnp.asarray(step, jnp.int32)), batch).loss_sum) for step in (0, 1, 2)}
    assert len(losses) == 3
    assert float(update(state, batch).loss_sum) in losses


def test_an_epoch_takes_every_series_once_and_shuffles(parts):
    batches = parts[0]
    one, two = (batches.epoch(np.random.default_rng(seed)) for seed in (1, 2))
    assert sorted(np.concatenate(one)) == list(range(16))
    assert any(not np.array_equal(a, b) for a, b in zip(one, two, strict=True))


def test_a_batch_that_is_filled_up_counts_its_own_series_only(parts):
    batches = dataclasses.replace(parts[0], batch_size=12)
    last = batches.load(batches.epoch()[-1])
    assert float(last.weight.sum()) == 4
    assert last.grid.dt.shape[0] == 12


def test_a_cut_series_ends_after_one_of_its_rows_and_loses_nothing_before(parts, key):
    whole = parts[0].load(parts[0].epoch()[0])
    ended = training.cut(whole, 1.0, key=key)
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
    one = lambda share: jax.vmap(lambda key: counts(training.cut(whole, share, key=key)))
    draw = lambda share: jax.jit(one(share))(jr.split(key, 4000))
    rows = np.asarray(counts(whole))
    for series, kept in enumerate(np.asarray(draw(1.0)).T):
        shares = np.bincount(kept, minlength=rows[series] + 1)[1:] / len(kept)
        assert np.all(np.abs(shares - 1 / rows[series]) < 4.5 * (1 / rows[series] / len(kept)) ** 0.5)
    shorter = np.asarray(draw(0.3)) < rows
    expected = 0.3 * (1 - 1 / rows)
    assert np.all(np.abs(shorter.mean(axis=0) - expected) < 4.5 * (expected / len(shorter)) ** 0.5)
    assert training.cut(whole, 0.0, key=key) is whole


def test_series_begin_by_their_share_at_any_row_alike_and_enough_rows_are_left(parts, key):
    whole = parts[0].load(parts[0].epoch()[0])
    counts = lambda batch: batch.grid.mask.any(axis=2).sum(axis=1)
    one = lambda share: jax.vmap(lambda key: counts(training.begin(whole, share, 3, key=key)))
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
    assert training.begin(whole, 0.0, 3, key=key) is whole


@pytest.mark.parametrize("name", ["ode-rnn", "vsdn-s", "latent-ode"])
def test_what_came_before_a_series_began_is_never_read(parts, name, key):
    whole = parts[0].load(parts[0].epoch()[0])
    begun = training.begin(whole, 1.0, 2, key=key)
    gone = whole.grid.mask.any(axis=2).sum(axis=1) - begun.grid.mask.any(axis=2).sum(axis=1)
    early = jnp.cumsum(whole.grid.mask.any(axis=2), axis=1) <= gone[:, None]
    moved = whole._replace(grid=whole.grid._replace(values=whole.grid.values + early[..., None]))
    model, keys = make_model(name, clock_size=0), jr.split(key, len(gone))
    evidence = jax.jit(lambda batch: model.batch_evidence(batch.grid, num_samples=2, keys=keys).log_lik)
    assert gone.max() > 1
    np.testing.assert_array_equal(evidence(begun), evidence(training.begin(moved, 1.0, 2, key=key)))
    changed = np.any(evidence(whole) != evidence(moved), axis=1)
    np.testing.assert_array_equal(changed, gone > 0)


@pytest.mark.parametrize("values", [{"begin_share": 1.0}, {"given_rows": 2, "given_shift": 1.0}])
def test_a_step_begins_and_shifts_series_by_the_settings(parts, values):
    """The same first step from the same weights: its loss tells whether the series were others."""
    model = make_model("ode-rnn", clock_size=0)
    loss = lambda **values: next(iter(run(model, parts, epochs=1, **values)[0]))[0].loss_sum
    plain = {key: value for key, value in values.items() if key == "given_rows"}
    assert loss(**plain) == loss(**plain) != loss(**values)


def test_given_rows_are_shifted_together_and_no_others(parts, key):
    given = training.give(parts[0].load(parts[0].epoch()[0]), 2)
    moved = jax.jit(jax.vmap(lambda key: training.shift(given, 0.3, key=key).grid.values))(jr.split(key, 500))
    by = np.asarray(moved - given.grid.values)
    told = np.asarray(given.grid.told[..., None] & given.grid.mask)
    assert not by[:, ~told].any()
    least, most = np.where(told, by, np.inf).min(axis=2), np.where(told, by, -np.inf).max(axis=2)
    some = least[:, told.any(axis=1)]
    np.testing.assert_allclose(some, most[:, told.any(axis=1)], atol=1e-5)
    assert abs(some.std() - 0.3) < 4.5 * 0.3 / (2 * some.size) ** 0.5
    assert np.abs(np.corrcoef(some.T) - np.eye(some.shape[1])).max() < 4.5 / 500**0.5
    assert training.shift(given, 0.0, key=key) is given


def test_rows_are_hidden_from_the_memory_by_their_share_and_scored_all_the_same(parts, key):
    whole = parts[0].load(parts[0].epoch()[0])
    hide = jax.jit(jax.vmap(lambda key: training.hide(whole, 0.3, key=key).grid.told))
    told = hide(jr.split(key, 2000))
    hidden = 1.0 - np.asarray(told, float)
    each = hidden.mean(axis=(0, 2))  # of a series, whose rate is uniform in (0, 0.6)
    assert np.all(np.abs(each - 0.3) < 4.5 * hidden.mean(axis=2).std() / 2000**0.5)
    rates = hidden.mean(axis=2).ravel()
    assert rates.std() > 0.9 * 0.6 / 12**0.5  # series differ: some keep nearly all
    np.testing.assert_array_equal(training.hide(whole, 0.3, key=key).grid.mask, whole.grid.mask)
    assert training.hide(whole, 0.0, key=key) is whole


def test_a_thinned_batch_foretells_some_rows_and_sees_all(parts):
    batch = next(iter(parts[1]))
    thin = training.thinned(batch, 3)
    assert training.thinned(batch, None) is batch
    assert thin.grid.rows.shape == thin.scored.shape == (16, 3)
    np.testing.assert_array_equal(thin.grid.mask, batch.grid.mask)
    for rows, scored, grid_rows, mask in zip(
        thin.grid.rows, thin.scored, batch.grid.rows, batch.grid.mask, strict=True
    ):
        seen = np.asarray(grid_rows)[: int(mask.any(axis=1).sum())]
        assert {int(seen[0]), int(seen[-1])} <= set(np.asarray(rows).tolist()) <= set(seen.tolist())
        assert len(set(np.asarray(rows)[np.asarray(scored)].tolist())) == int(scored.sum())


def test_latent_models_are_validated_on_as_many_rows_as_asked_for(parts):
    model = make_model("latent-ode", clock_size=0)
    params, static = eqx.partition(model, eqx.is_inexact_array)
    score = lambda rows: training.make_score(
        static, Settings().with_values({"valid_rows": rows, "valid_paths": 2}).training
    )(params, parts[1])
    assert np.isfinite(score(3))
    assert score(3) != pytest.approx(score(None), rel=1e-4)
    assert score(100) == score(None)
