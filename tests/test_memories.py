"""How long a memory holds what it took: against the closed form of a memory whose weights are nought."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vsdn.memories.memory import FLOWS, ODERNN
from vsdn.models.gru_ode import make_gru_ode
from vsdn.settings import ModelSettings

pytestmark = pytest.mark.usefixtures("x64")
HIDDEN, ROWS, SPAN = 4, 1000.0, 50.0
LOG_ROWS, LOG_SPAN = (np.linspace(0, np.log(most), HIDDEN) for most in (ROWS, SPAN))


def make_ode_rnn(flow):
    return lambda key: ODERNN(2, 0, HIDDEN, 5, flow=flow, activation="tanh", key=key)


def make_bayes_memory(key):
    return make_gru_ode(
        2, (), ModelSettings(model="gru-ode", hidden_size=HIDDEN, latent_size=3, width=5), key=key
    ).memory


MEMORIES = {flow: make_ode_rnn(flow) for flow in FLOWS} | {"gru-ode": make_bayes_memory}


def blank(memory):
    """The memory with nothing but zeros in its networks, so that it can only forget."""
    return jax.tree.map(lambda leaf: jnp.zeros_like(leaf) if eqx.is_array(leaf) else leaf, memory)


@pytest.mark.parametrize("make", MEMORIES.values(), ids=MEMORIES)
def test_spread_units_hold_from_one_row_to_all(make, key):
    """z = n / (n + 1) of what was known is left after a row, for n from 1 to all rows: a row alone moves little."""
    memory = blank(make(key)).spread(ROWS, SPAN)
    h = memory.jump(jnp.ones(HIDDEN), jnp.array([0.5, -2.0]), jnp.array([True, False]))
    n = np.exp(LOG_ROWS)
    np.testing.assert_allclose(h, n / (n + 1), rtol=1e-12)


@pytest.mark.parametrize(("name", "make"), MEMORIES.items(), ids=MEMORIES)
def test_spread_units_fade_over_one_unit_of_time_to_the_whole_span(name, make, key):
    memory = blank(make(key)).spread(ROWS, SPAN)
    rate = np.exp(-LOG_SPAN) if name == "leaky" else 1 / (1 + np.exp(LOG_SPAN))  # a gate is half open at 0
    np.testing.assert_allclose(memory.flow(jnp.ones(HIDDEN), jnp.zeros(0)), -rate, rtol=1e-12)


@pytest.mark.parametrize("make", MEMORIES.values(), ids=MEMORIES)
def test_spreading_changes_nothing_but_how_long_is_held(make, key):
    before, after = (eqx.filter(memory, eqx.is_array) for memory in (make(key), make(key).spread(ROWS, SPAN)))
    same = jax.tree.map(lambda a, b: bool(jnp.array_equal(a, b)), before, after)
    assert jax.tree.leaves(same).count(False) == 2  # the cell's biases and the flow's


@pytest.mark.parametrize("make", MEMORIES.values(), ids=MEMORIES)
def test_of_series_of_one_row_nothing_is_longer(make, key):
    memory = blank(make(key)).spread(0.0, 0.0)
    assert jnp.isfinite(memory.flow(jnp.ones(HIDDEN), jnp.zeros(0))).all()
    np.testing.assert_allclose(memory.cell.bias, 0.0)
