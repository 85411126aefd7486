"""Animations: motions side by side at their true speed, as a GIF file or a page."""

import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.animation import PillowWriter
from rich.console import Console
from rich.progress import track

from vsdn.datasets.asf import Skeleton
from vsdn.files import write_bytes
from vsdn.skeletons.drawing import NUM_COLOURS, Body, check_fps, check_suffix, figure
from vsdn.skeletons.notes import seen_or_not
from vsdn.skeletons.page import page
from vsdn.skeletons.posture import COLUMNS
from vsdn.skeletons.shots import Shot, shoot

ANIMATIONS = (".gif", ".html")
MOST_FRAMES, MOST_FPS = 300, 25  # of an animation
ANIMATION_SCALE = 1.2  # inches a metre


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
    """Draws the motions side by side, the truth first, as a .gif file or a page that plays at the true speed. `seen`:
    as for a strip; `caption`: a text below a page."""
    check_suffix(path, ANIMATIONS)
    check_fps(fps)
    stride = max(math.ceil(fps / MOST_FPS), 1)
    whole = range(0, min(map(len, motions.values()), default=0), stride)[:MOST_FRAMES]
    chosen = list(whole if frames is None else frames)
    shot = shoot(skeleton, motions, chosen, columns)
    pace = max(abs(chosen[-1] - chosen[0]) / max(len(chosen) - 1, 1), 1) / fps  # seconds a frame
    said = ["" if seen is None else f", {seen_or_not(seen, frame)}" for frame in chosen]
    clock = [f"{frame / fps:.2f} s{word}" for frame, word in zip(chosen, said, strict=True)]
    if path.suffix.lower() == ".html":
        write_bytes(path, page(skeleton, shot, clock, pace, caption).encode())
    else:
        write_bytes(path, gif(skeleton, shot, clock, pace, show=progress))


def gif(skeleton: Skeleton, shot: Shot, clock: Sequence[str], pace: float, *, show: bool) -> bytes:
    """An animation as the bytes of a GIF file, with the text of `clock` at each frame."""
    picture, places = figure(shot, 1, len(shot.points), ANIMATION_SCALE)
    bodies = [Body(place, skeleton, shot, name, 1.2) for place, name in zip(places[0], shot.points, strict=True)]
    for place, name in zip(places[0], shot.points, strict=True):
        place.set_title(name, fontsize=10)
    title = picture.suptitle(clock[0], fontsize=9)
    picture.draw_without_rendering()
    picture.set_layout_engine("none")  # laid out once, so that nothing jumps between frames
    hundredths = max(round(100 * pace), 2)  # GIF counts in hundredths, and players treat 1 as 10
    rate = 1000 / (10 * hundredths + 0.5)  # half a millisecond longer, since the writer rounds down
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


class FewColours(PillowWriter):
    """A writer of smaller GIF files: few colours instead of 256, and no frame kept at full depth."""

    _frames: list[Any]  # the base's own, which it does not declare

    def grab_frame(self, **kwargs: Any) -> None:
        super().grab_frame(**kwargs)
        self._frames[-1] = self._frames[-1].quantize(NUM_COLOURS)
