"""The record of runs in a results folder, written and read back: a clone of the project continues from it."""

import contextlib
import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, Field, RootModel, ValidationError

from vsdn.errors import RunError
from vsdn.files import read_json
from vsdn.reproduction.curves import CURVE_COLUMNS, PARTS
from vsdn.reproduction.jobs import NO_RECORD, Job, Record, Result, make_jobs
from vsdn.reproduction.plans import Plan
from vsdn.reproduction.tables import HEADINGS, Finished, csv_text
from vsdn.settings import first_fault

RUNS, SETTINGS, VERSIONS, CURVES = "runs.csv", "settings.json", "versions.json", "curves.csv"
RUN_COLUMNS = ("preset", "row", "seed", "fold")
SCORE_COLUMNS = (*HEADINGS, "num_values", "num_rows")
COST_COLUMNS = ("epochs", "best_epoch", "valid_nll", "skipped", "seconds", "cpu_seconds", "parameters")
ORIGIN_COLUMNS = ("vsdn", "commit")
COLUMNS = (*RUN_COLUMNS, "task", *SCORE_COLUMNS, *COST_COLUMNS, *ORIGIN_COLUMNS)

Line = dict[str, str]  # of a CSV file
Which = tuple[str, ...]  # the columns that identify a run
Losses = dict[str, list[float]]  # by part
Kind = TypeVar("Kind", bound=BaseModel)


def runs_csv(runs: Sequence[Finished]) -> str:
    """One line per run and task, with scores as means over values; the key identifies the run. Runs with a score that
    is not finite are left out, so that nobody counts them as done."""
    lines = []
    for job, result in runs:
        if not has_finite_scores(result):
            continue
        about = {name: result.get(name, "") for name in COST_COLUMNS}
        ends = {**about, **_origin(result["versions"]), "key": job.key}
        lines += [{**scores, **_which(job), "task": task, **ends} for task, scores in result["scores"].items()]
    return csv_text([*COLUMNS, "key"], lines)


def has_finite_scores(result: Result) -> bool:
    return all(math.isfinite(scores[name]) for scores in result["scores"].values() for name in HEADINGS)


def _which(job: Job) -> Line:
    """The columns that identify the run of a line."""
    seed = "" if job.settings is None else str(job.settings.training.seed)
    return {"preset": job.preset, "row": job.row, "seed": seed, "fold": str(job.fold)}


def _origin(versions: dict[str, Any]) -> Line:
    return {name: versions.get(name) or "" for name in ORIGIN_COLUMNS}


def settings_of(runs: Sequence[Finished]) -> dict[str, Any]:
    """All settings of each row and preset, none left open, except the seed, which differs by run."""
    found: dict[str, Any] = {}
    for job, result in runs:
        if "settings" in result:
            training = {key: value for key, value in result["settings"]["training"].items() if key != "seed"}
            found.setdefault(_column(job), {**result["settings"], "training": training})
    return found


def _column(job: Job) -> str:
    return f"{job.preset}: {job.row}"


def versions_of(plan: Plan, runs: Sequence[Finished]) -> dict[str, Any]:
    """The versions that runs were made with, each combination once with its runs, and the data they used."""
    made: list[dict[str, Any]] = []
    for job, result in runs:
        known = next((each for each in made if each["versions"] == result["versions"]), None)
        if known is None:
            made.append(known := {"versions": result["versions"], "runs": []})
        known["runs"].append(job.name)
    notes = sorted({note for _, result in runs for note in result["notes"] if not note.endswith("trained anew")})
    return {"dataset": plan.dataset, "sha256 of train + valid": _seen(runs), "notes": notes, "made with": made}


def _seen(runs: Sequence[Finished]) -> dict[str, Any]:
    """The data of each fold; where its runs used different data, the runs by data."""
    seen: dict[str, dict[str, list[str]]] = {}
    for job, result in runs:
        seen.setdefault(f"fold {job.fold}", {}).setdefault(result["data"], []).append(job.name)
    return {fold: names if len(names) > 1 else next(iter(names)) for fold, names in seen.items()}


