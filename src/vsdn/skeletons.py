"""Skeletons: where the joints are, from the angles of a motion, drawn as a strip of frames or as an animation."""

import io
import json
import math
import tempfile
import textwrap
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.animation import PillowWriter
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from PIL import Image
from rich.console import Console
from rich.progress import track

from vsdn.datasets.asf import CMU_DOFS, Skeleton
from vsdn.errors import DataError
from vsdn.files import replacing, write_bytes

STRIPS = (".png", ".svg", ".pdf")
ANIMATIONS = (".gif", ".html")
METRE = 0.45 / 0.0254  # in the unit of CMU's files
COLUMNS = tuple(f"{bone}_{dof}" for bone, dofs in CMU_DOFS.items() for dof in dofs)
SIDES = {"left": "#1f6fb4", "right": "#d1495b", "middle": "#3a3a3a"}
GHOST = "#c4c4c4"  # the truth, behind what a model says
UP = np.array([0.0, 1.0, 0.0])
AHEAD = math.radians(30)  # how far the camera stands before the walker's side
LABEL = 18  # letters of a line of a name beside a strip's row
FAR = 0.5  # metres: a motion whose root is ever farther from the truth's is drawn at the truth's root
NARROWEST, WIDEST, HIGHEST = 0.6, 1.5, 2.4  # metres to either side of the middle, and above the floor
MARK = 0.5  # metres between two marks on the floor
STRIP_FRAMES = 8
NUM_COLOURS = 32  # of a picture
NOTES = 0.3  # metres above the heads, for what is written there
MOST_FRAMES, MOST_FPS = 300, 25  # of an animation
STRIP_SCALE, ANIMATION_SCALE = 0.85, 1.2  # inches a metre


class View(NamedTuple):
    """A camera at the height of the walker, who walks from left to right."""

    across: np.ndarray  # the direction to the right of the picture
    near: np.ndarray  # the direction to the camera


class Shot(NamedTuple):
    """Motions as they are seen: flat, relative to where the first motion's root is, floor at zero."""

    points: dict[str, np.ndarray]  # (frame, joint, 2) of each motion
    depths: dict[str, np.ndarray]  # (frame, joint)
    middle: np.ndarray  # (frame,): how far along the floor the camera is
    half: float  # metres to either side of it
    high: float  # and above the floor
    misses: dict[str, np.ndarray]  # (frame,): metres from a joint, as it is drawn, to the truth's; a mean over joints
    strays: dict[str, np.ndarray]  # (frame,): metres that a motion was taken back to the truth's root; 0 if it was not


def turns(angles: np.ndarray, order: Sequence[str]) -> np.ndarray:
    """Rotation matrices (time, 3, 3) of angles (time, angle) in degrees about the axes named; the first turns first."""
    matrix = np.broadcast_to(np.eye(3), (len(angles), 3, 3))
    for degrees, axis in zip(np.moveaxis(angles, -1, 0), order, strict=True):
        matrix = _turn(np.deg2rad(degrees), "xyz".index(axis[-1].lower())) @ matrix
    return matrix


def _turn(angle: np.ndarray, axis: int) -> np.ndarray:
    """Rotation matrices about x, y or z."""
    after, last = (axis + 1) % 3, (axis + 2) % 3
    matrix = np.zeros((len(angle), 3, 3))
    matrix[:, axis, axis] = 1
    matrix[:, after, after] = matrix[:, last, last] = np.cos(angle)
    matrix[:, last, after] = np.sin(angle)
    matrix[:, after, last] = -np.sin(angle)
    return matrix


def joints(skeleton: Skeleton, frames: np.ndarray, columns: Sequence[str] = COLUMNS) -> np.ndarray:
    """Positions (time, joint, 3) in metres: the root, then the far end of every bone in the skeleton's order.

    The columns of the frames are CMU's 62, or those that are named; what has no column stays at rest.
    """
    given = _entries(skeleton, np.asarray(frames, float), columns)
    spins = [dof for dof in skeleton.root_order if dof.startswith("R")]
    places, frame = {"root": given("root", ("TX", "TY", "TZ"))}, {"root": turns(given("root", spins), spins)}
    for bone in _parents_first(skeleton):
        name, parent = skeleton.names[bone], skeleton.parents[bone]
        own = turns(skeleton.axes[bone][None], skeleton.axis_orders[bone])  # C
        angles = [dof for dof in skeleton.dofs[bone] if dof.startswith("r")]
        frame[name] = frame[parent] @ own @ turns(given(name, angles), angles) @ own.swapaxes(1, 2)  # L_parent C M C⁻¹
        places[name] = places[parent] + frame[name] @ (skeleton.lengths[bone] * skeleton.directions[bone])
    return np.stack([places[name] for name in ("root", *skeleton.names)], axis=1) / METRE


