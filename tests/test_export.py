"""A forecaster in one file: the same answers, for any number of series, without the code of its model."""

import json
import os
import random
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest
from examples import SIZES, VARIABLES, make_model, make_scaler, make_table

from vsdn import cli, exported
from vsdn.checkpoint import Config, Source
from vsdn.errors import RunError, SettingsError
from vsdn.fitted import Fitted
from vsdn.models import MODELS
from vsdn.settings import Settings
from vsdn.tables.frames import Columns, table_frame
from vsdn.tables.table import TimeAxis

EXPORTED = ("vsdn-s", "last-value")  # by `make test`; the others by `make test-all`
DRAWS = 6
TIMES = [6.5, 7.0, 9.25]
ROUNDING = 2e-5  # of 32 bits: the kernel and the scan, or two compilations, sum in another order
NUMBERS = ("mean", "std", "q05", "q50", "q95")
MODEL_CODE = ("models", "nets", "sde", "fused", "likelihoods", "training", "inference", "fitted", "fitting")


@pytest.fixture(scope="module", autouse=True)
def as_users_run_it():
    """Promotion as users have it."""
    with jax.numpy_dtype_promotion("standard"):
        yield


def make_fitted(name: str, axis: TimeAxis = TimeAxis(), columns: Columns = Columns()) -> Fitted:
    """A model with fresh weights."""
    values = SIZES | {"model": name, "max_step": 0.3, "time_scale": 1.5, "periods": [2.5], "num_buckets": 1}
    source = Source(data=None, valid=None, columns=columns, fingerprint="")
    config = Config(settings=Settings().with_values(values), variables=VARIABLES, axis=axis, source=source)
    return Fitted(make_model(name), config, make_scaler(make_table()))


def assert_same(frame: pa.Table, other: pa.Table) -> None:
    """Both say the same: the keys to the letter, the numbers to rounding."""
    assert frame.column_names == other.column_names
    for name in frame.column_names:
        if name in NUMBERS:
            np.testing.assert_allclose(frame[name].to_numpy(), other[name].to_numpy(), rtol=ROUNDING, atol=ROUNDING)
        else:
            assert frame[name].to_pylist() == other[name].to_pylist()


def run_fresh(code: str, folder: Path) -> str:
    """What a fresh process prints."""
    source = str(Path(exported.__file__).parents[1])
    env = os.environ | {"PYTHONPATH": source}
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def simple(tmp_path_factory) -> tuple[Fitted, Path]:
    """A forecaster that compiles in a second, and its file."""
    fitted, path = make_fitted("last-value"), tmp_path_factory.mktemp("simple") / "forecaster.vsdn"
    fitted.export(path, draws=DRAWS)
    return fitted, path


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.thorough) if name not in EXPORTED else name for name in MODELS]
)
def test_every_model_answers_from_its_file_as_it_does_itself(name, tmp_path):
    fitted, table = make_fitted(name), make_table(3, seed=5)
    fitted.export(tmp_path / "forecaster.vsdn", draws=DRAWS)
    forecaster = exported.load(tmp_path / "forecaster.vsdn")
    assert forecaster.about.model == name
    assert_same(forecaster.forecast(table, TIMES, seed=1), fitted.forecast(table, TIMES, draws=DRAWS, seed=1))


def test_one_file_answers_for_any_number_of_series_of_any_length(simple):
    fitted, path = simple
    forecaster, table = exported.load(path), make_table(7, seed=7, max_rows=40)
    lengths = np.argsort(np.diff(table.starts))
    wanted = fitted.forecast(table, TIMES, draws=DRAWS)
    for num_series, times in ((1, TIMES[:1]), (3, TIMES[:2]), (7, TIMES)):
        frame = forecaster.forecast(table.select(lengths[:num_series]), times)
        assert len(frame) == num_series * len(times) * len(VARIABLES)
        keys = list(zip(frame["id"].to_pylist(), frame["time"].to_pylist(), strict=True))[:: len(VARIABLES)]
        own = [row for row in wanted.to_pylist() for key in [(row["id"], row["time"])] if key in keys]
        own.sort(key=lambda row: keys.index((row["id"], row["time"])))
        assert_same(frame, pa.Table.from_pylist(own))


def test_times_may_be_a_table(simple):
    forecaster, table = exported.load(simple[1]), make_table(3, seed=2)
    at = pa.table({"id": np.repeat(table.ids, len(TIMES)), "time": TIMES * 3})
    assert forecaster.forecast(table, at=at).equals(forecaster.forecast(table, TIMES))
    with pytest.raises(SettingsError, match="say when"):
        forecaster.forecast(table)


def test_dates_come_back_as_dates_in_the_kind_of_frame_that_came(tmp_path):
    axis, columns = TimeAxis("date", whole_days=True), Columns("patient", "day")
    make_fitted("mean", axis, columns).export(tmp_path / "dated.vsdn", quantiles=(0.1,))
    days = pd.to_datetime(["2024-01-01", "2024-01-03"])
    frame = pd.DataFrame({"patient": ["x", "x"], "day": days, "a": [1.0, 2.0], "b": [None, 3.0]})
    answer = exported.load(tmp_path / "dated.vsdn").forecast(frame, ["2024-01-04"])
    assert list(answer.columns) == ["patient", "day", "variable", "mean", "std", "q10"]
    assert [str(day)[:10] for day in answer["day"]] == ["2024-01-04"] * 2


