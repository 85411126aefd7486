"""CMU MoCap, subject 35: 23 walks of 300 frames and 50 dimensions, split 16 / 3 / 4, as in later papers on latent SDEs.

Trials 35_01–16, 35_28–30 and 35_31–34 at 120 frames a second, without hands, fingers, thumbs and toes; the root's
position is replaced by its velocity. Protocol: given the first 3 frames, predict the other 297. No frames are removed.
The mean over all 23 trials, test part included, is subtracted; we keep this, for comparison. Without the file of those
papers, the same is made from CMU's trials.
"""

from pathlib import Path

import numpy as np

from vsdn.datasets import mocap
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
from vsdn.datasets.motion import Recording, check_frames, whole_table
from vsdn.errors import DataError
from vsdn.tables.table import Table

NUM_GIVEN = 3  # visible frames
NUM_FRAMES = 300
DROPPED = ("hand", "fingers", "thumb", "toes")
KEPT = [i for i, name in enumerate(mocap.COLUMNS) if i >= 3 and name.partition("_")[0][1:] not in DROPPED]
VARIABLES = ("root_VX", "root_VY", "root_VZ", *(mocap.COLUMNS[i] for i in KEPT))
REST = {"root_VX": 0.000593, "root_VY": 0.000111, "root_VZ": -0.178774}  # velocities of a root at rest: minus the mean
TRIALS = {"train": range(1, 17), "validation": range(28, 31), "test": range(31, 35)}
FILE = Source(
    "cmu_mocap/benchmark_npz/mocap35.npz",
    "03cf7b6316c5e136007e5021a95944ddf7bcb5cf298e00c45fb7cac0c3ddf1cf",
    "as the papers share it, with arrays train, validation and test",
)
SOURCES = (FILE, mocap.PACKED, mocap.DOWNLOADS)


def load(folder: Path, fold: int = 0) -> Parts:
    """The 16 / 3 / 4 walks."""
    check_fold(fold, 1)
    source, path = find_source(SOURCES, folder)
    if source is FILE:
        content = read_source(path)
        arrays, notes = read_arrays(path, content, list(TRIALS)), checksum_notes(source, content)
    else:
        recordings = mocap.read_folder(path, [35]) if source is mocap.DOWNLOADS else mocap.read_packed(path)
        arrays, notes = build(recordings), (f"mocap35 was made of the trials in {source.name}",)
    parts = Parts(*(_table(path, part, frames) for part, frames in zip(TRIALS, arrays, strict=True)))
    return with_notes(parts, notes)


def build(recordings: list[Recording]) -> list[np.ndarray]:
    """Training, validation and test (trial, frame, channel) from CMU's trials, as in the papers' file."""
    trials = {recording.name: recording.frames for recording in recordings}
    names = [f"35_{trial:02}" for part in TRIALS.values() for trial in part]
    for name in names:
        if len(trials.get(name, ())) < NUM_FRAMES:
            raise DataError(f"trial {name} of at least {NUM_FRAMES} frames was expected, but it is not there")
    walks = np.stack([_walk(trials[name][:NUM_FRAMES]) for name in names])
    walks -= walks.mean(axis=(0, 1))
    return np.split(walks, np.cumsum([len(part) for part in TRIALS.values()])[:-1])


def _walk(frames: np.ndarray) -> np.ndarray:
    """The 50 columns that are kept; the last frame, which has no successor, gets the velocity of the one before."""
    velocity = np.diff(frames[:, :3], axis=0)
    return np.concatenate([np.concatenate([velocity, velocity[-1:]]), frames[:, KEPT]], axis=1)


def _table(path: Path, part: str, frames: np.ndarray) -> Table:
    trials = TRIALS[part]
    wanted = (len(trials), NUM_FRAMES, len(VARIABLES))
    if frames.shape != wanted or frames.dtype.kind != "f":
        raise DataError(f"{path}: {part!r} should be numbers of shape {wanted}, but has shape {frames.shape}")
    for trial, each in zip(trials, frames, strict=True):
        check_frames(each, f"{path}: 35_{trial:02}")
    return whole_table([f"35_{trial:02}" for trial in trials], frames, VARIABLES)


DATASET = Dataset(
    name="mocap35",
    about="CMU motion capture, 23 walks of subject 35: 50 dimensions, 300 frames, foretold from the first 3.",
    citation=mocap.CITATION,
    sources=SOURCES,
    num_folds=1,
    load=load,
)
