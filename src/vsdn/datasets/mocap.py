"""CMU MoCap: 62 joint angles and root coordinates per frame, in segments of 300 frames of which half are removed.

The choice of trials is ours, since the paper does not state its own: all that CMU lists for the seven subjects of
locomotion 2, 7, 8, 9, 16, 35 and 39 (walk, run, jump; subject 2 also everyday activities), at 120 frames a second. 87
of the 150 trials have 300 frames or more; they give 123 segments, few enough for all models and folds of a table, and
their angles rarely jump by a full turn, as those of turning subjects do. CMU stores hundreds of trials of other
subjects twice, under two subjects (e.g. 91 and 105): of trials with the same angles, `split` keeps one. A fold is a
random fifth of the trials for testing and a tenth of the rest for validation.
"""

from collections.abc import Collection
from pathlib import Path

import numpy as np

from vsdn.datasets import motion
from vsdn.datasets.asf import CMU_DOFS, Skeleton, read_amc, read_asf
from vsdn.datasets.base import (
    Dataset,
    Parts,
    Source,
    check_fold,
    checksum_notes,
    find_source,
    read_arrays,
    read_source,
    with_notes,
)
from vsdn.datasets.motion import Recording, Split, Units
from vsdn.errors import DataError

COLUMNS = tuple(f"{bone}_{dof}" for bone, dofs in CMU_DOFS.items() for dof in dofs)
SUBJECTS = (2, 7, 8, 9, 16, 35, 39)
SEGMENT = 300  # frames
NUM_FOLDS = 5
SEED = 432
CITATION = (
    "The data used in this project was obtained from mocap.cs.cmu.edu. "
    "The database was created with funding from NSF EIA-0196217."
)
PACKED = Source(
    "cmu_mocap/cmu_amc62_locomotion_120fps.npz",
    "76ba2f771f80668bcd8b3bd83a128334692383b8fc6fac2ee9297fe8ef872584",
    "the trials of its seven subjects, packed; not public",
)
DOWNLOADS = Source(
    "cmu_mocap/all_asfamc", None, "a folder with the .asf and .amc files of mocap.cs.cmu.edu, in any order of folders"
)
SOURCES = (PACKED, DOWNLOADS)


def load(folder: Path, fold: int = 0) -> Parts:
    """The parts of a fold, from the packed trials or CMU's .amc files."""
    check_fold(fold, NUM_FOLDS)
    source, path = find_source(SOURCES, folder)
    if source is DOWNLOADS:
        return split(read_folder(path, SUBJECTS), fold)
    content = read_source(path)
    parts = split(read_packed(path, content), fold)
    return with_notes(parts, checksum_notes(source, content) + parts.train.notes)


def split(recordings: list[Recording], fold: int = 0) -> Parts:
    """Training, validation and test segments of these trials; all segments of a trial are in the same part."""
    shuffled = _shuffle(recordings, fold)
    parts = motion.make_parts(shuffled, COLUMNS, size=SEGMENT, seed=[SEED, fold, 2])
    num_twins = len(motion.at_least(SEGMENT, recordings)) - sum(map(len, shuffled))
    return with_notes(
        parts, (f"{num_twins} trials that are there under another name too were left out",) * (num_twins > 0)
    )


def _shuffle(recordings: list[Recording], fold: int) -> Split:
    rest, test = motion.shuffle(_without_twins(motion.at_least(SEGMENT, recordings)), [SEED, fold, 0], 0.2)
    train, valid = motion.shuffle(rest, [SEED, fold, 1], 0.1)
    return Split(train, valid, test)


def load_units(folder: Path, fold: int = 0) -> Units:
    """The units of the parts that `load` returns."""
    check_fold(fold, NUM_FOLDS)
    source, path = find_source(SOURCES, folder)
    recordings = read_folder(path, SUBJECTS) if source is DOWNLOADS else read_packed(path)
    return motion.units_of(_shuffle(recordings, fold).train, size=SEGMENT)


