"""Everything that a user can get wrong: exit code 2, one line that says what, and not a file touched."""

import contextlib
import errno
import itertools
import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import pytest

import vsdn
from vsdn import cli, files

TABLE = ["id,time,x,y", *(f"{i},{t / 2},{(i * t) % 7}.5,{'' if t % 2 else t}" for i in range(12) for t in range(5))]
DATED = ["id,time,x,y", *(f"{i},2024-01-{t + 1:02d},{(i * t) % 7}.5,{t}" for i in range(12) for t in range(5))]


@pytest.fixture(scope="module", autouse=True)
def as_users_run_it():
    """Promotion as users have it: optax itself does not keep to the strict one."""
    with jax.numpy_dtype_promotion("standard"):
        yield


def write(path: str, lines: list[str]) -> None:
    Path(path).write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> Path:
    """Two tables, and an untrained run of each, which is made in no time."""
    folder = tmp_path_factory.mktemp("template")
    with contextlib.chdir(folder):
        for name, lines in {"data": TABLE, "dated": DATED}.items():
            write(f"{name}.csv", lines)
            options = ["--model", "last-value", "--set", "epochs=0", "--quiet"]
            assert cli.main(["fit", f"{name}.csv", "--out", name.replace("data", "run"), *options]) == 0
    return folder


@pytest.fixture
def here(template, tmp_path, monkeypatch, capsys) -> Path:
    """The current folder: a copy of the tables and runs."""
    folder = tmp_path / "here"
    shutil.copytree(template, folder)
    for config in folder.glob("*/config.json"):
        config.write_text(config.read_text().replace(str(template), str(folder)))
    monkeypatch.chdir(folder)
    capsys.readouterr()
    return folder


def snapshot(folder: Path) -> dict[str, Any]:
    """All that lies below a folder, with its bytes and when they were written."""
    found = {}
    for path in sorted(folder.rglob("*")):
        kind = path.lstat()
        content = path.read_bytes() if path.is_file() else None
        found[str(path.relative_to(folder))] = (stat.S_IFMT(kind.st_mode), kind.st_mtime_ns, content)
    return found


class Case(NamedTuple):
    """A command, what its one line must match, and what is done to the folder before."""

    command: str
    says: str
    prepare: Callable[[], Any] = lambda: None


def table(*lines: str, name: str = "bad.csv") -> Callable[[], None]:
    return lambda: write(name, list(lines))


def change_json(name: str, **values: Any) -> Callable[[], None]:
    """Values at paths such as settings__model__hidden_size are replaced; DROP removes them."""

    def change() -> None:
        tree = json.loads(Path(name).read_text())
        for path, value in values.items():
            *above, last = path.split("__")
            node = tree
            for key in above:
                node = node[key]
            node[last] = value
            if value is DROP:
                del node[last]
        Path(name).write_text(json.dumps(tree))

    return change


DROP = object()


def overwrite(name: str, content: bytes) -> Callable[[], Any]:
    return lambda: Path(name).write_bytes(content)


def truncate(name: str, size: int) -> Callable[[], None]:
    return lambda: os.truncate(name, size)


def flip(name: str, place: int) -> Callable[[], None]:
    def change() -> None:
        content = bytearray(Path(name).read_bytes())
        content[place] ^= 1
        Path(name).write_bytes(content)

    return change


CONFIG, SCALER, WEIGHTS, STATE = (
    f"run/{name}" for name in ("config.json", "scaler.json", "model.safetensors", "checkpoint/state.safetensors")
)
FIT, FORECAST, EVALUATE = "fit bad.csv --out new", "forecast run bad.csv --times 9", "evaluate run bad.csv"
ASK = "forecast run data.csv"

