"""The loop: it learns, keeps its best, skips what is not finite, and its noise is fresh at every step."""

import dataclasses
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples import make_model, make_table

from vsdn import metrics, training
from vsdn.batches import Batches
from vsdn.grids.marching import Marching, make_grids
from vsdn.settings import Settings
from vsdn.tables.table import Scaler

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


def test_the_bound_of_the_last_rows_is_that_of_the_whole_less_that_of_the_rows_before():
    """Of a model without noise: minus the log-density of the scored rows alone, a value."""
    table = make_table(6, max_rows=7)
    scored = np.arange(len(table.times)) >= table.starts[table.series_of_row] + 2
    flags = {"every row": np.ones_like(scored), "the last rows": scored}
    grids = {name: make_grids(table, Scaler.fit(table), Marching(0.5), scored=flag) for name, flag in flags.items()}
    static, settings = eqx.partition(last_value(), eqx.is_inexact_array)[1], Settings().with_values(TINY)
    params = eqx.filter(last_value(), eqx.is_inexact_array)
    score, bound = training.make_score(static, settings.training), training.make_bound(static, settings)
    for each in grids.values():
        batches = Batches.make(each, 6, 1)
        assert bound(params, batches) == pytest.approx(score(params, batches), rel=1e-5)


def test_the_best_may_be_told_by_the_crps(parts):
    """A learning rate that goes too far: the NLL is best at another epoch than the CRPS, which is what is chosen by."""
    history, _ = run(last_value(), parts, epochs=12, learning_rate=0.3, schedule="constant", select_by="crps")
    records, state = [record for _, record in history if record is not None], history[-1][0]
    crps = [record.valid_crps for record in records]
    best = int(np.argmin(crps))
    assert records[-1].best_epoch == best + 1
    assert records[-1].best_nll == pytest.approx(crps[best], rel=1e-6)
    static = eqx.partition(last_value(), eqx.is_inexact_array)[1]
    fine = training.make_score(static, Settings().training, metrics.crps)
    assert fine(state.best_params, parts[1]) == pytest.approx(crps[best], rel=1e-3)


def test_in_other_units_a_crps_stays_what_it_is():
    epoch = training.Epoch(1, 1, 0.5, 0.6, 0.2, 1, 0, 0.7, 0.2)
    assert epoch.moved(1.0, 2.0, by="crps") == epoch._replace(loss=1.5, valid_nll=2.6, valid_loss=2.7)
    assert epoch.moved(1.0, 2.0, by="forecasts").best_nll == 2.2


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
    update = training.make_update(static, training.make_optimiser(settings.training, 10), settings, 2, parts[0].rest)
    batch = parts[0].load(parts[0].epoch()[0])
    early = update(state, batch).loss_sum
    late = update(state._replace(step=jnp.asarray(99, jnp.int32)), batch).loss_sum
    assert float(late) > float(early)


@pytest.mark.slow
def test_every_step_has_noise_of_its_own(parts):
    model = make_model("vsdn-f", clock_size=0)
    settings = Settings().with_values(TINY | {"epochs": 1})
    static = eqx.partition(model, eqx.is_inexact_array)[1]
    update = training.make_update(static, training.make_optimiser(settings.training, 10), settings, 2, parts[0].rest)
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


@pytest.mark.parametrize(
    "values", [{"begin_share": 1.0}, {"given_rows": 2, "given_shift": 1.0}, {"shift": 1.0}, {"stretch": 0.5}]
)
def test_a_step_begins_shifts_and_stretches_series_by_the_settings(parts, values):
    """The same first step from the same weights: its loss tells whether the series were others."""
    model = make_model("ode-rnn", clock_size=0)
    loss = lambda **values: next(iter(run(model, parts, epochs=1, **values)[0]))[0].loss_sum
    plain = {key: value for key, value in values.items() if key == "given_rows"}
    assert loss(**plain) == loss(**plain) != loss(**values)


def test_latent_models_are_validated_on_as_many_rows_as_asked_for(parts):
    model = make_model("latent-ode", clock_size=0)
    params, static = eqx.partition(model, eqx.is_inexact_array)
    score = lambda rows: training.make_score(
        static, Settings().with_values({"valid_rows": rows, "valid_paths": 2}).training
    )(params, parts[1])
    assert np.isfinite(score(3))
    assert score(3) != pytest.approx(score(None), rel=1e-4)
    assert score(100) == score(None)
