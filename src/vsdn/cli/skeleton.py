"""The command that draws motions of skeletons."""

from pathlib import Path
from typing import Annotated

import typer

from vsdn.cli.options import Quiet
from vsdn.datasets.asf import read_amc, read_asf
from vsdn.errors import DataError, SettingsError
from vsdn.files import check_writable


def skeleton(
    motions: Annotated[
        list[Path],
        typer.Argument(metavar="FILE.amc", help="Motions; the first is the truth, which is drawn behind the others."),
    ],
    asf: Annotated[Path, typer.Option(help="The skeleton: an .asf file.")],
    out: Annotated[Path, typer.Option(help="A strip (.png, .svg, .pdf) or an animation (.gif, .html).")],
    frames: Annotated[str | None, typer.Option(help="Frames, e.g. 0,10,20. [default: evenly over all]")] = None,
    fps: Annotated[float, typer.Option(min=1, help="Frames a second of the motions.")] = 120.0,
    quiet: Quiet = False,
) -> None:
    """Draw motions of a skeleton: a strip of frames, a row a motion, or an animation, side by side.

    Example: vsdn skeleton 35_01.amc --asf 35.asf --out walk.gif
    """
    from vsdn.skeletons import ANIMATIONS, STRIPS, draw_animation, draw_strip  # with matplotlib, which takes long

    if out.suffix.lower() not in STRIPS + ANIMATIONS:
        raise SettingsError(f"--out is a {', '.join(STRIPS + ANIMATIONS)} file, but got {out}")
    check_writable(out)
    chosen, body = None if frames is None else _frame_numbers(frames), read_asf(asf)
    read = {path.stem: read_amc(path, body) for path in motions}
    first = read[motions[0].stem]
    if len(read) < len(motions):
        raise DataError("two of the motions have the same name, which would be that of one row")
    for name, motion in read.items():
        if motion.columns != first.columns:
            raise DataError(f"{name} should have the columns of {motions[0].stem}, but it has others")
    angles = {name: motion.frames for name, motion in read.items()}
    if out.suffix.lower() in STRIPS:
        draw_strip(out, body, angles, frames=chosen, columns=first.columns, fps=fps)
    else:
        draw_animation(out, body, angles, frames=chosen, columns=first.columns, fps=fps, progress=not quiet)


def _frame_numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise SettingsError(f"--frames wants whole numbers with commas between, but got {text!r}") from None
