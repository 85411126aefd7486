"""Every question from the command line, on a table with all that tables have: dates, holes, a variable that some series
never show, and a series of one row."""

import csv
import io
import json

import jax
import matplotlib.image
import numpy as np
import pytest
from examples import thorough

from vsdn import cli

SMALL = {"hidden_size": 4, "latent_size": 3, "width": 5, "init_width": 4, "num_paths": 2, "valid_paths": 2}
QUICK = SMALL | {"batch_size": 10, "num_buckets": 1, "epochs": 1}
STATISTICS = ["variable", "mean", "std", "q05", "q50", "q95"]


@pytest.fixture(scope="module", autouse=True)
def as_users_run_it():
    """Promotion as users have it."""
    with jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Patients, days and two variables; p03 never shows its sodium, p05 was seen once."""
    rng, lines = np.random.default_rng(1), ["patient,day,hb,na"]
    for i in range(8):
        days = np.datetime64("2024-01-01") + np.cumsum(rng.integers(1, 9, 1 if i == 5 else 6))
        for number, day in enumerate(days):
            sodium = "" if i == 3 or number % 2 else f"{rng.normal(140, 2):.1f}"
            lines.append(f"p{i:02d},{day},{'' if sodium and number % 4 == 2 else f'{rng.normal(12, 1):.2f}'},{sodium}")
    path = tmp_path_factory.mktemp("asking") / "patients.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module", params=[pytest.param("vsdn-f", marks=pytest.mark.slow), "last-value"])
def run(request, table):
    out = table.parent / request.param
    options = [part for key, value in QUICK.items() for part in ("--set", f"{key}={value}")]
    names = ["--id", "patient", "--time", "day"]
    assert cli.main(["fit", str(table), "--out", str(out), "--model", request.param, "-q", *names, *options]) == 0
    return out


@pytest.fixture
def ask(run, table, capsysbinary):
    """A function from a command and its options to what it prints; any exit code but 0 fails."""

    def call(command, *options):
        data = [] if command == "simulate" else [table, "--id", "patient", "--time", "day", "--quiet"]
        code = cli.main([str(part) for part in (command, run, *data, *options)])
        out, err = capsysbinary.readouterr()
        assert code == 0, err.decode()
        return list(csv.DictReader(io.StringIO(out.decode())))

    return call


def columns(rows, *own):
    """The names of the columns, without the effective number of particles, which not every model has."""
    assert list(rows[0])[: len(own)] == list(own)
    return [name for name in rows[0] if name != "ess"]


def is_finite(rows, names):
    return all(np.isfinite(float(row[name])) for row in rows for name in names)


@pytest.mark.parametrize("command", ["filter", "smooth"])
def test_estimates_at_the_observations(command, ask, table):
    rows = ask(command, "--draws", 32)
    assert columns(rows, "patient", "day") == ["patient", "day", *STATISTICS]
    assert len(rows) == 2 * (len(table.read_text().splitlines()) - 1)
    assert is_finite(rows, STATISTICS[1:])
    assert rows[0]["day"].startswith("2024-01-")
    assert {row["variable"] for row in rows if row["patient"] == "p03"} == {"hb", "na"}


def test_interpolation_and_joint_draws(ask):
    rows = ask("interpolate", "--every", 5, "--draws", 32)
    assert columns(rows, "patient", "day") == ["patient", "day", *STATISTICS]
    assert sum(row["patient"] == "p05" for row in rows) == 2  # seen once: one time, two variables
    assert is_finite(rows, STATISTICS[1:])
    draws = ask("sample", "--times", "2024-01-20,2024-03-01", "--draws", 3)
    assert list(draws[0]) == ["patient", "draw", "day", "hb", "na"]
    assert len(draws) == 8 * 3 * 2
    assert is_finite(draws, ["hb", "na"])
    assert draws == ask("sample", "--times", "2024-01-20,2024-03-01", "--draws", 3)  # same seed, same draws


def test_new_series_and_likelihoods(ask):
    rows = ask("simulate", "--series", 3, "--times", "2024-01-01,2024-01-05,2024-02-01")
    assert len(rows) == 9
    assert rows[1]["time"].startswith("2024-01-05")
    assert is_finite(rows, ["hb", "na"])
    told = ask("likelihood", "--draws", 32)
    assert len(told) == 8
    assert is_finite(told, ["log_likelihood"])


@pytest.mark.parametrize("what", ["interpolation", "latent", "drift", *thorough("forecast")])
def test_pictures(what, run, table, tmp_path, capsys):
    options = ["--until", "2024-04-01"] if what == "forecast" else []
    command = ["plot", run, table, "--what", what, "--id", "patient", "--time", "day", "--draws", 16, *options]
    codes = [cli.main([str(part) for part in (*command, "--out", tmp_path / name)]) for name in ("a.png", "a.html")]
    if what in ("latent", "drift") and run.name != "vsdn-f":
        assert codes == [2, 2]
        assert "to be shown" in capsys.readouterr().err
        return
    assert codes == [0, 0]
    assert matplotlib.image.imread(tmp_path / "a.png").std() > 0.05
    page = (tmp_path / "a.html").read_text()
    data = json.loads(page.split("const data = ", 1)[1].split(";\n", 1)[0])
    assert data["dates"] is True
    assert data["panels"][0]["curves"]
    assert "http" not in page.replace("http-equiv", "")  # it needs nothing else


def test_the_latent_state_and_who_has_none(run, table, capsys):
    options = ["--id", "patient", "--time", "day", "--draws", "16", "--latent", "-q"]
    code = cli.main(["filter", str(run), str(table), *options])
    said = capsys.readouterr()
    if run.name == "last-value":
        assert (code, said.err) == (2, "error: last-value has no latent state\n")
    else:
        rows = list(csv.DictReader(io.StringIO(said.out)))
        assert {row["variable"] for row in rows} >= {"x1", "x2", "x3"}


@pytest.mark.slow
@pytest.mark.parametrize("chosen", [{"hide_share": 0.5}, {"select_by": "bound"}], ids=["rows hidden", "by the bound"])
def test_a_model_that_learned_for_its_paths_is_asked_by_them(chosen, table, tmp_path, capsysbinary, monkeypatch):
    out, data = tmp_path / "run", [str(table), "--id", "patient", "--time", "day"]
    options = [part for key, value in (QUICK | chosen).items() for part in ("--set", f"{key}={value}")]
    assert cli.main(["fit", *data, "--out", str(out), "--model", "vsdn-f", "-q", *options]) == 0
    for command in ("forecast", "interpolate"):
        capsysbinary.readouterr()
        assert cli.main([command, str(out), *data, "--times", "2024-01-20", "--draws", "16", "-q"]) == 0
        rows = list(csv.DictReader(io.StringIO(capsysbinary.readouterr().out.decode())))
        assert all(1 <= float(row["ess"]) <= 16.001 for row in rows)
    monkeypatch.setattr("sys.stdin", type("Stdin", (), {"buffer": iter([])}))
    assert cli.main(["online", str(out)]) == 0
    assert "forecasts from the prior" in capsysbinary.readouterr().err.decode()
