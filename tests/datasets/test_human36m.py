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


def write_takes(folder, text: str = LINE) -> None:
    """One take of every subject, with this text for that of S1."""
    for number in human36m.SUBJECTS:
        (folder / f"S{number}").mkdir(parents=True)
        (folder / f"S{number}" / "walking_1.txt").write_text(text if number == 1 else LINE)


def test_files_beside_the_takes_are_not_read(tmp_path):
    write_takes(tmp_path)
    (tmp_path / "S1" / "walking_2.txt").write_text(LINE)
    for name in ("walking_3 (copy).txt", "._walking_1.txt", ".walking_1.txt", "readme.txt", "walking_1.csv"):
        (tmp_path / "S1" / name).write_text("no take")
    names = [each.name for each in human36m.read_exponential_maps(tmp_path)]
    assert names[:3] == ["S1/walking_1", "S1/walking_2", "S5/walking_1"]
    assert len(names) == 8


def test_a_subject_without_takes_is_named(tmp_path):
    write_takes(tmp_path)
    (tmp_path / "S7" / "walking_1.txt").unlink()
    with pytest.raises(DataError, match="at least one take of each subject, but of S7 it has none"):
        human36m.read_exponential_maps(tmp_path)
    takes = {f"S{n}": {"a": np.zeros((4, 32, 3))} for n in human36m.SUBJECTS} | {"S1": {}, "S11": {}}
    (tmp_path / "x.npz").write_bytes(npz_with(pickle.dumps(takes)))
    with pytest.raises(DataError, match="at least one take of each subject, but of S1, S11 it has none"):
        human36m.read_positions(tmp_path / "x.npz")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LINE.replace("0.5,", "", 1), "99 numbers a line, but has 98"),
        (LINE + LINE[:50], "should have 99 numbers a line"),
        (LINE.replace("0.5", "x"), "should have 99 numbers a line"),
        ("", "should have 99 numbers a line"),
        (LINE * 2 + LINE.replace("0.5", "nan"), "frame 3 should hold finite numbers"),
        (LINE * 3 + LINE.replace("0.5", "inf"), "frame 4 should hold finite numbers"),  # of those that are left out
    ],
)
def test_damaged_text_is_refused(tmp_path, text, message):
    write_takes(tmp_path, text)
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


def takes_of(number: int) -> dict[str, np.ndarray]:
    """A subject's takes, in all forms that arrays of numbers have, and one of them twice."""
    frames = np.random.default_rng(number).normal(size=(4, 32, 3))
    forms = {"f8": frames, "f4": frames.astype("f4"), "big": frames.astype(">f8"), "columns": np.asfortranarray(frames)}
    return forms | {"again": forms["f4"]}


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("numpy", [1, 2])
def test_files_of_all_protocols_are_read(tmp_path, protocol, numpy):
    takes = {f"S{number}": takes_of(number) for number in human36m.SUBJECTS}
    content = pickle.dumps(np.array(takes, dtype=object), protocol=protocol)
    assert b"numpy._core.multiarray" in content
    if numpy == 1:  # names are lines, but from protocol 4 on texts with their length in front
        for name in (b"multiarray", b"numeric"):
            content = content.replace(
                b"\x8c%cnumpy._core." % (len(name) + 12) + name, b"\x8c%cnumpy.core." % (len(name) + 11) + name
            )
        content = content.replace(b"numpy._core", b"numpy.core")
    (tmp_path / "x.npz").write_bytes(npz_with(content))
    found = {each.name: each.frames for each in human36m.read_positions(tmp_path / "x.npz")}
    assert list(found) == [f"{subject}/{take}" for subject, each in takes.items() for take in each]
    knee = human36m.POSITION_NAMES.index("left_knee_y")
    for subject, each in takes.items():
        for take, frames in each.items():
            wanted = frames.astype(float)[::2, 7, 1] - frames.astype(float)[::2, 0, 1]
            np.testing.assert_allclose(found[f"{subject}/{take}"][:, knee], wanted, rtol=0, atol=1e-12)


