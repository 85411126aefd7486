"""What every data set promises: disjoint parts, the same every time, and a clear word when its file is missing."""

import itertools
import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from datafiles import LAYOUTS, SHORT, TRIALS, write_packed, write_positions, write_ushcn

from vsdn import cli
from vsdn.datasets import DATASETS, human36m, mocap
from vsdn.datasets.base import Parts
from vsdn.datasets.motion import Recording
from vsdn.errors import DataError, SettingsError


@pytest.fixture(scope="module", params=LAYOUTS)
def case(request, tmp_path_factory):
    """The data set, its folder, the ids that it should have, and the length of its segments."""
    name, write, size = LAYOUTS[request.param]
    folder = tmp_path_factory.mktemp("data")
    return DATASETS[name], folder, write(folder), size


def ids_of(parts: Parts) -> list[list]:
    return [table.ids.tolist() for table in parts[:3]]


def test_five_data_sets():
    assert list(DATASETS) == ["double-ou", "ushcn", "mocap", "mocap35", "human36m"]
    for name, dataset in DATASETS.items():
        assert dataset.name == name
        assert dataset.citation
        assert len(dataset.about) < 121


def test_parts_are_disjoint_and_complete_and_the_same_every_time(case):
    dataset, folder, ids, _ = case
    seen, fold, parts = [], 0, dataset.load(folder, 0)
    for fold in range(dataset.num_folds):
        parts = dataset.load(folder, fold)
        together = list(itertools.chain(*ids_of(parts)))
        assert len(together) == len(set(together))
        assert set(together) == ids
        recordings = [{str(i).rpartition("/")[0] or str(i) for i in part} for part in ids_of(parts)]
        assert sum(map(len, recordings)) == len(set.union(*recordings))  # a recording is in one part
        assert all(len(part) > 0 for part in recordings)
        seen.append(tuple(sorted(parts.test.ids.tolist())))
    assert len(set(seen)) == dataset.num_folds  # folds differ
    again = dataset.load(folder, fold)
    assert [t and t.fingerprint() for t in parts] == [t and t.fingerprint() for t in again]


