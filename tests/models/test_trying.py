"""Values tried out find the law that later rows leave, also where it is far from what was foretold."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from vsdn.likelihoods import Gaussian, Likelihood
from vsdn.models import trying
from vsdn.particles import effective_size

pytestmark = pytest.mark.usefixtures("x64")
LIKELIHOOD = Likelihood((Gaussian(1e-6),) * 2)
COUNT = 256


def seek(centre, width, key):
    """Draws under N(0, 1) for each of two variables, weighed by a Gaussian about `centre`."""
    foretold = LIKELIHOOD.with_moments(jnp.zeros((COUNT, 2)), jnp.ones((COUNT, 2)))
    weigh = lambda y: -0.5 * jnp.sum(((y - centre) / width) ** 2, axis=1)
    return trying.seek(LIKELIHOOD, foretold, weigh, key=key)


@pytest.mark.parametrize(("centre", "width"), [(0.0, 5.0), (0.5, 0.3), (1.5, 0.1)])
def test_draws_move_to_where_the_weight_is(centre, width, key):
    values, log_weights = jax.jit(jax.vmap(lambda key: seek(centre, width, key)))(jr.split(key, 200))
    weights = np.exp(np.asarray(log_weights))[..., None]
    mean = np.sum(weights * np.asarray(values), axis=1).ravel()
    spread = np.sum(weights * (np.asarray(values) - np.sum(weights * values, axis=1, keepdims=True)) ** 2, axis=1)
    precision = 1 + width**-2
    assert abs(mean.mean() - centre * width**-2 / precision) < 4 * mean.std() / mean.size**0.5 + 1e-3 * precision**-0.5
    assert spread.mean() == pytest.approx(1 / precision, rel=0.05)
    assert np.mean(jax.vmap(effective_size)(log_weights)) > 0.3 * COUNT


def test_without_pilots_few_draws_would_count(key):
    y = jr.normal(key, (COUNT, 2))
    assert effective_size(jax.nn.log_softmax(-0.5 * jnp.sum(((y - 1.5) / 0.1) ** 2, axis=1))) < 0.03 * COUNT
