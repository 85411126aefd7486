"""Plans are what the paper says; no finished run is repeated, no begun one lost; tables hold what the runs came to."""

import dataclasses
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from examples import make_table
from tiny import TINY, fill

from vsdn import cli, fitting
from vsdn.cli.reproduce import reproduce
from vsdn.datasets import DATASETS, double_ou
from vsdn.datasets.base import Dataset, Parts
from vsdn.errors import RunError, SettingsError
from vsdn.files import read_json, write_json
from vsdn.models import MODELS
from vsdn.progress import Interrupt
from vsdn.reproduction import curves, running, tables, worker
from vsdn.reproduction.display import Display
from vsdn.reproduction.jobs import Job, changes, make_jobs, read_result, result_path, write_result
from vsdn.reproduction.plans import Asked, parse_plan, plan_names, read_plan
from vsdn.reproduction.references import REFERENCES
from vsdn.reproduction.results import write_results

# Appends a line to a log, then does what its row says; a row that fails does so once, a slow one waits to be killed.
FAKE = """
import json, pathlib, sys, time
order = json.loads(sys.stdin.readline())
out, job = pathlib.Path(order["out"]), order["job"]
name = ("" if job["preset"] == "tuned" else "paper-") + f"{job['row']}-{job['repeat']}"
with (out / "log").open("a") as log:
    log.write(name + "\\n")
if (out / f"{name}.wait").exists():
    time.sleep(60)
if (out / f"{name}.fail").exists():
    sys.exit("error: it broke")
scores = {"nll": 1.0, "mse": 2.0, "crps": 3.0, "coverage_50": 0.5, "coverage_90": 0.9, "num_values": 4, "num_rows": 2}
result = {"scores": {"prediction": scores}, "versions": {"vsdn": "0", "commit": None}, "data": "d", "notes": []}
(out / f"{name}.json").write_text(json.dumps({"key": order["key"], "job": {}, **result}))
"""


class Silent:
    """A watcher that notes what it is told, and may do something at a look."""

    def __init__(self, at_look=lambda running: None):
        self.ends, self.at_look = [], at_look

    def began(self, job):
        pass

    def ended(self, job, result, why):
        self.ends.append(job.name)

    def look(self, running, left):
        self.at_look(running)


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """A function that runs jobs with a trainer that only pretends to, and gives what came of them."""
    monkeypatch.setattr(running, "POLL", 0.02)
    script = tmp_path / "fake.py"
    script.write_text(FAKE)

    def run(jobs, watcher=None, at_once=2):
        left = [job for job in jobs if read_result(tmp_path, job) is None]
        order = (sys.executable, "-S", str(script))
        return running.run(left, tmp_path, tmp_path, watcher or Silent(), at_once=at_once, command=order)

    return run


def starts(folder: Path) -> list[str]:
    return sorted((folder / "log").read_text().split())


WHOLE = ("double-ou", "human36m", "mocap", "mocap35", "ushcn")  # the others look into one thing


@pytest.mark.parametrize("name", plan_names())
def test_plans_name_what_exists(name):
    plan = read_plan(name)
    jobs = make_jobs(plan) + make_jobs(plan.made_quick())  # their settings were checked when they were made
    assert len({job.name for job in make_jobs(plan)}) == len(make_jobs(plan))
    for row in plan.rows:
        assert row.model in MODELS or row.reference in REFERENCES
    for preset in plan.presets.values():
        assert {*preset.only, *preset.models} <= {row.model for row in plan.rows}
        assert all(choice.why for choice in (preset, *preset.models.values()) if "max_step" in choice.set)
    trained = {job.settings.model.model for job in jobs if job.settings is not None}
    if name in WHOLE:
        assert trained == MODELS.keys()  # every model, also in a quick look


