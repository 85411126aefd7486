"""What every model must obey: one line in MODELS, and it is tested here."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from examples import EVERY_MODEL, MARCHING, ask, make_batch, make_grid, make_model, make_scaler, make_table

from vsdn.tables.table import Scaler

pytestmark = pytest.mark.usefixtures("x64")
models = pytest.mark.parametrize("name", EVERY_MODEL)
slow_if_latent = pytest.mark.parametrize(  # each row has a walk of its own there, which takes long to compile
    "name",
    [pytest.param("latent-ode", marks=pytest.mark.slow) if name == "latent-ode" else name for name in EVERY_MODEL],
)


def assert_same(one, other, rtol=1e-9):
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-10)


@eqx.filter_jit
def evidence(model, grid, key):
    """Compiled once a model and shape, for all tests."""
    return model.evidence(grid, num_samples=3, key=key)


@eqx.filter_jit
def predict(model, grid, key):
    return model.predict(grid, num_samples=3, key=key)


def of_batch(batch, series):
    """One series as it is in a batch, so that all of them have one shape."""
    return jax.tree.map(lambda part: part[series], batch)


@slow_if_latent
def test_unseen_values_are_never_read(name, key):
    table, model = make_table(5), make_model(name)
    grid = of_batch(make_batch(table), np.diff(table.starts).argmax())
    poisoned = grid._replace(values=jnp.where(grid.mask, grid.values, 1e9))
    for answer in (evidence, predict):
        assert eqx.tree_equal(answer(model, grid, key), answer(model, poisoned, key))
    told = lambda values: model.evidence(grid._replace(values=values), num_samples=3, key=key).log_lik.sum()
    assert np.all(np.asarray(jax.jit(jax.grad(told))(grid.values))[~np.asarray(grid.mask)] == 0)


@models
def test_the_future_changes_no_forecast(name):
    table = make_table()
    cut = 3.0
    after = table.times > cut
    values = np.where(after[:, None] & table.mask, 1e3, table.values)
    moved = np.where(after, table.times + 0.71, table.times)
    changed = dataclasses.replace(table, values=values, times=moved)
    gone = table.keep_rows(~after)
    series = np.flatnonzero(np.diff(gone.starts))
    first_after = {
        i: table.times[table.starts[i] : table.starts[i + 1]][after[table.starts[i] : table.starts[i + 1]]]
        for i in series
    }
    until = [min([5.9, *first_after[i]]) for i in series]  # up to the first row that differs, and on it
    asked = [(i, t) for i, end in zip(series, until, strict=True) for t in np.linspace(cut, end, 7)]
    who, when = np.array([i for i, _ in asked]), np.array([t for _, t in asked])
    truth = ask(make_model(name), table, who, when)
    assert_same(truth, ask(make_model(name), changed, who, when))
    assert_same(truth, ask(make_model(name), gone, who, when))


@models
def test_an_observation_changes_the_forecasts_after_it(name):
    if name == "mean":
        return
    table = make_table()
    values = table.values.copy()
    values[table.starts[1] - 1] += 1.0
    changed = dataclasses.replace(table, values=values)
    time = table.times[table.starts[1] - 1]
    one, other = (ask(make_model(name), t, [0, 0], [time, time + 0.2]).mean for t in (table, changed))
    np.testing.assert_allclose(one[0], other[0], rtol=1e-12)  # at its own time it is not seen yet
    assert np.abs(one[1] - other[1]).max() > 1e-6


@models
def test_asking_for_more_or_other_times_changes_no_answer(name):
    table = make_table()
    few = ask(make_model(name), table, [0, 0, 1], [4.0, 7.3, 6.6])
    many_times = np.concatenate([[7.3], np.linspace(6.3, 11, 29), [4.0]])
    many = ask(make_model(name), table, np.append(np.zeros(len(many_times), int), 1), np.append(many_times, 6.6))
    at = np.array([len(many_times) - 1, 0, len(many_times)])
    assert_same(few, (part[at] for part in many))


@models
def test_order_of_series_and_company_change_no_answer(name):
    table = make_table(6)
    when = np.full(6, 6.5)
    together = ask(make_model(name), table, np.arange(6), when)
    shuffled = np.array([4, 1, 5, 0, 3, 2])
    permuted = ask(make_model(name), table.select(shuffled), np.arange(6), when)
    lengths = np.diff(table.starts)
    for i in (lengths.argmin(), lengths.argmax()):
        assert_same((part[[i]] for part in together), ask(make_model(name), table.select([i]), [0], [6.5]))
    assert_same((part[shuffled] for part in together), permuted)


@models
def test_a_shift_of_time_and_its_origin_changes_no_answer(name):
    table, shift = make_table(), 494 * MARCHING.periods[0]
    later = dataclasses.replace(table, times=table.times + shift)
    origin, when = -0.4, np.array([0.1, 5.0, 6.3])
    marching = lambda origin: dataclasses.replace(MARCHING, start=origin)
    here = ask(make_model(name), table, [0, 1, 2], when, marching=marching(origin))
    there = ask(make_model(name), later, [0, 1, 2], when + shift, marching=marching(origin + shift))
    assert_same(here, there, rtol=1e-7)


@slow_if_latent
def test_padding_changes_nothing(name, key):
    table, model = make_table(5), make_model(name)
    series = 4  # of four rows, where others have seven
    short, long = make_grid(table, series), of_batch(make_batch(table), series)
    rows = short.rows.shape[0]
    assert long.dt.shape[0] >= short.dt.shape[0] + 5
    assert long.rows.shape[0] >= rows + 3
    np.testing.assert_allclose(predict(model, short, key), predict(model, long, key)[:, :rows], rtol=1e-10, atol=1e-12)
    for a, b in zip(evidence(model, short, key), evidence(model, long, key), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


@slow_if_latent
def test_batch_equals_one_by_one(name, key):
    batch, model = make_batch(make_table(5)), make_model(name)
    keys = jr.split(key, 5)
    for ask_batch, ask_one in ((model.batch_evidence, evidence), (model.batch_predict, predict)):
        together = jax.jit(lambda grids, keys, ask=ask_batch: ask(grids, num_samples=3, keys=keys))(batch, keys)
        for i in range(5):
            one = ask_one(model, of_batch(batch, i), keys[i])
            for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(one), strict=True):
                np.testing.assert_allclose(a[i], b, rtol=1e-10, atol=1e-12)


@models
def test_gradients_reach_every_weight(name, key):
    batch, model = make_batch(make_table(6)), make_model(name)
    params, static = eqx.partition(model, eqx.is_inexact_array)

    @jax.jit
    @jax.grad
    def gradient(params):
        model = eqx.combine(params, static)
        evidence = model.batch_evidence(batch, num_samples=3, keys=jr.split(key, 6))
        return jnp.sum(evidence.log_lik - evidence.log_ratio + evidence.kl)

    leaves = jax.tree_util.tree_leaves_with_path(gradient(params))
    dead = [jax.tree_util.keystr(path) for path, leaf in leaves if not np.any(np.asarray(leaf))]
    assert not dead


@models
def test_units_of_the_user_are_put_back(name):
    table = make_table()
    scaler = make_scaler(table)
    doubled = Scaler(2 * scaler.mean + 5, 2 * scaler.std, scaler.time_scale)
    stretched = dataclasses.replace(table, values=np.where(table.mask, 2 * table.values + 5, 0.0))
    model = make_model(name)
    one = ask(model, table, [0, 1], [6.4, 6.5], scaler=scaler)
    two = ask(model, stretched, [0, 1], [6.4, 6.5], scaler=doubled)
    np.testing.assert_allclose(two.mean, 2 * one.mean + 5, rtol=1e-9)
    np.testing.assert_allclose(two.std, 2 * one.std, rtol=1e-9)
    np.testing.assert_allclose(two.quantiles, 2 * one.quantiles + 5, rtol=1e-9)


@pytest.mark.parametrize("name", [name for name in EVERY_MODEL if name != "linear"])  # which is Gaussian throughout
def test_students_t_is_a_matter_of_the_likelihood_alone(name, key):
    """Where a network tells two numbers a value, these are the same; what they mean is another density."""
    gaussian, student = make_model(name), make_model(name, likelihood="student")
    assert eqx.tree_equal(jax.tree.leaves(gaussian), jax.tree.leaves(student))
    grid = make_grid(make_table(5))
    assert np.isfinite(evidence(student, grid, key).log_lik).all()
    assert not np.array_equal(evidence(student, grid, key).log_lik, evidence(gaussian, grid, key).log_lik)


@pytest.mark.parametrize("name", ["vsdn-s", "ode-rnn", "gru-ode", "latent-sde"])
def test_an_even_pull_changes_gradients_alone(name, key):
    plain, even = make_model(name), make_model(name, even_pull=0.5)
    grid = make_grid(make_table(5))

    @eqx.filter_jit
    def pull(model):
        total = lambda model: jnp.sum(model.evidence(grid, num_samples=2, key=key).log_lik)
        return eqx.filter_value_and_grad(total)(model)

    (one, own), (two, evened) = pull(plain), pull(even)
    np.testing.assert_allclose(two, one, rtol=1e-12)
    assert not eqx.tree_equal(jax.tree.leaves(own), jax.tree.leaves(evened), rtol=1e-3)
