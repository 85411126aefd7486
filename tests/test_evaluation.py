"""What is hidden stays hidden; what is scored is what was asked."""

import dataclasses

import numpy as np
import pytest
from examples import make_table

from vsdn.answers import evaluation
from vsdn.errors import DataError, SettingsError
from vsdn.tables.table import TimeAxis


def test_each_row_from_the_rows_before_it():
    table = make_table(5)
    task = evaluation.prediction(table, from_start=False)
    assert len(task.times) == len(table.times) - 5  # a first row has nothing before it
    assert len(evaluation.prediction(table, from_start=True).times) == len(table.times)
    assert task.visible is table


def test_the_next_rows_after_a_cut():
    table, cut = make_table(6, max_rows=12), 3.0
    task = evaluation.prediction(table, after=cut, num_rows=2, from_start=True)
    assert np.all(task.visible.times <= cut)
    for i in range(6):
        times = table.times[table.starts[i] : table.starts[i + 1]]
        np.testing.assert_array_equal(task.times[task.series == i], times[times > cut][:2])
        np.testing.assert_array_equal(
            task.visible.times[task.visible.starts[i] : task.visible.starts[i + 1]], times[times <= cut]
        )


def test_several_cuts_are_asked_together_as_each_would_be_alone():
    table, cuts = make_table(6, max_rows=12), (5.0, 3.0)
    task = evaluation.prediction(table, after=cuts, num_rows=2, from_start=True)
    alone = [evaluation.prediction(table, after=cut, num_rows=2, from_start=True) for cut in sorted(cuts)]
    for number, one in enumerate(alone):
        own = (task.series >= 6 * number) & (task.series < 6 * (number + 1))
        np.testing.assert_array_equal(task.series[own], one.series + 6 * number)
        np.testing.assert_array_equal(task.times[own], one.times)
        np.testing.assert_array_equal(task.truth[own], one.truth)
        past = task.visible.select(np.arange(6 * number, 6 * (number + 1)))
        assert past.fingerprint() == one.visible.fingerprint()
    assert len(task.times) == sum(len(one.times) for one in alone)


def test_hidden_rows_are_not_visible():
    table = make_table(6, max_rows=12)
    task = evaluation.interpolation(table, share=0.5, seed=3, from_start=False)
    assert len(task.times) > 5
    for i, time in zip(task.series, task.times, strict=True):
        visible = task.visible.times[task.visible.starts[i] : task.visible.starts[i + 1]]
        assert time not in visible
        assert visible[0] < time
    again = evaluation.interpolation(table, share=0.5, seed=3, from_start=False)
    np.testing.assert_array_equal(task.times, again.times)


def test_nothing_to_score_is_said():
    with pytest.raises(DataError, match="nothing to score"):
        evaluation.prediction(make_table(), after=1e9, from_start=True)


def test_summary_counts_what_was_seen_only():
    nll = np.array([[1.0, np.nan], [3.0, 5.0]])
    mask = np.array([[True, False], [True, True]])
    pit = np.array([[0.5, 0.0], [0.2, 0.99]])
    scores = evaluation.summary(nll, nll, nll, pit, mask)
    assert scores["nll"] == 3.0
    assert (scores["coverage_50"], scores["coverage_90"]) == (pytest.approx(1 / 3), pytest.approx(2 / 3))
    assert scores["num_values"] == 3
    assert sum(scores["pit"]) == pytest.approx(1.0, abs=1e-3)


def test_the_rows_of_another_table_are_scored():
    table = make_table(6, max_rows=12)
    wanted = evaluation.interpolation(table, share=0.5, seed=3, from_start=False)
    removed = np.random.default_rng(3).random(len(table.times)) < 0.5
    order = np.arange(6)[::-1]  # its series may stand in any order
    task = evaluation.held_out(table.keep_rows(~removed), table.keep_rows(removed).select(order), from_start=False)
    rows = lambda task: sorted(zip(task.series.tolist(), task.times.tolist(), task.truth[:, 0].tolist(), strict=True))
    assert rows(task) == rows(wanted)
    from_start = evaluation.held_out(table.keep_rows(~removed), table.keep_rows(removed), from_start=True)
    assert len(from_start.times) == removed.sum() > len(task.times)


def test_what_is_shown_cannot_be_hidden():
    table = make_table(3)
    with pytest.raises(DataError, match="is to be hidden, but the data shows it"):
        evaluation.held_out(table, table, from_start=True)
    with pytest.raises(DataError, match="no observation of it"):
        evaluation.held_out(table.select([0, 1]), table.select([2]), from_start=True)
    dated = dataclasses.replace(table, axis=TimeAxis("date"))
    with pytest.raises(DataError, match=r"series 0 at time 1970-01-0\dT[\d:.]+ is to be hidden"):
        evaluation.held_out(dated, dated, from_start=True)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"after": 1.0, "num_rows": 0}, "next wants a whole number of 1 or more, but 0 was given"),
        ({"after": 1.0, "num_rows": -1}, "next wants a whole number"),
        ({"after": 1.0, "num_rows": 1.5}, "next wants a whole number"),
        ({"after": 1.0, "num_rows": True}, "next wants a whole number"),
        ({"share": 0.5}, "share goes with the task interpolation"),
        ({"name": "interpolation", "share": 1.5}, r"share wants a number from 0 to 1, but 1\.5 was given"),
        ({"name": "interpolation", "share": float("nan")}, "share wants a number"),
        ({"name": "interpolation", "share": "half"}, "share wants a number from 0 to 1, but 'half' was given"),
        ({"name": "interpolation", "share": 0.5, "hidden": make_table()}, "no hidden rows"),
    ],
)
def test_tasks_that_cannot_be_are_refused(asked, says):
    usual = {"name": "prediction", "after": None, "num_rows": None, "share": None, "hidden": None}
    with pytest.raises(SettingsError, match=says):
        evaluation.make_task(make_table(), **{**usual, **asked}, seed=0, from_start=True)
