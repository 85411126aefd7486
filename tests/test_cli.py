"""Every command of the command line, on tables of a few series."""

import csv
import hashlib
import io
import json
import subprocess
import sys
from pathlib import Path

import jax
import matplotlib.image
import numpy as np
import pyarrow.parquet as pq
import pytest
import typer.main

from vsdn import __version__, cli, demonstration, fitting, settings
from vsdn.cli import training

SMALL = {"hidden_size": 4, "latent_size": 3, "width": 5, "init_width": 4, "num_paths": 2, "valid_paths": 2}
QUICK = SMALL | {"batch_size": 10, "num_buckets": 1, "epochs": 2}
PUBLISHED_SHA256 = "ab045b0005fb1ad5202e4850e9c3ca223d4dd4aba42c2e1eca6067530058aaa0"
STATISTICS = ["variable", "mean", "std", "q05", "q50", "q95"]


@pytest.fixture(scope="module", autouse=True)
def as_users_run_it():
    """Promotion as users have it: optax itself does not keep to the strict one."""
    with jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture
def vsdn(capsysbinary):
    """A function from arguments to what is printed on standard output; any exit code but 0 fails."""

    def call(*arguments: object) -> str:
        capsysbinary.readouterr()
        code = cli.main([str(argument) for argument in arguments])
        out, err = capsysbinary.readouterr()
        assert code == 0, err.decode()
        return out.decode()

    return call


def assign(values: dict[str, object]) -> list[str]:
    """The options that set these values."""
    return [part for key, value in values.items() for part in ("--set", f"{key}={value}")]


