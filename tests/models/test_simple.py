"""The simple rivals say what their names say, and learn the variance they should."""

import equinox as eqx
import jax
import numpy as np
import pytest
from examples import MARCHING, make_grid, make_model, make_scaler, make_table
from scipy.optimize import minimize

from vsdn import training
from vsdn.answers import inference
from vsdn.answers.methods import by_trying
from vsdn.batches import Batches
from vsdn.grids.marching import Marching, make_grids
from vsdn.settings import Settings
from vsdn.tables.table import Scaler, Table


@pytest.mark.usefixtures("x64")
def test_the_last_value_is_carried_forward_and_its_variance_grows_with_the_gap(key):
    table, model = make_table(4, max_rows=14), make_model("last-value")
    scaler = make_scaler(table)
    predict = jax.jit(lambda grid: model.predict(grid, num_samples=1, key=key)[0])
    start, slope = np.log1p(np.exp(np.asarray(model.raw))).T
    for series in range(4):
        own = slice(*table.starts[series : series + 2])
        times, y, mask = table.times[own] / scaler.time_scale, scaler.scale(table.values[own]), table.mask[own]
        params = predict(make_grid(table, series))
        mean, variance = model.likelihood.mean(params), model.likelihood.variance(params)
        for row, channel in np.ndindex(*mask.shape):
            before = np.flatnonzero(mask[:row, channel])
            wanted = (0.0, 1.0)
            if len(before):
                gap = times[row] - times[before[-1]]
                wanted = (y[before[-1], channel], start[channel] + slope[channel] * gap)
            np.testing.assert_allclose((mean[row, channel], variance[row, channel]), wanted, rtol=1e-6)


@pytest.mark.thorough
@pytest.mark.usefixtures("x64", "lenient")
def test_the_fitted_variance_is_that_of_a_noisy_brownian_motion():
    """w(t) + noise, seen twice: the second value is N(first, 2 noise² + σ² gap), so errors are known exactly."""
    rng, count = np.random.default_rng(3), 3000
    sigma, noise = np.array([1.0, 0.3]), np.array([0.2, 0.4])
    gap = rng.exponential(0.7, count) + 0.01
    first = rng.normal(size=(count, 2))
    variance = 2 * noise**2 + sigma**2 * gap[:, None]
    second = rng.normal(first, np.sqrt(variance))
    times = np.stack([np.zeros(count), gap], axis=1).ravel()
    values = np.stack([first, second], axis=1).reshape(-1, 2)
    table = Table(np.arange(count), 2 * np.arange(count + 1), times, values, np.ones_like(values, bool), ("a", "b"))
    grids = make_grids(table, Scaler(np.zeros(2), np.ones(2), 1.0), Marching(100.0))
    batches = Batches.make(grids, 1000, 1)
    model = make_model("last-value", clock_size=0)
    settings = Settings().with_values({"epochs": 300, "learning_rate": 0.3, "patience": 300, "weight_decay": 0})
    state = training.first_state(model, batches, settings)
    *_, (state, _) = training.train(model, batches, batches, settings, state)
    fitted = np.asarray(jax.nn.softplus(state.params.raw))
    for channel in range(2):
        square = (second - first)[:, channel] ** 2
        nll = lambda p, square=square: np.mean(np.log(p[0] + p[1] * gap) + square / (p[0] + p[1] * gap))
        best = minimize(nll, [0.2, 0.5], bounds=[(1e-6, None)] * 2, method="Nelder-Mead", tol=1e-8).x
        np.testing.assert_allclose(fitted[channel], best, rtol=0.02)  # trained to the end
        design = np.stack([np.ones(count), gap], axis=1) / variance[:, channel, None]
        errors = np.sqrt(np.diag(np.linalg.inv(0.5 * design.T @ design)))  # Fisher's information of a variance
        truth = [2 * noise[channel] ** 2, sigma[channel] ** 2]
        assert np.all(np.abs(fitted[channel] - truth) < 4 * errors)
        assert np.all(errors < 0.1)


@pytest.mark.usefixtures("x64")
def test_the_mean_is_that_of_the_training_part_whatever_was_seen():
    table, model = make_table(), make_model("mean")
    scaler = make_scaler(table)
    request = inference.Request(table, np.array([0, 1, 2]), np.array([6.4, 7.0, 30.0]))
    frame = inference.Frame(scaler, MARCHING)
    answer = inference.forecast(model, frame, request, levels=(0.5,), num_samples=1, seed=0)
    np.testing.assert_allclose(answer.mean, np.broadcast_to(scaler.mean, (3, 2)), rtol=1e-12)
    np.testing.assert_allclose(answer.std, np.broadcast_to(scaler.std, (3, 2)), rtol=1e-6)
    assert not jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array))  # nothing to learn


@pytest.mark.usefixtures("x64")
def test_between_two_values_the_last_value_is_a_bridge(key):
    """Tried out: N(last, v₁), from which the next row is foretold as N(value, v₂); so Bayes' rule is in closed form."""
    table = Table(
        ids=np.arange(1),
        starts=np.array([0, 2]),
        times=np.array([0.0, 2.0]),
        values=np.array([[-1.0, 0.5], [1.5, 0.0]]),
        mask=np.array([[True, True], [True, False]]),
        variables=("a", "b"),
    )
    model = make_model("last-value", clock_size=0)
    model = eqx.tree_at(lambda m: m.raw, model, np.array([[-3.0, 0.5], [-3.0, 0.2]]))
    frame = inference.Frame(Scaler(np.zeros(2), np.ones(2), 1.0), Marching(0.3))
    request = inference.Request(table, np.zeros(1, int), np.array([0.7]))
    answer = inference.forecast(model, frame, request, levels=(0.5,), num_samples=20_000, seed=0, method=by_trying)
    start, slope = np.log1p(np.exp(np.asarray(model.raw))).T
    before, after = start + slope * 0.7, start + slope * 1.3
    variance = 1 / (1 / before[0] + 1 / after[0])
    mean = variance * (-1.0 / before[0] + 1.5 / after[0])
    assert answer.size is not None
    assert abs(answer.mean[0, 0] - mean) < 4 * np.sqrt(variance / answer.size[0])
    np.testing.assert_allclose(answer.std[0, 0], np.sqrt(variance), rtol=4 / np.sqrt(2 * answer.size[0]))
    assert abs(answer.mean[0, 1] - 0.5) < 4 * np.sqrt(before[1] / answer.size[0])  # nothing is seen of it later
    np.testing.assert_allclose(answer.std[0, 1], np.sqrt(before[1]), rtol=4 / np.sqrt(2 * answer.size[0]))