def test_the_papers_figures_are_those_of_the_paper():
    figure = lambda plan, row, task="prediction": {r.name: r.paper for r in read_plan(plan).rows}[row][task]
    assert figure("human36m", "vsdn-s-iwae") == {"nll": (-127.12, 5.19), "mse": (0.1797, 0.073)}
    assert figure("human36m", "latent-sde-vae", "interpolation") == {"nll": (-62.93, 1.28), "mse": (0.8311, 0.060)}
    assert figure("mocap", "latent-ode-vae") == {"nll": (14.99, 1.64), "mse": (49.51, 0.38)}
    assert figure("mocap", "vsdn-s-iwae", "interpolation") == {"nll": (-115.24, 2.50), "mse": (20.12, 0.18)}
    assert figure("double-ou", "vsdn-f-vae") == {"nll": (-1.145, 0.029), "mse": (0.0065, 0.0003)}
    assert figure("ushcn", "vsdn-s-iwae") == {"nll": (0.654, 0.084), "mse": (0.381, 0.058)}
    for plan in ("human36m", "mocap", "double-ou", "ushcn"):
        assert sum(bool(row.paper) for row in read_plan(plan).rows) == 8


def test_appendix_c_is_what_the_paper_says():
    sizes = ("hidden_size", "latent_size", "width", "init_width")
    for plan, step, wanted, batch in (
        ("double-ou", 0.01, (15, 15, 25, 128), 250),
        ("ushcn", 0.1, (15, 15, 25, 128), 500),
        ("mocap", 0.25, (512, 128, 256, 128), 64),
    ):
        whole = read_plan(plan)
        without = {"set": {}, "models": {}, "rows": {}}  # what is changed for time
        bare = whole.presets["paper"].model_copy(update=without)
        settings = whole.model_copy(update={"presets": {"paper": bare}}).settings("paper", whole.rows[0], 0)
        assert tuple(getattr(settings.model, size) for size in sizes) == wanted
        assert (settings.data.max_step, settings.training.batch_size) == (step, batch)
        assert (settings.training.learning_rate, settings.objective.num_paths) == (1e-4, 5)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('model = "mean"', 'model = "median"', "median"),
        ("epochs = 2", "epoch = 2", "no setting 'epoch'"),
        ("seeds = [1, 2]", "", "seeds or folds"),
        ('title = "Tiny"', "", "title is missing"),
        ('model = "mean"', 'model = "last-value"', "a tag"),
    ],
)
def test_a_plan_that_no_run_can_be_made_of_is_refused(old, new, said):
    assert old in TINY
    with pytest.raises(SettingsError, match=said):
        parse_plan(TINY.replace(old, new))


def test_tuned_runs_are_called_as_they_always_were():
    names = [job.name for job in make_jobs(read_plan("double-ou"))]
    assert names[0] == "latent-ode-vae-10"
    assert {"vsdn-f-iwae-11", "paper-vsdn-s-vae-12", "bayes-optimal-10"} <= set(names)
    assert "bayes-optimal-11" not in names  # the same for every seed


def test_a_finished_run_is_never_repeated_and_a_changed_one_is(fake, tmp_path):
    jobs = make_jobs(parse_plan(TINY))
    assert len(fake(jobs).done) == len(jobs) == 7
    assert fake(jobs).done == {}
    assert starts(tmp_path) == sorted(job.name for job in jobs)
    other = make_jobs(parse_plan(TINY.replace("epochs = 2", "epochs = 3").replace("Two rows", "Three")))
    assert {name.rsplit("-", 1)[0] for name in fake(other).done} == {"last-value-vae", "mean-vae"}


def test_what_has_changed_is_told(tmp_path):
    before, now = (make_jobs(parse_plan(TINY.replace("epochs = 2", f"epochs = {n}")))[0] for n in (2, 3))
    assert changes(tmp_path, now) == []
    write_result(tmp_path, before, {})
    assert changes(tmp_path, before) == []
    assert changes(tmp_path, now) == ["settings.training.epochs 2 → 3"]


def test_a_failure_does_not_lose_the_others(fake, tmp_path):
    jobs = make_jobs(parse_plan(TINY))
    (tmp_path / "mean-vae-1.fail").touch()
    outcome = fake(jobs)
    assert outcome.failed == {"mean-vae-1": "it broke (exit code 1)"}
    assert len(outcome.done) == 6
    (tmp_path / "mean-vae-1.fail").unlink()
    assert list(fake(jobs).done) == ["mean-vae-1"]