def _entries(skeleton: Skeleton, frames: np.ndarray, columns: Sequence[str]) -> Callable[..., np.ndarray]:
    """A function from a bone and degrees of freedom to their numbers (time, dof)."""
    if frames.ndim != 2 or frames.shape[1] != len(columns):
        raise DataError(f"a motion should be (time, {len(columns)}), but it is {frames.shape}")
    known = {f"{bone}_{dof}" for bone, dofs in skeleton.dofs_of().items() for dof in dofs}
    if strange := [column for column in columns if column not in known]:
        raise DataError(f"the skeleton has no {strange[0]}, which the motion gives")
    entries, rest = dict(zip(columns, frames.T, strict=True)), np.zeros(len(frames))
    return lambda bone, dofs: np.array([entries.get(f"{bone}_{dof}", rest) for dof in dofs]).reshape(-1, len(rest)).T


def _parents_first(skeleton: Skeleton) -> list[int]:
    """The numbers of the bones, each after the one that it hangs from."""
    parents = dict(zip(skeleton.names, skeleton.parents, strict=True))

    def depth(name: str) -> int:
        return 0 if name == "root" else 1 + depth(parents[name])

    return sorted(range(len(skeleton.names)), key=lambda bone: depth(skeleton.names[bone]))


def links(skeleton: Skeleton) -> np.ndarray:
    """The two joints of every bone, (bone, 2)."""
    number = {name: index for index, name in enumerate(("root", *skeleton.names))}
    pairs = zip(skeleton.parents, skeleton.names, strict=True)
    return np.array([(number[parent], number[name]) for parent, name in pairs])


def sides(skeleton: Skeleton) -> list[str]:
    """The side of every bone: lfoot, which has the twin rfoot, is left; lowerback, which has none, is in the middle."""
    twins = {"l": "r", "r": "l"}
    twin = lambda name: twins.get(name[0], "") + name[1:]
    paired = [name[0] in twins and twin(name) in skeleton.names for name in skeleton.names]
    words = {"l": "left", "r": "right"}
    return [words[name[0]] if has else "middle" for name, has in zip(skeleton.names, paired, strict=True)]


def view_of(skeleton: Skeleton, positions: np.ndarray) -> View:
    """A camera at the side of a walker and a little before; of someone who stays, it goes by where the hips point."""
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
    """The chosen frames of motions, the truth first, as a camera sees them that goes beside the truth."""
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
    """(frame, 3): from the truth's root to that of a motion which strays, at every frame; zero of one that does not."""
    length = min(len(places), len(truth))
    steps = places[:, 0].copy()
    steps[:length] -= truth[:length, 0]
    strays = (np.linalg.norm(steps[:length], axis=-1) > FAR).any()
    return steps if strays else np.zeros_like(steps)


class Body:
    """The lines of one skeleton in one panel, the truth in grey behind it; they move from frame to frame."""

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
        """Nothing; the lines are where they are at this frame, those nearer to the camera on top."""
        truth = next(iter(self.shot.points))
        order = np.argsort(self.shot.depths[self.name][index][self.pairs].mean(axis=1))
        self.lines.set_segments(list(self.shot.points[self.name][index][self.pairs[order]]))
        self.lines.set_color(self.colours[order].tolist())
        self.ghost.set_segments(list(self.shot.points[truth][index][self.pairs]) if self.name != truth else [])
        self.marks.set_segments(_floor_marks(float(self.shot.middle[index]), self.shot.half))
        self.note.set_text(note_of(self.shot, self.name, index) if self.name != truth else "")


def _top(shot: Shot) -> float:
    """Metres above the floor that a panel shows."""
    return shot.high + (NOTES if len(shot.points) > 1 else 0.0)


def note_of(shot: Shot, name: str, index: int) -> str:
    """How far a motion is from the truth at a frame, e.g. 4.1 cm."""
    miss, stray = 100 * shot.misses[name][index], shot.strays[name][index]
    return f"{miss:.1f} cm" + (f"\nroot {stray:.1f} m off" if stray > 0 else "")


def _floor_marks(middle: float, half: float) -> list[np.ndarray]:
    """Short lines below the floor, every half metre, that stay where they are while the camera goes."""
    first, last = math.ceil((middle - half) / MARK), math.floor((middle + half) / MARK)
    return [np.array([[k * MARK - middle, 0.0], [k * MARK - middle, -0.06]]) for k in range(first, last + 1)]