def fit(data: Path, out: Path, *options: object, model: str = "last-value", **values: object) -> Path:
    """A small run, `last-value` unless another model is asked for, because it compiles in a second."""
    arguments = ["fit", data, "--out", out, "--model", model, "--quiet", *assign(QUICK | values), *options]
    assert cli.main([str(argument) for argument in arguments]) == 0
    return out


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Tables: numbers.csv of 24 series, dates.csv with texts as ids and other column names, alone.csv without ids."""
    folder = tmp_path_factory.mktemp("tables")
    assert cli.main(["datasets", "make", "double-ou", "--series", "24", "--out", str(folder / "numbers.csv")]) == 0
    rng = np.random.default_rng(0)
    lines = ["patient,day,hb,na"]
    for i in range(12):
        days = np.datetime64("2024-01-01") + np.cumsum(rng.integers(1, 9, 6))
        lines += [f"p{i:03d},{day},{rng.normal():.3f},{'' if day.item().day % 2 else i}" for day in days]
    (folder / "dates.csv").write_text("\n".join(lines) + "\n")
    alone = [f"{t / 4},{np.sin(t / 4):.4f}" for t in range(40)]
    (folder / "alone.csv").write_text("\n".join(["time,x", *alone]) + "\n")
    return folder


@pytest.fixture(scope="module")
def run(folder) -> Path:
    return fit(folder / "numbers.csv", folder / "run")


@pytest.fixture(scope="module")
def dated(folder) -> Path:
    return fit(folder / "dates.csv", folder / "dated", "--id", "patient", "--time", "day", model="mean")


# ------------------------------------------------------------------------------------------------------------- help


def all_commands() -> list[list[str]]:
    """Every command and group, as words."""

    def walk(command, words):
        found = [words]
        for name, below in getattr(command, "commands", {}).items():
            found += walk(below, [*words, name])
        return found

    return walk(typer.main.get_command(cli.app), [])


@pytest.mark.parametrize("words", all_commands(), ids=lambda words: " ".join(words) or "vsdn")
def test_help_has_an_example(words, vsdn):
    text = vsdn(*words, "--help")
    assert text.startswith(f"Usage: {' '.join(['vsdn', *words])}")
    if "COMMAND [ARGS]" not in text:
        assert f"Example: {' '.join(['vsdn', *words])}" in text


def test_the_module_runs_as_a_program():
    done = subprocess.run([sys.executable, "-m", "vsdn.cli", "datasets", "list"], capture_output=True, check=True)
    assert b"double-ou" in done.stdout
    assert not done.stderr


# ------------------------------------------------------------------------------------------------------ fit and info


def test_fit_writes_a_whole_run_and_says_what_it_did(folder, tmp_path, capsys):
    arguments = ["fit", folder / "numbers.csv", "--out", tmp_path / "run", "--model", "last-value", "--json"]
    assert cli.main([str(a) for a in arguments] + assign(QUICK)) == 0
    said = capsys.readouterr()
    told = json.loads(said.out)
    assert told["model"] == "last-value"
    assert told["variables"] == ["value_1", "value_2"]
    assert (told["epochs"], told["planned epochs"]) == (2, 2)
    assert said.err.startswith("validation: 2 series held out at random")
    files = {str(path.relative_to(tmp_path / "run")) for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {
        "config.json",
        "scaler.json",
        "model.safetensors",
        "metrics.jsonl",
        "checkpoint/state.safetensors",
    }
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 2


def test_same_seed_same_weights(folder, run, tmp_path):
    again = fit(folder / "numbers.csv", tmp_path / "again")
    other = fit(folder / "numbers.csv", tmp_path / "other", "--seed", 1)
    for name in ("model.safetensors", "metrics.jsonl", "scaler.json", "checkpoint/state.safetensors"):
        assert (again / name).read_bytes() == (run / name).read_bytes()
        assert (other / name).read_bytes() != (run / name).read_bytes()


def test_settings_come_from_preset_file_and_options_in_that_order(folder, tmp_path, vsdn):
    (tmp_path / "own.toml").write_text("epochs = 1\nbatch_size = 7\n[objective]\nnum_paths = 3\n")
    fit_options = ["--preset", "demo", "--config", tmp_path / "own.toml", "--set", "batch_size=9", "--quiet"]
    vsdn(
        "fit", folder / "numbers.csv", "--out", tmp_path / "run", "--model", "mean", "--objective", "iwae", *fit_options
    )
    told = json.loads(vsdn("info", tmp_path / "run", "--json"))["settings"]
    assert told["model"]["model"] == "mean"
    assert told["objective"] | {"num_paths": 3, "objective": "iwae"} == told["objective"]
    assert told["training"]["batch_size"] == 9
    assert told["training"]["learning_rate"] == 1e-2  # the preset's


def test_fit_takes_a_validation_table(folder, tmp_path, capsys):
    vsdn_fit = ["fit", folder / "numbers.csv", "--out", tmp_path / "run", "--valid", folder / "numbers.csv"]
    assert cli.main([str(a) for a in vsdn_fit] + ["--model", "mean"]) == 0
    assert "validation: 24 series" in capsys.readouterr().err


def test_overwrite_replaces_a_run_whole(folder, tmp_path):
    out = fit(folder / "numbers.csv", tmp_path / "run")
    (out / "mine.txt").write_text("goes with the old run")
    fit(folder / "numbers.csv", out, "--overwrite", model="mean")
    assert not (out / "mine.txt").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_info_tells_epochs_done_of_all(run, vsdn):
    text = vsdn("info", run)
    assert "2 of 2" in text
    assert "hidden_size" in text
    told = json.loads(vsdn("info", run, "--json"))
    assert (told["epochs"], told["planned epochs"]) == (2, 2)
    assert "planned epochs" not in text
    assert told["settings"]["training"]["epochs"] == 2


def test_info_cuts_nothing_and_leaves_out_what_has_no_value(folder, tmp_path, vsdn, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    out = fit(folder / "numbers.csv", tmp_path / ("long" * 40) / "run", model="mean", epochs=0)
    text = vsdn("info", out)
    assert str(out) in text
    assert "…" not in text
    assert "None" not in text
    assert "value_1, value_2" in text
    assert json.loads(vsdn("info", out, "--json"))["best epoch"] is None


def test_the_version_is_told(vsdn):
    assert vsdn("--version") == f"vsdn {__version__}\n"


def test_a_score_that_is_not_finite_is_null_in_json(run, tmp_path, vsdn, monkeypatch):
    monkeypatch.setattr(training, "_info", lambda *_: {"validation nll": float("inf")})
    assert json.loads(vsdn("info", run, "--json"), parse_constant=pytest.fail)["validation nll"] is None


def test_resume_of_a_finished_run_changes_nothing(folder, tmp_path, vsdn):
    out = fit(folder / "numbers.csv", tmp_path / "run")
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert json.loads(vsdn("resume", out, "--json"))["epochs"] == 2
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_resume_finds_a_table_that_has_moved(folder, tmp_path, vsdn):
    (tmp_path / "here.csv").write_bytes((folder / "numbers.csv").read_bytes())
    out = fit(tmp_path / "here.csv", tmp_path / "run")
    (tmp_path / "here.csv").rename(tmp_path / "there.csv")
    assert "2 of 2" in vsdn("resume", out, "--data", tmp_path / "there.csv", "--quiet")


# --------------------------------------------------------------------------------------------------------- forecast


def test_forecast_at_times(folder, run, vsdn):
    rows = rows_of(vsdn("forecast", run, folder / "numbers.csv", "--times", "10.5, 12"))
    assert list(rows[0]) == ["id", "time", *STATISTICS]
    assert [(row["id"], row["time"], row["variable"]) for row in rows] == [
        (str(i), time, name) for i in range(24) for time in ("10.5", "12") for name in ("value_1", "value_2")
    ]
    for row in rows:
        assert float(row["q05"]) < float(row["q50"]) < float(row["q95"])


def test_forecast_every_step_after_the_last_observation(folder, run, vsdn):
    rows = rows_of(vsdn("forecast", run, folder / "numbers.csv", "--every", "0.5", "--until", "12"))
    data = rows_of((folder / "numbers.csv").read_text())
    for i in map(str, range(24)):
        last = max(float(row["time"]) for row in data if row["id"] == i)
        times = sorted({float(row["time"]) for row in rows if row["id"] == i})
        np.testing.assert_allclose(times, last + 0.5 * np.arange(1, len(times) + 1))
        assert 11.5 < times[-1] <= 12


def test_series_that_are_left_out_are_told(folder, run, capsys):
    ask = ["forecast", str(run), str(folder / "numbers.csv"), "--every", "0.5", "--until", "9.8"]
    assert cli.main(ask) == 0
    said = capsys.readouterr()
    data = rows_of((folder / "numbers.csv").read_text())
    out = {row["id"] for row in data} - {row["id"] for row in rows_of(said.out)}
    assert said.err.startswith(f"{len(out)} series have no step up to 9.8 and are left out: ")
    assert cli.main([*ask, "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_forecast_at_the_rows_of_a_table_in_their_order(folder, run, tmp_path, vsdn):
    (tmp_path / "at.csv").write_text("time,id\n11,3\n10.5,1\n12,3\n")
    rows = rows_of(vsdn("forecast", run, folder / "numbers.csv", "--at", tmp_path / "at.csv"))
    assert [(row["id"], row["time"]) for row in rows[::2]] == [("3", "11"), ("1", "10.5"), ("3", "12")]
    every = rows_of(vsdn("forecast", run, folder / "numbers.csv", "--times", "11"))
    alike = next(row for row in every if row["id"] == "3")
    assert [float(rows[0][name]) for name in STATISTICS[1:]] == pytest.approx(
        [float(alike[name]) for name in STATISTICS[1:]], rel=1e-5
    )


def test_forecast_to_files_and_as_json_says_the_same(folder, run, tmp_path, vsdn):
    ask = ["forecast", run, folder / "numbers.csv", "--times", "11", "--quantiles", "0.025,0.5"]
    printed = vsdn(*ask)
    assert vsdn(*ask, "--out", tmp_path / "f.csv") == vsdn(*ask, "--out", tmp_path / "f.parquet") == ""
    assert (tmp_path / "f.csv").read_text() == printed
    told = json.loads(vsdn(*ask, "--json"))
    assert told == pq.read_table(tmp_path / "f.parquet").to_pylist()
    assert list(told[0]) == ["id", "time", "variable", "mean", "std", "q2.5", "q50"]
    assert [str(row["mean"]) for row in told] == [row["mean"] for row in rows_of(printed)]


def test_plot_is_a_picture_with_something_on_it(folder, run, tmp_path, vsdn):
    vsdn("forecast", run, folder / "numbers.csv", "--times", "12", "--plot", tmp_path / "f.png")
    content = (tmp_path / "f.png").read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    assert content.endswith(b"IEND\xaeB`\x82")
    pixels = matplotlib.image.imread(tmp_path / "f.png")[..., :3]
    assert min(pixels.shape[:2]) > 300
    coloured = np.ptp(pixels, axis=2) > 0.2
    assert 0.005 < coloured.mean() < 0.9
    assert np.all(pixels[0] == 1)  # the margin is white


@pytest.mark.parametrize("times", ["12", "2.0,2.5"])
def test_a_table_and_a_picture_of_times_after_and_within_the_data(times, folder, run, tmp_path, vsdn):
    ask = ["forecast", run, folder / "numbers.csv", "--times", times]
    vsdn(*ask, "--out", tmp_path / "f.csv", "--plot", tmp_path / "f.svg")
    assert (tmp_path / "f.csv").read_text() == vsdn(*ask)
    assert ("hidden" in (tmp_path / "f.svg").read_text()) == (times != "12")  # what came after the first of them


def test_dates_in_dates_out_and_ids_kept(folder, dated, tmp_path, vsdn):
    ask = ["forecast", dated, folder / "dates.csv", "--quiet"]  # the run knows what columns are called
    rows = rows_of(vsdn(*ask, "--times", "2024-04-01,2024-04-03"))
    assert json.loads(vsdn(*ask, "--times", "2024-04-01,2024-04-03", "--json"))[0]["day"] == "2024-04-01"
    assert list(rows[0]) == ["patient", "day", *STATISTICS]
    assert {row["day"] for row in rows} == {"2024-04-01", "2024-04-03"}
    assert [row["patient"] for row in rows[::4]] == [f"p{i:03d}" for i in range(12)]
    assert {row["variable"] for row in rows} == {"hb", "na"}
    assert rows == rows_of(vsdn(*ask, "--id", "patient", "--time", "day", "--times", "2024-04-01,2024-04-03"))
    (tmp_path / "at.csv").write_text("patient,day\np003,2024-04-03\n")
    assert rows_of(vsdn(*ask, "--at", tmp_path / "at.csv")) == [
        row for row in rows if (row["patient"], row["day"]) == ("p003", "2024-04-03")
    ]
    at_noon = rows_of(vsdn(*ask, "--times", "2024-04-01T12:00"))
    assert at_noon[0]["day"] == "2024-04-01 12:00:00"
    assert json.loads(vsdn(*ask, "--times", "2024-04-01T12:00", "--json"))[0]["day"] == "2024-04-01T12:00:00"
    weekly = rows_of(vsdn(*ask, "--every", "7", "--until", "2024-04-01", "--plot", tmp_path / "dates.svg"))
    assert all(row["day"] <= "2024-04-01" for row in weekly)
    assert "<svg" in (tmp_path / "dates.svg").read_text()


def test_one_series_needs_no_id(folder, tmp_path, vsdn):
    out = fit(folder / "alone.csv", tmp_path / "run", model="mean")
    rows = rows_of(vsdn("forecast", out, folder / "alone.csv", "--times", "11,12"))
    assert list(rows[0]) == ["time", *STATISTICS]
    assert [row["time"] for row in rows] == ["11", "12"]
    (tmp_path / "at.csv").write_text("time\n12\n")
    (at,) = rows_of(vsdn("forecast", out, folder / "alone.csv", "--at", tmp_path / "at.csv"))
    assert float(at["mean"]) == pytest.approx(float(rows[1]["mean"]), rel=1e-5)


@pytest.mark.slow
def test_draws_follow_the_seed(folder, tmp_path, vsdn):
    out = fit(folder / "numbers.csv", tmp_path / "run", model="vsdn-f", epochs=0)
    ask = ["forecast", out, folder / "numbers.csv", "--times", "11", "--draws", "4"]
    first = vsdn(*ask)
    assert vsdn(*ask) == first
    assert vsdn(*ask, "--seed", "1") != first


def test_a_reader_that_has_seen_enough_is_no_error(folder, run):
    ask = [sys.executable, "-m", "vsdn.cli", "forecast", str(run), str(folder / "numbers.csv")]
    with subprocess.Popen(
        [*ask, "--every", "0.01", "--until", "20"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"id,time")
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


# --------------------------------------------------------------------------------------------------------- evaluate


@pytest.mark.parametrize(
    "options", [[], ["--after", "4"], ["--after", "4", "--next", "1"], ["--task", "interpolation", "--share", "0.3"]]
)
def test_evaluate(options, folder, run, vsdn):
    scores = json.loads(vsdn("evaluate", run, folder / "numbers.csv", *options, "--json"))
    assert scores["task"] == ("interpolation" if "--task" in options else "prediction")
    assert all(np.isfinite(scores[name]) for name in ("nll", "mse", "crps"))
    assert 0 <= scores["coverage_50"] <= scores["coverage_90"] <= 1
    assert sum(scores["pit"]) == pytest.approx(1, abs=1e-3)
    text = vsdn("evaluate", run, folder / "numbers.csv", *options)
    assert f"num_values   {scores['num_values']}" in text


def test_next_scores_so_many_rows_of_each_series(folder, run, vsdn):
    count = {}
    for options in (["--next", "1"], ["--next", "2"], []):
        scored = json.loads(vsdn("evaluate", run, folder / "numbers.csv", "--after", "4", *options, "--json"))
        count[tuple(options)] = scored["num_values"]
    data = rows_of((folder / "numbers.csv").read_text())
    late = [row for row in data if float(row["time"]) > 4]
    first = {row["id"]: row for row in reversed(late)}.values()
    seen = lambda rows: sum(bool(row["value_1"]) + bool(row["value_2"]) for row in rows)
    assert count["--next", "1"] == seen(first)
    assert count["--next", "1"] < count["--next", "2"] < count[()] == seen(late)


def test_evaluate_scores_the_rows_of_another_table(folder, run, vsdn, tmp_path):
    lines = (folder / "numbers.csv").read_text().splitlines()
    (tmp_path / "shown.csv").write_text("\n".join(lines[:1] + lines[1::2]) + "\n")
    (tmp_path / "hidden.csv").write_text("\n".join(lines[:1] + lines[2::2]) + "\n")
    words = ["evaluate", run, tmp_path / "shown.csv", "--task", "interpolation", "--hidden", tmp_path / "hidden.csv"]
    scores = json.loads(vsdn(*words, "--json"))
    assert 0.9 * len(lines[2::2]) < scores["num_rows"] <= len(lines[2::2])  # all but those before a first shown one
    assert scores["mse"] > 0


def test_what_is_odd_about_the_rows_to_score_is_said(folder, run, capsys, tmp_path):
    lines = (folder / "numbers.csv").read_text().splitlines()
    (tmp_path / "hidden.csv").write_text("\n".join([lines[0], lines[3], "p0,9.5,,"]) + "\n")
    (tmp_path / "shown.csv").write_text("\n".join(lines[:3] + lines[4:]) + "\n")
    ask = ["evaluate", run, tmp_path / "shown.csv", "--task", "interpolation", "--hidden", tmp_path / "hidden.csv"]
    assert cli.main([str(word) for word in ask]) == 0
    assert "1 row with no value was ignored" in capsys.readouterr().err


def test_evaluate_takes_dates(folder, dated, vsdn):
    ask = ["evaluate", dated, folder / "dates.csv", "--id", "patient", "--time", "day", "--next", "1", "--json"]
    assert json.loads(vsdn(*ask, "--after", "2024-01-20"))["num_values"] > 0


def test_evaluate_scores_what_comes_after_several_times_together(folder, run, vsdn):
    ask = ["evaluate", run, folder / "numbers.csv", "--next", "1", "--json", "--after"]
    one, other, both = (json.loads(vsdn(*ask, after)) for after in ("3", "4.5", "3, 4.5"))
    assert both["num_values"] == one["num_values"] + other["num_values"]
    for name in ("nll", "mse", "crps", "coverage_90"):
        mean = (one[name] * one["num_values"] + other[name] * other["num_values"]) / both["num_values"]
        assert both[name] == pytest.approx(mean, rel=1e-4)


# --------------------------------------------------------------------------------------------------------- data sets


def test_datasets_list(vsdn):
    assert "double-ou" in vsdn("datasets", "list")
    assert "double-ou" in json.loads(vsdn("datasets", "list", "--json"))


def test_legacy_double_ou_is_the_published_file(tmp_path, vsdn):
    vsdn("datasets", "make", "double-ou", "--legacy", "--out", tmp_path / "x.csv")
    assert hashlib.sha256((tmp_path / "x.csv").read_bytes()).hexdigest() == PUBLISHED_SHA256


def test_datasets_parts_are_disjoint_and_make_up_all(tmp_path, vsdn):
    ids = {}
    for part in ("all", "train", "valid", "test"):
        vsdn("datasets", "make", "double-ou", "--series", "40", "--part", part, "--out", tmp_path / f"{part}.parquet")
        ids[part] = set(pq.read_table(tmp_path / f"{part}.parquet")["id"].to_pylist())
    assert ids["train"] | ids["valid"] | ids["test"] == ids["all"]
    assert sum(len(ids[part]) for part in ("train", "valid", "test")) == 40


# -------------------------------------------------------------------------------------------------------------- demo


@pytest.mark.slow
def test_demo_writes_a_run_a_table_and_a_picture(tmp_path, monkeypatch, vsdn):
    monkeypatch.setattr(demonstration, "NUM_SERIES", 60)
    tiny = SMALL | {"epochs": 1, "batch_size": 20}
    monkeypatch.setattr(fitting, "read_preset", lambda name: settings.read_preset(name) | tiny)
    text = vsdn("demo", "--out", tmp_path / "demo", "--quiet")
    table = rows_of((tmp_path / "demo" / "scores.csv").read_text())
    assert [row["model"] for row in table] == ["vsdn-f (vae)", "last-value", "mean", "Bayes-optimal (the floor)"]
    assert all(row["model"] in text for row in table)
    nll = [float(row["nll"]) for row in table]
    assert nll[-1] == min(nll)
    assert matplotlib.image.imread(tmp_path / "demo" / "forecast.png").std() > 0
    assert json.loads(vsdn("info", tmp_path / "demo" / "run", "--json"))["epochs"] == 1


def test_nothing_is_imported_to_draw_with_before_something_is_drawn():
    """matplotlib is a quarter of what a command takes to start."""
    code = "import sys, vsdn.cli.program, vsdn.fitting; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