def test_files_written_by_python_2_are_read(tmp_path):
    """Their names, keys and numbers are all texts of bytes; numpy's state says so, since its first version."""
    raw = np.arange(192, dtype="<f4").tobytes()
    text = lambda content: b"T" + len(content).to_bytes(4, "little") + content
    kind = b"cnumpy\ndtype\n(U\x02f4K\x00K\x01tR(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    blank = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR"
    take = blank + b"(K\x01(K\x02K\x20K\x03t" + kind + b"\x89" + text(raw) + b"tb"
    names = (f"S{number}".encode() for number in human36m.SUBJECTS)
    subjects = b"".join(b"U" + bytes([len(name)]) + name + b"}U\x01a" + take + b"s" for name in names)
    (tmp_path / "x.npz").write_bytes(npz_with(b"\x80\x02}(" + subjects + b"u."))
    found = human36m.read_positions(tmp_path / "x.npz")
    assert [each.name for each in found] == [f"S{number}/a" for number in human36m.SUBJECTS]
    assert found[0].frames[0, 3:6].tolist() == [3, 3, 3]


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


LATE = np.where(np.arange(4)[:, None, None] == 1, np.inf, np.zeros((4, 32, 3)))  # in a frame that is left out
BLANK = b"cnumpy._core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tC\x01btR"
KIND = b"cnumpy\ndtype\n(X\x02\x00\x00\x00%s\x89\x88tR"
FORGED = b"(K\x03X\x01\x00\x00\x00|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"  # says that it holds no objects
EIGHT = b"C\x08AAAAAAAA"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"cnumpy\nndarray\n()X\x01\x00\x00\x00O" + EIGHT + b"tR.", "it makes what is no array"),
        (b"cnumpy\nndarray\n)\x81.", "it has the instruction NEWOBJ"),
        (
            BLANK + b"(K\x01)" + KIND % b"O8" + FORGED + b"\x89" + EIGHT + b"tb.",
            "should be of numbers or hold one object",
        ),
        (BLANK + b"(K\x01)" + KIND % b"O8" + b"\x89](NNetb.", "should be of numbers or hold one object"),
        (BLANK + b"(K\x01)" + KIND % b"V8" + b"\x89" + EIGHT + b"tb.", "of f4, f8 or objects, but one is of 'V8'"),
        (KIND % b"f8" + b"(K\x03X\x01\x00\x00\x00<NX\x01\x00\x00\x00a}tb.", "without parts and fields"),
        (BLANK + b"(K\x01K\x02\x85" + KIND % b"f8" + b"\x89" + EIGHT + b"tb.", "cannot reshape array of size 1"),
        (BLANK + b"(K\x01J\xff\xff\xff\xff\x85" + KIND % b"f8" + b"\x89" + EIGHT + b"tb.", "a shape of whole numbers"),
        (BLANK + b"(K\x01)" + KIND % b"f8" + b"\x89C\x07AAAAAAAtb.", "buffer size must be a multiple"),
        (b"cnumpy\ndtype\n}X\x01\x00\x00\x00aNsb.", "it gives a state to what is no array"),
        (b"}" + b")" + b"\x85" * 10**6 + b"Ns.", "texts for keys"),  # too deep to be hashed
        (b"})q\x00" + b"h\x00h\x00\x86q\x00" * 100 + b"Ns.", "texts for keys"),  # too broad
        (b"N}\x93.", "expected str instance"),
        (b"((((", "should be an .npz file"),
        (b"e.", "pop from empty list"),
        (b"\x86.", "more values than there are"),
        (b"NN.", "should come to one value, but comes to 2"),
    ],
)
def test_a_forged_file_crashes_nothing(tmp_path, content, message):
    """Python's unpickler, or numpy's part of it, dies of some of these."""
    (tmp_path / "x.npz").write_bytes(npz_with(b"\x80\x03" + content))
    with pytest.raises(DataError, match=message) as caught:
        human36m.read_positions(tmp_path / "x.npz")
    assert "\n" not in str(caught.value)


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
            npz_with(pickle.dumps({f"S{n}": {"a": np.zeros((0, 32, 3))} for n in human36m.SUBJECTS}, protocol=4)),
            r"S1/a should be numbers of shape \(frames, 32, 3\), but are of shape \(0, 32, 3\)",
        ),
        (
            npz_with(pickle.dumps({f"S{n}": {"a": LATE} for n in human36m.SUBJECTS}, protocol=4)),
            "S1/a: frame 2 should hold finite numbers",
        ),
    ],
)
def test_files_of_another_content_are_refused(tmp_path, content, message):
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(DataError, match=message):
        human36m.read_positions(tmp_path / "x.npz")
