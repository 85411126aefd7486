"""The path, its KL and its log-ratio against closed forms; the solver's order; the bridge's law."""

import itertools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from oracles import best_pull
from scipy.stats import kstest, multivariate_normal

from vsdn.sde import Steps, bridge, brownian, noise_at, path_noise, path_seed, posterior_path, prior_path

LATENT, STEPS = 3, 12


def drift(x, context):
    """Nonlinear in x, driven by its context."""
    return jnp.tanh(x) @ jnp.asarray([[-0.6, 0.2, 0.0], [0.1, -0.8, 0.3], [0.0, -0.2, -0.5]], x.dtype) + context


@pytest.fixture
def steps(x64, key):
    dt_key, prior_key, posterior_key, diffusion_key = jr.split(jr.fold_in(key, 1), 4)
    prior = jr.normal(prior_key, (STEPS, LATENT))
    return Steps(
        dt=jr.uniform(dt_key, (STEPS,), minval=0.02, maxval=0.3),
        prior=prior,
        posterior=prior + 0.5 * jr.normal(posterior_key, (STEPS, LATENT)),
        diffusion=jnp.exp(0.3 * jr.normal(diffusion_key, (STEPS, LATENT))),
    )


def other_drift(x, context):
    """A network of its own."""
    return jnp.sin(x) - 0.3 * context


either = pytest.mark.parametrize("prior_drift", [drift, other_drift], ids=["one network", "two networks"])


def given(eps):
    """Noise that was drawn before."""
    return lambda number: eps[number]


def paths_of(steps, key, count, prior_drift=drift):
    noise = jr.normal(key, (count, STEPS, LATENT))
    walk = lambda eps: posterior_path(drift, jnp.zeros(LATENT), steps, given(eps), prior_drift=prior_drift)
    return jax.vmap(walk)(noise), noise


@either
def test_log_ratio_is_the_difference_of_the_transition_log_densities(steps, key, prior_drift):
    path, _ = paths_of(steps, key, 1, prior_drift)
    states, log_ratio = np.asarray(path.states[0]), 0.0
    for k in range(STEPS):
        cov = np.diag(steps.diffusion[k] ** 2 * steps.dt[k])
        drifts = drift(states[k], steps.posterior[k]), prior_drift(states[k], steps.prior[k])
        means = (states[k] + np.asarray(each) * steps.dt[k] for each in drifts)
        log_q, log_p = (multivariate_normal(mean, cov).logpdf(states[k + 1]) for mean in means)
        log_ratio += log_q - log_p
    assert path.log_ratio[0] == pytest.approx(log_ratio, rel=1e-12)


@either
def test_weights_have_mean_one(steps, key, prior_drift):
    path, _ = paths_of(steps, key, 100_000, prior_drift)
    weights = np.exp(-np.asarray(path.log_ratio))
    assert abs(weights.mean() - 1) < 4 * weights.std() / weights.size**0.5


@either
def test_kl_is_the_mean_of_the_log_ratio(steps, key, prior_drift):
    path, _ = paths_of(steps, key, 100_000, prior_drift)
    gap = np.asarray(path.log_ratio - path.kl)  # a martingale: mean zero
    assert gap.std() > 0.1
    assert abs(gap.mean()) < 4 * gap.std() / gap.size**0.5


def bounds_of(gains, r, y, key):
    """log Φ − KL of each of many paths that are pulled towards y, seen with variance 1/r after a unit of time."""
    count = len(gains)
    steps = Steps(jnp.full(count, 1 / count), jnp.zeros((count, 1)), jnp.asarray(gains)[:, None], jnp.ones((count, 1)))
    walk = lambda eps: posterior_path(lambda x, gain: gain * (y - x), jnp.zeros(1), steps, given(eps))
    path = jax.vmap(walk)(jr.normal(key, (40_000, count, 1)))
    return np.asarray(-0.5 * r * (y - path.states[:, -1, 0]) ** 2 - 0.5 * np.log(2 * np.pi / r) - path.kl)


@pytest.mark.parametrize("num_steps", [1, 4, 16])
def test_the_best_bound_falls_short_by_the_noise_of_steps(x64, key, num_steps):
    r, y = 20.0, 0.7
    best = best_pull(r, y, num_steps)
    bounds = bounds_of(best.gains, r, y, key)
    assert abs(bounds.mean() - best.bound) < 4 * bounds.std() / bounds.size**0.5
    assert best.bound < best.log_lik
    for other in (0.8 * best.gains, 1.2 * best.gains):
        worse = bounds_of(other, r, y, key)
        assert worse.mean() < best.bound - 4 * (worse - bounds).std() / bounds.size**0.5


def test_one_step_a_gap_leaves_nothing_to_a_path(x64):
    """Values that share a number which only a path can tell: with one step the bound is below that of a wider density
    of each and no path, whatever the noise; with many it gains what the joint likelihood does."""

    def gain(num_values, noise, num_steps):
        best = best_pull(num_values / noise**2, 0.0, num_steps)  # of their mean; what it lacks depends on no value
        alone, jointly = num_values * np.log1p(noise**-2), np.log1p(num_values / noise**2)
        return 0.5 * (alone - jointly) - (best.log_lik - best.bound)

    for num_values, noise in itertools.product((2, 6, 62), (0.1, 0.2, 1.0, 3.0)):
        assert gain(num_values, noise, 1) < 0 < gain(num_values, noise, 4096)
    assert gain(6, 0.2, 8) < 0 < gain(6, 0.2, 16)


def test_posterior_that_is_the_prior_costs_nothing(steps, key):
    same = steps._replace(posterior=steps.prior)
    path, noise = paths_of(same, key, 5)
    prior = jax.vmap(lambda eps: prior_path(drift, jnp.zeros(LATENT), steps, given(eps)))(noise)
    assert np.all(np.asarray(path.kl) == 0)
    assert np.all(np.asarray(path.log_ratio) == 0)
    np.testing.assert_allclose(path.states, prior, rtol=1e-12)