def test_half_of_the_frames_are_removed_and_those_of_the_test_part_kept_apart(case):
    dataset, folder, _, size = case
    train, valid, test, removed = dataset.load(folder, 0)
    if size is None:
        assert removed is None
        return
    for table in (train, valid, test, removed):
        assert set(np.diff(table.starts)) == {size // 2}
        assert table.mask.all()
        assert len(table.variables) == table.values.shape[1] == {300: 62, 248: 51}[size]
    assert removed.ids.tolist() == test.ids.tolist()
    both = np.concatenate([test.times.reshape(-1, size // 2), removed.times.reshape(-1, size // 2)], axis=1)
    assert np.array_equal(np.sort(both), np.tile(np.arange(size), (test.num_series, 1)))
    assert len(np.unique(both, axis=0)) > 1  # not the same frames in every segment


def recordings(dataset: str) -> list[Recording]:
    random = np.random.default_rng(3)
    width, size = {"mocap": (62, 300), "human36m": (51, 248)}[dataset]
    return [Recording(f"S{n % 7}/{n}", 5 + 3 * random.standard_normal((size, width))) for n in range(28)]


def split(dataset: str, made: list[Recording]) -> Parts:
    return mocap.split(made) if dataset == "mocap" else human36m.split(made, human36m.ANGLE_NAMES)


@pytest.mark.parametrize("dataset", ["mocap", "human36m"])
def test_scaling_knows_the_training_part_alone(dataset):
    made = recordings(dataset)
    parts = split(dataset, made)
    unseen = {i.rpartition("/")[0] for i in itertools.chain(parts.valid.ids, parts.test.ids)}
    poisoned = split(dataset, [r._replace(frames=r.frames * 1e6) if r.name in unseen else r for r in made])
    assert parts.train.fingerprint() == poisoned.train.fingerprint()
    assert not np.allclose(parts.test.values, poisoned.test.values)
    used = np.concatenate([r.frames for r in made if f"{r.name}/0" in set(parts.train.ids)])
    truth = {r.name: (r.frames - used.mean(axis=0)) / used.std(axis=0) for r in made}
    for table in parts:
        names = (name.rpartition("/")[0] for name in table.ids[table.series_of_row])
        rows = [truth[name][int(time)] for name, time in zip(names, table.times, strict=True)]
        np.testing.assert_allclose(table.values, rows, rtol=0, atol=1e-9)


@pytest.mark.parametrize("dataset", ["mocap", "human36m"])
def test_what_never_varies_in_training_is_centred_and_keeps_its_unit(dataset):
    made = recordings(dataset)
    test = {i.rpartition("/")[0] for i in split(dataset, made).test.ids}
    for recording in made:
        recording.frames[:, 4] = 9.0 if recording.name in test else 7.0
    parts = split(dataset, made)
    assert np.all(parts.train.values[:, 4] == 0)
    assert np.all(parts.test.values[:, 4] == 2)


def test_a_trial_under_two_names_is_taken_once():
    made = recordings("mocap")
    parts = mocap.split([*made, *(each._replace(name=f"T{each.name}") for each in made[:5])])
    again = mocap.split(made)
    assert [part.fingerprint() for part in parts] == [part.fingerprint() for part in again]
    assert parts.test.notes == ("5 trials that are there under another name too were left out",)
    assert again.test.notes == ()


def test_parts_of_too_few_recordings_are_refused():
    with pytest.raises(DataError, match="train part should have a recording of at least 300 frames"):
        mocap.split(recordings("mocap")[:1])


def test_folds_that_are_not_there_are_refused(case):
    dataset, folder, _, _ = case
    for fold in (-1, dataset.num_folds):
        with pytest.raises(SettingsError, match=f"0 to {dataset.num_folds - 1}, but got {fold}"):
            dataset.load(folder, fold)


def test_another_checksum_is_said(tmp_path):
    write_packed(tmp_path)
    assert "another checksum" in DATASETS["mocap"].load(tmp_path, 0).test.notes[0]


# ------------------------------------------------------------------------------------------------------ command line


@pytest.mark.parametrize("name", [name for name, dataset in DATASETS.items() if dataset.sources])
def test_a_missing_file_is_one_line_that_says_where_to_get_it(name, tmp_path, capsys):
    code = cli.main(["datasets", "make", name, "--data", str(tmp_path), "--out", str(tmp_path / "x.csv")])
    out, err = capsys.readouterr()
    assert (code, out, err.count("\n")) == (2, "", 1)
    for source in DATASETS[name].sources:
        assert source.name in err
        assert source.where in err
    assert str(tmp_path) in err
    assert "--data" in err
    assert "VSDN_DATA" in err


def test_make_writes_the_parts_of_a_fold(tmp_path, monkeypatch, capsys):
    write_ushcn(tmp_path)
    monkeypatch.setenv("VSDN_DATA", str(tmp_path))
    parts = DATASETS["ushcn"].load(tmp_path, 3)
    for name, table in {"valid": parts.valid, "test": parts.test}.items():
        out = tmp_path / f"{name}.parquet"
        assert cli.main(["datasets", "make", "ushcn", "--part", name, "--fold", "3", "--out", str(out)]) == 0
        frame = pq.read_table(out)
        assert frame.column_names == ["id", "time", "prcp", "snow", "snwd", "tmax", "tmin"]
        assert set(frame["id"].to_pylist()) == set(table.ids.tolist())
        assert frame["tmin"].null_count == (~table.mask[:, 4]).sum()
    assert "small_chunked_sporadic.csv: neither the published nor the rebuilt" in capsys.readouterr().err


def test_make_writes_all_and_what_was_removed(tmp_path):
    write_packed(tmp_path)
    make = ["datasets", "make", "mocap", "--data", str(tmp_path), "--quiet"]
    for part, rows in {"all": 150 * sum(n // 300 for n in TRIALS.values()), "removed": None, "test": None}.items():
        assert cli.main([*make, "--part", part, "--out", str(tmp_path / f"{part}.parquet")]) == 0
        assert rows is None or pq.read_table(tmp_path / f"{part}.parquet").num_rows == rows
    seen, gone = (pq.read_table(tmp_path / f"{part}.parquet").select(["id", "time"]) for part in ("test", "removed"))
    assert seen.num_rows == gone.num_rows
    assert {tuple(row.values()) for row in seen.to_pylist()}.isdisjoint(tuple(row.values()) for row in gone.to_pylist())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("ushcn --series 3", "--series is for double-ou"),
        ("ushcn --seed 0", "--seed is for double-ou"),
        ("ushcn --legacy", "--legacy is for double-ou"),
        ("ushcn --fold 15", "one of 0 to 14, but got 15"),
        ("double-ou --fold 1", "one of 0 to 0, but got 1"),
        ("double-ou --series 3 --part valid", "--part valid should have at least one series, but of --series 3 it has"),
        ("double-ou --series 1 --part train --legacy", "--part train should have at least one series"),
        ("ushcn --part removed", "--part is one of all, train, valid, test, but got 'removed'"),
    ],
)
def test_make_refuses_in_one_line(arguments, message, tmp_path, capsys):
    write_ushcn(tmp_path)
    code = cli.main(["datasets", "make", *arguments.split(), "--data", str(tmp_path), "--out", str(tmp_path / "x.csv")])
    err = capsys.readouterr().err
    assert (code, err.count("\n")) == (2, 1)
    assert message in err
    assert not (tmp_path / "x.csv").exists()


def test_list_tells_what_is_there(tmp_path, monkeypatch, capsys):
    write_positions(tmp_path)
    assert cli.main(["datasets", "list", "--json", "--data", str(tmp_path)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {name: row["here"] for name, row in told.items()} == {
        **dict.fromkeys(("ushcn", "mocap", "mocap35"), False),
        **dict.fromkeys(("double-ou", "human36m"), True),
    }
    monkeypatch.setenv("COLUMNS", "400")
    assert cli.main(["datasets", "list", "--data", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    for dataset in DATASETS.values():
        assert dataset.about in text
        assert dataset.citation in text


def test_a_trial_without_a_whole_segment_is_left_out(tmp_path):
    write_packed(tmp_path)
    names = {i.rpartition("/")[0] for part in ids_of(DATASETS["mocap"].load(tmp_path, 0)) for i in part}
    assert names == set(TRIALS)
    assert SHORT not in names
