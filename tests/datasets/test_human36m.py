"""Human3.6M: both layouts, on tiny files; what a file may not do."""

import io
import os
import pickle
import zipfile

import numpy as np
import pytest
from datafiles import Trap, write_exponential_maps, write_positions

from vsdn.datasets import human36m
from vsdn.errors import DataError


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A function from a writer to the folder that it has filled."""
    made = {}

    def fill(write):
        if write not in made:
            made[write] = tmp_path_factory.mktemp("data")
            write(made[write])
        return made[write]

    return fill


@pytest.mark.parametrize("write", [write_positions, write_exponential_maps])
def test_subject_five_alone_is_the_test_part(write, folder):
    parts = human36m.load(folder(write))
    subjects = [{i.partition("/")[0] for i in part.ids} for part in parts[:3]]
    assert subjects[2] == {"S5"}
    assert subjects[0] | subjects[1] == {"S1", "S6", "S7", "S8", "S9", "S11"}
    assert len(parts.train.variables) == 51


def test_positions_are_seen_from_the_hip_at_25_frames_a_second(folder):
    path = folder(write_positions) / human36m.POSITIONS.name
    with np.load(path, allow_pickle=True) as file:  # ours, written by the test
        raw = file["positions_3d"].item()
    found = {recording.name: recording.frames for recording in human36m.read_positions(path)}
    assert len(found) == 14
    frames, truth = found["S9/Eating"], raw["S9"]["Eating"].astype(float)
    assert frames.shape == (496, 51)
    knee = human36m.POSITION_NAMES.index("left_knee_y")
    np.testing.assert_allclose(frames[:, knee], truth[::2, 7, 1] - truth[::2, 0, 1], rtol=0, atol=1e-12)
    assert np.all(frames[:, :3] == 0)


def test_exponential_maps_keep_the_angles_that_vary(folder):
    root = folder(write_exponential_maps) / "human36m"
    found = {recording.name: recording.frames for recording in human36m.read_exponential_maps(root)}
    truth = np.loadtxt(root / "S11" / "walking_1.txt", delimiter=",")
    assert len(human36m.ANGLES) == len(set(human36m.ANGLES)) == 51
    assert np.array_equal(found["S11/walking_1"], truth[::2, human36m.ANGLES])


def test_a_missing_subject_is_named(tmp_path):
    for number in (1, 5, 6, 8, 9, 11):
        (tmp_path / "human36m" / f"S{number}").mkdir(parents=True)
    with pytest.raises(DataError, match="but S7 is missing"):
        human36m.load(tmp_path)
    path = tmp_path / human36m.POSITIONS.name
    np.savez(path, positions_3d=np.array({"S1": {}}, dtype=object))
    with pytest.raises(DataError, match="but S5, S6, S7, S8, S9, S11 is missing"):
        human36m.load(tmp_path)


LINE = ",".join(["0.5"] * 99) + "\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LINE.replace("0.5,", "", 1), "99 numbers a line, but has 98"),
        (LINE + LINE[:50], "should have 99 numbers a line"),
        (LINE.replace("0.5", "x"), "should have 99 numbers a line"),
        ("", "should have 99 numbers a line"),
        (LINE * 2 + LINE.replace("0.5", "nan"), "frame 2 should hold finite numbers"),
    ],
)
def test_damaged_text_is_refused(tmp_path, text, message):
    for number in human36m.SUBJECTS:
        (tmp_path / f"S{number}").mkdir()
    (tmp_path / "S1" / "walking_1.txt").write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        human36m.read_exponential_maps(tmp_path)
    assert "walking_1.txt" in str(caught.value)
    assert "\n" not in str(caught.value)


def npz_with(content: bytes) -> bytes:
    """An .npz file whose positions_3d is an array of objects with this pickle."""
    array, file = io.BytesIO(), io.BytesIO()
    np.lib.format.write_array_header_1_0(array, {"descr": "|O", "fortran_order": False, "shape": ()})
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("positions_3d.npy", array.getvalue() + content)
    return file.getvalue()


def test_files_written_by_numpy_1_are_read(tmp_path):
    takes = {f"S{n}": {"a": np.full((4, 32, 3), n, np.float32)} for n in human36m.SUBJECTS}
    content = pickle.dumps(np.array(takes, dtype=object), protocol=3)
    assert b"numpy._core" in content
    (tmp_path / "x.npz").write_bytes(npz_with(content.replace(b"numpy._core", b"numpy.core")))
    assert [each.name for each in human36m.read_positions(tmp_path / "x.npz")] == [f"{s}/a" for s in takes]


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_hostile_file_is_refused_and_does_nothing(tmp_path, protocol):
    mark, path = tmp_path / "mark", tmp_path / "x.npz"
    for trap in (
        Trap(os.system, f"touch {mark}"),
        Trap(eval, f"open({str(mark)!r}, 'w')"),
        Trap(np.save, str(mark), 1),
        Trap(np.fromfile, str(path)),
    ):
        path.write_bytes(npz_with(pickle.dumps({"S1": {"a": trap}}, protocol=protocol)))
        with pytest.raises(DataError, match=r"it asks for .*, which is no array, dictionary or text") as caught:
            human36m.read_positions(path)
        assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "should be an .npz file"),
        (b"PK\x03\x04 cut", "should be an .npz file"),
        (npz_with(b""), "should be an .npz file"),
        (npz_with(pickle.dumps({"S1": 3})), "should hold a dictionary of subjects, each a dictionary of actions"),
        (npz_with(pickle.dumps([1])), "should hold a dictionary of subjects"),
        (
            npz_with(pickle.dumps({f"S{n}": {"a": "text"} for n in human36m.SUBJECTS})),
            r"S1/a should be numbers of shape",
        ),
        (
            npz_with(pickle.dumps({f"S{n}": {"a": np.zeros((4, 17, 3))} for n in human36m.SUBJECTS}, protocol=4)),
            r"S1/a should be numbers of shape \(frames, 32, 3\)",
        ),
        (
            npz_with(
                pickle.dumps({f"S{n}": {"a": np.full((4, 32, 3), np.inf)} for n in human36m.SUBJECTS}, protocol=4)
            ),
            "S1/a: frame 1 should hold finite numbers",
        ),
    ],
)
def test_files_of_another_content_are_refused(tmp_path, content, message):
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(DataError, match=message):
        human36m.read_positions(tmp_path / "x.npz")
