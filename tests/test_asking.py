"""Every question from the command line, on a table with all that tables have: dates, holes, a variable that some series
never show, and a series of one row."""

import csv
import datetime as dt
import io
import json
import re

import jax
import matplotlib.image
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from examples import thorough

import vsdn
from vsdn import cli
from vsdn.errors import LeftOutWarning

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


def test_draws_at_a_time_are_as_interpolation_tells_alone_and_among_others(run, table):
    """From the fitted model down, between rows and after the last; at each time one draw in each part of its law."""
    fitted, frame, draws = vsdn.load(run), pd.read_csv(table), 100
    frame = frame[frame.patient == "p00"]
    days = pd.to_datetime(frame.day)
    between, after = (days.iloc[2:4].mean(), days.iloc[-1] + pd.Timedelta("5D"))
    told = fitted.interpolate(frame, [between, after], draws=draws).set_index("variable").loc["hb"]
    others = [days.iloc[0] + pd.Timedelta(f"{hours}h") for hours in range(7, 500, 61)]
    for times in ([between, after], [between, after, *others]):
        drawn = fitted.sample(frame, times, draws=draws)
        for (_, law), day in zip(told.iterrows(), (between, after), strict=True):
            values = drawn[pd.to_datetime(drawn.day) == day].hb
            assert abs(values.mean() - law["mean"]) < 4 * law["std"] / draws**0.5
            assert abs((values < law.q50).mean() - 0.5) <= 0.02
            assert values.nunique() == draws


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
    assert list(rows[0]) == ["patient", "day", "hb", "na"]  # as the run remembers them
    assert rows[1]["day"].startswith("2024-01-05")
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


# ------------------------------------------------------------------------------------------------ asked from Python


def make_simple(lines, folder, model="last-value", **columns):
    """A model that is fitted in no time, and its table."""
    path = folder / "table.csv"
    path.write_text("\n".join(lines) + "\n")
    return vsdn.fit(path, model=model, settings=QUICK, columns=vsdn.Columns(**columns), progress=False), path


@pytest.fixture(scope="module")
def simple(tmp_path_factory):
    lines = ["id,time,x", *(f"{i},{time},{np.sin(i + time):.3f}" for i in range(6) for time in range(4 + i))]
    return make_simple(lines, tmp_path_factory.mktemp("simple"))


@pytest.fixture(scope="module")
def dated(tmp_path_factory):
    days = np.datetime64("2024-01-01") + np.arange(6)
    lines = ["id,time,x", *(f"{i},{day},{np.sin(i + n):.3f}" for i in range(3) for n, day in enumerate(days))]
    return make_simple(lines, tmp_path_factory.mktemp("dated"))


def test_one_time_and_one_level_need_no_list(simple, dated):
    fitted, table = simple
    assert fitted.forecast(table, 9.5, quantiles=0.5) == fitted.forecast(table, [9.5], quantiles=[0.5])
    assert fitted.evaluate(table, after=2.0) == fitted.evaluate(table, after=[2.0])
    fitted, table = dated
    wanted = fitted.forecast(table, ["2024-02-01"])
    for time in (dt.date(2024, 2, 1), dt.datetime(2024, 2, 1), pd.Timestamp("2024-02-01"), np.datetime64("2024-02-01")):
        assert fitted.forecast(table, time) == wanted
    assert fitted.simulate(2, "2024-02-01").num_rows == 2


@pytest.mark.parametrize("step", [pd.Timedelta(hours=36), dt.timedelta(1.5), np.timedelta64(36, "h")])
def test_a_step_may_be_a_difference_between_dates(step, dated, simple):
    fitted, table = dated
    asked = {"until": "2024-02-01", "quantiles": ()}
    assert fitted.forecast(table, every=step, **asked) == fitted.forecast(table, every=1.5, **asked)
    with pytest.raises(vsdn.SettingsError, match="every wants a number, as the model's times are numbers"):
        simple[0].forecast(simple[1], every=step, until=20.0)


def test_series_that_have_no_step_are_named(simple):
    fitted, table = simple
    said = re.escape("4 series have no step up to 5 and are left out: 2, 3, 4, 5")
    with pytest.warns(LeftOutWarning, match=f"^{said}$"):
        rows = fitted.forecast(table, every=1.0, until=5).to_pylist()
    assert {row["id"] for row in rows} == {0, 1}
    with pytest.raises(vsdn.DataError, match=r"leaves no step of 1\.0 from the first observation of any series on"):
        fitted.interpolate(table, every=1.0, until=-1)


def test_ids_that_became_fractions_are_found(simple, tmp_path):
    fitted, table = simple
    wanted = fitted.forecast(table, at=pa.table({"id": [3, 5], "time": [11.0, 12.0]}))
    assert wanted["id"].to_pylist() == [3, 5]
    at = pd.DataFrame({"id": [3.0, 5.0], "time": [11.0, 12.0]})
    at.to_csv(tmp_path / "at.csv", index=False)
    assert fitted.forecast(table, at=at) == fitted.forecast(table, at=tmp_path / "at.csv") == wanted
    with pytest.raises(vsdn.DataError, match=r"series 3\.5 is asked for"):
        fitted.forecast(table, at=at.assign(id=[3.5, 5.0]))


