"""Evidence in segments is the evidence, and needs memory by the square root of the steps alone."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from examples import make_batch, make_model, make_table, thorough

from vsdn.grids.grid import Grid
from vsdn.models import segments

names = pytest.mark.parametrize("name", [*thorough("vsdn-f"), "vsdn-s"])


def gradient_of(name, evidence_of, grids, key, num_samples=3, **settings):
    """The evidence and the gradient of what weighs each part of it differently, compiled."""
    params, static = eqx.partition(make_model(name, grids.clock.shape[2], **settings), eqx.is_inexact_array)

    def loss(params, grids, key):
        keys = jr.split(key, len(grids.dt))
        evidence = evidence_of(eqx.combine(params, static), grids, num_samples=num_samples, keys=keys)
        return jnp.sum(evidence.log_lik - 2.0 * evidence.kl + jnp.sin(evidence.log_ratio)), evidence

    return jax.jit(jax.value_and_grad(loss, has_aux=True)).lower(params, grids, key).compile(), params


def whole(model, grids, **options):
    return model.batch_evidence(grids, **options)


@pytest.mark.slow
@names
@pytest.mark.parametrize("kernel", ["on", *thorough("off")])
@pytest.mark.parametrize("keep_linear", [False, *thorough(True)])
def test_the_evidence_and_its_gradient_are_the_same(name, kernel, keep_linear, x64, key, monkeypatch):
    monkeypatch.setenv("VSDN_KERNEL", kernel)
    grids = make_batch(make_table(5))
    grids = grids._replace(told=jnp.broadcast_to(np.arange(grids.dt.shape[1]) % 3 > 0, grids.dt.shape))  # not of all
    answers = []
    for evidence_of in (whole, segments.batch_evidence):
        step, params = gradient_of(name, evidence_of, grids, key, keep_linear=keep_linear)
        answers.append(step(params, grids, key))
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(answers[0]), jax.tree.leaves(answers[1]), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-8, atol=1e-9, err_msg=jax.tree_util.keystr(path))


def test_segments_cover_every_step_and_row_once():
    grid = jax.tree.map(lambda part: part[0], make_batch(make_table(5)))
    for length in (1, 4, grid.dt.shape[0] - 1):
        count = -(-(grid.dt.shape[0] - 1) // length)
        cut = jax.jit(lambda number, length=length: segments.cut_segment(grid, number, length))
        parts = [cut(jnp.asarray(number)) for number in range(count)]
        assert sum(float(part.dt.sum()) for part in parts) == pytest.approx(float(grid.dt.sum()))
        assert sum(int(part.mask.sum()) for part in parts) == int(grid.mask.sum())


def uniform(num_steps):
    """One batch of two series with a row every tenth step."""
    points = num_steps + 1
    seen = (np.arange(points) % 10 == 0)[:, None]
    one = (np.full(points, 0.1), np.where(seen, 0.3, 0.0), seen, np.zeros((points, 0)), np.flatnonzero(seen))
    both = [jnp.asarray(np.broadcast_to(part, (2, *part.shape))) for part in one]
    return Grid(both[0].at[:, 0].set(0.0), jnp.repeat(both[1], 2, 2), jnp.repeat(both[2], 2, 2), *both[3:])


@pytest.mark.slow
@names
def test_memory_grows_as_the_square_root_of_the_steps(name, key):
    sizes = []
    for num_steps in (1_024, 16_384):
        grids = uniform(num_steps)
        step, _ = gradient_of(name, segments.batch_evidence, grids, key, num_samples=5)
        sizes.append(step.memory_analysis().temp_size_in_bytes)
    assert sizes[1] < 16**0.6 * sizes[0]
