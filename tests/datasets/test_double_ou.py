import dataclasses
import hashlib

import numpy as np
import pytest
from oracles import double_ou_moments, double_ou_predictive

from vsdn.datasets import DATASETS, double_ou
from vsdn.errors import DataError, SettingsError
from vsdn.tables.table import Table

PUBLISHED_SHA256 = "ab045b0005fb1ad5202e4850e9c3ca223d4dd4aba42c2e1eca6067530058aaa0"


@pytest.fixture(scope="module")
def published() -> Table:
    return double_ou.make(legacy=True)


@pytest.fixture(scope="module")
def floor(published: Table) -> double_ou.BayesOptimal:
    return double_ou.bayes_optimal(double_ou.split(published)[2])


def test_listed(published, tmp_path):
    parts = DATASETS["double-ou"].load(tmp_path, 0)  # no file is needed
    assert [part.fingerprint() for part in parts[:3]] == [part.fingerprint() for part in double_ou.split(published)]


def test_published_csv_has_the_published_hash():
    assert hashlib.sha256(double_ou.published_csv()).hexdigest() == PUBLISHED_SHA256 == double_ou.PUBLISHED_SHA256


def test_make_equals_the_published_file(published, shared_data):
    source = "double_OU.py of github.com/edebrouwer/gru_ode_bayes (pack its double_OU.csv with xz)"
    assert_same(published, double_ou.load(shared_data("double_ou/double_OU.csv.xz", source)))


def test_load_reads_what_published_csv_writes(tmp_path):
    path = tmp_path / "double_OU.csv"
    path.write_bytes(double_ou.published_csv(20, seed=1))
    assert_same(double_ou.make(20, seed=1, legacy=True), double_ou.load(path))


def test_load_never_reads_unseen_cells(tmp_path):
    path = tmp_path / "double_OU.csv"
    path.write_text("ID,Time,Value_1,Value_2,Mask_1,Mask_2,Cov\n0,0.1,2.0,1e9,1,0,0\n0,0.05,1e9,3.0,0,1,0\n")
    table = double_ou.load(path)
    assert table.times.tolist() == [0.05, 0.1]
    assert table.values.tolist() == [[0.0, 3.0], [2.0, 0.0]]


@pytest.mark.parametrize(("name", "content"), [("a.csv", b"ID,Time\n0,1\n"), ("a.csv.xz", b"not xz"), ("a.csv", b"")])
def test_load_refuses_other_files(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError, match=name):
        double_ou.load(path)


def test_load_refuses_a_missing_file(tmp_path):
    with pytest.raises(DataError, match=r"nowhere\.csv"):
        double_ou.load(tmp_path / "nowhere.csv")


@pytest.mark.parametrize("legacy", [False, True])
def test_make_gives_a_sound_table(legacy):
    table = double_ou.make(50, seed=3, legacy=legacy)
    assert table.variables == ("value_1", "value_2")
    assert table.ids.tolist() == list(range(50))
    assert set(np.diff(table.starts)) <= set(range(16, 24))
    same_series = np.diff(table.series_of_row) == 0
    assert np.all(np.diff(table.times)[same_series] > 0.04)
    assert table.times.min() >= 0
    assert table.times.max() <= 9.9 + 1e-9
    assert np.all(table.mask.any(axis=1))
    assert np.all(table.values[~table.mask] == 0)
    assert table.fingerprint() == double_ou.make(50, seed=3, legacy=legacy).fingerprint()
    assert table.fingerprint() != double_ou.make(50, seed=4, legacy=legacy).fingerprint()


def test_make_refuses_no_series():
    with pytest.raises(SettingsError, match="at least 1, not 0"):
        double_ou.make(0)


def test_make_has_the_moments_of_the_recipe():
    table = double_ou.make(4_000, seed=11)
    steps = np.rint(table.times / double_ou.STEP).astype(int)
    mean, variance, covariance = double_ou_moments(steps)
    away, seen = table.values - mean, table.mask
    both = seen.all(axis=1)
    for excess in (
        np.where(seen[:, 0], away[:, 0], 0),
        np.where(seen[:, 1], away[:, 1], 0),
        np.where(seen[:, 0], away[:, 0] ** 2 - variance, 0),
        np.where(seen[:, 1], away[:, 1] ** 2 - variance, 0),
        np.where(both, away[:, 0] * away[:, 1] - covariance, 0),
        seen[:, 0] - 0.6,
        both - 0.2,
        steps - 99.0,
    ):
        assert_mean_zero(np.add.reduceat(excess, table.starts[:-1]))  # series are independent, rows are not
    assert_mean_zero(np.diff(table.starts) - 19.5)


