"""How long values last: found again where it is known."""

import jax
import numpy as np
import pytest
from examples import make_table as example_table

import vsdn
from vsdn.data import Scaler, Table
from vsdn.nets import Fading
from vsdn.persistence import measure_persistence


def make_table(channels, num_series=200, num_rows=50, time_scale=2.0):
    """Series whose values are made by `channels`, functions of the times of a series, in the model's units."""
    rng = np.random.default_rng(5)
    times = np.cumsum(rng.uniform(0.05, 3.0, (num_series, num_rows)), axis=1)
    values = np.stack([[make(row / time_scale, rng) for row in times] for make in channels], axis=-1)
    starts = np.arange(num_series + 1) * num_rows
    flat = values.reshape(-1, len(channels))
    names = tuple(f"v{number}" for number in range(len(channels)))
    table = Table(np.arange(num_series), starts, times.ravel(), flat, np.ones(flat.shape, bool), names)
    return table, Scaler(np.zeros(len(channels)), np.ones(len(channels)), time_scale)


def ornstein_uhlenbeck(rate, noise=0.0):
    """Stationary with variance 1 and, at each row, noise of so much more variance."""

    def make(times, rng):
        state = [rng.normal()]
        for gap in np.diff(times):
            left = np.exp(-rate * gap)
            state.append(left * state[-1] + np.sqrt(1 - left**2) * rng.normal())
        return np.array(state) + np.sqrt(noise) * rng.normal(size=len(times))

    return make


def test_an_ornstein_uhlenbeck_process_with_noise_is_found_again():
    """Best linear forecast of its next value: 1 / (1 + noise) of the last, times exp(−rate·gap)."""
    table, scaler = make_table([ornstein_uhlenbeck(1.5), ornstein_uhlenbeck(0.5, noise=1.0)], num_series=400)
    share, rate = measure_persistence(table, scaler)
    gap = 0.75  # the usual one
    np.testing.assert_allclose(share * np.exp(-rate * gap), [np.exp(-1.5 * gap), 0.5 * np.exp(-0.5 * gap)], atol=0.03)
    np.testing.assert_allclose(share, [1.0, 0.5], atol=0.06)


def test_what_never_changes_lasts_and_noise_does_not():
    steady = lambda times, rng: np.full(len(times), rng.normal())
    noise = lambda times, rng: rng.normal(size=len(times))
    share, rate = measure_persistence(*make_table([steady, noise]))
    assert share[0] == pytest.approx(1.0, abs=1e-3)
    assert rate[0] < 1e-2
    assert share[1] * np.exp(-rate[1] * 0.75) < 0.05


def test_a_variable_seen_once_a_series_or_never_lasts():
    table, scaler = make_table([ornstein_uhlenbeck(1.0), ornstein_uhlenbeck(1.0)], num_series=3)
    mask = np.zeros(table.mask.shape, bool)
    mask[table.starts[:-1], 0] = True
    once = Table(table.ids, table.starts, table.times, table.values, mask, table.variables)
    share, rate = measure_persistence(once, scaler)
    np.testing.assert_array_equal(share, [1.0, 1.0])
    assert np.all(rate > 0)


@pytest.mark.parametrize("name", ["vsdn-s", "ode-rnn"])
def test_a_fit_begins_with_what_was_measured(name):
    table = example_table()
    size = {"hidden_size": 4, "latent_size": 2, "width": 4, "init_width": 4, "batch_size": 2}
    fitted = vsdn.fit(table, model=name, settings={"keep_last": True, "epochs": 0, **size}, progress=False)
    share, rate = measure_persistence(table, fitted.scaler)
    is_fading = lambda part: isinstance(part, Fading)
    fadings = [part for part in jax.tree.leaves(fitted.model, is_leaf=is_fading) if is_fading(part)]
    assert len(fadings) == (2 if name == "vsdn-s" else 1)
    for fading in fadings:
        np.testing.assert_allclose(fading.share, share, rtol=1e-5)
        np.testing.assert_allclose(np.exp(fading.log_rate), rate, rtol=1e-4)