class Made(BaseModel):
    """Runs, and the versions they were made with."""

    versions: dict[str, Any]
    runs: list[str]


class Origin(BaseModel):
    """The contents of `versions.json`."""

    seen: dict[str, str | dict[str, list[str]]] = Field(alias="sha256 of train + valid")
    notes: list[str]
    made: list[Made] = Field(alias="made with")

    def versions(self, job: Job) -> dict[str, Any]:
        for made in self.made:
            if job.name in made.runs:
                return made.versions
        raise RunError(f"{VERSIONS} does not tell what {job.name} was made with")

    def data(self, job: Job) -> str:
        fold = self.seen.get(f"fold {job.fold}", {})
        for data, names in {fold: [job.name]}.items() if isinstance(fold, str) else fold.items():
            if job.name in names:
                return data
        raise RunError(f"{VERSIONS} does not tell what data {job.name} saw")


class Chosen(RootModel[dict[str, dict[str, dict[str, Any]]]]):
    """The contents of `settings.json`: sections of settings by row and preset."""

    def of(self, job: Job) -> dict[str, dict[str, Any]]:
        if _column(job) not in self.root:
            raise RunError(f"{SETTINGS} does not tell the settings of {_column(job)}")
        return self.root[_column(job)]


def read_record(plan: Plan, folder: Path) -> Record:
    """The runs of a plan that are done according to a results folder; refuses a damaged record, lest it is overwritten
    by a smaller one."""
    if not (folder / RUNS).exists():
        return NO_RECORD
    try:
        return _read(plan, folder)
    except RunError as error:
        cure = "restore it, or choose another --results, or overwrite it by --anew"
        raise RunError(f"the record in {folder} is damaged: {error}; {cure}") from None


def _read(plan: Plan, folder: Path) -> Record:
    chosen, origin = _read_json(Chosen, folder / SETTINGS), _read_json(Origin, folder / VERSIONS)
    curves = _read_curves(folder / CURVES) if plan.curves else None
    jobs = make_jobs(plan)
    keys, names = {job.key: job for job in jobs}, {tuple(_which(job).values()): job.name for job in jobs}
    results, others = {}, []
    for which, lines in _by_run(_read_lines(folder / RUNS, COLUMNS), RUN_COLUMNS).items():
        job = keys.get(lines[0].get("key", ""))
        if job is None or not _has_defaults(job, chosen):
            others.append(names.get(which, " ".join(which)))
            continue
        results[job.name] = _result(job, lines, chosen, origin)
        if curves is not None and job.settings is not None:
            results[job.name]["curve"] = _curve(job, curves, results[job.name]["epochs"])
    return Record(results, tuple(others), folder)


def _read_json(kind: type[Kind], path: Path) -> Kind:
    try:
        return kind.model_validate(read_json(path))
    except ValidationError as error:
        raise RunError(f"{path.name}: {first_fault(error)}") from None


def _read_lines(path: Path, columns: Sequence[str]) -> list[Line]:
    """The lines of a CSV file that has these columns."""
    try:
        reader = csv.DictReader(io.StringIO(path.read_text("utf-8")), restkey="beyond", strict=True)
        lines, found = list(reader), reader.fieldnames or ()
    except OSError as error:
        raise RunError(f"cannot read {path.name}: {error.strerror}") from None
    except (ValueError, csv.Error):
        raise RunError(f"{path.name} is not valid CSV") from None
    if lacking := [name for name in columns if name not in found]:
        raise RunError(f"{path.name} has no column {lacking[0]!r}")
    for number, line in enumerate(lines, start=2):
        if "beyond" in line or None in line.values():
            raise RunError(f"line {number} of {path.name} does not have {len(found)} columns")
    return lines