def test_interrupted_runs_are_stopped_and_go_on(fake, tmp_path):
    jobs, seen = make_jobs(parse_plan(TINY)), []
    (tmp_path / "mean-vae-1.wait").touch()

    def interrupt_when_alone(running):
        seen.extend(each.process for each in running if each.process not in seen)
        if [each.job.name for each in running] == ["mean-vae-1"] and len(watcher.ends) == 6:
            signal.raise_signal(signal.SIGINT)

    watcher = Silent(interrupt_when_alone)
    outcome = fake(jobs, watcher)
    assert outcome.stopped
    assert (len(outcome.done), outcome.failed) == (6, {})
    assert all(process.poll() is not None for process in seen)  # nobody outlives us
    (tmp_path / "mean-vae-1.wait").unlink()
    assert list(fake(jobs).done) == ["mean-vae-1"]


def test_a_run_that_is_killed_is_a_failure_and_not_forgotten(fake, tmp_path):
    (tmp_path / "mean-vae-1.wait").touch()
    kill = lambda running: [each.process.terminate() for each in running if each.job.name == "mean-vae-1"]
    assert "mean-vae-1" in fake(make_jobs(parse_plan(TINY)), Silent(kill)).failed


@pytest.fixture
def small(monkeypatch, lenient):
    """A function from a plan to its jobs by name, on few series in the place of Double-OU; nothing is scored."""
    parts = double_ou.split(double_ou.make(60, seed=3))
    few = Dataset("double-ou", "", "", (), 1, lambda folder, fold: Parts(*parts))
    monkeypatch.setitem(DATASETS, "double-ou", few)
    some = lambda fitted: dict.fromkeys(tables.HEADINGS, fitted.epochs[-1].valid_nll)
    monkeypatch.setattr(worker, "_score", lambda fitted, parts, job, task: some(fitted))
    return lambda text=TINY: {job.name: job for job in make_jobs(parse_plan(text))}


def do(job: Job, out: Path) -> dict:
    result = worker.do(job, out, out)
    assert result is not None
    write_result(out, job, result)
    return result


def test_a_stopped_run_goes_on_to_the_same_weights(small, tmp_path, monkeypatch):
    job = small()["last-value-vae-1"]
    for folder in ("whole", "cut"):
        (tmp_path / folder).mkdir()
    whole = do(job, tmp_path / "whole")

    @contextmanager
    def asked():
        interrupt = Interrupt()
        interrupt.asked = True
        yield interrupt

    with monkeypatch.context() as patch:
        patch.setattr(fitting, "interruptible", asked)
        assert worker.do(job, tmp_path / "cut", tmp_path) is None  # after its first step
    begun = (tmp_path / "cut" / job.name / "config.json").stat().st_ino
    cut = do(job, tmp_path / "cut")
    assert (tmp_path / "cut" / job.name / "config.json").stat().st_ino == begun  # the same run, not one like it
    assert cut["scores"] == whole["scores"]
    assert (whole["epochs"], whole["notes"], cut["notes"]) == (2, [], [])
    weights = [(tmp_path / folder / job.name / "model.safetensors").read_bytes() for folder in ("whole", "cut")]
    assert weights[0] == weights[1]
    assert read_result(tmp_path / "cut", job)["settings"]["training"]["epochs"] == 2


def test_a_run_of_other_settings_is_trained_anew_and_says_so(small, tmp_path):
    first = do(small()["last-value-vae-1"], tmp_path)
    (tmp_path / "last-value-vae-1.json").unlink()
    again = do(small()["last-value-vae-1"], tmp_path)  # the run is there: it is scored alone
    assert (again["notes"], again["scores"]) == ([], first["scores"])
    assert again["seconds"] >= first["seconds"]  # what it cost before is not forgotten
    other = small(TINY.replace("epochs = 2", "epochs = 3"))["last-value-vae-1"]
    result = do(other, tmp_path)
    assert result["epochs"] == 3
    assert result["notes"] == ["the run that was there has other settings: trained anew"]


def test_a_worker_ends_with_its_parent(tmp_path):
    job = make_jobs(parse_plan(TINY))[0]
    order = {"job": job.model_dump(mode="json"), "key": job.key, "out": str(tmp_path), "data": str(tmp_path)}
    done = subprocess.run(running.WORKER, input=json.dumps(order) + "\n", text=True, timeout=60, check=False)
    assert done.returncode == 1  # its input has ended, as when a parent is killed
    assert list(tmp_path.iterdir()) == []


