"""Human3.6M: 51 dimensions per frame, in segments of 248 frames of which half are removed; needs the user's files.

Two layouts are read, each with 51 dimensions of its own:
- positions: the 17 joints that move independently, in metres from the hip (whose 3 dimensions are hence zero);
- exponential maps: the rotation of the root and the 48 joint angles that vary in the data. Martinez et al. (2017) keep
  the dimensions that vary by more than 1e-4 in training: these and the root's translation, 54. Where a person stands is
  left out, which leaves 51.
As in that work, every second frame is taken (25 per second), and subject 5 is the test part. One tenth of the other
subjects' takes, chosen at random with a fixed seed, is the validation part; so test subjects are new, validation
subjects are not.
"""

from collections.abc import Mapping, Sized
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv

from vsdn.datasets import motion
from vsdn.datasets.base import Dataset, Parts, Source, check_fold, find_source, read_source, shorten_error
from vsdn.datasets.motion import Recording, Split
from vsdn.datasets.pickled import read_pickled
from vsdn.errors import DataError

SUBJECTS = (1, 5, 6, 7, 8, 9, 11)
SUBJECT_NAMES = tuple(f"S{number}" for number in SUBJECTS)
TEST_SUBJECT = "S5"
SEGMENT = 248  # frames
STRIDE = 2  # 50 frames a second to 25
SEED = 432
JOINTS = dict(
    zip(
        (0, 1, 2, 3, 6, 7, 8, 12, 13, 14, 15, 17, 18, 19, 25, 26, 27),
        (
            *("hip", "right_hip", "right_knee", "right_foot", "left_hip", "left_knee", "left_foot"),
            *("spine", "thorax", "nose", "head", "left_shoulder", "left_elbow", "left_wrist"),
            *("right_shoulder", "right_elbow", "right_wrist"),
        ),
        strict=True,
    )
)
NUM_JOINTS = 32
NUM_COLUMNS = 99
VARYING = (
    *(6, 7, 8, 9, 12, 13, 14, 15, 21, 22, 23, 24, 27, 28, 29, 30, *range(36, 48)),
    *(*range(51, 58), 60, 61, 62, *range(75, 82), 84, 85, 86),
)
ANGLES = (3, 4, 5, *VARYING)
POSITION_NAMES = tuple(f"{joint}_{axis}" for joint in JOINTS.values() for axis in "xyz")
ANGLE_NAMES = tuple(f"angle_{column}" for column in ANGLES)
ASK = "from vision.imar.ro/human3.6m, whose licence lets nobody pass it on"
POSITIONS = Source("human36m/data_3d_h36m.npz", None, f"{ASK}; github.com/facebookresearch/VideoPose3D converts it")
EXPONENTIAL_MAPS = Source(
    "human36m/S1", None, "with S5 to S11 beside it: folders of exponential maps such as walking_1.txt"
)
SOURCES = (POSITIONS, EXPONENTIAL_MAPS)


def load(folder: Path, fold: int = 0) -> Parts:
    """The parts, from positions or (if they are missing) from exponential maps."""
    check_fold(fold, 1)
    source, path = find_source(SOURCES, folder)
    if source is POSITIONS:
        return split(read_positions(path), POSITION_NAMES)
    return split(read_exponential_maps(path.parent), ANGLE_NAMES)


def split(recordings: list[Recording], variables: tuple[str, ...]) -> Parts:
    """Training, validation and test segments of takes with names like S5/walking_1."""
    is_test = lambda recording: recording.name.split("/")[0] == TEST_SUBJECT
    long = motion.at_least(SEGMENT, recordings)
    test = [recording for recording in long if is_test(recording)]
    rest = [recording for recording in long if not is_test(recording)]
    train, valid = motion.shuffle(rest, [SEED, 0], 0.1)
    return motion.make_parts(Split(train, valid, test), variables, size=SEGMENT, seed=[SEED, 1])


