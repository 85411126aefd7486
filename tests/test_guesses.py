"""What a memory is told of its errors."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from vsdn.memories.guessing import MOST_LOG_SCALE, Guess
from vsdn.memories.keepers import squash

pytestmark = pytest.mark.usefixtures("x64")
SEEN = jnp.array([True, False, True])


@pytest.fixture
def guess(key):
    return Guess(3, 4, 5, 6, activation="tanh", key=key)


def test_news_are_of_the_error_in_deviations(guess, key):
    h, y = jr.normal(key, (4,)), jnp.array([0.3, 7.0, -40.0])
    mean, log_scale = guess(h)
    news = np.stack([y, mean, 2 * log_scale, squash((y - mean) / np.exp(log_scale))], axis=1)
    weight, bias = guess.preparation.weight, guess.preparation.bias
    wanted = np.maximum(np.einsum("cpn,cn->cp", weight, news) + bias, 0.0)
    wanted[1] = 0.0  # not seen
    np.testing.assert_allclose(guess.news(h, y, SEEN).reshape(3, 6), wanted, rtol=1e-12)


def test_what_was_not_seen_is_told_nothing_of(guess, key):
    h, y = jr.normal(key, (4,)), jnp.array([0.3, 7.0, -40.0])
    other = jnp.where(SEEN, y, 1e9)
    np.testing.assert_array_equal(guess.news(h, y, SEEN), guess.news(h, other, SEEN))


def test_a_guess_is_of_each_place_alone_and_bounded(guess, key):
    h = 1e3 * jr.normal(key, (2, 7, 4))
    along = guess(h)
    alone = jax.vmap(jax.vmap(guess))(h)
    np.testing.assert_allclose(along.mean, alone.mean, rtol=1e-12)
    np.testing.assert_allclose(along.log_scale, alone.log_scale, rtol=1e-12)
    assert np.abs(along.log_scale).max() <= MOST_LOG_SCALE
