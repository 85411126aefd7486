"""The linear model is exact: dense joint Gaussians say the same, and known processes are found again."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from examples import MARCHING, make_grid, make_model, make_scaler, make_table
from oracles import LinearSystem

from vsdn import training
from vsdn.batches import Batches
from vsdn.errors import SettingsError
from vsdn.grids.branching import make_queries
from vsdn.grids.marching import Marching, make_grids
from vsdn.settings import Settings
from vsdn.tables.table import Scaler, Table

START = Marching(0.3, start=-0.5, periods=(2.5,))


def shaken(model, key):
    """The model with every weight moved: no symmetry of the fresh one is left."""
    params, static = eqx.partition(model, eqx.is_inexact_array)
    leaves, tree = jax.tree.flatten(params)
    keys = jr.split(key, len(leaves))
    moved = [leaf + 0.3 * jr.normal(key, leaf.shape) for leaf, key in zip(leaves, keys, strict=True)]
    return eqx.combine(jax.tree.unflatten(tree, moved), static)


def drift(model):
    """The matrix A."""
    rate, turn = np.diag(np.asarray(model.root_rate) ** 2), np.diag(model.frequency)
    return np.block([[-rate, -turn], [turn, -rate]])


def as_system(model):
    """The same model as an oracle, but for the level that the readout adds."""
    diffusion, root = np.asarray(model.diffusion), np.asarray(model.initial_root)
    return LinearSystem(
        drift(model),
        np.asarray(model.push),
        diffusion @ diffusion.T,
        np.asarray(model.initial_mean),
        root @ root.T,
        np.asarray(model.weight),
        model.floor**2 + np.asarray(model.root_noise) ** 2,
    )


def rows_of(table, series, marching):
    """Times since the start and values in the model's units, mask, and the clock of one series."""
    own, scaler = slice(*table.starts[series : series + 2]), make_scaler(table)
    start = table.times[own.start] if marching.start is None else marching.start
    times = (table.times[own] - start) / scaler.time_scale
    return times, scaler.scale(table.values[own]), table.mask[own], marching.clock(table.times[own])


def level(model, clock):
    """What the readout adds at a clock (any, clock)."""
    return np.asarray(model.offset)[:, 0] + clock @ np.asarray(model.offset)[:, 1:].T


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("marching", [MARCHING, START], ids=["from the first row", "from a given start"])
def test_likelihood_is_that_of_the_dense_joint_gaussian(marching, key):
    table, model = make_table(4, max_rows=14), shaken(make_model("linear", latent_size=5), key)
    ask = jax.jit(lambda grid: model.evidence(grid, num_samples=4, key=key))
    for series in range(4):
        times, y, mask, clock = rows_of(table, series, marching)
        truth = as_system(model).log_lik(times, y - level(model, clock), mask)
        evidence = ask(make_grid(table, series, marching, pad=3))
        np.testing.assert_allclose(evidence.log_lik, [truth], rtol=1e-9)
        assert [evidence.kl, evidence.log_ratio] == [0.0, 0.0]


@pytest.mark.usefixtures("x64")
def test_forecasts_are_the_dense_conditional_law(key):
    table, model = make_table(3, max_rows=14), shaken(make_model("linear"), key)
    times, y, mask, _ = rows_of(table, 1, START)
    scaler, own = make_scaler(table), table.times[table.starts[1] : table.starts[2]]
    asked = np.concatenate([[START.start], own, own + 0.03, [own[-1] + 2.0]])
    queries = make_queries(table, scaler, START, np.ones(len(asked), int), asked)
    grids = make_grids(table, scaler, START, tail=queries.tail)
    first = lambda batch: jax.tree.map(lambda part: part[0], batch)
    grid = first(grids.pad(np.array([1]), int(grids.num_points[1]) + 2, len(own)))
    forecast = jax.jit(lambda grid, queries: model.forecast(grid, queries, num_samples=1, key=key)[0])
    params = forecast(grid, first(queries.pad(np.array([1]), len(asked))))
    mean, variance = model.likelihood.mean(params), model.likelihood.variance(params)
    system, centred = as_system(model), y - level(model, START.clock(own))
    for number, time in enumerate(asked):
        seen, when = own < time, (time - START.start) / scaler.time_scale
        wanted = system.foretell(times[seen], centred[seen], mask[seen], when)
        np.testing.assert_allclose(mean[number], wanted[0] + level(model, START.clock(np.array([time])))[0], rtol=1e-8)
        np.testing.assert_allclose(variance[number], wanted[1], rtol=1e-8)
    rows = jax.jit(lambda grid: model.predict(grid, num_samples=1, key=key)[0])(
        grid
    )  # each row is foretold as a query at its time is
    np.testing.assert_allclose(rows, params[1 : 1 + len(own)], rtol=1e-8, atol=1e-10)