def read_exponential_maps(folder: Path) -> list[Recording]:
    """The takes in the text files S{subject}/{action}_{1,2}.txt of a folder."""
    folders = [folder / subject for subject in SUBJECT_NAMES if (folder / subject).is_dir()]
    takes = {each.name: sorted(path for path in each.glob("*.txt") if _is_take(path.name)) for each in folders}
    _check_subjects(folder, takes)
    paths = [path for subject in SUBJECT_NAMES for path in takes[subject]]
    return [Recording(f"{path.parent.name}/{path.stem}", _read_text(path)) for path in paths]


def _is_take(name: str) -> bool:
    return name.endswith(("_1.txt", "_2.txt")) and not name.startswith(".")


def _read_text(path: Path) -> np.ndarray:
    options = csv.ReadOptions(autogenerate_column_names=True)
    types = csv.ConvertOptions(column_types={f"f{i}": pa.float64() for i in range(NUM_COLUMNS)})
    try:
        table = csv.read_csv(pa.BufferReader(read_source(path)), options, convert_options=types)
    except pa.ArrowInvalid as error:
        raise DataError(f"{path} should have {NUM_COLUMNS} numbers a line: {shorten_error(error)}") from error
    if table.num_columns != NUM_COLUMNS:
        raise DataError(f"{path} should have {NUM_COLUMNS} numbers a line, but has {table.num_columns}")
    frames = np.column_stack([table.column(i).to_numpy() for i in ANGLES])
    motion.check_frames(frames, str(path))
    return frames[::STRIDE]


def read_positions(path: Path) -> list[Recording]:
    """The takes of `data_3d_h36m.npz`: {subject: {action: (frame, 32, 3)}}, read without executing its pickle."""
    by_subject = read_pickled(path, "positions_3d")
    if not isinstance(by_subject, dict) or not all(isinstance(takes, dict) for takes in by_subject.values()):
        raise DataError(f"{path} should hold a dictionary of subjects, each a dictionary of actions")
    _check_subjects(path, by_subject)
    return [
        Recording(f"{subject}/{action}", _centre(take, f"{path}: {subject}/{action}"))
        for subject in SUBJECT_NAMES
        for action, take in by_subject[subject].items()
    ]


def _centre(take: Any, where: str) -> np.ndarray:
    """Frames (frame, 51): the 17 joints relative to the hip."""
    if not isinstance(take, np.ndarray) or take.shape[1:] != (NUM_JOINTS, 3) or not len(take):
        found = f"are of shape {take.shape}" if isinstance(take, np.ndarray) else "are no array"
        raise DataError(f"{where} should be numbers of shape (frames, {NUM_JOINTS}, 3), but {found}")
    joints = take[:, list(JOINTS)]
    motion.check_frames(joints, where)
    joints = joints[::STRIDE].astype(np.float64)
    return (joints - joints[:, :1]).reshape(len(joints), -1)


def _check_subjects(where: Path, takes: Mapping[str, Sized]) -> None:
    """Refuses takes in which a subject is missing."""
    if missing := [subject for subject in SUBJECT_NAMES if subject not in takes]:
        wanted = ", ".join(SUBJECT_NAMES)
        raise DataError(f"{where} should hold the subjects {wanted}, but {', '.join(missing)} is missing")
    if empty := [subject for subject in SUBJECT_NAMES if not len(takes[subject])]:
        raise DataError(f"{where} should hold at least one take of each subject, but of {', '.join(empty)} it has none")


DATASET = Dataset(
    name="human36m",
    about="Human3.6M motion capture: 51 dimensions a frame, segments of 248 frames at 25 Hz, half of them removed.",
    citation="Ionescu, Papava, Olaru, Sminchisescu (2014), doi:10.1109/TPAMI.2013.248; "
    "Martinez, Black, Romero (2017), doi:10.1109/CVPR.2017.497",
    sources=SOURCES,
    num_folds=1,
    load=load,
)