TABLES = {
    "two rows alike": Case(FIT, r"bad.csv: rows 1 and 3 .*not two", table("id,time,x", "1,0,1", "1,1,2", "1,0,3")),
    "two rows alike to forecast": Case(FORECAST, r"rows 1 and 2 ", table("id,time,x", "1,0,1", "1,0,1")),
    "infinity": Case(FIT, r"row 2 .*column 'x': a finite number .*inf", table("id,time,x", "1,0,1", "1,1,inf")),
    "infinity to evaluate": Case(EVALUATE, r"row 1 .*finite", table("id,time,x", "1,0,-inf", "1,1,2")),
    "infinite time": Case(FIT, r"row 2 .*column 'time': a finite number", table("id,time,x", "1,0,1", "1,inf,2")),
    "text for a number": Case(FIT, r"row 2 .*column 'x': a number .*'high'", table("id,time,x", "1,0,1", "1,1,high")),
    "no time": Case(FIT, r"row 2 .*column 'time': .*empty", table("id,time,x", "1,0,1", "1,,2")),
    "no time column": Case(FIT, r"a column called 'time' was expected", table("id,when,x", "1,0,1", "1,1,2")),
    "no id": Case(FIT, r"row 2 .*column 'id': .*empty", table("id,time,x", "1,0,1", ",1,2")),
    "unknown variable": Case(FORECAST, r"the model's variables are 'x', 'y', .*'z'", table("id,time,z", "1,0,1")),
    "unknown variable, long": Case(
        FORECAST, r"row 1 .*one of the model's variables .*not 'z'", table("id,time,variable,value", "1,0,z,1")
    ),
    "empty file": Case(FIT, r"bad.csv is empty", overwrite("bad.csv", b"")),
    "header alone": Case(FIT, r"the table has none", table("id,time,x")),
    "no value at all": Case(
        FIT, r"at least one observation was expected, but every value is empty", table("id,time,x", "1,0,", "1,1,")
    ),
    "one observation in all": Case(FIT, r"only 1 observation in all", table("id,time,x", "1,0,1")),
    "cut off in a row": Case(
        FIT, r"row 60 has 3 cells where the header has 4.*cut off", overwrite("bad.csv", "\n".join(TABLE).encode()[:-4])
    ),
    "cut off in a quote": Case(FIT, r"quote on line 3 is never closed", table("id,time,x", "1,0,1", '"1,1,2')),
    "not UTF-8": Case(FIT, r"UTF-8 text was expected, but line 2", overwrite("bad.csv", b"id,time,x\n\xff,1,2\n")),
    "cut off Parquet": Case(
        "fit bad.parquet --out new", r"bad.parquet cannot be read", overwrite("bad.parquet", b"PAR1 and no more")
    ),
    "values too large": Case(FIT, r"'x' are too large", table("id,time,x", "1,0,1e200", "1,1,-1e200", "1,2,3e200")),
    "dates for numbers": Case("evaluate run dated.csv", r"dated.csv: column 'time': numbers were expected"),
    "numbers for dates": Case("evaluate dated data.csv", r"data.csv: column 'time': dates .* were expected"),
    "no such table": Case("fit nothere.csv --out new", r"there is no file nothere.csv"),
    "a folder for a table": Case("fit run --out new", r"run is a folder, not a file"),
    "no table at all": Case("fit data.txt --out new", r"\.csv.*was expected|there is no file", table(name="data.txt")),
    "validation table of other variables": Case(
        "fit data.csv --out new --valid bad.csv", r"the model's variables are", table("id,time,z", "1,0,1")
    ),
}

