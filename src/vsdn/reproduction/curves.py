"""Training curves, bound against epoch, as numbers."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from vsdn import checkpoint
from vsdn.reproduction.tables import Finished

PARTS = {"loss": "training", "valid_loss": "validation"}
CURVE_DIGITS = 5
CURVE_COLUMNS = ("row", "preset", "repeat", "epoch", "train_bound", "valid_bound")


class CurveOf(NamedTuple):
    """The losses (minus the bounds) of a run, epoch by epoch."""

    row: str
    preset: str
    repeat: int
    losses: dict[str, list[float]]  # by part


def read_curves(runs: Sequence[Finished], out: Path) -> list[CurveOf]:
    """The curves of all trained runs, from their folders; for a recorded run, from the record."""
    trained = [(job, result) for job, result in runs if job.settings is not None]
    losses = lambda job, result: result["curve"] if "curve" in result else _read_losses(out / job.name)
    return [CurveOf(job.row, job.preset, job.repeat, losses(job, result)) for job, result in trained]


def _read_losses(folder: Path) -> dict[str, list[float]]:
    epochs = checkpoint.read_metrics(folder)
    return {part: [getattr(epoch, part) for epoch in epochs] for part in PARTS}


def curves_csv(curves: Sequence[CurveOf]) -> str:
    """One line per epoch of each run: bounds in nats per observed value."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CURVE_COLUMNS)
    for curve in curves:
        for epoch, (loss, valid) in enumerate(zip(*curve.losses.values(), strict=True), start=1):
            bounds = (f"{-each:.{CURVE_DIGITS}f}" for each in (loss, valid))
            writer.writerow([curve.row, curve.preset, curve.repeat, epoch, *bounds])
    return text.getvalue()
