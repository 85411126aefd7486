"""Skeletons as lines on the panels of a figure: what strips and animations share."""

import math
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from vsdn.datasets.asf import Skeleton
from vsdn.errors import DataError, SettingsError
from vsdn.skeletons.notes import note_of
from vsdn.skeletons.posture import links, sides
from vsdn.skeletons.shots import Shot

SIDES = {"left": "#1f6fb4", "right": "#d1495b", "middle": "#3a3a3a"}
GHOST = "#c4c4c4"  # the truth, behind a model's prediction
MARK = 0.5  # metres between two marks on the floor
NOTES = 0.3  # metres above the heads, for text
NUM_COLOURS = 32  # of a picture


class Body:
    """The lines of one skeleton in one panel, with the truth in grey behind it; updated frame by frame."""

    def __init__(self, place: Axes, skeleton: Skeleton, shot: Shot, name: str, scale: float):
        self.pairs, self.shot, self.name = links(skeleton), shot, name
        self.colours = np.array([SIDES[side] for side in sides(skeleton)])
        self.marks = LineCollection([], colors="0.6", linewidths=0.8)
        self.ghost = LineCollection([], colors=GHOST, linewidths=2 * scale, capstyle="round")
        self.lines = LineCollection([], linewidths=2 * scale, capstyle="round")
        for each in (self.marks, self.ghost, self.lines):
            place.add_collection(each)
        place.axhline(0, color="0.6", lw=0.8, zorder=0)
        self.note = place.text(0.02, 1.0, "", transform=place.transAxes, va="top", fontsize=7, color="0.25")
        place.set(xlim=(-shot.half, shot.half), ylim=(-0.1, _top(shot)), xticks=[], yticks=[], aspect="equal")
        place.spines[:].set_visible(False)

    def show(self, index: int) -> None:
        """Moves the lines to this frame, those nearer the camera on top."""
        truth = next(iter(self.shot.points))
        order = np.argsort(self.shot.depths[self.name][index][self.pairs].mean(axis=1))
        self.lines.set_segments(list(self.shot.points[self.name][index][self.pairs[order]]))
        self.lines.set_color(self.colours[order].tolist())
        self.ghost.set_segments(list(self.shot.points[truth][index][self.pairs]) if self.name != truth else [])
        self.marks.set_segments(_floor_marks(float(self.shot.middle[index]), self.shot.half))
        self.note.set_text(note_of(self.shot, self.name, index) if self.name != truth else "")


def _top(shot: Shot) -> float:
    """The height that a panel shows, in metres above the floor."""
    return shot.high + (NOTES if len(shot.points) > 1 else 0.0)


def _floor_marks(middle: float, half: float) -> list[np.ndarray]:
    """Short lines below the floor, every half metre, fixed to it while the camera moves."""
    first, last = math.ceil((middle - half) / MARK), math.floor((middle + half) / MARK)
    return [np.array([[k * MARK - middle, 0.0], [k * MARK - middle, -0.06]]) for k in range(first, last + 1)]


def figure(shot: Shot, rows: int, columns: int, scale: float, *, line: bool = False) -> tuple[Figure, np.ndarray]:
    """A figure of equal panels on one scale, with a legend; with `line`, its last axes are a line of frames on top."""
    wide, high = 2 * shot.half * scale, (_top(shot) + 0.1) * scale
    flat = 0.3 if line else 0.0  # inches
    size = (wide * columns + 0.5, (high + 0.15) * rows + 0.7 + 3 * flat)
    picture = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(picture)
    names = {"left": SIDES["left"], "right": SIDES["right"]}
    if len(shot.points) > 1:
        names[f"{next(iter(shot.points))}, behind"] = GHOST
    handles = [Line2D([], [], color=colour, lw=2) for colour in names.values()]
    picture.legend(handles, list(names), loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    if not line:
        return picture, picture.subplots(rows, columns, squeeze=False)
    grid = picture.add_gridspec(rows + 1, columns, height_ratios=[flat, *[high] * rows])
    places = [[picture.add_subplot(grid[row + 1, column]) for column in range(columns)] for row in range(rows)]
    picture.add_subplot(grid[0, :])
    return picture, np.array(places)


def check_suffix(path: Path, suffixes: tuple[str, ...]) -> None:
    """Refuses a file of another kind."""
    if path.suffix.lower() not in suffixes:
        raise DataError(f"a picture of this kind is a {', '.join(suffixes)} file, but {path} was asked for")


def check_fps(fps: float) -> None:
    """Refuses an invalid number of frames per second."""
    if not 0 < fps < math.inf:
        raise SettingsError(f"fps should be a finite number above 0, but is {fps}")
