"""`vsdn reproduce`: the command for plans, jobs and results."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from vsdn.cli.console import remark
from vsdn.cli.options import Quiet
from vsdn.datasets.base import data_folder
from vsdn.errors import SettingsError
from vsdn.reproduction import running
from vsdn.reproduction.display import Display
from vsdn.reproduction.jobs import NO_RECORD, Job, Record, changes, find_result, make_jobs, read_result
from vsdn.reproduction.origins import data_remarks
from vsdn.reproduction.plans import APPENDIX_B, PRESETS, Plan, plan_names, read_plan
from vsdn.reproduction.provenance import num_cores
from vsdn.reproduction.records import read_record
from vsdn.reproduction.running import Outcome
from vsdn.reproduction.tables import Finished


def reproduce(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"One of {', '.join([*plan_names(), APPENDIX_B])}.")],
    out: Annotated[Path | None, typer.Option(help="Folder for the runs. [default: runs/NAME]")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Runs side by side. [default: one a core]")] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="These models alone, or rows, e.g. vsdn-s-iwae; may be given again.")
    ] = None,
    preset: Annotated[str, typer.Option(help="paper (appendix C), tuned, or both.")] = "both",
    seeds: Annotated[str | None, typer.Option(help="These seeds alone, e.g. 10,11.")] = None,
    folds: Annotated[str | None, typer.Option(help="These folds alone, e.g. 0,1.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few series and epochs: a look in a minute or two.")] = False,
    data: Annotated[Path | None, typer.Option(help="Folder of the data files. [default: VSDN_DATA, or data]")] = None,
    results: Annotated[
        Path | None, typer.Option(help="Folder for tables and figures. [default: experiments/results/NAME]")
    ] = None,
    anew: Annotated[
        bool, typer.Option("--anew", help="Do not count what is done by the folder of results alone; overwrite it.")
    ] = False,
    list: Annotated[bool, typer.Option("--list", help="List the runs and which are done; run nothing.")] = False,
    quiet: Quiet = False,
) -> int:
    """Train and score all models on a data set by the paper's protocol; write tables and figures.

    It can be stopped at any moment; the same command goes on where it was, and no finished run is repeated, also none
    that the folder of results has as done, whoever made it. The tables hold all that is done, also by earlier commands.
    A run that fails does not keep the others; the exit code is then 1.

    Example: vsdn reproduce double-ou --preset tuned --jobs 2
    """
    label = f"{name}-quick" if quick else name
    results = results or ((out or Path("runs") / label) / "results" if quick else Path("experiments/results") / name)
    if name == APPENDIX_B:
        given = {"--out": out, "--jobs": jobs, "--model": model, "--seeds": seeds, "--folds": folds, "--data": data}
        _refuse(given | {"--anew": anew, "--preset": None if preset == "both" else preset})
        return _measure(results, quick, list, quiet)
    out = out or Path("runs") / label
    whole = read_plan(name).made_quick() if quick else read_plan(name)
    wanted = make_jobs(_choose(whole, preset, seeds, folds), _known_models(whole, model or []))
    if not wanted:
        raise SettingsError(f"{_called(whole)} has no runs of {', '.join(model or ())} that match the other options")
    record = NO_RECORD if anew else read_record(whole, results)
    if list:
        _list(wanted, out, record)
        return 0
    running.check_folder(results)
    running.check_folder(results / "figures")
    with running.alone(out):
        outcome = _run(wanted, out, record, data_folder(data), jobs or num_cores(), quiet)
        for job, why in outcome.failed.items():
            print(f"{job} failed: {why}; see {out / job}.log", file=sys.stderr)
        if outcome.stopped:
            print("stopped; the same command goes on where it was", file=sys.stderr)
            return 130
        if any(find_result(out, record, job) for job in wanted):
            remark(_write(whole, out, results, data_folder(data), record))
            print(f"table: {results / 'table.md'}   figures: {results / 'figures'}   runs: {out}")
    return 1 if outcome.failed else 0


def _refuse(options: dict[str, object]) -> None:
    """Refuses options that have no meaning without runs."""
    for option, value in options.items():
        if value not in (None, False, []):
            raise SettingsError(f"{APPENDIX_B} measures gradients and has no runs, so it takes no {option}")


def _measure(results: Path, quick: bool, listing: bool, quiet: bool) -> int:
    """Measures appendix B, or lists whether it was; returns the exit code."""
    from vsdn.reproduction import noise  # what draws is imported when it is asked for: matplotlib takes long

    picture = results / f"{noise.NAME}.png"
    if listing:
        print(f"{'done' if picture.exists() else 'to do':6} {APPENDIX_B}")
        return 0
    running.check_folder(results)
    noise.run(results, quick=quick, progress=not quiet)
    print(f"figure: {picture}")
    return 0


def _choose(plan: Plan, preset: str, seeds: str | None, folds: str | None) -> Plan:
    """The plan with only the requested presets and repeats."""
    if preset not in (*PRESETS, "both"):
        raise SettingsError(f"--preset is paper, tuned or both, but got {preset!r}")
    if preset not in ("both", *plan.presets):
        raise SettingsError(f"{_called(plan)} has no runs with the preset {preset}")
    if preset != "both":
        plan = plan.with_presets((preset,))
    given = {"seeds": seeds, "folds": folds}
    if given["seeds" if plan.folds else "folds"] is not None:
        raise SettingsError(f"this plan is repeated over {plan.repeated}: use --{plan.repeated}")
    asked = given[plan.repeated]
    return plan if asked is None else plan.with_repeats(_repeats(asked, plan))


def _called(plan: Plan) -> str:
    return "this plan" if plan.series is None else "a quick look at this plan"


def _repeats(text: str, plan: Plan) -> tuple[int, ...]:
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise SettingsError(f"--{plan.repeated} wants numbers with commas between, but got {text!r}") from None
    for number in numbers:
        if number not in plan.repeats:
            known = ", ".join(map(str, plan.repeats))
            raise SettingsError(f"the {plan.repeated} of {_called(plan)} are {known}, but {number} was asked for")
    return tuple(dict.fromkeys(numbers))


def _known_models(plan: Plan, models: Sequence[str]) -> tuple[str, ...]:
    """The requested models; refuses one that the plan does not have."""
    known = dict.fromkeys(row.model or row.reference or "" for row in plan.rows)
    for name in models:
        if name not in known and name not in {row.name for row in plan.rows}:
            raise SettingsError(f"the models of this plan are {', '.join(known)}, but {name!r} was asked for")
    return tuple(models)


def _list(jobs: Sequence[Job], out: Path, record: Record) -> None:
    for job in jobs:
        print(f"{_state(job, out, record):6} {job.name}")


def _state(job: Job, out: Path, record: Record) -> str:
    if read_result(out, job):
        return "done"
    if job.name in record.results:
        return "record"
    return "begun" if (out / job.name).exists() else "to do"


def _run(jobs: Sequence[Job], out: Path, record: Record, data: Path, at_once: int, quiet: bool) -> Outcome:
    """The outcome of the jobs that were not done yet."""
    found = [(job, find_result(out, record, job)) for job in jobs]
    finished = [Finished(job, result) for job, result in found if result is not None]
    done = {job.name: result for job, result in finished}
    left = [job for job in jobs if job.name not in done]
    if not quiet and done:
        recorded = sum(_state(job, out, record) == "record" for job in jobs)
        also = f", {recorded} of them by the record in {record.folder}" if recorded else ""
        print(f"{len(done)} of {len(jobs)} runs are done already{also}", file=sys.stderr)
    for job in left:
        if not quiet and (why := changes(out, job) or _recorded_otherwise(job, record)):
            print(f"{job.name} is done again: {', '.join(why)}", file=sys.stderr)
    remark(data_remarks(left, finished, data), quiet)  # missing data are reported once, before anything starts
    with Display(jobs, done, out, at_once=at_once, quiet=quiet) as display:
        return running.run(left, out, data, display, at_once=at_once)


def _recorded_otherwise(job: Job, record: Record) -> list[str]:
    return [f"{record.folder} has it with other settings"] if job.name in record.others else []


def _write(plan: Plan, out: Path, results: Path, data: Path, record: Record) -> list[str]:
    """Writes tables and pictures, and returns remarks."""
    from vsdn.reproduction.poses import draw_poses
    from vsdn.reproduction.results import write_results

    return [*write_results(plan, out, results, record), *draw_poses(plan, out, results, data, record)]