LEVELS_WANTED, WHOLE = "a quantile lies between 0 and 1, but", "wants a whole number"
ASKED_WRONG = {
    "no times": (lambda f, data: f.forecast(data, []), "at least one time was expected"),
    "a table of times": (lambda f, data: f.forecast(data, np.ones((2, 2))), "a list of times was expected"),
    "no draws": (lambda f, data: f.forecast(data, 9.0, draws=0), f"draws {WHOLE} from 1 to 100,000, but 0"),
    "fewer draws than none": (lambda f, data: f.filter(data, draws=-5), f"draws {WHOLE}"),
    "half a draw": (lambda f, data: f.interpolate(data, 1.0, draws=2.5), rf"draws {WHOLE} .* 2\.5 was given"),
    "no joint draws": (lambda f, data: f.sample(data, 9.0, draws=0), f"draws {WHOLE}"),
    "no draws to score": (lambda f, data: f.evaluate(data, draws=0), f"draws {WHOLE}"),
    "no draws of a likelihood": (lambda f, data: f.log_likelihood(data, draws=0), f"draws {WHOLE}"),
    "a seed that is none": (lambda f, data: f.forecast(data, 9.0, seed=-1), f"seed {WHOLE} from 0"),
    "no series": (lambda f, data: f.simulate(0, [1.0]), f"series {WHOLE} of 1 or more, but 0 was given"),
    "no times of series": (lambda f, data: f.simulate(1, []), "say at which times"),
    "no next": (lambda f, data: f.evaluate(data, after=1.0, next=0), f"next {WHOLE}"),
    "share": (lambda f, data: f.evaluate(data, "interpolation", share=2.0), "share wants a number from 0 to 1"),
    "no panels": (lambda f, data: f.plot(data, "p.png", until=9.0, most=0), f"most {WHOLE}"),
    "strange series": (lambda f, data: f.plot(data, "p.png", until=9.0, series="12"), "series 12 is asked for"),
    "strange number": (lambda f, data: f.plot(data, "p.png", until=9.0, series=77), "series 77 is asked for"),
    "a step of text": (lambda f, data: f.forecast(data, every="1d", until=9.0), "every wants a step above 0"),
    "a level of text": (lambda f, data: f.forecast(data, 9.0, quantiles="0.5"), f"{LEVELS_WANTED} '0.5'"),
    "levels of text": (lambda f, data: f.forecast(data, 9.0, quantiles=["a"]), f"{LEVELS_WANTED} 'a'"),
    "a level that is none": (lambda f, data: f.filter(data, quantiles=float("nan")), f"{LEVELS_WANTED} nan"),
    "a table of levels": (lambda f, data: f.filter(data, quantiles=np.full((1, 2), 0.5)), LEVELS_WANTED),
    "a level twice": (
        lambda f, data: f.forecast(data, 9.0, quantiles=(0.5, 0.9, 0.5)),
        r"quantiles 0\.5 and 0\.5 were given, but both would be called q50",
    ),
    "two levels alike": (
        lambda f, data: f.smooth(data, quantiles=(0.1, 0.100000001)),
        r"quantiles 0\.1 and 0\.100000001 were given, but both would be called q10",
    ),
    "levels to export": (lambda f, data: f.export("f.vsdn", quantiles=(0.5, 0.5)), "both would be called q50"),
    "draws to export": (lambda f, data: f.export("f.vsdn", draws=0), f"draws {WHOLE}"),
}


@pytest.mark.parametrize(("ask_wrong", "says"), ASKED_WRONG.values(), ids=ASKED_WRONG)
def test_what_cannot_be_asked_is_said_in_one_sentence(ask_wrong, says, simple, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(vsdn.VsdnError, match=says) as caught:
        ask_wrong(*simple)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_one_series_to_plot_needs_no_list(simple, tmp_path):
    fitted, table = simple
    for number, series in enumerate((1, "1", [1], np.int64(1))):
        fitted.plot(table, tmp_path / f"{number}.svg", until=12.0, series=series)
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.parametrize(
    ("head", "columns", "ask_for", "name"),
    [
        ("id,time,draw", {}, lambda f, data: f.sample(data, 9.0, draws=2), "draw"),
        ("mean,time,x", {"id": "mean"}, lambda f, data: f.forecast(data, 9.0), "mean"),
        ("q50,time,x", {"id": "q50"}, lambda f, data: f.filter(data), "q50"),
        ("variable,std,x", {"id": "variable", "time": "std"}, lambda f, data: f.forecast(data, 9.0), "variable"),
        ("id,std,x", {"time": "std"}, lambda f, data: f.smooth(data), "std"),
        ("log_likelihood,time,x", {"id": "log_likelihood"}, lambda f, data: f.log_likelihood(data), "log_likelihood"),
        ("who,day,id", {"id": "who", "time": "day"}, None, None),
        ("who,time,id", {"id": "who"}, None, None),
    ],
)
def test_no_column_of_an_answer_hides_another(head, columns, ask_for, name, tmp_path):
    lines = [head, *(f"{i},{time},{i + time}.5" for i in range(3) for time in range(4))]
    fitted, table = make_simple(lines, tmp_path, **columns)
    if ask_for is None:
        assert fitted.simulate(2, [0.0, 1.0]).column_names == head.split(",")
        return
    with pytest.raises(vsdn.DataError, match=f"a name of its own, but two would be called '{name}'"):
        ask_for(fitted, table)


def test_a_variable_called_as_the_ids_of_new_series_is_refused(tmp_path):
    lines = ["time,variable,value", *(f"{time},id,{time}.5" for time in range(9))]
    fitted, _ = make_simple(lines, tmp_path)
    with pytest.raises(vsdn.DataError, match="two would be called 'id'"):
        fitted.simulate(1, [0.0])
