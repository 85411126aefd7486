"""Grids are exact and causal; queries branch where they should; buckets waste little."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples import make_scaler, make_table
from hypothesis import given, settings
from hypothesis import strategies as st

from vsdn.data import Scaler, Table
from vsdn.errors import DataError
from vsdn.grids import Marching, bucket_lengths, make_grids, make_queries, since

UNIT = Scaler(np.zeros(1), np.ones(1), 1.0)


def one_series(times):
    times = np.asarray(times, float)
    ones = np.ones((len(times), 1))
    return Table(np.array(["s"]), np.array([0, len(times)]), times, ones, ones.astype(bool), ("a",))


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


def test_a_query_branches_as_if_it_ended_a_gap():
    times, marching = np.array([0.0, 0.7, 1.9]), Marching(0.3)
    for query in (0.05, 0.7, 0.71, 1.2, 1.9, 2.02, 3.0, 9.99):
        table = one_series(times)
        queries = make_queries(table, UNIT, marching, np.array([0]), np.array([query]))
        seen = times[times < query]
        longer = make_grids(one_series(np.append(seen, query)), UNIT, marching)
        assert queries.point[0] == len(longer.dt) - 2
        assert queries.length[0] == pytest.approx(longer.dt[-1], rel=1e-12)
        grids = make_grids(table, UNIT, marching, tail=queries.tail)
        np.testing.assert_allclose(grids.dt[: queries.point[0] + 1], longer.dt[:-1], rtol=1e-12)


def test_a_query_at_the_start_has_no_length():
    queries = make_queries(one_series([1.0, 2.0]), UNIT, Marching(0.3), np.array([0]), np.array([1.0]))
    assert (queries.point[0], queries.length[0]) == (0, 0.0)


def test_times_before_the_start_are_refused():
    with pytest.raises(DataError, match=r"time 0\.5 was asked for series s, which starts at 1"):
        make_queries(one_series([1.0, 2.0]), UNIT, Marching(0.3), np.array([0]), np.array([0.5]))
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


def test_unseen_values_do_not_get_into_a_grid():
    table = make_table()
    poisoned = dataclasses.replace(table, values=np.where(table.mask, table.values, 1e9))
    one, two = (make_grids(t, make_scaler(table), Marching(0.3)).values for t in (table, poisoned))
    np.testing.assert_array_equal(one, two)


@given(lengths=st.lists(st.integers(1, 60), min_size=1, max_size=40), count=st.integers(1, 4))
@settings(deadline=None)
def test_buckets_are_the_cheapest(lengths, count):
    lengths = np.array(lengths)
    ends = bucket_lengths(lengths, count)
    assert len(ends) <= count
    cost = lambda ends: np.sum(np.asarray(ends)[np.searchsorted(ends, lengths)])
    sizes = np.unique(lengths)
    if len(sizes) <= 8:  # few enough to try all
        subsets = (sizes[[bool(number >> i & 1) for i in range(len(sizes))]] for number in range(2 ** len(sizes)))
        best = min(cost(s) for s in subsets if 1 <= len(s) <= count and s[-1] == sizes[-1])
        assert cost(ends) == best
    assert ends[-1] == lengths.max()
