"""Strips: pictures with one row per motion and one column per frame."""

import io
import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from vsdn.datasets.asf import Skeleton
from vsdn.errors import DataError
from vsdn.files import replacing
from vsdn.skeletons.drawing import NUM_COLOURS, Body, check_fps, check_suffix, figure
from vsdn.skeletons.notes import seen_or_not
from vsdn.skeletons.posture import COLUMNS
from vsdn.skeletons.shots import shoot

STRIPS = (".png", ".svg", ".pdf")
STRIP_FRAMES = 8
STRIP_SCALE = 0.85  # inches a metre
LABEL = 18  # letters per line of a name beside a row


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
    """Draws a picture with one row per motion, the truth first, and one column per frame. With `seen`, which marks the
    frames that were visible to the models, a line on top shows these, and each column says whether its frame is one."""
    check_suffix(path, STRIPS)
    check_fps(1.0 if fps is None else fps)
    chosen = _even(motions, STRIP_FRAMES) if frames is None else frames
    shot = shoot(skeleton, motions, chosen, columns)
    picture, places = figure(shot, len(motions), len(chosen), STRIP_SCALE, line=seen is not None)
    for row, name in zip(places, motions, strict=True):
        for index, place in enumerate(row):
            Body(place, skeleton, shot, name, STRIP_SCALE).show(index)
        lines = [part for line in name.split("\n") for part in textwrap.wrap(line, LABEL)]
        row[0].set_ylabel("\n".join(lines), fontsize=9)
    for place, frame in zip(places[0], chosen, strict=True):
        when = f"frame {frame}" if fps is None else f"{frame / fps:.2f} s"
        place.set_title(when if seen is None else f"{when}\n{seen_or_not(seen, frame)}", fontsize=8)
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


def _even(motions: dict[str, np.ndarray], count: int) -> list[int]:
    """`count` frames, evenly spaced from the first to the last that all motions have."""
    length = min(map(len, motions.values()), default=0)
    return np.unique(np.linspace(0, length - 1, min(count, length)).round().astype(int)).tolist()


def _draw_line(place: Axes, seen: np.ndarray, frames: Sequence[int], fps: float | None) -> None:
    """Draws all frames along a line: a dark stroke for a visible one, a mark above those that are drawn."""
    unit = 1 if fps is None else fps
    place.vlines(np.flatnonzero(seen) / unit, 0, 1, color="0.35", lw=1.0)
    place.plot(np.array(frames) / unit, np.full(len(frames), 1.35), "v", color="0.1", ms=5, clip_on=False)
    place.set(xlim=(-0.5 / unit, (len(seen) - 0.5) / unit), ylim=(0, 1.7), yticks=[])
    place.set_xlabel("frame" if fps is None else "seconds", fontsize=7, labelpad=1)
    place.set_ylabel("seen", rotation=0, ha="right", va="center", fontsize=8)
    place.tick_params(labelsize=7, length=2, pad=1)
    place.spines[["top", "left", "right"]].set_visible(False)


def _bytes_of(picture: Figure, kind: str) -> bytes:
    """The picture as the bytes of a file; a PNG is reduced to few colours, which makes it much smaller."""
    whole, few = io.BytesIO(), io.BytesIO()
    picture.savefig(whole, format=kind, dpi=130)
    if kind != "png":
        return whole.getvalue()
    with Image.open(whole) as image:
        image.convert("RGB").quantize(NUM_COLOURS).save(few, "png", optimize=True)
    return few.getvalue()
