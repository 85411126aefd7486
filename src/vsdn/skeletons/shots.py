"""Shots: motions as seen by a camera that moves along with the truth."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vsdn.datasets.asf import Skeleton
from vsdn.errors import DataError
from vsdn.skeletons.posture import COLUMNS, joints, sides

UP = np.array([0.0, 1.0, 0.0])
AHEAD = math.radians(30)  # angle of the camera ahead of the walker's side
FAR = 0.5  # metres: a motion whose root strays farther is drawn at the truth's root
NARROWEST, WIDEST, HIGHEST = 0.6, 1.5, 2.4  # metres to either side of the middle, and above the floor


class View(NamedTuple):
    """A camera at the walker's height, for which the walker moves from left to right."""

    across: np.ndarray  # the direction to the right of the picture
    near: np.ndarray  # the direction to the camera


class Shot(NamedTuple):
    """Projected motions, relative to the position of the first motion's root, with the floor at zero."""

    points: dict[str, np.ndarray]  # (frame, joint, 2) of each motion
    depths: dict[str, np.ndarray]  # (frame, joint)
    middle: np.ndarray  # (frame,): how far along the floor the camera is
    half: float  # metres to either side of it
    high: float  # and above the floor
    misses: dict[str, np.ndarray]  # (frame,): mean distance of the drawn joints from the truth's, in metres
    strays: dict[str, np.ndarray]  # (frame,): metres by which a motion was moved to the truth's root, or 0


def view_of(skeleton: Skeleton, positions: np.ndarray) -> View:
    """A camera beside a walker and slightly ahead; for someone who stays in place, set by the direction of the hips."""
    way = (positions[-1, 0] - positions[0, 0]) * (1 - UP)
    if np.linalg.norm(way) < 0.5:
        bones, side = positions[:, 1:].mean(axis=0), np.array(sides(skeleton))
        way = np.cross(bones[side == "left"].sum(axis=0) - bones[side == "right"].sum(axis=0), UP)
    size = np.linalg.norm(way)
    way = way / size if size > 0 else np.array([0.0, 0.0, 1.0])
    near = math.cos(AHEAD) * np.cross(way, UP) + math.sin(AHEAD) * way
    return View(np.cross(UP, near), near)


def shoot(
    skeleton: Skeleton, motions: dict[str, np.ndarray], frames: Sequence[int], columns: Sequence[str] = COLUMNS
) -> Shot:
    """The chosen frames of motions, the truth first, as seen by a camera that moves along with the truth."""
    if not motions or not len(frames):
        raise DataError("there is nothing to draw: no motion or no frame was given")
    for name, motion in motions.items():
        for frame in frames:
            if not 0 <= frame < len(motion):
                raise DataError(f"{name} has frames 0 to {len(motion) - 1}, but frame {frame} was asked for")
    places = {name: joints(skeleton, motion, columns) for name, motion in motions.items()}
    truth = next(iter(places.values()))
    if not np.isfinite(truth).all():
        raise DataError(f"{next(iter(motions))} should be of finite numbers, but it is not")
    view, floor, chosen = view_of(skeleton, truth), truth[..., 1].min(), list(frames)
    steps = {name: _steps_back(each, truth) for name, each in places.items()}
    drawn = {name: each[chosen] - steps[name][chosen, None] for name, each in places.items()}
    middle = truth[chosen, 0] @ view.across
    flat = lambda p: np.stack([p @ view.across - middle[:, None], p[..., 1] - floor], axis=-1)
    points = {name: flat(each) for name, each in drawn.items()}
    reach = np.concatenate([np.abs(each).max(axis=(0, 1))[None] for each in points.values()]).max(axis=0) + 0.08
    half, high = np.clip(np.nan_to_num(reach, nan=WIDEST), NARROWEST, (WIDEST, HIGHEST)).tolist()
    depths = {name: each @ view.near for name, each in drawn.items()}
    misses = {name: np.linalg.norm(each - truth[chosen], axis=-1).mean(axis=1) for name, each in drawn.items()}
    strays = {name: np.linalg.norm(step[chosen], axis=-1) for name, step in steps.items()}
    return Shot(points, depths, middle, half, high, misses, strays)


def _steps_back(places: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """(frame, 3): the offset of a straying motion's root from the truth's at every frame; zero if it does not stray."""
    length = min(len(places), len(truth))
    steps = places[:, 0].copy()
    steps[:length] -= truth[:length, 0]
    strays = (np.linalg.norm(steps[:length], axis=-1) > FAR).any()
    return steps if strays else np.zeros_like(steps)