EXPECTED = """# Tiny

Two rows.

## Prediction: the next row

| model | NLL, the paper | NLL, appendix C¹ | NLL, tuned | MSE, the paper | MSE, appendix C¹ | MSE, tuned |
| --- | --: | --: | --: | --: | --: | --: |
| Last | −1.000 ± 0.250 | 0.500 ± 0.707 | 0.500 ± 0.707 | 0.5000 ± 0.1250 | 0.2500 ± 0.0000 | 0.2500 ± 0.0000 |
| Mean | | | 2.000 ± 0.707 | | | 0.2500 ± 0.0000 |
| Floor | | | −1.000 | | | 0.2500 |

| model | settings | CRPS | 50 % covers | 90 % covers |
| --- | --- | --: | --: | --: |
| Last | appendix C | 0.1250 ± 0.0000 | 0.500 ± 0.000 | 0.900 ± 0.000 |
| Last | tuned | 0.1250 ± 0.0000 | 0.500 ± 0.000 | 0.900 ± 0.000 |
| Mean | tuned | 0.1250 ± 0.0000 | 0.500 ± 0.000 | 0.900 ± 0.000 |
| Floor | none | 0.1250 | 0.500 | 0.900 |

## Cost

| model | settings | runs | epochs | minutes a run | CPU-minutes a run | parameters |
| --- | --- | --: | --: | --: | --: | --: |
| Last | appendix C | 2 | 2 | 1.0 | 1.5 | 4 |
| Last | tuned | 2 | 2 | 1.0 | 1.5 | 4 |
| Mean | tuned | 2 | 2 | 1.0 | 1.5 | 4 |

Mean ± standard deviation over seeds 1, 2. NLL and MSE are means over observed values, CRPS and coverage over values.

¹ Too long otherwise.

Every run: `runs.csv`. All settings: `settings.json`. What it was run with: `versions.json`.
"""


def test_the_page_of_a_plan(tmp_path):
    plan = parse_plan(TINY)
    fill(plan, tmp_path)
    assert tables.markdown(plan, tables.finished(plan, tmp_path)) == EXPECTED
    (tmp_path / "mean-vae-2.json").unlink()
    page = tables.markdown(plan, tables.finished(plan, tmp_path))
    assert "| Mean | | | 1.500 | | | 0.2500 |" in page
    assert "Over fewer seeds: Mean, tuned (1)." in page
    assert "Not done yet: 1 of 7 runs (mean-vae-2)." in page
    for name in ("paper-last-value-vae-2", "last-value-vae-2"):
        (tmp_path / f"{name}.json").unlink()
        page = tables.markdown(plan, tables.finished(plan, tmp_path))
        seeds = "seeds 1 (appendix C) and 1, 2 (tuned)" if name.startswith("paper") else "seed 1"
        assert f"Mean ± standard deviation over {seeds}." in page


def test_a_result_from_before_a_setting_was_there_is_one_with_its_default(tmp_path):
    job = make_jobs(parse_plan(TINY))[0]
    write_result(tmp_path, job, {})
    found = read_json(result_path(tmp_path, job))
    del found["job"]["settings"]["model"]["keep_usual"]
    write_json(result_path(tmp_path, job), found | {"key": "of another program"})
    assert read_result(tmp_path, job) is not None
    assert changes(tmp_path, job) == []
    found["job"]["settings"]["model"]["keep_usual"] = True
    write_json(result_path(tmp_path, job), found | {"key": "of another program"})
    assert read_result(tmp_path, job) is None
    assert changes(tmp_path, job) == ["settings.model.keep_usual True → False"]


def test_what_a_run_cost_before_stays_unknown_where_it_was(tmp_path):
    with worker.Clock(tmp_path / "cost.json", {"seconds": 60.0}) as clock:
        assert clock.cost().keys() == {"seconds"}
    assert read_json(tmp_path / "cost.json")["seconds"] >= 60.0
    with worker.Clock(tmp_path / "fresh.json", {}) as clock:
        assert clock.cost().keys() == {"seconds", "cpu_seconds"}
    with worker.Clock(tmp_path / "unknown.json", None) as clock:
        assert clock.cost() == {}


DAMAGES = {
    "cut": (lambda run: cut(run / "checkpoint" / "state.safetensors"), "is not a whole safetensors file"),
    "gone": (lambda run: shutil.rmtree(run / "checkpoint"), "there is no state.safetensors in "),
    "epochs": (lambda run: (run / "metrics.jsonl").write_text("{"), "is not the record of an epoch"),
    "scaler": (lambda run: (run / "scaler.json").write_text("{}"), "mean, std and time_scale were expected"),
    "settings": (lambda run: (run / "config.json").write_text("{}"), "is not the configuration of a run"),
}


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


