"""The notes beside a skeleton: its distance from the truth, and whether its frame was visible."""

import numpy as np

from vsdn.skeletons.shots import Shot


def note_of(shot: Shot, name: str, index: int) -> str:
    """The distance of a motion from the truth at a frame, e.g. 4.1 cm."""
    miss, stray = 100 * shot.misses[name][index], shot.strays[name][index]
    return f"{miss:.1f} cm" + (f"\nroot {stray:.1f} m off" if stray > 0 else "")


def unseen_before(seen: np.ndarray) -> np.ndarray:
    """(frame,): the number of frames since the last visible one, 0 at a visible one; −1 before the first."""
    number = np.arange(len(seen))
    last = np.maximum.accumulate(np.where(seen, number, -1))
    return np.where(last < 0, -1, number - last)


def seen_or_not(seen: np.ndarray, frame: int) -> str:
    """A frame's state: seen, or e.g. removed (3) if the last visible frame is three before it."""
    count = int(unseen_before(seen)[frame])
    return "seen" if count == 0 else f"removed ({count})" if count > 0 else "removed"
