"""What a results folder records as done is not repeated, stands in the tables as it was, and is not lost."""

import csv
import dataclasses
import json
import math
import random
import shutil
from pathlib import Path

import pytest
from examples import make_table
from tiny import TINY, fill

from vsdn import cli, fitting
from vsdn.cli import reproduce
from vsdn.datasets import DATASETS
from vsdn.datasets.base import Parts
from vsdn.errors import DataError, RunError
from vsdn.files import read_json, write_json
from vsdn.reproduction import results, running
from vsdn.reproduction.jobs import NO_RECORD, Record, changes, make_jobs, read_result, result_path, write_result
from vsdn.reproduction.plans import parse_plan, plan_names, read_plan
from vsdn.reproduction.records import CURVES, RUNS, SETTINGS, VERSIONS, read_record, runs_csv
from vsdn.reproduction.results import write_results
from vsdn.reproduction.tables import HEADINGS, Finished, finished, markdown

SMOOTHING = """
[tasks.smoothing]
title = "later rows too"
task = "interpolation"
beside = "prediction"
column = "smoothed"
only = ["mean"]
"""
TWO_TASKS = TINY.replace("\n[presets.paper]", SMOOTHING + "\n[presets.paper]").replace(
    "epochs = 2", "epochs = 2, periods = [7.0, 'year']"
)
FOLDS = TWO_TASKS.replace("seeds = [1, 2]", "folds = [0, 1]")
CURVED = TINY.replace("seeds", "curves = true\nseeds", 1)
RESULTS = Path(__file__).parents[1] / "experiments" / "results"


def make_result(job) -> dict:
    """A result as odd as results can be: any digits, costs that are not known, a validation that came to nothing."""
    chance = random.Random(job.name)
    score = lambda task: {
        **{name: chance.gauss(0, 10.0 ** chance.randint(-6, 6)) for name in HEADINGS},
        "task": task,  # what the library calls it, which is not always what the plan does
        "num_values": chance.randint(1, 10**6),
        "num_rows": chance.randint(1, 10**6),
    }
    scores = {name: score(asked.task) for name, asked in job.tasks.items()}
    versions = {"vsdn": "0.1.0", "commit": chance.choice([None, "0123456789ab", "0123456789ab+"]), "cores": 2}
    data = "other" if job.name == "paper-last-value-vae-1" else f"data of {job.fold}"
    notes = ["of another file"] + ["it was stopped: trained anew"] * (job.repeat % 2)
    origin = {"versions": versions, "data": data, "notes": notes}
    if job.settings is None:
        return {"scores": scores, **origin}
    settings = job.settings.with_values({"time_scale": 1 / 3}).model_dump(mode="json")
    del settings["model"]["keep_usual"]  # as an older program has it
    cost = {"seconds": chance.choice([60, 60.0, 61.7])} | ({} if job.repeat == 1 else {"cpu_seconds": 90.1})
    about = {"epochs": 3, "best_epoch": chance.choice([None, 2]), "valid_nll": math.nan, "skipped": 0}
    return {"scores": scores, **about, **cost, "parameters": 12345, "settings": settings, **origin}


def make_results(plan, out: Path, folder: Path) -> list[str]:
    """Remarks; a run folder and a results folder with every run of a plan."""
    out.mkdir()
    for job in make_jobs(plan):
        write_result(out, job, make_result(job))
        if plan.curves and job.settings is not None:
            write_metrics(out / job.name, random.Random(job.name))
    return write_results(plan, out, folder)


def write_metrics(folder: Path, chance: random.Random) -> None:
    folder.mkdir()
    names, fields = ("loss", "valid_nll", "best_nll"), {"best_epoch": 1, "skipped": 0, "step": 1, "valid_loss": None}
    records = [fields | {"epoch": n} | {name: chance.gauss(0, 1e-4) for name in names} for n in (1, 2, 3)]
    records[1]["valid_loss"] = chance.gauss(0, 1e-4)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def unpictured(monkeypatch):
    """Pictures, which take longest, are not drawn."""
    monkeypatch.setattr(results.figures, "draw_scores", lambda *args: None)
    monkeypatch.setattr(results.figures, "draw_curves", lambda *args: None)