TIMES = {
    "before the data": Case(f"{ASK} --times -1", r"time -1 was asked for series 0, which starts at 0"),
    "date for a number": Case(f"{ASK} --times 2024-03-01", r"numbers were expected.*2024-03-01"),
    "number for a date": Case("forecast dated dated.csv --times 20", r"dates such as .* were expected.* 20"),
    "no time": Case(f"{ASK} --times soon", r"a number or an ISO date .* not the text 'soon'"),
    "empty": Case(f"{ASK} --times ''", r"value 1, column 'times': a number or a date was expected"),
    "infinite": Case(f"{ASK} --times inf", r"a finite number was expected"),
    "too far": Case(f"{ASK} --times 1e300", r"100,000,000 are the most"),
    "nothing asked": Case(ASK, r"say when: times, or every with until, or at"),
    "two things asked": Case(f"{ASK} --times 9 --every 1 --until 12", r"say when"),
    "every without until": Case(f"{ASK} --every 1", r"every wants a step above 0, and until a time"),
    "until without every": Case(f"{ASK} --times 9 --until 12", r"until goes with every"),
    "every 0": Case(f"{ASK} --every 0 --until 12", r"every wants a step above 0"),
    "every nan": Case(f"{ASK} --every nan --until 12", r"every wants a step above 0"),
    "every hardly": Case(f"{ASK} --every 1e-300 --until 12", r"more than 100,000,000 times"),
    "until before the data": Case(f"{ASK} --every 1 --until -5", r"leaves no step of 1.0"),
    "id that is not there": Case(
        f"{ASK} --at at.csv", r"series 77 is asked for", table("id,time", "77,9", name="at.csv")
    ),
    "no id": Case(f"{ASK} --at at.csv", r"no id column", table("time", "9", name="at.csv")),
    "no table": Case(f"{ASK} --at at.csv", r"there is no file at.csv"),
}

OPTIONS = {
    "unknown command": Case("guess", r"No such command 'guess'"),
    "unknown option": Case("info run --nonsense", r"No such option: --nonsense"),
    "missing argument": Case("info", r"Missing argument 'RUN'"),
    "missing option": Case("fit data.csv", r"Missing option '--out'"),
    "too many arguments": Case("info run run", r"unexpected extra argument"),
    "set without =": Case("fit data.csv --out new --set epochs", r"--set wants KEY=VALUE.*'epochs'"),
    "set an unknown key": Case(
        "fit data.csv --out new --set epoch=3", r"there is no setting 'epoch'; the settings are"
    ),
    "set a bad value": Case("fit data.csv --out new --set epochs=many", r"training.epochs is 'many': .* integer"),
    "set a value too low": Case("fit data.csv --out new --set batch_size=0", r"batch_size is 0: .*greater"),
    "set infinity": Case("fit data.csv --out new --set max_step=Infinity", r"max_step is inf: .*finite"),
    "set a step too short": Case("fit data.csv --out new --set max_step=1e-300", r"choose a longer max_step"),
    "set a size too large": Case("fit data.csv --out new --set hidden_size=1000000000", r"less than or equal to 65536"),
    "more weights than memory": Case("fit data.csv --out new --set hidden_size=65536", r"more than this machine has"),
    "a long warm-up": Case("fit data.csv --out new --set kl_warmup=1000000000000", r"kl_warmup is 1000000000000"),
    "window and start": Case("fit data.csv --out new --set window=3 --set start=0", r"set window or start, not both"),
    "start after the data": Case("fit data.csv --out new --set start=1", r"before the given start 1"),
    "period of a number": Case("fit data.csv --out new --set 'periods=[\"year\"]'", r"a period is a number, or one of"),
    "unknown preset": Case("fit data.csv --out new --preset nope", r"there is no preset 'nope'; the presets are demo"),
    "unknown model": Case("fit data.csv --out new --model nope", r"model.model is 'nope': .*'vsdn-f', 'vsdn-s'"),
    "unknown objective": Case("fit data.csv --out new --objective nope", r"objective is 'nope': .*'vae' or 'iwae'"),
    "unknown task": Case("evaluate run data.csv --task nope", r"the tasks are prediction and interpolation.*'nope'"),
    "unknown data set": Case("datasets make nope --out new.csv", r"there is no data set 'nope'; .* double-ou"),
    "unknown part": Case("datasets make double-ou --series 5 --out n.csv --part nope", r"--part is one of all, train"),
    "seed too large": Case("fit data.csv --out new --seed 99999999999999999999", r"'--seed'.*4294967295"),
    "seed too large to forecast": Case(f"{ASK} --times 9 --seed 99999999999999999999", r"'--seed'.*4294967295"),
    "seed no number": Case("fit data.csv --out new --seed x", r"'--seed'"),
    "no draws": Case(f"{ASK} --times 9 --draws 0", r"'--draws'"),
    "too many draws": Case(f"{ASK} --times 9 --draws 1000000000", r"'--draws'"),
    "quantile above 1": Case(f"{ASK} --times 9 --quantiles 1.5", r"a quantile lies between 0 and 1, but 1.5"),
    "quantile twice": Case(f"{ASK} --times 9 --quantiles 0.5,0.5", r"0.5 and 0.5 were given, but both .* called q50"),
    "quantile no number": Case(f"{ASK} --times 9 --quantiles half", r"--quantiles wants numbers .*'half'"),
    "next without after": Case("evaluate run data.csv --next 1", r"next goes with after"),
    "after for interpolation": Case(
        "evaluate run data.csv --task interpolation --after 1", r"go with the task prediction"
    ),
    "share of a prediction": Case("evaluate run data.csv --share 0.3", r"share goes with the task interpolation"),
    "share and hidden rows": Case(
        "evaluate run data.csv --task interpolation --share 0.3 --hidden data.csv", r"share goes with .* no hidden rows"
    ),
    "hidden rows of a prediction": Case("evaluate run data.csv --hidden data.csv", r"go with the task interpolation"),
    "hidden rows that are shown": Case(
        "evaluate run data.csv --task interpolation --hidden data.csv", r"to be hidden, but the data shows it"
    ),
    "after everything": Case("evaluate run data.csv --after 99", r"there is nothing to score"),
    "no settings file": Case("fit data.csv --out new --config no.toml", r"cannot read the settings file no.toml"),
    "settings file of no kind": Case("fit data.csv --out new --config data.csv", r"data.csv is not valid TOML"),
    "settings file of a list": Case(
        "fit data.csv --out new --config c.json", r"c.json should hold settings by name", overwrite("c.json", b"[1]")
    ),
    "columns that are not there": Case("fit data.csv --out new --id who", r"a column called 'who' was expected"),
}

