"""Results as skeletons: a test piece with frames removed, the truth and the models' predictions."""

import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vsdn.datasets import DATASETS, mocap
from vsdn.datasets.asf import Skeleton
from vsdn.datasets.base import Parts
from vsdn.datasets.motion import Units
from vsdn.errors import FewParticlesWarning, VsdnError
from vsdn.fitted import Fitted, load
from vsdn.reproduction.jobs import NO_RECORD, Job, Record, read_result
from vsdn.reproduction.plans import Asked, Plan, Posed, Row
from vsdn.reproduction.tables import finished
from vsdn.reproduction.worker import limited
from vsdn.skeletons import FAR, draw_animation, draw_strip, joints, unseen_before
from vsdn.tables.table import Table

FPS = 120.0
STRIDE = 5  # frames from one drawn in an animation to the next
TRUTH = "truth"


class Piece(NamedTuple):
    """A test piece: the part that models are shown, and the whole."""

    shown: Table  # one series
    frames: np.ndarray  # (frame, channel), in CMU's units
    seen: np.ndarray  # (frame,): whether the frame is visible to models
    skeleton: Skeleton


def draw_poses(plan: Plan, out: Path, folder: Path, data: Path, record: Record = NO_RECORD) -> list[str]:
    """Draws a strip and an animation for each preset of a plan that has skeletons, from the first fold in which any of
    the drawn models is done, and returns remarks. What is missing is left out; if a run is known only from a record,
    there is no model to ask, and the pictures stay as they are."""
    remarks: list[str] = []
    for preset in plan.presets if plan.skeletons else ():
        try:
            remarks += _draw(plan, preset, out, folder, data, record)
        except VsdnError as error:
            remarks.append(f"no skeletons are drawn ({preset}): {error}")
    return remarks


def _draw(plan: Plan, preset: str, out: Path, folder: Path, data: Path, record: Record) -> list[str]:
    assert plan.skeletons is not None
    done = {(job.repeat, job.row): job for job, _ in finished(plan, out, record) if job.preset == preset}
    drawn = plan.skeletons.rows
    repeat = next((each for each in plan.repeats if any((each, posed.row) in done for posed in drawn)), None)
    if repeat is None:
        return []
    found = {posed: done[repeat, posed.row] for posed in drawn if (repeat, posed.row) in done}
    jobs = {posed: job for posed, job in found.items() if posed.task in job.tasks}
    path = folder / "figures" / f"skeletons-{preset}"
    if away := list(dict.fromkeys(job.name for job in jobs.values() if read_result(out, job) is None)):
        stay = "stay as they are" if path.with_suffix(".png").exists() else "are not drawn"
        return [f"skeletons ({preset}) {stay}: the fitted models of {', '.join(away)} are not in {out}"]
    first = next(iter(jobs.values()))
    units = mocap.load_units(data, first.fold)
    piece = choose_piece(limited(DATASETS[first.dataset].load(data, first.fold), first.series), units, data)
    if piece is None:
        return [f"no skeletons are drawn ({preset}): no .asf file of a test subject is below cmu_mocap in {data}"]
    motions, remarks = {TRUTH: piece.frames}, []
    for posed, job in jobs.items():
        try:
            motions[name_of(plan, posed)] = foretell(load(out / job.name), piece, units, job, posed.task)
        except VsdnError as error:
            remarks.append(f"{job.name} is left out of the skeletons: {error}")
    if len(motions) > 1:
        _draw_files(path, plan, first, piece, motions)
    return remarks


def name_of(plan: Plan, posed: Posed) -> str:
    """The name of a row of the picture, e.g. VSDN-S (VAE), smoothed."""
    row: Row = next(row for row in plan.rows if row.name == posed.row)
    column = plan.tasks[posed.task].column
    return f"{row.title}, {column}" if column else row.title


def choose_piece(parts: Parts, units: Units, data: Path) -> Piece | None:
    """The test piece whose joints travel farthest, independently of the models; None if there is no skeleton."""
    pieces = [_piece(parts, number, units, data) for number in range(parts.test.num_series)]
    return max((piece for piece in pieces if piece is not None), key=_travel, default=None)


def _travel(piece: Piece) -> float:
    """The mean path length of the joints in metres, from the first frame to the last."""
    places = joints(piece.skeleton, piece.frames)
    return float(np.linalg.norm(np.diff(places, axis=0), axis=-1).sum(axis=0).mean())