@pytest.mark.parametrize("text", [TWO_TASKS, FOLDS, CURVED], ids=["seeds", "folds", "curves"])
def test_results_of_a_record_alone_are_the_same_bytes(text, tmp_path):
    plan = parse_plan(text)
    remarks = make_results(plan, tmp_path / "runs", tmp_path / "results")
    assert "did not all see the same data" in remarks[0]
    record = read_record(plan, tmp_path / "results")
    assert len(record.results) == len(make_jobs(plan))
    assert write_results(plan, tmp_path / "nowhere", tmp_path / "again", record) == remarks
    assert contents(tmp_path / "again") == contents(tmp_path / "results")
    assert len(contents(tmp_path / "again")) >= 6
    again = read_record(plan, tmp_path / "again")
    assert repr(again._replace(folder=None)) == repr(record._replace(folder=None))  # NaN is not itself


@pytest.mark.usefixtures("unpictured")
def test_a_recorded_run_is_what_it_was(tmp_path):
    plan = parse_plan(TWO_TASKS)
    make_results(plan, tmp_path / "runs", tmp_path / "results")
    record = read_record(plan, tmp_path / "results")
    (job,) = (job for job in make_jobs(plan) if job.name == "mean-vae-2")
    found, made = record.results[job.name], make_result(job)
    assert found["scores"].keys() == made["scores"].keys() == {"prediction", "smoothing"}
    for task, scores in made["scores"].items():
        assert found["scores"][task] == {name: score for name, score in scores.items() if name != "task"}
    for name in ("epochs", "seconds", "cpu_seconds", "parameters", "settings", "versions", "data"):
        assert found[name] == made[name]
        assert type(found[name]) is type(made[name])
    assert found["settings"]["training"]["seed"] == 2
    assert math.isnan(found["valid_nll"])
    assert "settings" not in record.results["bayes-optimal-1"]


@pytest.mark.usefixtures("unpictured")
def test_a_line_has_the_plans_name_of_its_task(tmp_path):
    plan = parse_plan(TWO_TASKS)
    make_results(plan, tmp_path / "runs", tmp_path / "results")
    lines = list(csv.DictReader((tmp_path / "results" / RUNS).read_text().splitlines()))
    assert [line["task"] for line in lines if line["row"] == "mean-vae"] == ["prediction", "smoothing"] * 2


@pytest.mark.usefixtures("unpictured")
@pytest.mark.parametrize("text", [TWO_TASKS, FOLDS, CURVED], ids=["seeds", "folds", "curves"])
def test_a_table_grows_from_a_record_as_if_all_were_done_here(text, tmp_path):
    """The first seed or fold elsewhere, the second here; run folders that are not those of the record are not read."""
    plan = parse_plan(text)
    make_results(plan, tmp_path / "runs", tmp_path / "whole")
    shutil.copytree(tmp_path / "runs", tmp_path / "here")
    for job in make_jobs(plan):
        if job.repeat == plan.repeats[0] and plan.curves and job.settings is not None:
            (tmp_path / "here" / job.name / "metrics.jsonl").write_text("")  # another run was begun here
        (tmp_path / ("runs" if job.repeat == plan.repeats[1] else "here") / f"{job.name}.json").unlink()
    write_results(plan, tmp_path / "runs", tmp_path / "results")
    elsewhere = read_record(plan, tmp_path / "results")
    assert 0 < len(elsewhere.results) < len(make_jobs(plan))
    write_results(plan, tmp_path / "here", tmp_path / "results", elsewhere)
    assert contents(tmp_path / "results") == contents(tmp_path / "whole")


def test_what_was_done_here_goes_before_the_record(tmp_path):
    plan = parse_plan(TINY)
    fill(plan, tmp_path)
    job = make_jobs(plan)[0]
    record = Record({job.name: {"scores": {}} for job in make_jobs(plan)})
    assert finished(plan, tmp_path, record)[0].result == read_result(tmp_path, job)
    result_path(tmp_path, job).unlink()
    assert finished(plan, tmp_path, record)[0] == Finished(job, {"scores": {}})