def draw_strip(
    path: Path,
    skeleton: Skeleton,
    motions: dict[str, np.ndarray],
    *,
    frames: Sequence[int] | None = None,
    columns: Sequence[str] = COLUMNS,
    fps: float | None = None,
    seen: np.ndarray | None = None,
    caption: str = "",
) -> None:
    """Nothing; a picture with a row a motion, the truth first, and a column a frame. With `seen`, which tells the
    frames that were shown to who made the motions, these are a line on top, and a column says if its frame is one."""
    _check_suffix(path, STRIPS)
    chosen = _even(motions, STRIP_FRAMES) if frames is None else frames
    shot = shoot(skeleton, motions, chosen, columns)
    picture, places = _figure(shot, len(motions), len(chosen), STRIP_SCALE, line=seen is not None)
    for row, name in zip(places, motions, strict=True):
        for index, place in enumerate(row):
            Body(place, skeleton, shot, name, STRIP_SCALE).show(index)
        lines = [part for line in name.split("\n") for part in textwrap.wrap(line, LABEL)]
        row[0].set_ylabel("\n".join(lines), fontsize=9)
    for place, frame in zip(places[0], chosen, strict=True):
        when = f"frame {frame}" if fps is None else f"{frame / fps:.2f} s"
        place.set_title(when if seen is None else f"{when}\n{_seen_or_not(seen, frame)}", fontsize=8)
    if seen is not None:
        _draw_line(picture.axes[-1], seen, chosen, fps)
    if caption:
        width = int(picture.get_size_inches()[0] * 15)  # letters of this size an inch
        picture.suptitle("\n".join(textwrap.wrap(caption, width)), x=0.01, ha="left", fontsize=8)
    try:
        with replacing(path) as file:
            file.write(_bytes_of(picture, path.suffix[1:].lower()))
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror or error}") from None


def _bytes_of(picture: Figure, kind: str) -> bytes:
    """The picture as a file; as a PNG in few colours, by which it is a fraction in size."""
    whole, few = io.BytesIO(), io.BytesIO()
    picture.savefig(whole, format=kind, dpi=130)
    if kind != "png":
        return whole.getvalue()
    with Image.open(whole) as image:
        image.convert("RGB").quantize(NUM_COLOURS).save(few, "png", optimize=True)
    return few.getvalue()


def unseen_before(seen: np.ndarray) -> np.ndarray:
    """(frame,): how many frames from the last that was seen to each, 0 at one that was; −1 before the first."""
    number = np.arange(len(seen))
    last = np.maximum.accumulate(np.where(seen, number, -1))
    return np.where(last < 0, -1, number - last)


def _seen_or_not(seen: np.ndarray, frame: int) -> str:
    """Seen, or e.g. removed (3): three frames after the last that was seen."""
    count = int(unseen_before(seen)[frame])
    return "seen" if count == 0 else f"removed ({count})" if count > 0 else "removed"


def _draw_line(place: Axes, seen: np.ndarray, frames: Sequence[int], fps: float | None) -> None:
    """Nothing; all frames in a line: a dark stroke where one was seen, a mark above those that are drawn."""
    unit = 1 if fps is None else fps
    place.vlines(np.flatnonzero(seen) / unit, 0, 1, color="0.35", lw=1.0)
    place.plot(np.array(frames) / unit, np.full(len(frames), 1.35), "v", color="0.1", ms=5, clip_on=False)
    place.set(xlim=(-0.5 / unit, (len(seen) - 0.5) / unit), ylim=(0, 1.7), yticks=[])
    place.set_xlabel("frame" if fps is None else "seconds", fontsize=7, labelpad=1)
    place.set_ylabel("seen", rotation=0, ha="right", va="center", fontsize=8)
    place.tick_params(labelsize=7, length=2, pad=1)
    place.spines[["top", "left", "right"]].set_visible(False)