def _piece(parts: Parts, number: int, units: Units, data: Path) -> Piece | None:
    shown, removed = parts.test.select([number]), parts.removed
    assert removed is not None
    skeleton = mocap.find_skeleton(data, str(shown.ids[0]))
    if skeleton is None:
        return None
    gone = removed.select(np.flatnonzero(removed.ids == shown.ids[0]))
    at = np.concatenate([shown.times, gone.times]).astype(int)
    frames, seen = np.empty((len(at), len(shown.variables))), np.zeros(len(at), bool)
    frames[at], seen[shown.times.astype(int)] = np.concatenate([shown.values, gone.values]), True
    return Piece(shown, units.unscale(frames), seen, skeleton)


def known_frames(piece: Piece) -> np.ndarray:
    """The frames with a visible frame before them."""
    return np.flatnonzero(unseen_before(piece.seen) >= 0)[1:]


def foretell(fitted: Fitted, piece: Piece, units: Units, job: Job, task: str) -> np.ndarray:
    """(frame, channel) in CMU's units: the means that the table scores for a task, at every frame after the first
    visible one, including visible frames, each from those before. NaN until then."""
    asked, times = job.tasks[task], known_frames(piece)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewParticlesWarning)  # as the table, which asks the same
        answer = _ask(fitted, asked)(piece.shown, times.astype(float), draws=job.draws, seed=0)
    motion = np.full(piece.frames.shape, np.nan)
    motion[times] = units.unscale(answer["mean"].to_numpy().reshape(len(times), -1))
    return motion


def _ask(fitted: Fitted, asked: Asked) -> Any:
    """The method that `evaluate` uses for a task, to be called with given times."""
    if asked.method in (None, "prior"):
        return lambda *args, **how: fitted.forecast(*args, method=asked.method, **how)
    method = None if asked.method == "smooth" else asked.method
    return lambda *args, **how: fitted.interpolate(*args, method=method, **how)


def hardest_frames(seen: np.ndarray, count: int) -> list[int]:
    """From each of `count` equal stretches, the removed frame that is longest after the last visible one (the first if
    tied); no frame from a stretch without removed ones."""
    waits = unseen_before(seen)
    stretches = np.array_split(np.arange(len(seen)), count)
    found = [int(stretch[np.argmax(waits[stretch])]) for stretch in stretches if len(stretch)]
    return [frame for frame in found if waits[frame] > 0]


def _draw_files(path: Path, plan: Plan, job: Job, piece: Piece, motions: dict[str, np.ndarray]) -> None:
    assert plan.skeletons is not None
    path.parent.mkdir(parents=True, exist_ok=True)
    about, frames = _about(plan, job, piece), hardest_frames(piece.seen, plan.skeletons.frames)
    named = {f"{name}{_miss(piece, motion)}": motion for name, motion in motions.items()}
    common: dict[str, Any] = {"fps": FPS, "seen": piece.seen}
    drawn = "In brackets: frames since the last one seen; of each stretch the removed frame with the most is drawn."
    strip = path.with_suffix(".png")
    draw_strip(strip, piece.skeleton, named, frames=frames, caption=f"{about} {drawn}", **common)
    film, also = known_frames(piece)[::STRIDE].tolist(), "Frames that were seen are predicted too, in the same way."
    page = path.with_suffix(".html")
    draw_animation(page, piece.skeleton, named, frames=film, caption=f"{about} {also}", progress=False, **common)


def _miss(piece: Piece, motion: np.ndarray) -> str:
    """The line below a model's name: its mean error over joints and removed frames; empty for the truth."""
    if motion is piece.frames:
        return ""
    at = [frame for frame in known_frames(piece) if not piece.seen[frame]]
    truth, said = joints(piece.skeleton, piece.frames[at]), joints(piece.skeleton, motion[at])
    return f"\nmean {100 * np.linalg.norm(said - truth, axis=-1).mean():.1f} cm"


def _about(plan: Plan, job: Job, piece: Piece) -> str:
    """What the pictures show, and how the piece was chosen."""
    return (
        f"Test piece {piece.shown.ids[0]} of fold {job.fold}, the one whose joints travel farthest; models: "
        f"{plan.presets[job.preset].title}. Half of its frames were removed; each is predicted (a mean) from those "
        f"seen before it; smoothed: from later ones too. In cm: how far joints are from the true ones, on average "
        f"(under a name: over all removed frames). A model whose root is ever more than {FAR} m off is drawn at "
        f"the true root, with the centimetres of what is drawn."
    )
