"""Motion capture as series: recordings cut into segments, scaled by the training part; half of all frames removed."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vsdn.datasets.base import Parts
from vsdn.errors import DataError
from vsdn.tables.table import Table

LEAST_STD = 1e-4  # a channel that varies less counts as constant, and keeps its unit


class Recording(NamedTuple):
    """One uninterrupted take."""

    name: str
    frames: np.ndarray  # (frame, channel)


class Split(NamedTuple):
    """Recordings by part: all segments of a recording are in the same part."""

    train: list[Recording]
    valid: list[Recording]
    test: list[Recording]


class Units(NamedTuple):
    """The shift and divisor of each channel that give it mean 0 and standard deviation 1 in training."""

    mean: np.ndarray
    std: np.ndarray

    def scale(self, frames: np.ndarray) -> np.ndarray:
        return (frames - self.mean) / self.std

    def unscale(self, frames: np.ndarray) -> np.ndarray:
        return frames * self.std + self.mean


class _Segments(NamedTuple):
    ids: np.ndarray  # "35_01/0" is the first of recording 35_01
    frames: np.ndarray  # (segment, frame, channel)


def at_least(size: int, recordings: Sequence[Recording]) -> list[Recording]:
    """The recordings of at least `size` frames, by name."""
    return sorted((each for each in recordings if len(each.frames) >= size), key=lambda each: each.name)


def shuffle(recordings: Sequence[Recording], seed: Sequence[int], share: float) -> tuple[list, list]:
    """The recordings split at random into most of them and a share."""
    order = np.random.default_rng(seed).permutation(len(recordings))
    size = math.ceil(share * len(recordings))
    return [recordings[i] for i in sorted(order[size:])], [recordings[i] for i in sorted(order[:size])]


def make_parts(split: Split, variables: tuple[str, ...], *, size: int, seed: Sequence[int]) -> Parts:
    """Segments of `size` frames, half of them removed at random, in units of the training part; time is in frames.

    The rest after a recording's last whole segment is dropped. The removed frames of the test part are kept separately.
    """
    train, valid, test = (_cut(part, name, size) for part, name in zip(split, Split._fields, strict=True))
    units, tables, removed = _units(train), [], None
    for number, part in enumerate((train, valid, test)):
        scaled = part._replace(frames=units.scale(part.frames))
        gone = _choose_half(len(part.ids), size, [*seed, number])
        tables.append(_table(scaled, ~gone, variables))
        removed = _table(scaled, gone, variables)
    return Parts(*tables, removed=removed)


def units_of(train: list[Recording], *, size: int) -> Units:
    """The units that `make_parts` uses for a split with this training part."""
    return _units(_cut(train, "train", size))


def whole_table(ids: Sequence[str], frames: np.ndarray, variables: tuple[str, ...]) -> Table:
    """Recordings of one length, (recording, frame, channel), with all of their frames."""
    return _table(_Segments(np.array(ids), frames), np.ones(frames.shape[:2], bool), variables)


def check_frames(frames: np.ndarray, where: str) -> None:
    """Refuses frames that are not all finite, naming the first."""
    bad = ~np.isfinite(frames).all(axis=tuple(range(1, frames.ndim)))
    if bad.any():
        raise DataError(f"{where}: frame {int(np.argmax(bad)) + 1} should hold finite numbers")


def _units(segments: _Segments) -> Units:
    frames = segments.frames.reshape(-1, segments.frames.shape[-1])
    std = frames.std(axis=0)
    return Units(frames.mean(axis=0), np.where(std < LEAST_STD, 1.0, std))


def _cut(recordings: list[Recording], part: str, size: int) -> _Segments:
    pieces = [
        (f"{recording.name}/{k}", recording.frames[k * size : (k + 1) * size])
        for recording in recordings
        for k in range(len(recording.frames) // size)
    ]
    if not pieces:
        raise DataError(f"the {part} part should have a recording of at least {size} frames, but it has none")
    return _Segments(np.array([name for name, _ in pieces]), np.stack([frames for _, frames in pieces]))


def _choose_half(num_segments: int, size: int, seed: Sequence[int]) -> np.ndarray:
    """A random half of the frames of each segment: bool (segment, frame)."""
    half = np.tile(np.arange(size) < size // 2, (num_segments, 1))
    return np.random.default_rng(seed).permuted(half, axis=1)


def _table(segments: _Segments, keep: np.ndarray, variables: tuple[str, ...]) -> Table:
    starts = np.concatenate([[0], np.cumsum(keep.sum(axis=1))])
    times = np.nonzero(keep)[1].astype(np.float64)
    values = segments.frames[keep].astype(np.float64)
    return Table(segments.ids, starts, times, values, np.ones(values.shape, bool), variables)
