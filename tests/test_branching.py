"""Queries branch where they should."""

import dataclasses

import numpy as np
import pytest
from examples import UNIT, one_series

from vsdn.errors import DataError
from vsdn.grids.branching import make_queries
from vsdn.grids.marching import Marching, make_grids
from vsdn.tables.table import TimeAxis


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


@pytest.mark.parametrize(
    ("axis", "says"),
    [
        (TimeAxis("date"), r"time 2024-03-14T12:00:00 was asked for series s, which starts at 2024-03-15T00:00:00"),
        (TimeAxis("date", whole_days=True), r"time 2024-03-14T12:00:00 was .* starts at 2024-03-15:"),
        (TimeAxis("date", timezone="Europe/Berlin"), r"time 2024-03-14T13:00:00\+01:00 was"),
        (TimeAxis(unit="second"), r"time 19796\.5 was .* which starts at 19797:"),
    ],
)
def test_times_are_told_as_the_table_has_them(axis, says):
    table = dataclasses.replace(one_series([19797.0, 19798.0]), axis=axis)
    with pytest.raises(DataError, match=says):
        make_queries(table, UNIT, Marching(0.3), np.array([0]), np.array([19796.5]))
    epoch = dataclasses.replace(one_series([1704067200.0]), axis=TimeAxis())
    with pytest.raises(DataError, match=r"time 1704067199 was asked for series s, which starts at 1704067200:"):
        make_queries(epoch, UNIT, Marching(0.3), np.array([0]), np.array([1704067199.0]))