def test_split_is_the_published_one(published):
    train, valid, test = double_ou.split(published)
    assert test.ids[:8].tolist() == [7487, 9845, 5652, 9509, 3121, 4653, 1675, 5979]  # scikit-learn 1.9.1
    assert valid.ids[:8].tolist() == [7687, 9915, 453, 1384, 8317, 7803, 7609, 1531]
    assert (train.num_series, valid.num_series, test.num_series) == (7200, 800, 2000)


@pytest.mark.parametrize("num_series", [2, 7, 101])
def test_split_parts_are_disjoint_and_complete(num_series):
    parts = double_ou.split(double_ou.make(num_series), seed=5)
    assert sorted(np.concatenate([part.ids for part in parts])) == list(range(num_series))
    assert parts[2].num_series == -(-num_series // 5)


@pytest.mark.parametrize(("grid_size", "num_series", "num_rows"), [(12, 12, 2), (48, 2, 1)])
def test_bayes_optimal_equals_the_dense_gaussian(grid_size, num_series, num_rows):
    table = double_ou.make(num_series, seed=7)
    law = double_ou.bayes_optimal(table, num_rows=num_rows, grid_size=grid_size)
    assert len(law.rows) == num_series * num_rows
    for i, channel in np.argwhere(law.mask).tolist():
        exact, value = oracle(table, int(law.rows[i]), channel, grid_size), float(law.values[i, channel])
        expected = exact.mean(), exact.std(), exact.log_prob(value), exact.cdf(value), exact.crps(value)
        found = [x[i, channel] for x in (law.mean, law.std, law.log_prob, law.pit, law.crps)]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-8)
    assert np.all(np.isnan(law.crps) == ~law.mask)


def test_bayes_optimal_predicts_the_first_rows_after_the_cut():
    table = double_ou.make(30, seed=8)
    law = double_ou.bayes_optimal(table, cut=9.0, num_rows=2, grid_size=4)
    after = [np.flatnonzero((table.series_of_row == i) & (table.times > 9.0))[:2] for i in range(30)]
    assert law.rows.tolist() == np.concatenate(after).tolist()
    assert law.series.tolist() == table.series_of_row[law.rows].tolist()


def test_bayes_optimal_reads_neither_unseen_cells_nor_the_future():
    table = double_ou.make(10, seed=9)
    poisoned = np.where(table.mask & (table.times <= 4)[:, None], table.values, 1e9)
    a, b = (double_ou.bayes_optimal(t, grid_size=4) for t in (table, dataclasses.replace(table, values=poisoned)))
    assert np.array_equal(a.mean, b.mean)
    assert np.array_equal(a.std, b.std)


def test_bayes_optimal_refuses_what_it_cannot_predict():
    table = double_ou.make(3)
    with pytest.raises(DataError, match="after 10"):
        double_ou.bayes_optimal(table, cut=10.0)
    with pytest.raises(DataError, match=r"0\.05"):
        double_ou.bayes_optimal(dataclasses.replace(table, times=table.times + 0.01))
    with pytest.raises(SettingsError, match="cut"):
        double_ou.bayes_optimal(table, cut=-1.0)


def test_floor_on_the_published_split(floor):
    scores = floor.scores()
    assert abs(scores["nll"] + 1.290) < 0.001
    assert abs(scores["mse"] - 0.00553) < 0.00001
    assert abs(scores["crps"] - 0.03932) < 0.00001


def test_floor_is_calibrated(floor):
    scores, num_values = floor.scores(), floor.mask.sum()
    for level in (0.5, 0.9):  # channels of one row are nearly one value: count it as half
        assert abs(scores[f"coverage_{100 * level:.0f}"] - level) < 4 * (2 * level * (1 - level) / num_values) ** 0.5


def oracle(table: Table, row: int, channel: int, grid_size: int):
    series = table.series_of_row[row]
    seen = (table.series_of_row == series) & (table.times <= 4)
    steps = np.rint(table.times / 0.05).astype(int)
    return double_ou_predictive(steps[seen], table.values[seen], table.mask[seen], steps[row], channel, grid_size)


def assert_same(a: Table, b: Table) -> None:
    assert a.fingerprint() == b.fingerprint()
    assert (a.axis, a.layout, a.variables) == (b.axis, b.layout, b.variables)
    assert np.array_equal(a.ids, b.ids)
    assert a.ids.dtype == b.ids.dtype


def assert_mean_zero(x: np.ndarray) -> None:
    assert abs(x.mean()) < 4 * x.std() / len(x) ** 0.5
