"""What the latent rivals share: the law of z₀, readings of prefixes, and forecasts that know no more than these."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples import make_grid, make_model, make_scaler, make_table, thorough
from scipy.integrate import quad
from scipy.stats import norm

from vsdn.grids.grid import Queries
from vsdn.models import latent
from vsdn.models.latent import Start, last_row

pytestmark = pytest.mark.usefixtures("x64")
models = pytest.mark.parametrize("name", ["latent-ode", *thorough("latent-sde")])


def test_kl_of_the_start_is_its_integral():
    mean, scale = np.array([0.4, -1.3]), np.array([0.2, 1.7])
    density = lambda z, m, s: norm.pdf(z, m, s) * (norm.logpdf(z, m, s) - norm.logpdf(z))
    parts = [quad(density, -20, 20, args=(m, s), points=[m])[0] for m, s in zip(mean, scale, strict=True)]
    assert float(Start(jnp.asarray(mean), jnp.asarray(scale)).kl()) == pytest.approx(sum(parts), rel=1e-8)


def prefix_of(table, num_rows):
    """Series 0 of the table, ended after its first rows."""
    keep = np.arange(len(table.times)) < num_rows
    return make_grid(table.keep_rows(keep), scaler=make_scaler(table))


@pytest.mark.slow
@models
def test_a_prefix_is_read_as_if_the_series_had_ended_there(name):
    table, model = make_table(), make_model(name)
    grid, read = make_grid(table), jax.jit(lambda grid, known: model.recognition(grid, known))
    for num_rows in range(1, int(table.starts[1]) + 1):
        alone = prefix_of(table, num_rows)
        known = int(grid.rows[num_rows - 1])
        one = read(grid, jnp.asarray(known))
        other = read(alone, last_row(alone)[-1])
        np.testing.assert_allclose(one.start, other.start, rtol=1e-12)
        np.testing.assert_allclose(one.context[:known], other.context[:known], rtol=1e-12)


@models
def test_of_nothing_the_prior_is_read(name):
    start = make_model(name).recognition(make_grid(make_table()), jnp.asarray(-1)).start
    assert not np.any(start.mean)
    assert np.all(np.asarray(start.scale) == 1)


@models
def test_every_row_moves_the_start(name):
    model, grid = make_model(name), make_grid(make_table())
    mean = lambda values: model.recognition(grid._replace(values=values), last_row(grid)[-1]).start.mean.sum()
    moved = np.asarray(jax.jit(jax.grad(mean))(grid.values)) != 0
    np.testing.assert_array_equal(moved, grid.mask)  # the first row too, which stands where z₀ does


@models
@pytest.mark.parametrize(
    "at_once",
    [1, 1000, pytest.param(2**16, marks=pytest.mark.thorough)],
    ids=["one by one", "some blocks", "all at once"],
)
def test_each_row_is_foretold_from_its_own_prefix(name, at_once, key, monkeypatch):
    table, model = make_table(), make_model(name)
    grid, num_rows = make_grid(table, pad=3), int(table.starts[1])
    monkeypatch.setattr(latent, "AT_ONCE", at_once)
    rows = jax.jit(lambda grid: model.predict(grid, num_samples=3, key=key))(grid)
    walk = jax.jit(lambda known: model.decode(model.walk(grid, known, num_samples=3, key=key)))
    for row in range(num_rows):
        known = int(grid.rows[row - 1]) if row else -1
        np.testing.assert_allclose(rows[:, row], walk(jnp.asarray(known))[:, grid.rows[row]], rtol=1e-10)


@models
def test_a_walk_knows_nothing_beyond_its_prefix(name, key):
    table, model = make_table(), make_model(name)
    grid = make_grid(table)
    known, later = (jnp.asarray(int(point)) for point in grid.rows[1:3])
    poisoned = grid._replace(values=jnp.where(jnp.arange(len(grid.dt))[:, None] > known, 1e9, grid.values))
    walk = jax.jit(lambda grid, known: model.walk(grid, known, num_samples=3, key=key))
    np.testing.assert_array_equal(walk(grid, known), walk(poisoned, known))
    assert np.abs(walk(grid, known) - walk(grid, later)).max() > 1e-3  # what it does know moves it


@models
def test_a_branch_over_a_whole_step_is_the_walk(name, key):
    """A forecast Δt after a point of the tail is the state at the next point, path by path."""
    model, step = make_model(name), 0.2
    grid = make_grid(make_table(), pad=4)
    last = int(last_row(grid)[-1])
    tail = grid._replace(dt=grid.dt.at[last + 1 :].set(step))
    point = jnp.asarray([last, last + 1], jnp.int32)
    queries = Queries(point, jnp.full(2, step), jnp.asarray(step), tail.clock[point + 1])
    walk = jax.jit(lambda known: model.decode(model.walk(tail, known, num_samples=3, key=key)))
    answer = jax.jit(lambda queries: model.forecast(tail, queries, num_samples=3, key=key))(queries)
    np.testing.assert_allclose(answer, walk(jnp.asarray(last))[:, last + 1 : last + 3], rtol=1e-10)
