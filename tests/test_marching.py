"""Grids are exact and causal."""

import dataclasses

import numpy as np
import pytest
from examples import UNIT, make_scaler, make_table, one_series
from hypothesis import given, settings
from hypothesis import strategies as st

from vsdn.errors import DataError
from vsdn.grids.marching import Marching, make_grids


def march_by_hand(times, max_step, start=None):
    """The points of one series, one at a time, by the words of the rule."""
    points, marks = [times[0] if start is None else start], []
    for time in times:
        here = points[-1]
        while time - here >= 1.5 * max_step - 1e-6 * max_step:
            here += max_step
            points.append(here)
        if time - here > 0:
            points.append(time)
        marks.append(len(points) - 1)
    return np.array(points), np.array(marks)


@given(
    gaps=st.lists(st.integers(1, 400), min_size=1, max_size=30),
    max_step=st.sampled_from([0.1, 0.25, 0.3, 1.0, 7.0]),
    lead=st.integers(0, 50) | st.none(),
)
@settings(deadline=None)
def test_grid_is_the_rule_followed_by_hand(gaps, max_step, lead):
    times = np.cumsum(gaps) / 16
    start = None if lead is None else times[0] - lead / 16
    grids = make_grids(one_series(times), UNIT, Marching(max_step, start))
    points, marks = march_by_hand(times, max_step, start)
    np.testing.assert_allclose(np.cumsum(grids.dt) + points[0], points, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(grids.point_of_row, marks)
    np.testing.assert_array_equal(np.flatnonzero(grids.row_of_point >= 0), marks)
    assert np.all(grids.dt[1:] < 1.5 * max_step)


def test_every_series_has_the_grid_that_it_has_alone():
    table, marching = make_table(8), Marching(0.3, -0.2, (2.5,))
    together = make_grids(table, make_scaler(table), marching)
    for i in range(8):
        alone = make_grids(table.select([i]), make_scaler(table), marching)
        own = slice(together.starts[i], together.starts[i + 1])
        np.testing.assert_array_equal(together.dt[own], alone.dt)
        np.testing.assert_array_equal(together.clock[own], alone.clock)


def test_later_rows_move_no_earlier_point():
    times = np.array([0.0, 0.7, 1.9, 2.0, 4.4])
    whole = make_grids(one_series(times), UNIT, Marching(0.3))
    for count in range(1, 5):
        part = make_grids(one_series(times[:count]), UNIT, Marching(0.3))
        np.testing.assert_array_equal(whole.dt[: len(part.dt)], part.dt)


def test_clock_is_the_sine_and_cosine_of_the_points_own_times():
    times = np.array([0.5, 1.0, 2.9])
    grids = make_grids(one_series(times), UNIT, Marching(0.4, 0.0, (2.0, 5.0)))
    points = np.cumsum(grids.dt)
    angles = 2 * np.pi * points[:, None] / np.array([2.0, 5.0])
    np.testing.assert_allclose(grids.clock, np.concatenate([np.sin(angles), np.cos(angles)], axis=1), atol=1e-12)


def test_rows_before_the_start_are_refused():
    with pytest.raises(DataError, match=r"series s has a row at time 1, before the given start 1\.5"):
        make_grids(one_series([1.0, 2.0]), UNIT, Marching(0.3, 1.5))


def test_padding_repeats_the_last_point():
    table = make_table(3)
    grids = make_grids(table, make_scaler(table), Marching(0.3))
    longest = int(grids.num_points.max()) + 3
    batch = grids.pad(np.arange(3), longest, int(grids.num_rows.max()) + 1)
    for i in range(3):
        length = int(grids.num_points[i])
        assert not np.asarray(batch.dt[i, length:]).any()
        assert not np.asarray(batch.mask[i, length:]).any()
        rows = np.asarray(batch.rows[i])
        assert np.all(rows[grids.num_rows[i] :] == longest - 1)
        seen = np.asarray(batch.mask[i])[rows[: grids.num_rows[i]]]
        np.testing.assert_array_equal(seen, table.mask[table.starts[i] : table.starts[i + 1]])


def test_unseen_values_do_not_get_into_a_grid():
    table = make_table()
    poisoned = dataclasses.replace(table, values=np.where(table.mask, table.values, 1e9))
    one, two = (make_grids(t, make_scaler(table), Marching(0.3)).values for t in (table, poisoned))
    np.testing.assert_array_equal(one, two)