OUTPUTS = {
    "a run is there": Case("fit data.csv --out run", r"run already holds a run: .* give --overwrite"),
    "other files are there": Case(
        "fit data.csv --out mine", r"mine is not empty", lambda: Path("mine/a").mkdir(parents=True)
    ),
    "a file is there": Case("fit data.csv --out data.csv", r"a file of that name is in the way"),
    "overwrite a file": Case("fit data.csv --out data.csv --overwrite", r"a file of that name is in the way"),
    "below a file": Case(
        "fit data.csv --out data.csv/a/b", r"cannot make the run folder data.csv/a/b: Not a directory"
    ),
    "below /proc": Case("fit data.csv --out /proc/vsdn/run", r"cannot make the run folder /proc/vsdn/run: "),
    "forecast below a file": Case(f"{ASK} --times 9 --out data.csv/f.csv", r"cannot write data.csv/f.csv: "),
    "forecast below /proc": Case(f"{ASK} --times 9 --out /proc/f.csv", r"cannot write /proc/f.csv: "),
    "forecast to no folder": Case(f"{ASK} --times 9 --out no/f.csv", r"cannot write no/f.csv: No such file"),
    "forecast to a folder": Case(
        f"{ASK} --times 9 --out f.csv", r"cannot write f.csv: it is a folder", lambda: Path("f.csv").mkdir()
    ),
    "forecast to no kind": Case(f"{ASK} --times 9 --out f.txt --plot f.png", r"ending in .csv or .parquet .*f.txt"),
    "picture of no kind": Case(
        f"{ASK} --times 9 --out f.csv --plot f.gif", r"a picture is a .png, .svg, .pdf, .html file.*f.gif"
    ),
    "picture below /proc": Case(f"{ASK} --times 9 --out f.csv --plot /proc/f.png", r"cannot write /proc/f.png: "),
    "data set below /proc": Case(
        "datasets make double-ou --series 3 --out /proc/f.csv", r"/proc/f.csv cannot be written"
    ),
    "data set of no kind": Case("datasets make double-ou --series 3 --out f.txt", r"ending in .csv or .parquet"),
}

