"""What is kept of a reproduction, small enough to be committed: tables, figures, settings and versions."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vsdn.errors import RunError
from vsdn.files import write_bytes, write_json
from vsdn.reproduction import figures, tables
from vsdn.reproduction.plans import Plan
from vsdn.reproduction.tables import Finished


def write_results(plan: Plan, out: Path, folder: Path) -> list[str]:
    """Remarks; the folder holds the tables, figures, settings and versions of all runs that are done."""
    runs = tables.finished(plan, out)
    if not runs:
        raise RunError(f"no run of this plan is done in {out}: there is nothing to write")
    pictures = folder / "figures"
    pictures.mkdir(parents=True, exist_ok=True)
    texts = {
        "table.md": tables.markdown(plan, runs),
        "table.csv": tables.table_csv(plan, runs),
        "runs.csv": tables.runs_csv(runs),
    }
    if plan.curves:
        curves = figures.read_curves(runs, out)
        texts["curves.csv"] = figures.curves_csv(curves)
        figures.draw_curves(plan, curves, pictures / "bounds.png")
    else:
        for task in plan.tasks:
            figures.draw_scores(plan, runs, task, pictures / f"{task}.png")
    for name, text in texts.items():
        write_bytes(folder / name, text.encode())
    write_json(folder / "settings.json", settings_of(runs))
    write_json(folder / "versions.json", versions_of(plan, runs))
    return _remarks(runs)


def settings_of(runs: Sequence[Finished]) -> dict[str, Any]:
    """All settings of each row and preset, none left open; the seed is left out, each run has its own."""
    found: dict[str, Any] = {}
    for job, result in runs:
        if "settings" in result:
            training = {key: value for key, value in result["settings"]["training"].items() if key != "seed"}
            found.setdefault(f"{job.preset}: {job.row}", {**result["settings"], "training": training})
    return found


def versions_of(plan: Plan, runs: Sequence[Finished]) -> dict[str, Any]:
    """What the runs were made with, each combination once with the runs it made, and what data they saw."""
    made: list[dict[str, Any]] = []
    for job, result in runs:
        known = next((each for each in made if each["versions"] == result["versions"]), None)
        if known is None:
            made.append(known := {"versions": result["versions"], "runs": []})
        known["runs"].append(job.name)
    seen = {f"fold {job.fold}": result["data"] for job, result in runs}
    notes = sorted({note for _, result in runs for note in result["notes"] if not note.endswith("trained anew")})
    return {"dataset": plan.dataset, "sha256 of train + valid": seen, "notes": notes, "made with": made}


def _remarks(runs: Sequence[Finished]) -> list[str]:
    """That runs which are compared saw different data, if they did."""
    told = {(job.fold, result["data"]) for job, result in runs}
    folds = {fold for fold, _ in told}
    if len(told) == len(folds):
        return []
    return ["the runs of a fold did not all see the same data: has a file changed? Begin anew in another folder"]
