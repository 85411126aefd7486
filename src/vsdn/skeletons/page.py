"""An animation as an HTML page, drawn by the browser."""

import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import numpy as np

from vsdn.datasets.asf import Skeleton
from vsdn.skeletons.drawing import GHOST, MARK, SIDES
from vsdn.skeletons.notes import note_of
from vsdn.skeletons.posture import links, sides
from vsdn.skeletons.shots import Shot


def page(skeleton: Skeleton, shot: Shot, clock: Sequence[str], pace: float, caption: str = "") -> str:
    """A self-contained HTML page with an animation, which plays, stops and can be moved by hand."""
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
    return files("vsdn.skeletons").joinpath("skeleton.html").read_text("utf-8").replace("null /* DATA */", text)


def _rounded(values: np.ndarray) -> list[Any]:
    """Positions rounded to millimetres, enough for a screen; undefined ones are put at the root."""
    return np.round(np.nan_to_num(values), 3).tolist()