def test_a_key_is_the_same_for_ever():
    """Records of other machines and years have it: a setting that is added later must not change it."""
    jobs = {job.name: job.key for job in make_jobs(parse_plan(TINY))}
    assert jobs["last-value-vae-1"] == "1f9fca3080fa2f8b"
    assert jobs["bayes-optimal-1"] == "e00c17a211c0cb3a"
    assert len(set(jobs.values())) == len(jobs)


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("epochs = 2", "epochs = 3", False),
        ("epochs = 2", "epochs = 2, alpha = 0.25", False),
        ("epochs = 2", "epochs = 2, alpha = 0.5", True),  # its default
        ("after = 4.0", "after = 3.0", False),
        ("after = 4.0", "after = 4.0\nremoved = false", True),
        ("seeds = [1, 2]", "seeds = [1, 2]\ndraws = 7", False),
        ("the next row", "what comes next", True),
        ('title = "Last"', 'title = "First"', True),
    ],
)
def test_a_key_is_that_of_what_makes_the_run(old, new, same):
    assert old in TINY
    before, now = (make_jobs(parse_plan(text))[0] for text in (TINY, TINY.replace(old, new)))
    assert (before.key == now.key) == same


@pytest.mark.usefixtures("unpictured")
def test_a_default_that_was_another_made_another_run(tmp_path):
    plan = parse_plan(TINY)
    fill(plan, tmp_path)
    write_results(plan, tmp_path, tmp_path / "results")
    settings = read_json(tmp_path / "results" / SETTINGS)
    assert settings["tuned: mean-vae"]["objective"]["alpha"] == 0.5
    settings["tuned: mean-vae"]["objective"]["alpha"] = 0.75
    write_json(tmp_path / "results" / SETTINGS, settings)
    assert read_record(plan, tmp_path / "results").others == ("mean-vae-1", "mean-vae-2")
    job = make_jobs(plan)[0]
    found = read_json(result_path(tmp_path, job))
    found["job"]["settings"]["objective"]["alpha"] = 0.75
    write_json(result_path(tmp_path, job), found)
    assert read_result(tmp_path, job) is None
    assert changes(tmp_path, job) == ["settings.objective.alpha 0.75 → 0.5"]
    del found["job"]["settings"]["objective"]["alpha"]
    found["job"]["settings"]["objective"]["dropped"] = 1  # a setting that is no more, at its default
    write_json(result_path(tmp_path, job), found)
    assert read_result(tmp_path, job) is not None


@pytest.mark.usefixtures("unpictured")
def test_a_run_of_other_settings_leaves_the_tables_and_it_is_said(tmp_path):
    fill(parse_plan(TINY), tmp_path)
    write_results(parse_plan(TINY), tmp_path, tmp_path / "results")
    plan = parse_plan(TINY.replace("epochs = 2", "epochs = 3"))
    record = read_record(plan, tmp_path / "results")
    assert record.results.keys() == {"paper-last-value-vae-1", "paper-last-value-vae-2", "bayes-optimal-1"}
    (remark,) = write_results(plan, tmp_path / "nowhere", tmp_path / "results", record)
    tuned = "last-value-vae-1, mean-vae-1, last-value-vae-2, mean-vae-2"
    assert remark == f"4 runs of before have left the tables, since the plan asks for other settings: {tuned}"
    assert "Not done yet: 4 of 7 runs" in (tmp_path / "results" / "table.md").read_text()


@pytest.mark.usefixtures("unpictured")
def test_a_record_from_before_there_were_keys_counts_for_nothing_and_it_is_said(tmp_path):
    plan = parse_plan(TINY)
    fill(plan, tmp_path)
    write_results(plan, tmp_path, tmp_path / "results")
    lines = (tmp_path / "results" / RUNS).read_text().splitlines()
    (tmp_path / "results" / RUNS).write_text("".join(line.rpartition(",")[0] + "\n" for line in lines))
    record = read_record(plan, tmp_path / "results")
    assert (len(record.results), len(record.others)) == (0, 7)
    assert read_record(plan, tmp_path / "nowhere") == NO_RECORD


