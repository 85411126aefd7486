"""Tiny files in the layouts that the data sets are read from, and the ids that should come back."""

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from vsdn.datasets import human36m, mocap, mocap35, ushcn
from vsdn.datasets.asf import CMU_DOFS

TRIALS = {f"{subject:02}_{trial:02}": 300 + 155 * (trial - 1) for subject in (2, 35, 39) for trial in range(1, 4)}
SHORT = "16_01"  # a trial with no whole segment


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


class Trap:
    """An object that calls a function when it is unpickled."""

    def __init__(self, function: Callable, *arguments: object):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def write_ushcn(folder: Path, num_series: int = 23) -> set:
    path = folder / ushcn.SOURCES[0].name
    path.parent.mkdir()
    path.write_text(ushcn_text(num_series))
    return set(range(num_series))


def ushcn_text(num_series: int) -> str:
    """Rows in no order; an unobserved value is 1e9, which nothing may read."""
    random, rows = rng(), []
    for station in range(num_series):
        for time in random.choice(2000, 20, replace=False) / 10:
            mask = random.permutation([1, 0, 0, 0, 1])
            values = np.where(mask == 1, random.standard_normal(5).round(3), 1e9)
            rows.append([station, time, *values, *mask])
    return text_of([ushcn.COLUMNS, *(rows[i] for i in random.permutation(len(rows)))])


def text_of(rows: Sequence[Sequence]) -> str:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(rows)
    return file.getvalue()


def trials() -> dict[str, np.ndarray]:
    """Frames of made trials, on the grid of the packed file: 1e-4 of a unit and 0.01 degrees."""
    random, unit = rng(), np.array([1e-4] * 3 + [0.01] * 59)
    counts = TRIALS | {SHORT: 299}
    walks = {name: random.integers(-99, 99, (count, 62)).cumsum(axis=0) for name, count in counts.items()}
    for steps in walks.values():
        steps[:, mocap.COLUMNS.index("rclavicle_ry")] = 50  # constant, as in the data
    return {name: steps * unit for name, steps in walks.items()}


def segment_ids() -> set:
    return {f"{name}/{k}" for name, count in TRIALS.items() for k in range(count // 300)}


def write_packed(folder: Path) -> set:
    path = folder / mocap.PACKED.name
    path.parent.mkdir()
    frames = trials()
    whole = [np.rint(each.T / np.array([[1e-4]] * 3 + [[0.01]] * 59)).astype(np.int32) for each in frames.values()]
    deltas = np.concatenate([np.diff(each, axis=1, prepend=0) for each in whole], axis=1)
    lengths = np.array([len(each) for each in frames.values()], np.int32)
    np.savez(path, names=np.array(list(frames)), lengths=lengths, root_delta=deltas[:3], angle_delta=deltas[3:])
    return segment_ids()


def write_downloads(folder: Path) -> set:
    """Some subjects in CMU's folders and one in a folder of its own, without .asf files, which may be missing."""
    for name, frames in trials().items():
        subject = name.partition("_")[0]
        place = folder / mocap.DOWNLOADS.name / (f"subjects/{subject}" if subject != "39" else "")
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{name}.amc").write_text(amc_text(frames))
    stranger = folder / mocap.DOWNLOADS.name / "subjects/91/91_01.amc"  # of a subject that is not chosen
    stranger.parent.mkdir()
    stranger.write_text("not read")
    return segment_ids()


def amc_text(frames: np.ndarray, dofs: dict[str, tuple[str, ...]] = CMU_DOFS, unit: str = "DEGREES") -> str:
    lines, ends = (
        ["#!OML:ASF F:\\VICON\\x.ASF", ":FULLY-SPECIFIED", f":{unit}"],
        np.cumsum([0, *map(len, dofs.values())]),
    )
    for number, frame in enumerate(frames.tolist(), start=1):
        lines.append(str(number))
        for bone, start, end in zip(dofs, ends, ends[1:], strict=False):
            lines.append(" ".join([bone, *map(repr, frame[start:end])]))
    return "\n".join(lines) + "\n"


def write_mocap35(folder: Path) -> set:
    path = folder / mocap35.FILE.name
    path.parent.mkdir(parents=True)
    arrays = {name: rng().standard_normal((len(part), 300, 50)) for name, part in mocap35.TRIALS.items()}
    np.savez(path, **arrays)
    return {f"35_{trial:02}" for part in mocap35.TRIALS.values() for trial in part}


def takes() -> dict[str, dict[str, int]]:
    """Frames at 50 a second, of two actions a subject: the second has a whole segment after the first."""
    return {f"S{number}": {"Walking 1": 500, "Eating": 2 * 2 * 248} for number in human36m.SUBJECTS}


def take_ids(names: dict[str, str]) -> set:
    ends = {"Walking 1": 1, "Eating": 2}
    return {f"{subject}/{names[a]}/{k}" for subject in takes() for a, count in ends.items() for k in range(count)}


def write_positions(folder: Path) -> set:
    path = folder / human36m.POSITIONS.name
    path.parent.mkdir()
    random = rng()
    made = {
        s: {a: random.random((n, 32, 3)).astype(np.float32) for a, n in each.items()} for s, each in takes().items()
    }
    np.savez_compressed(path, positions_3d=np.array(made, dtype=object))
    return take_ids({"Walking 1": "Walking 1", "Eating": "Eating"})


def write_exponential_maps(folder: Path) -> set:
    names, random = {"Walking 1": "walking_1", "Eating": "eating_2"}, rng()
    for subject, each in takes().items():
        (folder / "human36m" / subject).mkdir(parents=True)
        for action, count in each.items():
            tenths = random.integers(-50, 50, (count, 99)) / 10
            (folder / "human36m" / subject / f"{names[action]}.txt").write_text(text_of(tenths.tolist()))
    return take_ids(names)


# name of the data set, what writes its files, frames of a segment of which half are removed
LAYOUTS = {
    "ushcn": ("ushcn", write_ushcn, None),
    "mocap": ("mocap", write_packed, 300),
    "mocap35": ("mocap35", write_mocap35, None),
    "human36m, positions": ("human36m", write_positions, 248),
    "human36m, exponential maps": ("human36m", write_exponential_maps, 248),
}
