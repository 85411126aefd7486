"""The filter's parts against matrix exponentials, quadrature and 64 bits."""

import functools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from oracles import LinearSystem

from vsdn import kalman
from vsdn.kalman import Belief, LinearSDE, Readout


def make_sde(key, rate, frequency):
    """A linear SDE with these modes, pushed and driven by correlated noise."""
    size = 2 * len(rate)
    push_key, diffusion_key = jr.split(key)
    return LinearSDE(
        jnp.array(rate), jnp.array(frequency), jr.normal(push_key, (size,)), jr.normal(diffusion_key, (size, size))
    )


def drift(sde):
    """The matrix A."""
    rate, turn = np.diag(sde.rate), np.diag(sde.frequency)
    return np.block([[-rate, -turn], [turn, -rate]])


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("gap", [0.0, 1e-7, 0.3, 4.0, 60.0])
def test_a_gap_is_crossed_exactly(gap, key):
    """Modes that stay, that only turn, that only decay, that are alike, and all of it together."""
    sde = make_sde(key, [0.0, 0.0, 0.8, 0.8, 1.3, 1e-9], [0.0, 2.0, 0.0, 0.0, -0.7, 1e-9])
    got = jax.jit(kalman.discretise)(sde, jnp.asarray(gap))
    spread = np.asarray(sde.diffusion @ sde.diffusion.T)
    system = LinearSystem(drift(sde), np.asarray(sde.push), spread, np.zeros(12), np.eye(12), np.eye(12), np.ones(12))
    pieces = 1 + int(gap // 4)  # Van Loan's block grows as e^{at}: a long gap in pieces
    step_flow, step_shift, step_cov = system.transition(gap / pieces)
    flow, shift, cov = np.eye(12), np.zeros(12), np.zeros((12, 12))
    for _ in range(pieces):
        flow, shift = step_flow @ flow, step_flow @ shift + step_shift
        cov = step_flow @ cov @ step_flow.T + step_cov
    for mine, exact in zip(got, (flow, shift, cov), strict=True):
        np.testing.assert_allclose(mine, exact, rtol=1e-9, atol=1e-11)


@pytest.mark.usefixtures("x64")
def test_mean_exp_and_its_derivatives_are_integrals():
    size = np.array([0.0, 1e-12, 1e-6, 0.1, 0.4999, 0.5001, 1.0, 9.0])
    angle = np.array([0.5, 0.8, 1.0, 1.3, 1.5]) * np.pi  # decays or turns, never grows
    z = (size[:, None] * np.exp(1j * angle)).ravel()
    nodes, weights = np.polynomial.legendre.leggauss(60)
    s, weights = (nodes + 1) / 2, weights / 2
    exact = [np.exp(z[:, None] * s) * s**order @ weights for order in range(3)]
    first = jax.grad(kalman.mean_exp, holomorphic=True)
    second = jax.grad(first, holomorphic=True)
    for function, integral in zip((kalman.mean_exp, first, second), exact, strict=True):
        np.testing.assert_allclose(jax.jit(jax.vmap(function))(jnp.asarray(z)), integral, rtol=1e-12)


@pytest.mark.usefixtures("x64")
def test_seeing_one_variable_after_another_is_seeing_them_at_once(key):
    root_key, mean_key, weight_key, y_key = jr.split(key, 4)
    root = jr.normal(root_key, (4, 4))
    belief = Belief(jr.normal(mean_key, (4,)), root @ root.T)
    mean, cov = map(np.asarray, belief)
    readout = Readout(jr.normal(weight_key, (5, 4)), jnp.array([0.5, 0.1, 1.0, 0.2, 0.3]))
    y, mask = jr.normal(y_key, (5,)), np.array([True, False, True, True, False])
    after, log_lik = jax.jit(kalman.observe)(belief, readout, y, jnp.asarray(mask))
    weight, noise = np.asarray(readout.weight)[mask], np.diag(np.asarray(readout.noise)[mask])
    spread = weight @ cov @ weight.T + noise
    surprise = np.asarray(y)[mask] - weight @ mean
    gain = np.linalg.solve(spread, weight @ cov).T
    np.testing.assert_allclose(after.mean, mean + gain @ surprise, rtol=1e-10)
    np.testing.assert_allclose(after.cov, cov - gain @ weight @ cov, rtol=1e-9, atol=1e-12)
    quadratic = surprise @ np.linalg.solve(spread, surprise)
    np.testing.assert_allclose(log_lik, -0.5 * (quadratic + np.linalg.slogdet(2 * np.pi * spread)[1]), rtol=1e-10)


def hard_case(dtype):
    """Three hundred rows of nearly noiseless, nearly equal variables, some rows with nothing seen."""
    rng = np.random.default_rng(5)
    rate, frequency, gaps = np.array([1.0, 0.0]), np.zeros(2), rng.exponential(0.05, 300)
    diffusion = np.zeros((4, 4))
    diffusion[0, 0], diffusion[2, 0], diffusion[2, 2] = 1.0, 0.99, 0.14
    mask = rng.random((300, 2)) < 0.5
    y = np.cumsum(rng.normal(size=(300, 1)) * np.sqrt(gaps)[:, None], axis=0) + 0.02 * rng.normal(size=(300, 2))
    cast = lambda *arrays: [jnp.asarray(array, dtype) for array in arrays]
    sde = LinearSDE(*cast(rate, frequency, np.zeros(4), diffusion))
    initial = Belief(*cast(np.zeros(4), np.diag([0.0, 1.0, 0.0, 1.0])))
    readout = Readout(*cast(np.array([[1.0, 1, 0, 0], [0, 0, 1, 1]]), np.full(2, 1e-6)))
    return sde, initial, readout, *cast(gaps, y), jnp.asarray(mask)


def filter_hard_case(dtype):
    sde, initial, readout, gaps, y, mask = hard_case(dtype)

    @jax.jit
    @functools.partial(jax.value_and_grad, has_aux=True)
    def run(sde):
        transitions = jax.vmap(lambda gap: kalman.discretise(sde, gap))(gaps)
        filtered = kalman.filter_rows(initial, transitions, readout, y, mask)
        return jnp.sum(filtered.log_lik), filtered

    (_, filtered), gradient = run(sde)
    return jax.tree.map(np.asarray, filtered), jax.tree.map(np.asarray, gradient)


def test_32_bits_are_enough_for_nearly_noiseless_data():
    filtered, gradient = filter_hard_case(jnp.float32)
    with jax.enable_x64(True):
        exact, exact_gradient = filter_hard_case(jnp.float64)
    assert filtered.log_lik.dtype == np.float32
    assert exact.log_lik.dtype == np.float64
    assert abs(filtered.log_lik.sum() - exact.log_lik.sum()) < 1e-3 * abs(exact.log_lik.sum())
    least = np.linalg.eigvalsh(filtered.after.cov.astype(float)).min()
    assert least > -1e-6  # of variances up to 1
    for part, wanted in zip(gradient, exact_gradient, strict=True):
        np.testing.assert_allclose(part, wanted, rtol=0.02, atol=0.02 * np.abs(wanted).max())


def smooth_hard_case(dtype):
    sde, initial, readout, gaps, y, mask = hard_case(dtype)

    @jax.jit
    def run(sde):
        transitions = jax.vmap(lambda gap: kalman.discretise(sde, gap))(gaps)
        smoothed = kalman.smooth_rows(kalman.filter_rows(initial, transitions, readout, y, mask), transitions)
        return jax.vmap(lambda belief: kalman.read(belief, readout))(smoothed)

    return jax.tree.map(np.asarray, run(sde))


def test_32_bits_are_enough_to_smooth_nearly_noiseless_data():
    mean, variance = smooth_hard_case(jnp.float32)
    with jax.enable_x64(True):
        exact, exact_variance = smooth_hard_case(jnp.float64)
    assert np.isfinite(mean).all()
    assert np.all(np.abs(mean - exact) < 0.05 * np.sqrt(exact_variance) + 2e-3)
    np.testing.assert_allclose(np.sqrt(variance), np.sqrt(exact_variance), rtol=0.1, atol=2e-3)


@pytest.mark.usefixtures("x64")
def test_a_row_with_nothing_seen_changes_nothing(key):
    sde, initial, readout, gaps, y, _ = hard_case(jnp.float64)
    belief = kalman.advance(initial, jax.jit(kalman.discretise)(sde, gaps[0]))
    after, log_lik = jax.jit(kalman.observe)(belief, readout, y[0], jnp.zeros(2, bool))
    for one, other in zip(after, belief, strict=True):
        np.testing.assert_array_equal(one, other)
    assert log_lik == 0
