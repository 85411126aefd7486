"""The results of a reproduction, small enough to commit: tables, figures, settings and versions."""

from collections.abc import Sequence
from pathlib import Path

from vsdn.errors import RunError
from vsdn.files import write_bytes, write_json
from vsdn.reproduction import figures, tables
from vsdn.reproduction.curves import curves_csv, read_curves
from vsdn.reproduction.jobs import NO_RECORD, Record
from vsdn.reproduction.plans import Plan
from vsdn.reproduction.records import (
    CURVES,
    RUNS,
    SETTINGS,
    VERSIONS,
    has_finite_scores,
    runs_csv,
    settings_of,
    versions_of,
)
from vsdn.reproduction.tables import Finished


def write_results(plan: Plan, out: Path, folder: Path, record: Record = NO_RECORD) -> list[str]:
    """Writes the tables, figures, settings and versions of all finished runs to the folder, and returns remarks."""
    runs = tables.finished(plan, out, record)
    if not runs:
        raise RunError(f"no run of this plan is done in {out}: there is nothing to write")
    pictures = folder / "figures"
    pictures.mkdir(parents=True, exist_ok=True)
    texts = {
        "table.md": tables.markdown(plan, runs),
        "table.csv": tables.table_csv(plan, runs),
    }
    if plan.curves:
        curves = read_curves(runs, out)
        texts[CURVES] = curves_csv(curves)
        figures.draw_curves(plan, curves, pictures / "bounds.png")
    else:
        for task in plan.tasks:
            figures.draw_scores(plan, runs, task, pictures / f"{task}.png")
    for name, text in texts.items():
        write_bytes(folder / name, text.encode())
    write_json(folder / SETTINGS, settings_of(runs))
    write_json(folder / VERSIONS, versions_of(plan, runs))
    write_bytes(folder / RUNS, runs_csv(runs).encode())  # the last: with it the runs are recorded as done
    return [*_remarks(runs), *_unrecorded(runs), *_gone(record, runs)]


def _remarks(runs: Sequence[Finished]) -> list[str]:
    """A remark if runs that are compared used different data."""
    told = {(job.fold, result["data"]) for job, result in runs}
    folds = {fold for fold, _ in told}
    if len(told) == len(folds):
        return []
    return [
        "the runs of a fold did not all see the same data: has a file changed? Begin anew (--anew) in another folder"
    ]


def _unrecorded(runs: Sequence[Finished]) -> list[str]:
    """A remark on runs that are not recorded as done because a score is not finite."""
    names = [job.name for job, result in runs if not has_finite_scores(result)]
    return [f"not recorded in {RUNS}, since a score is not finite: {', '.join(names)}"] if names else []


def _gone(record: Record, runs: Sequence[Finished]) -> list[str]:
    """A remark on runs that were in the folder and are no longer, because their settings differed."""
    done = {job.name for job, _ in runs}
    gone = [name for name in record.others if name not in done]
    if not gone:
        return []
    some = ", ".join(gone[:6]) + (", …" if len(gone) > 6 else "")
    return [f"{len(gone)} runs of before have left the tables, since the plan asks for other settings: {some}"]