def swap(name: str, old: str, new: str):
    """What changes the first of a text in a file."""

    def change(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1))

    return change


DAMAGES = {
    "conflict": (swap(RUNS, "tuned,", "<<<<<<< HEAD\ntuned,"), "line 2 of runs.csv does not have 22 columns"),
    "cut": (lambda folder: (folder / RUNS).write_text((folder / RUNS).read_text()[:-30]), "does not have 22 columns"),
    "column": (swap(RUNS, ",crps,", ",craps,"), "runs.csv has no column 'crps'"),
    "score": (swap(RUNS, ",0.125,", ",0;125,"), "the crps of last-value-vae is '0;125', not a number"),
    "no score": (swap(RUNS, ",0.125,", ",,"), "the crps of last-value-vae is '', not a number"),
    "nan": (swap(RUNS, ",0.125,", ",nan,"), "the crps of last-value-vae is 'nan', not a finite number"),
    "infinite": (swap(RUNS, ",0.125,", ",1e999,"), "the crps of last-value-vae is '1e999', not a finite number"),
    "no cost": (swap(RUNS, ",10,2,", ",10,,"), "does not tell the epochs of last-value-vae-1"),
    "other run": (swap(RUNS, "tuned,mean-vae,1", "tuned,mean-vae,7"), "of mean-vae-1 the seed '7'"),
    "other commit": (swap(RUNS, ",0,,", ",0,abc,"), "of last-value-vae-1 the commit 'abc'"),
    "twice": (swap(RUNS, "tuned,mean-vae,1", "tuned,mean-vae,2"), "one line of mean-vae-1 for each of prediction"),
    "bytes": (lambda folder: (folder / RUNS).write_bytes(b"\xff\xfe"), "runs.csv is not valid CSV"),
    "no settings": (lambda folder: (folder / SETTINGS).unlink(), "there is no settings.json"),
    "a row's settings": (swap(SETTINGS, "tuned: mean", "tuned: median"), "the settings of tuned: mean-vae"),
    "kind of settings": (lambda folder: write_json(folder / SETTINGS, {"tuned: mean-vae": 3}), "settings.json: "),
    "json": (swap(VERSIONS, "{", "{{"), "versions.json is damaged"),
    "origin": (swap(VERSIONS, "mean-vae-1", "mean-vae-7"), "does not tell what mean-vae-1 was made with"),
    "data": (swap(VERSIONS, "fold 0", "fold 7"), "does not tell what data last-value-vae-1 saw"),
    "kind of origin": (swap(VERSIONS, '"notes": []', '"notes": 3'), "versions.json: notes is 3"),
    "no notes": (swap(VERSIONS, '"notes"', '"motes"'), "versions.json: notes is missing"),
}


@pytest.mark.usefixtures("unpictured")
@pytest.mark.parametrize(("damage", "said"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_record_is_refused_in_a_line_and_not_overwritten(damage, said, tmp_path, capsys, tiny):
    fill(parse_plan(TINY), tmp_path)
    folder = tmp_path / "results"
    write_results(parse_plan(TINY), tmp_path, folder)
    damage(folder)
    before = contents(folder)
    assert cli.main(tiny()) == cli.main(tiny("--list")) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[0] == lines[1]
    assert lines[0].startswith(f"error: the record in {folder} is damaged: ")
    assert said in lines[0]
    assert contents(folder) == before
    assert cli.main(tiny("--anew")) == 0
    assert len(read_record(parse_plan(TINY), folder).results) == 7


@pytest.mark.usefixtures("unpictured")
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("tuned,1,2,", "tuned,1,3,", "epochs of last-value-vae one after the other"),
        ("last-value-vae,tuned,1,3,", "last-value-vae,tuned,7,1,", "does not have the 3 epochs of last-value-vae-1"),
        ("epoch,", "epic,", "curves.csv has no column 'epoch'"),
    ],
)
def test_curves_that_are_damaged_are_refused(old, new, said, tmp_path):
    plan = parse_plan(CURVED)
    make_results(plan, tmp_path / "runs", tmp_path / "results")
    swap(CURVES, old, new)(tmp_path / "results")
    with pytest.raises(RunError, match=said):
        read_record(plan, tmp_path / "results")
    (tmp_path / "results" / CURVES).unlink()
    with pytest.raises(RunError, match=r"cannot read curves\.csv"):
        read_record(plan, tmp_path / "results")