def _by_run(lines: Sequence[Line], columns: Sequence[str]) -> dict[Which, list[Line]]:
    """The lines grouped by run, which these columns identify."""
    runs: dict[Which, list[Line]] = {}
    for line in lines:
        runs.setdefault(tuple(line[name] for name in columns), []).append(line)
    return runs


def _has_defaults(job: Job, chosen: Chosen) -> bool:
    """Whether the settings that a key omits, being defaults, had the same values when the run was made. Settings that
    the job leaves open were chosen from the data; those that the record lacks were added later."""
    if job.settings is None:
        return True
    before, named = chosen.of(job), job.settings.model_dump(exclude_defaults=True)
    return all(
        value is None or name in named.get(section, {}) or before.get(section, {}).get(name, value) == value
        for section, values in job.settings.model_dump(mode="json").items()
        for name, value in values.items()
    )


def _result(job: Job, lines: Sequence[Line], chosen: Chosen, origin: Origin) -> Result:
    """The result of a run, from its lines and the rest of the record."""
    _check(job, lines, origin)
    scores = {line["task"]: {name: _finite(line, name) for name in SCORE_COLUMNS} for line in lines}
    about: Result = {name: _number(lines[0], name) for name in COST_COLUMNS if lines[0][name]}
    if job.settings is not None:
        training = {**chosen.of(job).get("training", {}), "seed": job.settings.training.seed}
        about["settings"] = {**chosen.of(job), "training": training}
    return {
        "scores": scores,
        **about,
        "versions": origin.versions(job),
        "data": origin.data(job),
        "notes": origin.notes,
    }


def _check(job: Job, lines: Sequence[Line], origin: Origin) -> None:
    """Refuses lines that do not match the job."""
    if sorted(line["task"] for line in lines) != sorted(job.tasks):
        raise RunError(f"{RUNS} should have one line of {job.name} for each of {', '.join(job.tasks)}")
    costs = {name: lines[0][name] for name in COST_COLUMNS}
    for line in lines:
        for name, wanted in {**_which(job), **costs, **_origin(origin.versions(job)), "key": job.key}.items():
            if line[name] != wanted:
                raise RunError(f"{RUNS} tells of {job.name} the {name} {line[name]!r}, which should be {wanted!r}")
    needed = () if job.settings is None else ("epochs", "parameters")
    if lacking := [name for name in needed if not costs[name]]:
        raise RunError(f"{RUNS} does not tell the {lacking[0]} of {job.name}")


def _finite(line: Line, name: str) -> int | float:
    """A score, converted back to a number; refuses one that is not finite."""
    number = _number(line, name)
    if not math.isfinite(number):
        raise RunError(f"the {name} of {line['row']} is {line[name]!r}, not a finite number")
    return number


def _number(line: Line, name: str) -> int | float:
    """A cell, converted back to a number."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(line[name])
    raise RunError(f"the {name} of {line['row']} is {line[name]!r}, not a number")


def _read_curves(path: Path) -> dict[Which, Losses]:
    """The losses (minus the bounds) of each run, epoch by epoch."""
    runs = _by_run(_read_lines(path, CURVE_COLUMNS), CURVE_COLUMNS[:3])
    for lines in runs.values():
        if [line["epoch"] for line in lines] != [str(epoch) for epoch in range(1, len(lines) + 1)]:
            raise RunError(f"{path.name} does not have the epochs of {lines[0]['row']} one after the other")
    bounds = dict(zip(PARTS, CURVE_COLUMNS[-2:], strict=True))
    return {
        which: {part: [-_number(line, bound) for line in lines] for part, bound in bounds.items()}
        for which, lines in runs.items()
    }


def _curve(job: Job, curves: dict[Which, Losses], epochs: int) -> Losses:
    losses = curves.get((job.row, job.preset, str(job.repeat)), {part: [] for part in PARTS})
    if any(len(values) != epochs for values in losses.values()):
        raise RunError(f"{CURVES} does not have the {epochs} epochs of {job.name}")
    return losses
