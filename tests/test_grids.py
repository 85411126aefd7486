"""A grid may begin later: it is then that of the rows from there."""

import jax
import jax.numpy as jnp
import numpy as np
from examples import make_scaler, make_table

from vsdn.grids.grid import Grid, at_rows, since
from vsdn.grids.marching import Marching, make_grids


def test_a_grid_that_begins_later_is_that_of_the_rows_from_there():
    table, series = make_table(6), np.arange(6)
    grids_of = lambda table: make_grids(table, make_scaler(make_table(6)), Marching(0.3, periods=(7.0,)))
    whole, number = grids_of(table), np.arange(len(table.times)) - table.starts[table.series_of_row]
    sizes = int(whole.num_points.max()) + 1, int(whole.num_rows.max())
    for row in range(2):  # which every series has
        begun = jax.vmap(since, in_axes=(0, None))(whole.pad(series, *sizes), jnp.asarray(row))
        wanted = grids_of(table.keep_rows(number >= row)).pad(series, *sizes)
        assert begun.told is wanted.told is None
        for one, two in zip(begun[:-1], wanted[:-1], strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-6, atol=1e-6)


def test_the_gradient_at_rows_is_that_of_a_gather_also_where_nothing_was_seen():
    """A row that was asked for and not seen, and padding, which names the last point."""
    mask = jnp.array([[True], [False], [True], [False], [False]])
    rows, weight = jnp.array([0, 1, 2, 4]), jnp.array([1.0, 10.0, 100.0, 0.0])
    grid = Grid(jnp.zeros(5), jnp.zeros((5, 1)), mask, jnp.zeros((5, 0)), rows)
    points = jnp.arange(5.0)
    gradients = [
        jax.grad(lambda points, of=of: weight @ of(points))(points)
        for of in (lambda p: at_rows(p, grid), lambda p: p[rows])
    ]
    np.testing.assert_array_equal(*gradients)