def find_skeleton(folder: Path, trial: str) -> Skeleton | None:
    """The skeleton of the subject of a trial, or of a piece of one, from an .asf file like 35.asf anywhere below
    cmu_mocap in the data folder; None if there is none."""
    name = f"{trial.partition('_')[0]}.asf"
    path = min((folder / PACKED.name).parent.rglob(name), default=None)
    return None if path is None else read_asf(path)


def _without_twins(recordings: list[Recording]) -> list[Recording]:
    """The first of all recordings with the same angles."""
    found: dict[bytes, Recording] = {}
    for recording in recordings:
        found.setdefault(recording.frames[:, 3:].tobytes(), recording)
    return list(found.values())


def read_packed(path: Path, content: bytes | None = None) -> list[Recording]:
    """The trials of a packed file, which stores differences over time as small integers."""
    names = ("names", "lengths", "root_delta", "angle_delta")
    trials, lengths, root, angles = read_arrays(path, read_source(path) if content is None else content, names)
    shapes_fit = root.shape == (3, lengths.sum()) and angles.shape == (59, lengths.sum())
    kinds_fit = all(array.dtype.kind in "iu" for array in (lengths, root, angles)) and trials.dtype.kind == "U"
    if not shapes_fit or not kinds_fit or trials.shape != lengths.shape or (lengths < 1).any():
        raise DataError(
            f"{path} should hold differences of 3 coordinates and 59 angles, a column a frame of its trials"
        )
    ends = np.cumsum(lengths)
    pieces = [np.split(deltas, ends[:-1], axis=1) for deltas in (root, angles)]
    return [Recording(str(name), _decode(*deltas)) for name, *deltas in zip(trials, *pieces, strict=True)]


def _decode(root: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """Frames (frame, 62) of one trial, in the file's unit of length and in degrees."""
    whole = lambda deltas: np.cumsum(deltas, axis=1, dtype=np.int32)
    return np.concatenate([whole(root) / 1e4, whole(angles) / 100]).T


def read_folder(folder: Path, subjects: Collection[int] | None = None) -> list[Recording]:
    """The trials in all .amc files below a folder, of these subjects (None: of all).

    CMU's layout is subjects/35/35_01.amc with 35.asf beside it; a flat folder works too, and .asf files are optional.
    """
    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() == ".amc")
    files = [path for path in files if subjects is None or _subject(path) in subjects]
    if not files:
        whose = "" if subjects is None else f" of the subjects {', '.join(map(str, subjects))}"
        raise DataError(f"{folder} should hold .amc files{whose}, with names like 35_01.amc, but it has none")
    skeletons: dict[Path, Skeleton | None] = {}
    recordings: dict[str, Recording] = {}
    for path in files:
        skeleton_path = path.with_name(f"{path.stem.partition('_')[0]}.asf")
        if skeleton_path not in skeletons:
            skeletons[skeleton_path] = read_asf(skeleton_path) if skeleton_path.exists() else None
        if path.stem in recordings:
            raise DataError(f"{folder} should hold each trial once, but {path.stem} is there twice")
        recordings[path.stem] = Recording(path.stem, _read_trial(path, skeletons[skeleton_path]))
    return list(recordings.values())


def _subject(path: Path) -> int | None:
    number = path.stem.partition("_")[0]
    return int(number) if number.isdecimal() else None


def _read_trial(path: Path, skeleton: Skeleton | None) -> np.ndarray:
    """The frames of an .amc file, with its columns in the order of COLUMNS."""
    frames, columns = read_amc(path, skeleton)
    if missing := [name for name in COLUMNS if name not in columns]:
        raise DataError(f"{path} should have the 62 columns of CMU's skeletons, but it has no {missing[0]}")
    return frames[:, [columns.index(name) for name in COLUMNS]]


DATASET = Dataset(
    name="mocap",
    about="CMU motion capture: 62 joint angles a frame, 123 segments of 300 frames at 120 Hz, half of them removed.",
    citation=CITATION,
    sources=SOURCES,
    num_folds=NUM_FOLDS,
    load=load,
)
