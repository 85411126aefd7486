"""USHCN: the published folds, what the file may look like, and the simple rivals' scores."""

import gzip
import hashlib

import numpy as np
import pytest
from datafiles import ushcn_text, write_ushcn

from vsdn.answers.evaluation import Task, prediction
from vsdn.datasets import ushcn
from vsdn.errors import DataError
from vsdn.tables.table import Table

SOURCE = "NOAA's GHCN-Daily, by the recipe in docs/datasets.md,"
HEAD = ",".join(ushcn.COLUMNS) + "\n"


@pytest.fixture(scope="module")
def rebuilt(shared_data) -> Table:
    return ushcn.read(shared_data(ushcn.SOURCES[1].name, SOURCE))


def test_rebuilt_file_is_read_whole_and_recognised(rebuilt, shared_data):
    assert (rebuilt.num_series, len(rebuilt.times), rebuilt.num_observations) == (1101, 346134, 381140)
    folder = shared_data(ushcn.SOURCES[1].name, SOURCE).parents[1]
    assert "rebuilt" in ushcn.load(folder, 0).train.notes[0]


def test_simple_rivals_score_as_the_folds_were_described(rebuilt):
    """Mean squared errors over the folds of this file as they were told beforehand, by another program."""
    scores = np.array([rival_scores(rebuilt, fold) for fold in range(5)])
    np.testing.assert_allclose(scores.mean(axis=0), [1.02, 0.81, 0.70], atol=0.005)
    np.testing.assert_allclose(scores.std(axis=0), [0.21, 0.27, 0.18], atol=0.005)


def rival_scores(table: Table, fold: int) -> list[float]:
    """Of the training mean, the last value and the seasonal mean."""
    parts = ushcn.split(table, fold)
    task = prediction(parts.test, after=ushcn.CUT, num_rows=ushcn.NUM_NEXT, from_start=True)
    mean = parts.train.values.sum(axis=0) / parts.train.mask.sum(axis=0)
    guesses = mean, last_values(task, mean), ushcn.seasonal_mean(parts.train, task.times)
    return [float(np.mean((task.truth - guess)[task.mask] ** 2)) for guess in guesses]


def last_values(task: Task, mean: np.ndarray) -> np.ndarray:
    last = np.tile(mean, (task.visible.num_series, 1))
    for row, series in enumerate(task.visible.series_of_row):
        seen = task.visible.mask[row]
        last[series, seen] = task.visible.values[row, seen]
    return last[task.series]


def test_folds_are_drawn_as_scikit_learn_draws_them():
    table = Table(np.arange(1114), np.arange(1115), np.zeros(1114), np.zeros((1114, 5)), np.ones((1114, 5), bool), ())
    np.random.seed(432)  # noqa: NPY002
    for fold in range(ushcn.NUM_PUBLISHED):
        train, valid, test, _ = ushcn.split(table, fold)
        order = np.random.permutation(1114)  # noqa: NPY002
        assert test.ids.tolist() == order[:112].tolist()
        inner = np.random.permutation(1002)  # noqa: NPY002
        assert valid.ids.tolist() == order[112:][inner[:201]].tolist()
        assert train.ids.tolist() == order[112:][inner[201:]].tolist()


def test_tenths_test_every_station_once():
    table = Table(np.arange(1101), np.arange(1102), np.zeros(1101), np.zeros((1101, 5)), np.ones((1101, 5), bool), ())
    parts = [ushcn.split(table, fold) for fold in range(ushcn.NUM_PUBLISHED, ushcn.NUM_FOLDS)]
    assert np.sort(np.concatenate([part.test.ids for part in parts])).tolist() == list(range(1101))
    assert {part.test.num_series for part in parts} == {110, 111}
    assert {part.train.num_series for part in parts} == {792}  # as many to learn from as the published folds have