def ask_at(table, series, marching, asked):
    """A series on its grid, and queries at these times."""
    scaler = make_scaler(table)
    queries = make_queries(table, scaler, marching, np.full(len(asked), series), asked)
    grids = make_grids(table, scaler, marching, tail=queries.tail)
    first = lambda batch: jax.tree.map(lambda part: part[0], batch)
    num_rows = int(grids.num_rows[series])
    grid = first(grids.pad(np.array([series]), int(grids.num_points[series]) + 2, num_rows + 1))
    return grid, first(queries.pad(np.array([series]), len(asked)))


@pytest.mark.usefixtures("x64")
def test_interpolation_and_filter_are_the_dense_conditional_law(key):
    table, model = make_table(3, max_rows=14), shaken(make_model("linear"), key)
    times, y, mask, clock = rows_of(table, 1, START)
    own = table.times[table.starts[1] : table.starts[2]]
    asked = np.concatenate([[START.start], own, own + 0.03, 0.5 * (own[1:] + own[:-1]), [own[-1] + 2.0]])
    grid, queries = ask_at(table, 1, START, asked)
    answer = jax.jit(lambda grid, queries: model.interpolate(grid, queries, num_samples=1, key=key).params[0])
    params = answer(grid, queries)
    system, centred = as_system(model), y - level(model, clock)
    moments = lambda params: (model.likelihood.mean(params), model.likelihood.variance(params))
    for number, time in enumerate(asked):
        when = np.array([(time - START.start) / make_scaler(table).time_scale])
        mean, cov = system.joint(times, centred, mask, when)
        got = moments(params[number])
        np.testing.assert_allclose(got[0], mean + level(model, START.clock(np.array([time])))[0], rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(got[1], np.diag(cov), rtol=1e-7)
    filtered = jax.jit(lambda grid: model.filter(grid, num_samples=1, key=key).params[0])(grid)
    for row in range(len(own)):
        past = slice(0, row + 1)
        mean, cov = system.joint(times[past], centred[past], mask[past], times[row : row + 1])
        got = moments(filtered[row])
        np.testing.assert_allclose(got[0], mean + level(model, clock[row : row + 1])[0], rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(got[1], np.diag(cov), rtol=1e-7)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_draws_have_the_joint_law(key):
    """Of what was measured again at all rows, and at times between and after them; mean and covariance."""
    table, model = make_table(3, max_rows=7), shaken(make_model("linear"), key)
    times, y, mask, clock = rows_of(table, 1, START)
    own = table.times[table.starts[1] : table.starts[2]]
    when = np.sort(np.concatenate([0.5 * (own[1:] + own[:-1]), [own[-1] + 0.2, own[-1] + 1.5]]))
    merged, rows = table.with_times(np.ones(len(when), int), when)
    grid, _ = ask_at(merged, 1, START, own[:1])
    draw = jax.jit(lambda grid: model.sample_rows(grid, num_samples=40_000, key=key))
    values = np.asarray(draw(grid))[:, rows - merged.starts[1]]
    mean, cov = as_system(model).joint(
        times, y - level(model, clock), mask, (when - START.start) / make_scaler(table).time_scale
    )
    mean += level(model, START.clock(when)).ravel()
    flat = values.reshape(len(values), -1)
    assert np.all(np.abs(flat.mean(axis=0) - mean) < 4 * np.sqrt(np.diag(cov) / len(flat)))
    centred = flat - mean
    products = centred[:, :, None] * centred[:, None]
    assert np.all(np.abs(products.mean(axis=0) - cov) < 4.5 * products.std(axis=0) / len(flat) ** 0.5)
    apart = np.abs(cov - np.diag(np.diag(cov)))
    assert apart.max() > 0.1  # times go together


@pytest.mark.usefixtures("x64")
def test_the_solver_step_changes_no_answer(key):
    table, model = make_table(), shaken(make_model("linear"), key)
    coarse, fine = (make_grid(table, 1, Marching(step, periods=(2.5,))) for step in (5.0, 0.01))
    assert fine.dt.shape[0] > 10 * coarse.dt.shape[0]
    ask = jax.jit(lambda grid: model.evidence(grid, num_samples=1, key=key).log_lik)
    np.testing.assert_allclose(ask(coarse), ask(fine), rtol=1e-10)


def test_gradients_are_finite_in_32_bits(key):
    """For rows at one time with the start, known exactly, and for values far from anything foretold."""
    model = make_model("linear", clock_size=0, latent_size=4)
    model = eqx.tree_at(
        lambda m: (m.initial_root, m.root_noise, m.root_rate), model, replace_fn=lambda leaf: jnp.zeros_like(leaf)
    )
    table = make_table(1, max_rows=9)
    gradient_of = eqx.filter_jit(eqx.filter_grad(lambda m, g: m.evidence(g, num_samples=1, key=key).log_lik[0]))
    for values in (table.values, np.where(table.mask, 1e4, 0.0)):
        grid = make_grid(dataclasses.replace(table, values=values), marching=Marching(0.3), scaler=make_scaler(table))
        for leaf in jax.tree.leaves(eqx.filter(gradient_of(model, grid), eqx.is_inexact_array)):
            assert leaf.dtype == jnp.float32
            assert np.isfinite(leaf).all()


def simulate(system, num_series, num_rows, rng):
    """A table of series from the system, at irregular times, a third of the values unseen."""
    times = np.cumsum(rng.exponential(0.4, (num_series, num_rows)), axis=1)
    state = rng.multivariate_normal(system.mean, system.cov, num_series)
    values = np.empty((num_series, num_rows, len(system.noise)))
    for series, row in np.ndindex(num_series, num_rows):
        gap = times[series, row] - (times[series, row - 1] if row else 0.0)
        flow, shift, cov = system.transition(gap)
        state[series] = rng.multivariate_normal(flow @ state[series] + shift, cov)
        values[series, row] = rng.normal(system.readout @ state[series], np.sqrt(system.noise))
    mask = rng.random((num_series * num_rows, 2)) < 2 / 3
    mask[~mask.any(axis=1), 0] = True
    starts = np.arange(num_series + 1) * num_rows
    values = np.where(mask, values.reshape(-1, 2), 0.0)
    return Table(np.arange(num_series), starts, times.ravel(), values, mask, ("a", "b"))


def what_is_identified(model):
    """Drift and diffusion of C x and the noise of y: what any choice of coordinates for x has in common."""
    rate, turn = jnp.diag(model.root_rate**2), jnp.diag(model.frequency)
    a, c = jnp.block([[-rate, -turn], [turn, -rate]]), model.weight
    root = c @ model.diffusion
    noise = model.floor**2 + model.root_noise**2
    return jnp.concatenate([(c @ a @ jnp.linalg.inv(c)).ravel(), (root @ root.T)[jnp.tril_indices(2)], noise])


@pytest.mark.slow
@pytest.mark.usefixtures("x64", "lenient")
def test_a_known_ornstein_uhlenbeck_process_is_recovered(key):
    """All nine parameters within four standard errors, which the observed information tells."""
    drift, spread = np.array([[-1.1, -0.9], [0.8, -0.5]]), np.array([[0.5, 0.2], [0.2, 0.4]])
    noise = np.array([0.02, 0.05])
    system = LinearSystem(drift, np.zeros(2), spread, np.zeros(2), np.eye(2) / 3, np.eye(2), noise)
    table = simulate(system, 100, 30, np.random.default_rng(11))
    batches = Batches.make(make_grids(table, Scaler(np.zeros(2), np.ones(2), 1.0), Marching(5.0, start=0.0)), 25, 1)
    model = make_model("linear", clock_size=0, latent_size=2)
    settings = Settings().with_values({"epochs": 80, "learning_rate": 0.05, "patience": 80, "weight_decay": 0})
    state = training.first_state(model, batches, settings)
    *_, (state, _) = training.train(model, batches, batches, settings, state)
    static = eqx.partition(model, eqx.is_inexact_array)[1]
    flat, unravel = jax.flatten_util.ravel_pytree(state.params)
    everything = next(iter(dataclasses.replace(batches, batch_size=100)))

    def minus_log_lik(flat):
        model = eqx.combine(unravel(flat), static)
        return -jnp.sum(model.batch_evidence(everything.grid, num_samples=1, keys=jr.split(key, 100)).log_lik)

    parameters = lambda flat: what_is_identified(eqx.combine(unravel(flat), static))
    information = np.asarray(jax.jit(jax.hessian(minus_log_lik))(flat))
    slope = np.asarray(jax.jacobian(parameters)(flat))
    errors = np.sqrt(np.diag(slope @ np.linalg.pinv(information, rcond=1e-7, hermitian=True) @ slope.T))
    truth = np.concatenate([drift.ravel(), spread[np.tril_indices(2)], noise])
    z = (np.asarray(parameters(flat)) - truth) / errors
    assert np.abs(z).max() < 4
    assert errors.max() < 0.15  # and the errors are small enough to tell something


def test_another_likelihood_is_refused():
    with pytest.raises(SettingsError, match="likelihood must be gaussian, but is student"):
        make_model("linear", likelihood="student")