INFO, RESUME = "info run", "resume run"
RUNS = {
    "no folder": Case("info nothere", r"there is no run folder nothere"),
    "a file": Case("info data.csv", r"a run folder was expected, but data.csv is a file$"),
    "an exported file": Case(
        "evaluate f.vsdn data.csv",
        r"a run folder was expected, but f.vsdn is a file that vsdn export wrote, which vsdn forecast takes",
        overwrite("f.vsdn", b"PK\x05\x06" + bytes(18)),
    ),
    "a text file": Case("forecast data.csv data.csv --times 9", r"data.csv is damaged, or no forecaster that vsdn exp"),
    "an empty folder": Case("info empty", r"there is no config.json in empty", lambda: Path("empty").mkdir()),
    "weights cut off": Case(INFO, r"model.safetensors is damaged: it is not a whole", truncate(WEIGHTS, 150)),
    "weights empty": Case(INFO, r"model.safetensors is damaged", truncate(WEIGHTS, 0)),
    "weights with a wrong byte": Case(INFO, r"model.safetensors is damaged: .* checksum", flip(WEIGHTS, -1)),
    "weights with a wrong length": Case(INFO, r"model.safetensors is damaged", flip(WEIGHTS, 7)),
    "weights gone": Case(INFO, r"there is no model.safetensors in run", lambda: os.remove(WEIGHTS)),
    "state cut off": Case(RESUME, r"state.safetensors is damaged: it is not a whole", truncate(STATE, 500)),
    "state with a wrong byte": Case(RESUME, r"state.safetensors is damaged: .* checksum", flip(STATE, -1)),
    "state gone": Case(RESUME, r"there is no state.safetensors in run/checkpoint", lambda: os.remove(STATE)),
    "config not JSON": Case(INFO, r"config.json is damaged: it is not valid JSON", truncate(CONFIG, 300)),
    "config binary": Case(INFO, r"config.json is damaged", overwrite(CONFIG, bytes(range(256)))),
    "config too deep": Case(INFO, r"config.json is damaged", overwrite(CONFIG, b"[" * 100_000)),
    "config of something else": Case(INFO, r"config.json is not the configuration of a run", overwrite(CONFIG, b"{}")),
    "config of tomorrow": Case(
        INFO, r"has schema 2, but this version of vsdn reads schema 1", change_json(CONFIG, schema=2)
    ),
    "config without settings": Case(INFO, r"damaged: settings is missing", change_json(CONFIG, settings=DROP)),
    "config with more settings": Case(INFO, r"settings.model.foo is 1", change_json(CONFIG, settings__model__foo=1)),
    "config without axis": Case(INFO, r"damaged: axis is missing", change_json(CONFIG, axis=DROP)),
    "config with a strange axis": Case(INFO, r"axis.kind is 'moon'", change_json(CONFIG, axis__kind="moon")),
    "config with a stranger axis": Case(INFO, r"axis.foo", change_json(CONFIG, axis={"foo": 1})),
    "config without source": Case(RESUME, r"damaged: source is missing", change_json(CONFIG, source=DROP)),
    "config with strange columns": Case(
        RESUME, r"source.columns.foo", change_json(CONFIG, source__columns={"foo": "x"})
    ),
    "config with strange data": Case(RESUME, r"source.data is 5", change_json(CONFIG, source__data=5)),
    "config with other variables": Case(INFO, r"each of the 1 variables", change_json(CONFIG, variables=["x"])),
    "config with no model": Case(INFO, r"model.model is 'os'", change_json(CONFIG, settings__model__model="os")),
    "config with another model": Case(
        INFO, r"holds other arrays", change_json(CONFIG, settings__model__model="vsdn-f")
    ),
    "config with a step too short": Case(
        RESUME, r"choose a longer max_step", change_json(CONFIG, settings__data__max_step=1e-12)
    ),
    "scaler not JSON": Case(INFO, r"scaler.json is damaged: it is not valid JSON", truncate(SCALER, 10)),
    "scaler a list": Case(INFO, r"scaler.json is damaged: mean, std and time_scale", overwrite(SCALER, b"[]")),
    "scaler of one variable": Case(INFO, r"each of the 2 variables", change_json(SCALER, std=[1.0])),
    "scaler of nested lists": Case(INFO, r"each of the 2 variables", change_json(SCALER, mean=[[1.0], [1.0]])),
    "scaler with 0": Case(INFO, r"every std and time_scale above 0", change_json(SCALER, std=[0.0, 1.0])),
    "scaler with NaN": Case(INFO, r"finite numbers were expected", change_json(SCALER, mean=[float("nan"), 1.0])),
    "scaler too large": Case(INFO, r"scaler.json is damaged", change_json(SCALER, mean=[10**400, 1.0])),
    "scaler of another run": Case(INFO, r"another time_scale", change_json(SCALER, time_scale=1e-300)),
    "metrics not JSON": Case(INFO, r"metrics.jsonl is damaged", overwrite("run/metrics.jsonl", b'{"epoch": 1')),
    "metrics of texts": Case(RESUME, r"metrics.jsonl is damaged", overwrite("run/metrics.jsonl", b'{"epoch": "1"}\n')),
    "metrics that say too little": Case(
        INFO, r"metrics.jsonl is damaged", overwrite("run/metrics.jsonl", b'{"epoch": 1}\n')
    ),
    "table has changed": Case(
        RESUME, r"data.csv is not the table that run was fitted to", lambda: write("data.csv", TABLE[:-1])
    ),
    "table is gone": Case(RESUME, r"there is no file .*data.csv", lambda: os.remove("data.csv")),
    "another table": Case(
        "resume run --data other.csv", r"other.csv is not the table", lambda: write("other.csv", TABLE[:-1])
    ),
}

