"""Latent SDE's own truths: the four of its path's KL and ratio, z₀ included, and which SDE it follows when."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples import make_grid, make_model, make_scaler, make_table
from linear import NOISE, RATES, READOUT, Linear, Readout
from oracles import LinearGaussian
from scipy.stats import norm
from truths import assert_bounds_climb, assert_mean

from vsdn.grids.marching import Marching
from vsdn.models.latent import last_row
from vsdn.sde import path_noise, path_seed

pytestmark = pytest.mark.usefixtures("x64")


@eqx.filter_jit
def read(model, grid, known=None):
    """The law of z₀ and the steps of a reading; of the whole series if no point is named."""
    reading = model.recognition(grid, last_row(grid)[-1] if known is None else known)
    return reading.start, model.steps(grid, reading)


def test_log_ratio_is_the_difference_of_the_log_densities_of_the_path(key):
    model, grid = make_model("latent-sde"), make_grid(make_table())
    start, steps = read(model, grid)
    paths = jax.jit(lambda key: model.posterior_paths(grid, num_samples=2, key=key))(key)
    drifts_at = jax.jit(lambda z, at: (model.posterior(z, at.posterior), model.prior(z, at.prior)))
    for states, log_ratio in zip(paths.states, paths.log_ratio, strict=True):
        total = np.sum(norm.logpdf(states[0], start.mean, start.scale) - norm.logpdf(states[0]))
        for k in np.flatnonzero(steps.dt):  # padding has no density
            z, scale = states[k], steps.diffusion[k] * np.sqrt(steps.dt[k])
            drifts = drifts_at(z, jax.tree.map(lambda part, k=k: part[k], steps))
            log_q, log_p = (norm.logpdf(states[k + 1], z + h * steps.dt[k], scale).sum() for h in drifts)
            total += log_q - log_p
        assert float(log_ratio) == pytest.approx(total, rel=1e-10)


@pytest.fixture
def many(key):
    model, grid = make_model("latent-sde"), make_grid(make_table(), 1)
    return jax.jit(lambda key: model.posterior_paths(grid, num_samples=100_000, key=key))(key)


def test_weights_have_mean_one(many):
    assert_mean(np.exp(-np.asarray(many.log_ratio)), 1.0)


def test_kl_is_the_mean_of_the_log_ratio(many):
    gap = np.asarray(many.log_ratio - many.kl)
    assert gap.std() > 0.1
    assert_mean(gap, 0.0)


class Steered(eqx.Module):
    """A posterior drift that its context pushes."""

    def embed(self, context):
        return 2.0 * context[:2]

    def __call__(self, z, embedded):
        return jnp.asarray(0.7 * RATES) @ z + embedded


def test_bounds_climb_to_the_exact_likelihood(key):
    push = np.array([0.3, -0.2])
    model = make_model("latent-sde", clock_size=0, latent_size=2)
    parts = (Linear(push), Steered(), Readout())
    model = eqx.tree_at(lambda m: (m.prior, m.posterior, m.decoder), model, parts)
    grid = make_grid(make_table(max_rows=7), 1, Marching(0.3))
    steps = read(model, grid)[1]
    # z₀ ~ N(0, I) is a first step of length one, from zero, with no push and a diffusion of one.
    first = lambda entry, rest: np.concatenate([entry, np.asarray(rest)])
    oracle = LinearGaussian(
        dt=first([1.0], steps.dt),
        rates=RATES,
        push=first(np.zeros((1, 2)), np.broadcast_to(push, (len(steps.dt), 2))),
        diffusion=first(np.ones((1, 2)), steps.diffusion),
        x0=np.zeros(2),
        readout=READOUT,
        noise=NOISE,
        seen=first(np.zeros((1, 2), bool), grid.mask),
    )
    evidence = jax.jit(lambda key: model.evidence(grid, num_samples=2**15, key=key))(key)
    assert_bounds_climb(evidence, oracle.log_lik(first(np.zeros((1, 2)), grid.values)))


def test_a_walk_follows_the_posterior_while_it_knows_and_the_prior_after(key):
    model, grid = make_model("latent-sde"), make_grid(make_table(), pad=3)
    known = int(grid.rows[1])
    start, steps = read(model, grid, jnp.asarray(known))
    states = jax.jit(lambda known: model.walk(grid, known, num_samples=2, key=key))(jnp.asarray(known))
    for sample in range(2):
        noise = path_noise(path_seed(key), jnp.asarray(sample), start.mean)
        z = start.mean + start.scale * noise(jnp.asarray(-1))
        for k, dt in enumerate(steps.dt):
            np.testing.assert_allclose(states[sample, k], z, rtol=1e-10)
            drift = model.posterior(z, steps.posterior[k]) if k < known else model.prior(z, steps.prior[k])
            z = z + drift * dt + steps.diffusion[k] * jnp.sqrt(dt) * noise(jnp.asarray(k))


def test_the_prior_and_the_diffusion_read_no_data():
    table, model = make_table(), make_model("latent-sde")
    changed = dataclasses.replace(table, values=np.where(table.mask, table.values + 3.0, 0.0))
    one, other = (read(model, make_grid(t, scaler=make_scaler(table)))[1] for t in (table, changed))
    np.testing.assert_array_equal(one.prior, other.prior)
    np.testing.assert_array_equal(one.diffusion, other.diffusion)
    assert np.abs(one.posterior - other.posterior).max() > 1e-3