def draw_animation(
    path: Path,
    skeleton: Skeleton,
    motions: dict[str, np.ndarray],
    *,
    frames: Sequence[int] | None = None,
    columns: Sequence[str] = COLUMNS,
    fps: float = 120.0,
    seen: np.ndarray | None = None,
    caption: str = "",
    progress: bool = True,
) -> None:
    """Nothing; the motions side by side, the truth first, as a .gif file or a page that plays at the true speed.
    `seen`: as for a strip; `caption`: a text below a page."""
    _check_suffix(path, ANIMATIONS)
    stride = max(math.ceil(fps / MOST_FPS), 1)
    whole = range(0, min(map(len, motions.values()), default=0), stride)[:MOST_FRAMES]
    chosen = list(whole if frames is None else frames)
    shot = shoot(skeleton, motions, chosen, columns)
    pace = max(abs(chosen[-1] - chosen[0]) / max(len(chosen) - 1, 1), 1) / fps  # seconds a frame
    said = ["" if seen is None else f", {_seen_or_not(seen, frame)}" for frame in chosen]
    clock = [f"{frame / fps:.2f} s{word}" for frame, word in zip(chosen, said, strict=True)]
    if path.suffix.lower() == ".html":
        write_bytes(path, page(skeleton, shot, clock, pace, caption).encode())
    else:
        write_bytes(path, gif(skeleton, shot, clock, pace, show=progress))


class FewColours(PillowWriter):
    """A writer of smaller GIF files: four colours and their shades need no 256, and no frame is kept in full."""

    _frames: list[Any]  # the base's own, which it does not declare

    def grab_frame(self, **kwargs: Any) -> None:
        super().grab_frame(**kwargs)
        self._frames[-1] = self._frames[-1].quantize(NUM_COLOURS)


def gif(skeleton: Skeleton, shot: Shot, clock: Sequence[str], pace: float, *, show: bool) -> bytes:
    """An animation as the bytes of a GIF file, with what the clock says at each frame."""
    picture, places = _figure(shot, 1, len(shot.points), ANIMATION_SCALE)
    bodies = [Body(place, skeleton, shot, name, 1.2) for place, name in zip(places[0], shot.points, strict=True)]
    for place, name in zip(places[0], shot.points, strict=True):
        place.set_title(name, fontsize=10)
    title = picture.suptitle(clock[0], fontsize=9)
    picture.draw_without_rendering()
    picture.set_layout_engine("none")  # laid out once: nothing jumps from frame to frame
    hundredths = max(round(100 * pace), 2)  # GIF has no finer clock, and players take 1 for 10
    rate = 1000 / (10 * hundredths + 0.5)  # half a millisecond more: the writer rounds down
    writer = FewColours(fps=rate)  # pyright: ignore[reportArgumentType]: it need not be whole
    steps = track(range(len(clock)), "drawing", console=Console(stderr=True), transient=True, disable=not show)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "animation.gif"
        with writer.saving(picture, str(file), dpi=80):
            for index in steps:
                title.set_text(clock[index])
                for body in bodies:
                    body.show(index)
                writer.grab_frame()
        return file.read_bytes()


def page(skeleton: Skeleton, shot: Shot, clock: Sequence[str], pace: float, caption: str = "") -> str:
    """An animation as a page of HTML that needs nothing else: it plays, stops and can be moved by hand."""
    data: dict[str, Any] = {
        "pairs": links(skeleton).tolist(),
        "colours": [SIDES[side] for side in sides(skeleton)],
        "ghost": GHOST,
        "half": shot.half,
        "high": shot.high,
        "mark": MARK,
        "pace": pace,
        "clock": list(clock),
        "caption": caption,
        "middle": _rounded(shot.middle),
        "motions": [
            {
                "name": name,
                "points": _rounded(points),
                "depths": _rounded(shot.depths[name]),
                "notes": [note_of(shot, name, index) if number else "" for index in range(len(clock))],
            }
            for number, (name, points) in enumerate(shot.points.items())
        ],
    }
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("</", "<\\/")
    return files("vsdn").joinpath("skeleton.html").read_text("utf-8").replace("null /* DATA */", text)


def _rounded(values: np.ndarray) -> list[Any]:
    """Millimetres are enough for a screen; what has no place is at the root."""
    return np.round(np.nan_to_num(values), 3).tolist()


def _even(motions: dict[str, np.ndarray], count: int) -> list[int]:
    """So many frames evenly from the first to the last that all motions have."""
    length = min(map(len, motions.values()), default=0)
    return np.unique(np.linspace(0, length - 1, min(count, length)).round().astype(int)).tolist()


def _figure(shot: Shot, rows: int, columns: int, scale: float, *, line: bool = False) -> tuple[Figure, np.ndarray]:
    """A figure of equal panels, all of one scale, with a legend; with a `line`, the last of its axes is one on top."""
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


def _check_suffix(path: Path, suffixes: tuple[str, ...]) -> None:
    if path.suffix.lower() not in suffixes:
        raise DataError(f"a picture of this kind is a {', '.join(suffixes)} file, but {path} was asked for")
