"""The runs of a plan: what defines each, where it is kept, and whether it is done."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from vsdn.errors import RunError
from vsdn.files import read_json, write_json
from vsdn.reproduction.plans import Asked, Plan, Row
from vsdn.settings import Section, Settings

Result = dict[str, Any]  # what `NAME.json` holds
KEY_DIGITS = 16
WORDS = ("title", "only", "presets", "beside", "column")  # of a task: its titles and where it is shown


class Job(Section):
    """One run: everything that determines its result, except the data."""

    dataset: str
    fold: int
    series: int | None
    preset: str
    row: str  # the name of its row
    reference: str | None
    settings: Settings | None  # None: nothing to train
    repeat: int  # the seed or fold in its name
    tasks: dict[str, Asked]
    draws: int

    @property
    def name(self) -> str:
        """The name of its folder; a tuned run has no prefix."""
        prefix = "" if self.preset == "tuned" else f"{self.preset}-"
        return f"{prefix}{self.row}-{self.repeat}"

    @property
    def key(self) -> str:
        """A hash of its essence without default values: a setting added later does not change the key."""
        named = _without_words(self.model_dump(mode="json", exclude_defaults=True))
        return hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()[:KEY_DIGITS]

    def essence(self) -> dict[str, Any]:
        """The fields that define the run: if one differs, it is another run."""
        return _without_words(self.model_dump(mode="json"))


def _without_words(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a job without those that do not affect its result."""
    tasks = fields["tasks"].items()
    bare = {name: {key: value for key, value in asked.items() if key not in WORDS} for name, asked in tasks}
    return fields | {"tasks": bare}


class Record(NamedTuple):
    """The results in a results folder, whoever made them."""

    results: Mapping[str, Result]  # of those that are done, by name
    others: tuple[str, ...] = ()  # runs that it has with settings other than the plan's
    folder: Path | None = None


NO_RECORD = Record({})


def make_jobs(plan: Plan, models: tuple[str, ...] = ()) -> list[Job]:
    """The runs of a plan, all rows of a seed or fold before the next, the faster tuned ones first; only those of these
    models or rows if any are named."""
    jobs = []
    for repeat in plan.repeats:
        for preset in reversed(plan.presets):
            for row in plan.rows:
                named = not models or not {row.model, row.reference, row.name}.isdisjoint(models)
                again = row.model is None and not plan.folds and repeat != plan.repeats[0]  # the same for every seed
                if named and not again and plan.has(preset, row):
                    jobs.append(_make_job(plan, preset, row, repeat))
    return jobs


def _make_job(plan: Plan, preset: str, row: Row, repeat: int) -> Job:
    return Job(
        dataset=plan.dataset,
        fold=repeat if plan.folds else 0,
        series=plan.series,
        preset=preset,
        row=row.name,
        reference=row.reference,
        settings=None if row.model is None else plan.settings(preset, row, repeat),
        repeat=repeat,
        tasks={name: asked for name, asked in plan.tasks.items() if plan.asks(name, row, preset)},
        draws=plan.draws,
    )


def result_path(out: Path, job: Job) -> Path:
    return out / f"{job.name}.json"


def write_result(out: Path, job: Job, result: Result) -> None:
    """Writes the result of a job, which marks it as done."""
    write_json(result_path(out, job), {"key": job.key, "job": job.essence(), **result})


def read_result(out: Path, job: Job) -> Result | None:
    """The result of a job; None if there is none, or only one with other settings."""
    found = _read(result_path(out, job))
    return found if found is not None and _is_of(found, job) else None


def find_result(out: Path, record: Record, job: Job) -> Result | None:
    """The result of a job done here, else that in the record; None if neither has it."""
    return read_result(out, job) or record.results.get(job.name)


def changes(out: Path, job: Job) -> list[str]:
    """The settings in which the existing result differs from this job, e.g. 'epochs 40 → 20'; empty if none."""
    found = _read(result_path(out, job))
    if found is None or "job" not in found or _is_of(found, job):
        return []
    before, now = dict(_flat(_whole(found["job"]))), dict(_flat(job.essence()))
    differing = [name for name in now.keys() | before.keys() if before.get(name) != now.get(name)]
    return [f"{name} {before.get(name)} → {now.get(name)}" for name in sorted(differing)]


def _is_of(found: Result, job: Job) -> bool:
    """Whether a result belongs to a job."""
    before, now = _whole(found.get("job", {})), job.essence()
    return before == now or (found.get("key") == job.key and _agree(before, now))


def _agree(before: dict[str, Any], now: dict[str, Any]) -> bool:
    """Whether all fields that both have are equal: a changed default makes another run, but the same key."""
    old, new = dict(_flat(before)), dict(_flat(now))
    return all(old[name] == new[name] for name in old.keys() & new.keys())


def _whole(essence: dict[str, Any]) -> dict[str, Any]:
    """The essence of a result, with defaults for settings that were added later."""
    if not essence.get("settings"):
        return essence
    try:
        return essence | {"settings": Settings.model_validate(essence["settings"]).model_dump(mode="json")}
    except ValidationError:  # settings that no longer exist
        return essence


def _flat(tree: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of nested dicts with dotted names, e.g. 'settings.training.epochs'."""
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def _read(path: Path) -> Result | None:
    """The contents of a result file; None if missing or damaged."""
    if not path.exists():
        return None
    try:
        found = read_json(path)
    except RunError:
        return None
    return found if isinstance(found, dict) else None