def test_published_file_is_recognised_by_its_hash(tmp_path, monkeypatch):
    write_ushcn(tmp_path)
    content = (tmp_path / ushcn.SOURCES[0].name).read_bytes()
    monkeypatch.setitem(ushcn.KINDS, hashlib.sha256(content).hexdigest(), ushcn.KINDS[ushcn.PUBLISHED])
    assert [part.notes[0][-18:] for part in ushcn.load(tmp_path, 0)[:3]] == ["the published file"] * 3


def test_unseen_cells_are_never_read_and_rows_are_sorted(tmp_path):
    path = tmp_path / "x.csv.gz"
    path.write_bytes(gzip.compress(ushcn_text(6).encode()))
    table = ushcn.read(path)
    assert np.abs(table.values).max() < 10  # unseen ones are 1e9 in the file
    assert np.array_equal(table.mask.sum(axis=1), np.full(120, 2))
    assert np.all(np.diff(table.times)[np.diff(table.series_of_row) == 0] > 0)
    assert table.variables == ushcn.VARIABLES


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.csv", b"ID,Time\n0,1\n", "should be a USHCN table with columns ID, Time, Value_0"),
        ("x.csv", b"", "should be a USHCN table"),
        ("x.csv", (HEAD + "0,1,a" + ",0" * 9 + "\n").encode(), "should be a USHCN table"),
        ("x.csv", (HEAD + "0,nan" + ",0" * 10 + "\n").encode(), "row 1 should hold finite numbers"),
        ("x.csv", (HEAD + "0,1,inf" + ",0" * 4 + ",1" * 5 + "\n").encode(), "row 1 should hold finite numbers"),
        ("x.csv", (HEAD + ("4,2.5" + ",1" * 10 + "\n") * 2).encode(), "two rows for ID 4 at Time 2.5"),
        ("x.csv", HEAD.encode(), "should hold rows below its header, but it has none"),
        ("x.csv", (HEAD + "0,1" + ",1" * 9 + ",2\n").encode(), "row 1 should hold masks of 0 and 1"),
        ("x.csv", (HEAD + "0,1" + ",1" * 9 + ",0.5\n").encode(), "row 1 should hold masks of 0 and 1"),
        ("x.csv", (HEAD + "0,1" + ",1" * 9 + ",\n").encode(), "row 1 should hold masks of 0 and 1"),
        (
            "x.csv",
            (HEAD + "0,1" + ",1" * 10 + "\n0.5,1" + ",1" * 10 + "\n").encode(),
            "row 2 should hold a whole number up to",
        ),
        ("x.csv", (HEAD + "1e300,1" + ",1" * 10 + "\n").encode(), "row 1 should hold a whole number up to 9.0"),
        ("x.csv.gz", gzip.compress(HEAD.encode(), mtime=0)[:20], "not a whole gzip file"),
        ("x.csv.gz", HEAD.encode(), "not a whole gzip file"),
    ],
)
def test_damaged_files_are_refused(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        ushcn.read(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)


@pytest.mark.parametrize(("num_series", "fold"), [(1, 0), (2, 4), (9, 14)])
def test_too_few_stations_for_three_parts_are_refused(tmp_path, num_series, fold):
    write_ushcn(tmp_path, num_series)
    with pytest.raises(
        DataError, match=f"fold {fold} of USHCN should have stations in each part, but .* {num_series}$"
    ):
        ushcn.load(tmp_path, fold)


def test_a_year_is_a_year():
    assert abs(ushcn.YEAR * 7.4508 - 365.25) < 1e-9


def test_seasonal_mean_finds_the_season_and_reads_no_unseen_cell():
    times = np.linspace(0, 200, 20_000)
    season = lambda t: np.sin(2 * np.pi * t / 49.0216)
    mask = np.tile([True, False], (20_000, 1))
    values = np.stack([season(times), np.full(20_000, 1e9)], axis=1)
    table = Table(np.zeros(1), np.array([0, 20_000]), times, values, mask, ("a", "b"))
    asked = np.array([200.0, 210.0, 230.0, 245.1])
    found = ushcn.seasonal_mean(table, asked)
    np.testing.assert_allclose(found[:, 0], season(asked), atol=0.03)  # the kernel flattens it by 1.5 %
    assert np.all(found[:, 1] == 0)