def test_a_fresh_process_needs_no_model_code(simple):
    fitted, path = simple
    table = make_table(3, seed=5)
    pa_csv.write_csv(table_frame(table), path.parent / "table.csv")
    printed = run_fresh(
        "import sys, json, vsdn\n"
        f"frame = vsdn.exported.load({path.name!r}).forecast('table.csv', {TIMES})\n"
        "print(json.dumps([frame.to_pydict(), sorted(sys.modules)]))",
        path.parent,
    )
    columns, modules = json.loads(printed.splitlines()[-1])
    assert_same(pa.table(columns), fitted.forecast(path.parent / "table.csv", TIMES, draws=DRAWS))
    assert "vsdn.exported" in modules
    assert not {f"vsdn.{name}" for name in MODEL_CODE} & set(modules)
    assert not {"equinox", "optax", "diffrax", "vsdn._kernel"} & set(modules)


def test_the_page_tells_how_to_run_a_file_without_vsdn(simple):
    fitted, path = simple
    page = (Path(__file__).parents[1] / "docs" / "export.md").read_text("utf-8")
    code = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    printed = run_fresh(code + "\nimport sys\nprint(json.dumps([mean.tolist(), 'vsdn' in sys.modules]))", path.parent)
    mean, is_ours = json.loads(printed.splitlines()[-1])
    table = pa.table({"time": [0.0], "a": [1.0], "b": [1.0]})
    wanted = fitted.forecast(table, [0.15], draws=DRAWS)["mean"].to_numpy()
    assert not is_ours
    np.testing.assert_allclose(fitted.scaler.unscale(np.array(mean[0][0])), wanted, rtol=ROUNDING, atol=ROUNDING)


def test_the_same_model_makes_the_same_file_wherever_its_code_lies(simple, tmp_path):
    fitted, path = simple
    fitted.export(tmp_path / "again.vsdn", draws=DRAWS)
    assert (tmp_path / "again.vsdn").read_bytes() == path.read_bytes()
    assert b".py" not in path.read_bytes()


def test_a_damaged_byte_is_found_before_the_program_runs(simple, tmp_path):
    _, path = simple
    whole, damaged, chance = path.read_bytes(), tmp_path / "damaged.vsdn", random.Random(0)
    sound = exported.load(path)
    places = [*range(60), *(chance.randrange(len(whole)) for _ in range(200)), *range(len(whole) - 150, len(whole))]
    refused = 0
    for place in places:
        damaged.write_bytes(whole[:place] + bytes([whole[place] ^ chance.randrange(1, 256)]) + whole[place + 1 :])
        try:
            loaded = exported.load(damaged)
        except RunError:
            refused += 1
        else:  # a date, a comment: nothing that matters
            assert (loaded.about, loaded.program) == (sound.about, sound.program)
    assert refused > 250
    for length in (0, 10, len(whole) // 2, len(whole) - 1):
        damaged.write_bytes(whole[:length])
        with pytest.raises(RunError, match="is damaged, or no forecaster that vsdn exported"):
            exported.load(damaged)


def rewrite(path: Path, out: Path, **changes: object) -> Path:
    """The file with other words in its `about.json`."""
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(out, "w") as new:
        new.writestr("about.json", json.dumps(json.loads(old.read("about.json")) | changes))
        new.writestr("model.stablehlo", old.read("model.stablehlo"))
    return out


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format": 2}, "has format 2, but this version of vsdn reads format 1"),
        ({"variables": ["a"]}, "its program is one of other variables than about.json names"),
        ({"periods": []}, "its program is one of other variables than about.json names"),
        ({"max_step": 0}, "max_step is 0: input should be greater than 0"),
        ({"draws": "many"}, "draws is 'many'"),
    ],
)
def test_words_that_do_not_fit_the_program_are_refused(changes, said, simple, tmp_path):
    with pytest.raises(RunError, match=re.escape(said)):
        exported.load(rewrite(simple[1], tmp_path / "changed.vsdn", **changes))


def test_what_cannot_be_exported_is_refused(simple, tmp_path):
    fitted, _ = simple
    with pytest.raises(SettingsError, match=r"between 0 and 1, but 1\.5 was given"):
        fitted.export(tmp_path / "f.vsdn", quantiles=(1.5,))
    with pytest.raises(SettingsError, match="draws wants a whole number"):
        fitted.export(tmp_path / "f.vsdn", draws=0)
    with pytest.raises(RunError, match="it is a folder"):
        fitted.export(tmp_path)
    assert not list(tmp_path.iterdir())


def test_64_bits_are_refused(simple, tmp_path, x64):
    with pytest.raises(SettingsError, match="32 bits"):
        simple[0].export(tmp_path / "f.vsdn")


def test_the_command_line_exports_and_forecasts_from_the_file(simple, tmp_path, capsys):
    call = lambda *arguments: cli.main([str(argument) for argument in arguments])
    pa_csv.write_csv(table_frame(make_table(3, seed=5)), tmp_path / "table.csv")
    simple[0].save(tmp_path / "run")
    out, data = tmp_path / "forecaster.vsdn", tmp_path / "table.csv"
    assert call("export", tmp_path / "run", "--out", out, "--draws", DRAWS, "--quantiles", "0.05,0.5,0.95") == 0
    for source, options in ((tmp_path / "run", ["--draws", DRAWS]), (out, [])):
        answer = tmp_path / f"{source.name}.csv"
        assert call("forecast", source, data, "--times", "6.5,7.0", "--out", answer, *options) == 0
    assert_same(pa_csv.read_csv(tmp_path / "forecaster.vsdn.csv"), pa_csv.read_csv(tmp_path / "run.csv"))
    capsys.readouterr()
    assert call("forecast", out, data, "--times", "6.5", "--draws", 7) == 2
    assert capsys.readouterr().err.startswith("error: --draws wants a run folder")
    assert call("forecast", data, data, "--times", "6.5") == 2
    said = capsys.readouterr().err
    assert said == f"error: {data} is damaged, or no forecaster that vsdn exported\n"