def test_a_step_of_no_length_moves_and_charges_nothing(steps, key):
    longer = Steps(*(jnp.concatenate([part, part[-1:]]) for part in steps))
    longer = longer._replace(dt=longer.dt.at[-1].set(0.0))
    noise = jr.normal(key, (STEPS + 1, LATENT))
    short = posterior_path(drift, jnp.zeros(LATENT), steps, given(noise[:-1]))
    padded = posterior_path(drift, jnp.zeros(LATENT), longer, given(noise))
    np.testing.assert_array_equal(padded.states[:-1], short.states)
    np.testing.assert_array_equal(padded.states[-1], short.states[-1])
    assert padded.kl == short.kl
    assert padded.log_ratio == short.log_ratio


def test_strong_order_is_one_on_additive_noise(x64, key):
    finest, num_paths = 2**9, 400
    dw = jr.normal(key, (num_paths, finest, LATENT)) * (1.0 / finest) ** 0.5

    def end(num_steps):
        coarse = dw.reshape(num_paths, num_steps, -1, LATENT).sum(axis=2) * num_steps**0.5
        zeros = jnp.zeros((num_steps, LATENT))
        steps = Steps(jnp.full(num_steps, 1.0 / num_steps), zeros, zeros, jnp.ones_like(zeros))
        return jax.vmap(lambda eps: prior_path(drift, jnp.ones(LATENT), steps, given(eps))[-1])(coarse)

    truth, counts = end(finest), 2 ** np.arange(2, 6)
    errors = [float(jnp.sqrt(jnp.mean((end(int(count)) - truth) ** 2))) for count in counts]
    order = -np.polyfit(np.log(counts), np.log(errors), 1)[0]
    assert 0.9 < order < 1.2


def test_the_bridge_has_the_law_of_brownian_motion(x64, key):
    times = jnp.asarray([0.03, 0.3, 0.3001, 0.8])
    end_key, tree_key = jr.split(key)
    ends = jr.normal(end_key, (20_000, 1))
    draw = lambda end, key: jax.vmap(lambda t: bridge(t, end, key)[0])(times)
    values = np.asarray(jax.vmap(draw)(ends, jr.split(tree_key, len(ends))))
    together = np.column_stack([values, ends])
    moments = np.append(times, 1.0)
    truth = np.minimum(moments[:, None], moments)  # Cov(W_s, W_t) = min(s, t)
    error = np.sqrt((truth**2 + np.outer(np.diag(truth), np.diag(truth))) / len(ends))
    assert np.all(np.abs(np.cov(together.T) - truth) < 4.5 * error)
    assert all(kstest(values[:, i], "norm", (0, float(t) ** 0.5)).pvalue > 1e-3 for i, t in enumerate(times))


def test_the_bridge_meets_both_ends_and_repeats_itself(x64, key):
    end = jnp.asarray([1.7, -0.2])
    np.testing.assert_allclose(bridge(jnp.asarray(1.0), end, key), end, rtol=1e-12)
    np.testing.assert_allclose(bridge(jnp.asarray(0.0), end, key), 0.0, atol=1e-12)
    np.testing.assert_array_equal(bridge(jnp.asarray(0.37), end, key), bridge(jnp.asarray(0.37), end, key))


def test_a_branch_over_a_whole_step_moves_with_its_noise(x64, key):
    path_key, bridge_key = jr.split(key)
    noise, step = path_noise(path_seed(path_key), jnp.asarray(2), jnp.zeros(2)), jnp.asarray(0.3)
    at = lambda length: brownian(jnp.asarray(length), jnp.asarray(1), step, noise, bridge_key)
    np.testing.assert_allclose(at(0.3), noise(jnp.asarray(1)) * 0.3**0.5, rtol=1e-9)
    just_over, just_under = at(0.3 + 1e-9), at(0.3 - 1e-9)
    np.testing.assert_allclose(just_over, just_under, atol=1e-3)  # one path: no jump where a step ends


def draws(key, num_paths, num_steps, latent):
    at = lambda path, number: noise_at(path_seed(key), path, number, latent)
    return np.asarray(
        jax.vmap(lambda path: jax.vmap(lambda n: at(path, n))(jnp.arange(num_steps)))(jnp.arange(num_paths))
    )


def test_noise_has_the_law_of_normals(key):
    noise = draws(key, 100, 501, 7).astype(float)
    count, flat = noise.size, noise.ravel()
    moments = [(flat**power).mean() for power in (1, 2, 3, 4)]
    errors = np.sqrt(np.array([1.0, 2.0, 15.0, 96.0]) / count)  # of the means of the powers of a normal
    assert np.all(np.abs(np.array(moments) - [0, 1, 0, 3]) < 4 * errors + [0, 0, 0, 2e-3])  # no level beyond 4.3
    assert kstest(flat, "norm").pvalue > 1e-3
    neighbours = (noise[:-1], noise[1:]), (noise[:, :-1], noise[:, 1:]), (noise[..., :-1], noise[..., 1:])
    halves = (noise[..., 0], noise[..., 2]), (noise[..., 0], noise[..., 4])  # of one word, and of one draw
    for one, other in (*neighbours, *halves):
        assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 4.5 / one.size**0.5


def test_noise_depends_on_where_it_is_used_alone(key):
    many, few = draws(key, 5, 9, 6), draws(key, 3, 4, 6)
    np.testing.assert_array_equal(many[:3, :4], few)
    assert len(np.unique(many)) > 0.99 * many.size
    assert not np.any(draws(jr.fold_in(key, 1), 3, 4, 6) == few)