@pytest.mark.parametrize(("damage", "said"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_run_is_trained_again_and_it_is_said(damage, said, small, tmp_path):
    job = small()["last-value-vae-1"]
    whole = do(job, tmp_path)
    result_path(tmp_path, job).unlink()
    damage(tmp_path / job.name)
    again = do(job, tmp_path)
    assert again["scores"] == whole["scores"]
    [note] = again["notes"]
    assert said in note
    assert note.endswith(": trained anew")
    result_path(tmp_path, job).unlink()
    assert do(job, tmp_path)["notes"] == []  # it is whole again


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"seconds": "long"}', '{"seconds": NaN}', "{}"])
def test_a_cost_that_cannot_be_read_is_unknown(text, small, tmp_path):
    job = small()["last-value-vae-1"]
    do(job, tmp_path)
    result_path(tmp_path, job).unlink()
    (tmp_path / f"{job.name}.cost.json").write_text(text)
    for _ in range(2):  # and so it stays
        again = do(job, tmp_path)
        assert again["notes"] == []
        assert not again.keys() & {"seconds", "cpu_seconds"}


def test_ratios_to_a_rival_are_taken_within_each_seed(tmp_path):
    plan = parse_plan(TINY.replace("seeds = [1, 2]", 'seeds = [1, 2]\nrivals = ["mean-vae"]'))
    fill(plan, tmp_path)
    worse = read_json(tmp_path / "last-value-vae-2.json")
    worse["scores"]["prediction"]["mse"] *= 3  # seeds are alike but for this
    write_json(tmp_path / "last-value-vae-2.json", worse)
    read = lambda name, seed: read_json(tmp_path / f"{name}-vae-{seed}.json")["scores"]["prediction"]["mse"]
    first, second = (read("last-value", seed) / read("mean", seed) for seed in (1, 2))
    assert second == pytest.approx(3 * first)
    mean, deviation = (first + second) / 2, abs(first - second) / 2**0.5
    page = tables.markdown(plan, tables.finished(plan, tmp_path))
    assert "MSE as a part of that of *Mean*, seed by seed:\n\n| model | settings | seed 1 | seed 2 | mean |" in page
    assert f"| Last | tuned | {first:.2f} | {second:.2f} | {mean:.2f} ± {deviation:.2f} |" in page
    both = plan.model_copy(update={"rivals": ("mean-vae", "last-value-vae")})
    of_mean, of_last = tables.markdown(both, tables.finished(both, tmp_path)).split("Against *Last* with")
    assert page.split("## Cost")[0] == of_mean
    assert f"| Mean | tuned | {1 / first:.2f} | {1 / second:.2f} | " in of_last.split("of that of *Last*")[1]


def test_the_floor_is_of_what_comes_after_one_time():
    table = make_table(3)
    asked = Asked(title="Next", task="prediction", after=(3.0, 4.0), next=1)
    with pytest.raises(SettingsError, match="after one time, not several"):
        REFERENCES["bayes-optimal"](Parts(table, table, table), asked)


def test_models_are_set_against_a_rival_on_what_both_have(tmp_path):
    plan = parse_plan(TINY.replace("seeds = [1, 2]", 'seeds = [1, 2]\nrivals = ["mean-vae"]'))
    fill(plan, tmp_path)
    (tmp_path / "mean-vae-2.json").unlink()
    both = {name: json.loads((tmp_path / f"{name}-vae-1.json").read_text()) for name in ("last-value", "mean")}
    last, mean = (both[name]["scores"]["prediction"] for name in ("last-value", "mean"))
    page = tables.markdown(plan, tables.finished(plan, tmp_path))
    ratios = [f"{last[score] / mean[score]:.2f}" for score in ("mse", "crps")]
    more = f"{last['nll'] - mean['nll']:.2f}".replace("-", "−")
    assert "Against *Mean* with the same settings on the same seeds:" in page
    assert f"| Last | {ratios[0]} | {ratios[1]} | {more} |" in page
    assert "| model | MSE, tuned | CRPS, tuned | NLL, tuned |" in page  # the paper has nothing of Mean
    assert "| Mean | 1.00 | 1.00 | 0.00 |" in page
    assert f"| Last | tuned | {ratios[0]} | | {ratios[0]} |" in page  # seed by seed; Mean has no second
    with pytest.raises(SettingsError, match="the rival 'nobody' is no row"):
        parse_plan(TINY.replace("seeds = [1, 2]", 'seeds = [1, 2]\nrivals = ["nobody"]'))


def test_a_task_may_be_for_some_models_and_have_its_columns_beside_another(tmp_path):
    asked = {"title": "later rows too", "task": "interpolation", "beside": "prediction", "column": "smoothed"}
    lines = ["[tasks.smoothing]", 'only = ["mean"]', *(f'{key} = "{value}"' for key, value in asked.items()), ""]
    plan = parse_plan(TINY.replace("[presets.paper]", "\n".join(lines) + "[presets.paper]"))
    assert {tuple(job.tasks) for job in make_jobs(plan) if job.row != "mean-vae"} == {("prediction",)}
    fill(plan, tmp_path)
    page = tables.markdown(plan, tables.finished(plan, tmp_path))
    assert (
        "| model | NLL, the paper | NLL, appendix C¹ | NLL, tuned | NLL, appendix C, smoothed¹ | NLL, tuned, smoothed |"
        in page
    )
    assert "| Mean | | | 2.000 ± 0.707 | | 12.000 ± 0.707 |" in page
    assert "| Mean | tuned, smoothed | 0.1250 ± 0.0000 |" in page
    assert page.count("| Last | tuned") == 2  # calibration and cost, and nothing smoothed
    assert "smoothed: later rows too." in page


def test_results_are_small_and_say_where_they_came_from(tmp_path):
    plan = parse_plan(TINY)
    fill(plan, tmp_path)
    assert write_results(plan, tmp_path, tmp_path / "results") == []
    names = {path.name for path in (tmp_path / "results").rglob("*") if path.is_file()}
    assert names == {"table.md", "table.csv", "runs.csv", "settings.json", "versions.json", "prediction.png"}
    assert sum(path.stat().st_size for path in (tmp_path / "results").rglob("*")) < 200_000
    assert not any(os.fsencode(tmp_path) in path.read_bytes() for path in (tmp_path / "results").glob("*.*"))
    lines = (tmp_path / "results" / "table.csv").read_text().splitlines()
    assert lines[0] == "task,row,settings,score,mean,std,num_runs"
    assert "prediction,last-value-vae,the paper,nll,-1.0,0.25," in lines
    settings = json.loads((tmp_path / "results" / "settings.json").read_text())
    assert settings["tuned: mean-vae"]["training"]["batch_size"] == 10


def test_a_frame_counts_the_sum_over_its_values():
    scores = {"nll": 2.0, "mse": 0.5, "crps": 0.25, "num_values": 93, "num_rows": 3}
    of = lambda score, per: tables.score_of({"scores": {"t": scores}}, "t", score, per)
    assert (of("nll", "frame"), of("mse", "frame"), of("crps", "frame")) == (62.0, 15.5, 0.25)
    assert of("nll", "value") == 2.0


def test_bounds_are_drawn_against_epochs(small, tmp_path):
    kept = "epochs = 2, start = 0.0, valid_bound = true,"
    text = TINY.replace("seeds", "curves = true\nseeds").replace("epochs = 2,", kept)
    plan, jobs = parse_plan(text), small(text)
    do(jobs["last-value-vae-1"], tmp_path)
    (curve,) = curves.read_curves(tables.finished(plan, tmp_path), tmp_path)
    records = [json.loads(line) for line in (tmp_path / "last-value-vae-1" / "metrics.jsonl").read_text().splitlines()]
    assert curve.losses["loss"] == [record["loss"] for record in records]
    # without latent paths and from a given start, the bound is the likelihood that it is validated by
    assert curve.losses["valid_loss"] == pytest.approx([record["valid_nll"] for record in records], abs=1e-5)
    write_results(plan, tmp_path, tmp_path / "results")
    assert (tmp_path / "results" / "figures" / "bounds.png").stat().st_size > 5000


def test_what_cannot_be_asked_for_is_refused(tmp_path):
    for options, said in (
        ({"preset": "ours"}, "paper, tuned or both"),
        ({"folds": "0"}, "repeated over seeds"),
        ({"seeds": "3"}, "10, 11, 12"),
        ({"model": ["median"]}, "models of this plan"),
        ({"preset": "paper", "quick": True}, "a quick look at this plan has no runs with the preset paper"),
        ({"seeds": "11", "quick": True}, "seeds of a quick look at this plan are 10, but 11"),
    ):
        with pytest.raises(SettingsError, match=said):
            reproduce("double-ou", out=tmp_path, list=True, **options)


def test_listing_runs_nothing(capsys, tmp_path):
    folders = ["--out", str(tmp_path / "runs"), "--results", str(tmp_path / "results")]
    assert cli.main(["reproduce", "double-ou", "--list", *folders, "--seeds", "10"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 26
    assert lines[0].split() == ["to", "do", "latent-ode-vae-10"]
    assert list(tmp_path.iterdir()) == []


def test_a_choice_that_leaves_nothing_is_refused(capsys, tmp_path):
    words = ["reproduce", "ushcn", "--preset", "paper", "--model", "mean", "--out", str(tmp_path)]
    for also in ([], ["--list"]):
        assert cli.main([*words, *also]) == 2
        said = capsys.readouterr()
        assert (said.out, said.err) == ("", "error: this plan has no runs of mean that match the other options\n")
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_name_is_told_all_that_there_are(capsys):
    assert cli.main(["reproduce", "nope"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: there is no plan 'nope'; the names are ablation, ")
    assert said.endswith(", appendix-b\n")


def test_what_is_asked_for_twice_is_done_once(capsys, tmp_path):
    folders = ["--out", str(tmp_path / "runs"), "--results", str(tmp_path / "results")]
    assert cli.main(["reproduce", "double-ou", "--list", *folders, "--seeds", "11,10,11"]) == 0
    names = [line.split()[-1] for line in capsys.readouterr().out.splitlines()]
    assert len(names) == len(set(names)) > 40


def test_two_commands_are_not_at_work_in_one_folder(tmp_path, capsys):
    out, results = tmp_path / "out", tmp_path / "results"
    words = ["reproduce", "double-ou", "--quick", "--model", "mean", "--out", str(out), "--results", str(results)]
    with running.alone(out):
        worker = subprocess.Popen(["sleep", "60"])
        assert cli.main(words) == 2
        said = f"error: another command is running in {out}: wait until it has finished, or choose another --out\n"
        assert capsys.readouterr().err == said
        assert cli.main([*words, "--list"]) == 0
    with running.alone(out):  # a process that it began, and that has not ended yet, keeps nobody out
        assert worker.poll() is None
    worker.kill()
    worker.wait()


def test_where_nothing_can_be_locked_nobody_is_kept_out(tmp_path, monkeypatch):
    inside = []
    with running.alone(tmp_path):
        with pytest.raises(RunError, match="another command is running"), running.alone(tmp_path):
            inside.append("with locks")
        monkeypatch.setitem(sys.modules, "fcntl", None)
        with running.alone(tmp_path):
            inside.append("without")
    assert inside == ["without"]


@pytest.mark.parametrize("name", ["file", "file/below", "tables", "/proc/results"])
def test_results_that_cannot_be_written_are_told_before_anything_runs(name, tmp_path, capsys):
    (tmp_path / "file").touch()
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "figures").touch()
    words = ["reproduce", "double-ou", "--quick", "--model", "mean", "--out", str(tmp_path / "out")]
    assert cli.main([*words, "--results", str(tmp_path / name)]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: cannot write results into {tmp_path / name}")
    assert not (tmp_path / "out").exists()


def test_the_last_run_leaves_no_time(tmp_path, capsys):
    jobs = make_jobs(parse_plan(TINY))[:2]
    display = Display(jobs, {}, tmp_path, at_once=1)
    display.left = "; about 3 s left"
    for job in jobs:
        display.began(job)
        display.ended(job, None, "it broke")
    said = capsys.readouterr().err.splitlines()
    assert said == [
        f"[1/2] {jobs[0].name}: FAILED: it broke; about 3 s left",
        f"[2/2] {jobs[1].name}: FAILED: it broke",
    ]


INTERRUPTED = """
import signal, sys
class Finder:
    @staticmethod
    def find_spec(name, *_):
        if name == "vsdn.cli.program":
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Finder)
from vsdn.cli import run
run()
"""


def test_an_interrupt_while_the_program_is_imported_is_one_word():
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


@pytest.mark.slow
def test_a_quick_look_is_killed_and_goes_on(tmp_path):
    """Killed in the midst, gone on with, and then nothing is left to do."""
    models = [part for name in ("mean", "last-value") for part in ("--model", name)]
    words = [sys.executable, "-m", "vsdn.cli", "reproduce", "double-ou", "--quick", *models]
    words += ["--out", str(tmp_path / "out"), "--jobs", "1"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 120
    results = lambda: list((tmp_path / "out").glob("*-*[0-9].json"))
    while not results() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.2)
    process.kill()
    process.communicate()
    early = {path: path.stat().st_mtime_ns for path in results()}
    assert len(early) == 1
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=True)
    assert all(path.stat().st_mtime_ns == at for path, at in early.items())  # not repeated
    assert len(results()) == 2
    again = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert "2 of 2 runs are done already" in again.stderr
    assert "table.md" in done.stdout
    assert "Not done yet: 13 of 15 runs" in (tmp_path / "out" / "results" / "table.md").read_text()


@pytest.mark.slow
@pytest.mark.usefixtures("lenient")
def test_a_quick_look_at_double_ou_fills_every_row(tmp_path, capsys, monkeypatch):
    """Every run as a worker does it, but in this process; of the page, the command finds nothing left to do."""
    dataset = DATASETS["double-ou"]
    monkeypatch.setitem(DATASETS, "double-ou", dataclasses.replace(dataset, load=functools.cache(dataset.load)))
    for job in make_jobs(read_plan("double-ou").made_quick()):
        do(job, tmp_path)
    assert cli.main(["reproduce", "double-ou", "--quick", "--out", str(tmp_path)]) == 0
    assert "15 of 15 runs are done already" in capsys.readouterr().err
    page = (tmp_path / "results" / "table.md").read_text()
    assert "Not done yet" not in page
    assert page.count("| VSDN-S (IWAE) |") == 3  # scores, calibration, cost
    assert "−1.145 ± 0.029" in page  # the paper's, beside ours


def test_a_row_may_have_a_choice_of_its_own():
    plan = parse_plan(
        TINY.replace('{ title = "Mean", model = "mean" }', '{ title = "F", model = "vsdn-f", objective = "iwae" }')
        + "\n[presets.tuned.models.vsdn-f]\nset = { hide_share = 0.1, beta = 0.5 }"
        + '\n[presets.tuned.rows.vsdn-f-iwae]\nset = { hide_share = 0.2 }\nwhy = "So."'
    )
    row = plan.rows[1]
    settings = plan.settings("tuned", row, 3)
    assert (settings.training.hide_share, settings.objective.beta, settings.training.epochs) == (0.2, 0.5, 2)
    assert plan.choice("tuned", row).why == "So."
    assert plan.settings("tuned", plan.rows[0], 3).training.hide_share == 0.0
    with pytest.raises(SettingsError, match="names an unknown row 'vsdn-s-vae'"):
        parse_plan(TINY + "\n[presets.tuned.rows.vsdn-s-vae]\nset = { epochs = 3 }")


def test_a_score_that_is_no_number_is_told_as_such():
    assert tables.shown(tables.spread([1.0, float("nan")]) or (0.0, 0.0), 2) == "nan ± nan"
    assert tables.shown(tables.spread([1.0, 2.0]) or (0.0, 0.0), 2) == "1.50 ± 0.71"


def test_a_task_may_be_asked_with_some_settings_alone():
    later = '[tasks.smoothing]\ntitle = "Later"\ntask = "interpolation"\npresets = ["tuned"]\n\n[presets.paper]'
    before, now = (
        {job.name: job for job in make_jobs(parse_plan(text))}
        for text in (TINY, TINY.replace("[presets.paper]", later))
    )
    assert set(now["last-value-vae-1"].tasks) == {"prediction", "smoothing"}
    assert set(now["paper-last-value-vae-1"].tasks) == {"prediction"}
    assert now["paper-last-value-vae-1"].key == before["paper-last-value-vae-1"].key != now["last-value-vae-1"].key
