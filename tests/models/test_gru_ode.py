"""GRU-ODE-Bayes' own truths: its flow is a GRU's step, its jumps are compared with Bayes' rule."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from examples import SIZES, make_grid, make_model, make_table
from oracles import bayes_kl

from vsdn.models.gru_ode import GRUODE, NUM_GATES
from vsdn.training.objectives import iwae, vae

pytestmark = pytest.mark.usefixtures("x64")
cells = pytest.mark.parametrize("num_gates", NUM_GATES.values(), ids=NUM_GATES)


@pytest.mark.parametrize("noise", [0.01, 0.7])
def test_the_kl_of_a_jump_is_the_integral_of_its_densities(noise, key):
    model, grid, weight = make_model("gru-ode", bayes_noise=noise, bayes_weight=0.3), make_grid(make_table()), 0.3
    memory, values = eqx.filter_jit(model.memory.forward)(grid), np.asarray(grid.values)
    foretell = jax.jit(jax.vmap(lambda h: model.memory.foretell(h)))
    moments = [jax.tree.map(np.asarray, foretell(h)) for h in (memory.pre, memory.post)]
    kl = np.zeros(grid.mask.shape)
    for point, channel in np.argwhere(np.asarray(grid.mask)):
        pre, post = ((float(told.mean[point, channel]), float(told.variance[point, channel])) for told in moments)
        kl[point, channel] = bayes_kl(pre, values[point, channel], noise, post)
    jump_kl = jax.jit(lambda memory: model.jump_kl(grid, memory))
    np.testing.assert_allclose(jump_kl(memory), kl[np.asarray(grid.rows)], rtol=1e-8)
    evidence = jax.jit(lambda grid: model.evidence(grid, num_samples=5, key=key))(grid)
    np.testing.assert_allclose(evidence.kl, [weight * kl.sum()], rtol=1e-8)
    assert kl.sum() > 1


def test_either_bound_is_the_authors_loss(key):
    grid = make_grid(make_table())
    evidence, plain = (
        eqx.filter_jit(make_model("gru-ode", bayes_weight=weight).evidence)(grid, num_samples=1, key=key)
        for weight in (0.2, 0.0)
    )
    loss = -plain.log_lik[0] + evidence.kl[0]
    assert -vae(evidence) == pytest.approx(float(loss))
    assert -iwae(evidence) == pytest.approx(float(loss))
    assert plain.kl[0] == 0 < evidence.kl[0]


@cells
def test_a_step_of_length_one_is_the_step_of_a_gru(num_gates, key):
    flow = GRUODE(4, 2, num_gates, key=key)
    h, clock = np.split(np.asarray(jr.normal(key, (6,))), [4])
    sigmoid = lambda x: 1 / (1 + np.exp(-x))
    apply = lambda layer, *inputs: np.asarray(layer.weight) @ np.concatenate(inputs) + np.asarray(layer.bias)
    gates = sigmoid(apply(flow.gates, h, clock))
    r, z = np.split(gates, 2) if num_gates == 2 else (gates, gates)
    g = np.tanh(apply(flow.candidate, r * h, clock))
    np.testing.assert_allclose(h + flow(jnp.asarray(h), jnp.asarray(clock)), z * h + (1 - z) * g, rtol=1e-12)


@cells
def test_the_flow_keeps_the_memory_within_one(num_gates, key):
    flow = jax.tree.map(lambda leaf: 30 * leaf, GRUODE(6, 0, num_gates, key=key))
    step = jax.jit(lambda h: h + flow(h, jnp.zeros(0)))  # the longest step: longer ones could leave
    h = jnp.sign(jr.normal(key, (6,)))
    for _ in range(50):
        h = step(h)
        assert jnp.abs(h).max() <= 1


def test_a_variable_that_was_not_seen_has_no_say_in_a_jump(key):
    model = make_model("gru-ode")
    other = eqx.tree_at(lambda m: m.memory.preparation.weight, model, model.memory.preparation.weight.at[1].add(1.0))
    h, y = jr.normal(key, (SIZES["hidden_size"],)), jnp.ones(2)
    jumps = lambda mask: [np.asarray(m.memory.jump(h, y, jnp.array(mask))) for m in (model, other)]
    np.testing.assert_array_equal(*jumps([True, False]))
    np.testing.assert_array_equal(jumps([False, False]), [h, h])
    assert not np.allclose(*jumps([False, True]))


@pytest.mark.parametrize("name", NUM_GATES)
def test_both_cells_can_be_asked_for(name):
    gates = make_model("gru-ode", gru_ode_cell=name).memory.flow.gates
    assert gates.out_features == NUM_GATES[name] * SIZES["hidden_size"]


@pytest.mark.parametrize("noise", [1e-6, pytest.param(1e3, marks=pytest.mark.thorough)])
def test_the_kl_is_finite_at_the_bounds_of_its_noise(noise, key):
    with jax.enable_x64(False):  # as users have it
        model, grid = make_model("gru-ode", bayes_noise=noise, bayes_weight=1.0), make_grid(make_table())
        kl_of = eqx.filter_value_and_grad(lambda model: model.evidence(grid, num_samples=1, key=key).kl[0])
        kl, gradient = eqx.filter_jit(kl_of)(model)
    assert kl.dtype == jnp.float32
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((kl, gradient)))