@pytest.mark.usefixtures("unpictured")
def test_a_kill_while_results_are_written_damages_no_record(tmp_path, monkeypatch):
    plan = parse_plan(TINY)
    fill(plan, tmp_path)
    shutil.copytree(tmp_path, tmp_path / "later")
    for path in tmp_path.glob("*-2.json"):
        path.unlink()
    write_results(plan, tmp_path, tmp_path / "results")
    before, write = read_record(plan, tmp_path / "results").results.keys(), results.write_bytes

    def killed(path: Path, content: bytes) -> None:
        if path.name == RUNS:
            raise KeyboardInterrupt
        write(path, content)

    monkeypatch.setattr(results, "write_bytes", killed)
    with pytest.raises(KeyboardInterrupt):
        write_results(plan, tmp_path / "later", tmp_path / "results")
    assert "mean-vae-2" in (tmp_path / "results" / VERSIONS).read_text()  # the rest was written before
    assert read_record(plan, tmp_path / "results").results.keys() == before


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A function to the words of a command that reproduces the tiny plan in a folder, without training anything."""
    monkeypatch.setattr(reproduce, "read_plan", lambda name: parse_plan(TINY))

    def untrained(jobs, *args, **how):
        assert jobs == [], "what is done is not repeated"
        return running.Outcome()

    monkeypatch.setattr(running, "run", untrained)
    table = dataclasses.replace(make_table(3), notes=("the file is another",))
    parts = Parts(table, table, table)
    monkeypatch.setitem(DATASETS, "double-ou", dataclasses.replace(DATASETS["double-ou"], load=lambda *which: parts))
    monkeypatch.setattr(fitting, "fingerprint", lambda train, valid: "d")  # as of the results by hand
    return lambda *words: ["reproduce", "tiny", "--out", str(tmp_path), "--results", str(tmp_path / "results"), *words]


@pytest.mark.usefixtures("unpictured")
def test_the_command_goes_on_from_a_record(tmp_path, capsys, tiny):
    fill(parse_plan(TINY), tmp_path)
    assert cli.main(tiny()) == 0
    assert "7 of 7 runs are done already\n" in capsys.readouterr().err
    before = contents(tmp_path / "results")
    for path in tmp_path.glob("*-1.json"):
        path.unlink()
    assert cli.main(tiny()) == 0
    assert (
        f"7 of 7 runs are done already, 4 of them by the record in {tmp_path / 'results'}\n" in capsys.readouterr().err
    )
    assert contents(tmp_path / "results") == before
    assert cli.main(tiny("--list")) == 0
    states = dict(reversed(line.split(maxsplit=1)) for line in capsys.readouterr().out.splitlines())
    assert {name[-1]: state for name, state in states.items()} == {"1": "record", "2": "done"}
    assert len(states) == 7


@pytest.mark.usefixtures("unpictured")
def test_anew_counts_no_record(tmp_path, capsys, tiny):
    fill(parse_plan(TINY), tmp_path)
    assert cli.main(tiny()) == 0
    for path in tmp_path.glob("*-1.json"):
        path.unlink()
    assert cli.main(tiny("--list", "--anew")) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line[:6].strip() for line in lines if line.endswith("-1")} == {"to do"}
    assert cli.main(tiny("--anew", "--seeds", "2", "--model", "mean", "--model", "last-value")) == 0
    assert "3 of 3 runs are done already\n" in capsys.readouterr().err
    assert "Not done yet: 4 of 7 runs" in (tmp_path / "results" / "table.md").read_text()


@pytest.mark.usefixtures("unpictured")
def test_a_run_that_the_record_has_with_other_settings_is_done_again(tmp_path, capsys, tiny, monkeypatch):
    fill(parse_plan(TINY), tmp_path)
    assert cli.main(tiny()) == 0
    shutil.rmtree(tmp_path / "results" / "figures")
    for path in tmp_path.glob("*.json"):
        path.unlink()
    asked = []
    monkeypatch.setattr(reproduce, "read_plan", lambda name: parse_plan(TINY.replace("epochs = 2", "epochs = 3")))
    monkeypatch.setattr(running, "run", lambda jobs, *a, **k: asked.extend(jobs) or running.Outcome())
    assert cli.main(tiny("--seeds", "1")) == 0
    said = capsys.readouterr().err
    assert [job.name for job in asked] == ["last-value-vae-1", "mean-vae-1"]
    assert f"mean-vae-1 is done again: {tmp_path / 'results'} has it with other settings\n" in said
    assert "4 runs of before have left the tables" in said


@pytest.mark.usefixtures("unpictured")
def test_results_of_other_data_are_told(tmp_path, capsys, tiny, monkeypatch):
    fill(parse_plan(TINY), tmp_path)
    assert cli.main(tiny("--data", "files")) == 0
    assert capsys.readouterr().err == "7 of 7 runs are done already\nthe file is another\n"
    monkeypatch.setattr(fitting, "fingerprint", lambda train, valid: "e")
    assert cli.main(tiny("--data", "files")) == 0
    said = capsys.readouterr().err.splitlines()
    assert said[1:] == [
        "the file is another",
        "7 finished runs were made from other data than is read from files now (last-value-vae-1, "
        "mean-vae-1, bayes-optimal-1, paper-last-value-vae-1, last-value-vae-2, mean-vae-2, …): "
        "use --anew with another --out to repeat them",
    ]


@pytest.mark.usefixtures("unpictured")
def test_what_is_done_is_shown_without_the_data(tmp_path, capsys, tiny, monkeypatch):
    fill(parse_plan(TINY), tmp_path)

    def missing(folder, fold):
        raise DataError("the file is missing")

    monkeypatch.setitem(DATASETS, "double-ou", dataclasses.replace(DATASETS["double-ou"], load=missing))
    assert cli.main(tiny()) == 0
    assert capsys.readouterr().err == "7 of 7 runs are done already\n"
    (tmp_path / "mean-vae-1.json").unlink()
    assert cli.main(tiny("--anew")) == 2
    assert capsys.readouterr().err.splitlines()[-1] == "error: the file is missing"


@pytest.mark.usefixtures("unpictured")
def test_a_run_with_a_score_that_is_no_number_is_not_recorded(tmp_path):
    """It is in the tables; who has the record alone does it again, and is not refused."""
    plan = parse_plan(TINY)
    fill(plan, tmp_path)
    worse = read_json(tmp_path / "mean-vae-2.json")
    worse["scores"]["prediction"]["nll"] = math.nan
    write_json(tmp_path / "mean-vae-2.json", worse)
    (remark,) = write_results(plan, tmp_path, tmp_path / "results")
    assert remark == "not recorded in runs.csv, since a score is not finite: mean-vae-2"
    assert "| Mean | | | nan ± nan |" in (tmp_path / "results" / "table.md").read_text()
    record = read_record(plan, tmp_path / "results")
    assert {job.name for job in make_jobs(plan)} - record.results.keys() == {"mean-vae-2"}


@pytest.mark.usefixtures("unpictured")
def test_a_quick_look_does_not_count_the_runs_of_the_protocol(tmp_path):
    plan = parse_plan(TINY)
    fill(plan, tmp_path)
    write_results(plan, tmp_path, tmp_path / "results")
    assert read_record(plan.made_quick(), tmp_path / "results").results == {}


@pytest.mark.parametrize("name", [name for name in plan_names() if (RESULTS / name / RUNS).exists()])
def test_what_is_committed_is_a_record(name):
    """Every run of it that the plan still asks for stands in it as it would be written again, and so does the page."""
    plan, folder = read_plan(name), RESULTS / name
    record = read_record(plan, folder)
    assert record.results.keys() | set(record.others)
    lines = (folder / RUNS).read_text().splitlines()
    runs = finished(plan, folder / "nowhere", record)
    again = runs_csv(runs).splitlines()
    assert again[0] == lines[0]
    assert set(again) <= set(lines)
    assert (folder / "table.md").read_text("utf-8") == markdown(plan, runs)