CASES = {
    f"{group}: {name}": case
    for group, cases in {"table": TABLES, "times": TIMES, "option": OPTIONS, "output": OUTPUTS, "run": RUNS}.items()
    for name, case in cases.items()
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_bad_input_gets_one_line_and_touches_nothing(case, here, capsys):
    case.prepare()
    before = snapshot(here)
    assert cli.main(shlex.split(case.command)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(r"error: [^\n]+\n", err), err
    assert re.search(case.says, err), err
    assert snapshot(here) == before


def test_hostile_sizes_allocate_nothing(here, capsys):
    small = [f"--set={key}={value}" for key, value in {"hidden_size": 4, "latent_size": 3, "width": 5}.items()]
    assert cli.main(["fit", "data.csv", "--out", "small", "--set", "epochs=0", "--quiet", *small]) == 0
    config = Path("small/config.json")
    honest, live = config.read_text(), sum(array.nbytes for array in jax.live_arrays())
    for name, size in itertools.product(("hidden_size", "latent_size", "width"), (10**9, 65536)):
        config.write_text(honest)
        change_json(str(config), **{f"settings__model__{name}": size})()
        for command in ("info small", "resume small", "forecast small data.csv --times 9"):
            capsys.readouterr()
            assert cli.main(command.split()) == 2
            assert re.fullmatch(r"error: small/.*(65536|other arrays).*\n", capsys.readouterr().err)
    assert sum(array.nbytes for array in jax.live_arrays()) - live < 10**6


def test_no_arguments_show_the_help(capsys):
    assert cli.main([]) == 2
    assert capsys.readouterr().err.startswith("Usage: vsdn [OPTIONS] COMMAND [ARGS]...\n")


# --------------------------------------------------------------------------------------------------------- full disks


@pytest.fixture
def full_after(monkeypatch):
    """A function after which the n-th file to be synced, and all that follow, find the disk full."""

    def fill(count: int) -> None:
        left = iter(range(count))

        def fsync(_: int) -> None:
            if next(left, None) is None:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(files.os, "fsync", fsync)

    return fill


def test_dev_full_stays_a_device(here, capsys):
    before = snapshot(here)
    for command in (f"{ASK} --times 9 --out /dev/full", "datasets make double-ou --series 3 --out /dev/full"):
        assert cli.main(shlex.split(command)) == 2
        assert capsys.readouterr().err == "error: /dev/full cannot be written: No space left on device\n"
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)
    assert snapshot(here) == before


def test_standard_output_on_a_full_disk(here):
    with open("/dev/full", "wb") as full:
        ask = [sys.executable, "-m", "vsdn.cli", "datasets", "list", "--json"]
        buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        done = subprocess.run(ask, stdout=full, stderr=subprocess.PIPE, check=False, env=buffered)
    assert done.returncode == 2
    assert done.stderr == b"error: standard output: No space left on device\n"


@pytest.mark.parametrize("count", range(4))
def test_disk_full_while_the_folder_is_made(count, here, full_after, capsys):
    before = snapshot(here)
    full_after(count)
    assert cli.main(["fit", "data.csv", "--out", "new", "--model", "last-value", "--quiet"]) == 2
    assert re.fullmatch(r"error: cannot (write|make) .*: No space left on device\n", capsys.readouterr().err)
    assert snapshot(here) == before


def test_disk_full_while_an_old_run_is_overwritten(here, full_after, capsys):
    before = snapshot(here)
    full_after(1)
    assert cli.main(["fit", "data.csv", "--out", "run", "--model", "mean", "--quiet", "--overwrite"]) == 2
    assert snapshot(here) == before


@pytest.mark.slow
def test_disk_full_during_training_leaves_a_run_that_goes_on(here, full_after, capsys, monkeypatch):
    fit = "fit data.csv --model last-value --quiet --set epochs=2 --set batch_size=6 --set checkpoint_every=1 --out"
    assert cli.main([*fit.split(), "whole"]) == 0
    for count in (4, 7, 8, 13):  # after the folder's four files: the first step's, and those of the epochs' ends
        capsys.readouterr()
        full_after(count)
        assert cli.main([*fit.split(), f"cut{count}"]) == 2
        monkeypatch.undo()
        assert re.fullmatch(r"error: cannot write .*: No space left on device\n", capsys.readouterr().err)
        assert not list(here.rglob("*.part"))
        assert vsdn.load(here / f"cut{count}").num_params == 4
        assert cli.main(["resume", str(here / f"cut{count}"), "--quiet"]) == 0
        for name in ("model.safetensors", "metrics.jsonl"):
            assert (here / f"cut{count}" / name).read_bytes() == (here / "whole" / name).read_bytes()
        monkeypatch.chdir(here)


@contextlib.contextmanager
def tiny_disk(place: Path, size: str) -> Iterator[Path]:
    """A file system of so many bytes; skips where none can be mounted."""
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(place)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("a small disk cannot be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_a_disk_that_is_really_full(here, capsys):
    with tiny_disk(here / "disk", "8k") as disk:
        assert cli.main(["fit", "data.csv", "--out", str(disk / "new"), "--model", "last-value", "--quiet"]) == 2
        assert re.fullmatch(r"error: cannot .*: No space left on device\n", capsys.readouterr().err)
        (disk / "old.csv").write_text("old")
        assert cli.main(shlex.split(f"{ASK} --every 0.001 --until 9 --out {disk / 'old.csv'}")) == 2
        assert re.fullmatch(r"error: .*old.csv cannot be written: No space left on device\n", capsys.readouterr().err)
        assert {path.name: path.read_text() for path in disk.iterdir()} == {"old.csv": "old"}
