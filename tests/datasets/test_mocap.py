"""CMU MoCap: packed trials, downloads, and the benchmark of subject 35."""

import os

import numpy as np
import pytest
from datafiles import Trap, amc_text, trials, write_downloads, write_packed

from vsdn.datasets import mocap, mocap35
from vsdn.datasets.motion import Recording
from vsdn.errors import DataError
from vsdn.settings import read_preset

SOURCE = "mocap.cs.cmu.edu (docs/datasets.md tells what is packed how)"


def test_packed_trials_and_downloads_are_the_same_data(tmp_path):
    for name, write in {"packed": write_packed, "downloads": write_downloads}.items():
        (tmp_path / name).mkdir()
        write(tmp_path / name)
    packed, downloads = (mocap.load(tmp_path / name, 1) for name in ("packed", "downloads"))
    for a, b in zip(packed, downloads, strict=True):
        assert a.ids.tolist() == b.ids.tolist()
        assert np.array_equal(a.times, b.times)
        np.testing.assert_allclose(a.values, b.values, rtol=0, atol=1e-9)


def test_packed_trials_are_decoded(tmp_path):
    write_packed(tmp_path)
    found = mocap.read_packed(tmp_path / mocap.PACKED.name)
    for recording, (name, frames) in zip(found, trials().items(), strict=True):
        assert recording.name == name
        np.testing.assert_allclose(recording.frames, frames, rtol=0, atol=1e-9)


def test_published_choice_has_123_segments_of_87_trials(shared_data):
    folder = shared_data(mocap.PACKED.name, SOURCE).parents[1]
    parts = mocap.load(folder, 0)
    ids = np.concatenate([part.ids for part in parts[:3]])
    assert len(ids) == 123
    assert len({i.partition("/")[0] for i in ids}) == 87
    assert parts.test.notes == ()  # the checksum is right


def test_downloads_with_a_trial_twice_are_refused(tmp_path):
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "35_01.amc").write_text(amc_text(np.zeros((1, 62))))
    with pytest.raises(DataError, match="each trial once, but 35_01 is there twice"):
        mocap.read_folder(tmp_path)


def test_downloads_of_other_skeletons_or_subjects_are_refused(tmp_path):
    (tmp_path / "35_01.amc").write_text(amc_text(np.zeros((1, 6)), {"root": mocap.CMU_DOFS["root"]}))
    with pytest.raises(DataError, match=r"35_01.amc should have the 62 columns .* no lowerback_rx"):
        mocap.read_folder(tmp_path)
    with pytest.raises(DataError, match="of the subjects 2, 7, with names like"):
        mocap.read_folder(tmp_path, [2, 7])


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"lengths": np.array([2, 2])},
        {"lengths": np.array([4, -1])},
        {"lengths": np.array([1.5, 1.5])},
        {"names": np.array(["a"])},
        {"names": np.array([{}, {}], dtype=object)},
        {"angle_delta": np.zeros((58, 3), int)},
        {"root_delta": np.zeros((3, 3))},
    ],
)
def test_damaged_packs_are_refused(tmp_path, arrays):
    whole = {"names": np.array(["a", "b"]), "lengths": np.array([1, 2])}
    whole |= {"root_delta": np.zeros((3, 3), int), "angle_delta": np.zeros((59, 3), int)}
    np.savez(tmp_path / "whole.npz", **whole)
    assert len(mocap.read_packed(tmp_path / "whole.npz")) == 2
    np.savez(tmp_path / "x.npz", **(whole | arrays if arrays else {"names": whole["names"]}))
    with pytest.raises(DataError, match=r"x\.npz should"):
        mocap.read_packed(tmp_path / "x.npz")


def test_a_hostile_pack_is_refused_and_does_nothing(tmp_path):
    path, mark = tmp_path / "x.npz", tmp_path / "mark"
    np.savez(path, names=np.array([Trap(os.system, f"touch {mark}")], dtype=object))
    with pytest.raises(DataError, match=r"x\.npz should be an \.npz file with the arrays names"):
        mocap.read_packed(path)
    assert not mark.exists()


def test_files_that_are_no_pack_are_refused(tmp_path):
    np.save(tmp_path / "y.npy", np.zeros(3))
    write_packed(tmp_path)
    content = (tmp_path / mocap.PACKED.name).read_bytes()
    for damaged in (b"", b"text", content[: len(content) // 2], (tmp_path / "y.npy").read_bytes()):
        (tmp_path / "x.npz").write_bytes(damaged)
        with pytest.raises(DataError, match=r"x\.npz should be an \.npz file with the arrays names"):
            mocap.read_packed(tmp_path / "x.npz")


# ---------------------------------------------------------------------------------------------------------- subject 35


def test_mocap35_is_made_of_cmus_trials(shared_data):
    """The papers' file, by another route: the packed trials of subject 35."""
    folder = shared_data(mocap35.FILE.name, SOURCE).parents[2]
    parts = mocap35.load(folder)
    assert [part.num_series for part in parts[:3]] == [16, 3, 4]
    assert parts.train.notes == ()
    made = mocap35.build(mocap.read_packed(shared_data(mocap.PACKED.name, SOURCE)))
    for table, walks in zip(parts, made, strict=False):
        values = table.values.reshape(walks.shape)
        assert np.abs(values - walks)[..., :3].max() < 2.1e-4  # differences of what is packed in steps of 1e-4 ...
        assert np.abs(values - walks)[..., 3:].max() < 0.6e-2  # ... and 0.01 degrees


def test_mocap35_keeps_what_the_papers_keep():
    assert len(mocap35.VARIABLES) == 50
    assert mocap35.VARIABLES[:4] == ("root_VX", "root_VY", "root_VZ", "root_RX")
    assert not any("hand" in name or "toes" in name for name in mocap35.VARIABLES)


def test_mocap35_knows_what_its_root_would_tell_at_rest(shared_data):
    """The papers' file has the mean of all 23 walks removed, so that standing still is not nought."""
    trials = mocap.read_packed(shared_data(mocap.PACKED.name, SOURCE))
    names = {f"35_{trial:02}" for part in mocap35.TRIALS.values() for trial in part}
    first = np.stack([trial.frames[: mocap35.NUM_FRAMES, :3] for trial in trials if trial.name in names])
    steps = np.diff(first, axis=1)
    mean = np.concatenate([steps, steps[:, -1:]], axis=1).mean(axis=(0, 1))
    assert len(first) == 23
    assert list(mocap35.REST) == list(mocap35.VARIABLES[:3])
    np.testing.assert_allclose(list(mocap35.REST.values()), -mean, atol=2e-6)
    assert read_preset("mocap35")["rates"] == mocap35.REST


def test_mocap35_says_what_is_not_there(tmp_path):
    with pytest.raises(DataError, match="trial 35_02 of at least 300 frames was expected"):
        mocap35.build([Recording("35_01", np.zeros((300, 62))), Recording("35_02", np.zeros((299, 62)))])
    path = tmp_path / mocap35.FILE.name
    path.parent.mkdir(parents=True)
    shapes = {name: np.zeros((len(part), 300, 50)) for name, part in mocap35.TRIALS.items()}
    for wrong, message in {
        "shape": r"'test' should be numbers of shape \(4, 300, 50\)",
        "nan": "35_31: frame 8 ",
    }.items():
        test = shapes["test"][:, :, :49] if wrong == "shape" else shapes["test"].copy()
        test[0, 7, 3] = np.nan
        np.savez(path, **(shapes | {"test": test}))
        with pytest.raises(DataError, match=message):
            mocap35.load(tmp_path)
