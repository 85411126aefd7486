"""`vsdn online`: JSON lines in, forecasts out, and nothing lost however it ends."""

import io
import json
import signal
import subprocess
import sys

import jax
import numpy as np
import pytest

import vsdn
from vsdn import cli
from vsdn.online.tracking import Online

SEEN = [
    {"id": "p", "time": 0.0, "values": {"a": 1.0, "b": None}},
    {"id": 7, "time": 0.5, "values": {"a": 2.0}},
    {"id": "p", "time": 1.0, "values": {"a": 1.5, "b": -1.0}},
]


def make_run(folder, times) -> str:
    rng = np.random.default_rng(0)
    lines = ["id,time,a,b", *(f"s{i},{time},{rng.normal():.3f},{i}" for i in range(3) for time in times)]
    (folder / "table.csv").write_text("\n".join(lines) + "\n")
    with jax.numpy_dtype_promotion("standard"):
        settings = {"epochs": 1, "max_step": 0.5}
        vsdn.fit(folder / "table.csv", model="last-value", settings=settings, out=folder / "run", progress=False)
    return str(folder / "run")


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> str:
    return make_run(tmp_path_factory.mktemp("numbers"), range(6))


@pytest.fixture
def online(monkeypatch, capsys):
    """A function from lines and arguments to the exit code, the lines of output and what is said."""

    def call(lines, *arguments):
        text = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        code = cli.main(["online", *map(str, arguments)])
        out, err = capsys.readouterr()
        return code, [json.loads(line) for line in out.splitlines()], err

    return call


def test_each_line_is_answered_at_every_horizon(run, online):
    code, answers, said = online(SEEN, run, "--ahead", "0.5,1", "--quantiles", "0.5")
    assert (code, said) == (0, "")
    assert [(each["id"], each["time"]) for each in answers] == [
        ("p", 0.5), ("p", 1.0), (7, 1.0), (7, 1.5), ("p", 1.5), ("p", 2.0)
    ]  # fmt: skip
    state = vsdn.load(run).online([])
    for line in SEEN:
        state = state.update(line["time"], line["values"], line["id"])
    wanted = state.forecast([1.5], ids=["p"], quantiles=[0.5]).to_pylist()
    assert answers[4]["forecast"] == {row["variable"]: {k: row[k] for k in ("mean", "std", "q50")} for row in wanted}


def test_a_line_may_ask_without_having_seen(run, online):
    code, answers, _ = online([*SEEN, {"id": "p", "times": [4, 5.5]}], run)
    assert code == 0
    assert [each["time"] for each in answers] == [4.0, 5.5]


def test_a_state_goes_on_where_it_ended(run, online, tmp_path):
    whole = online(SEEN, run, "--ahead", 1)[1]
    options = run, "--ahead", 1, "--state", tmp_path / "state"
    assert online(SEEN[:2], *options)[1] + online(SEEN[2:], *options)[1] == whole
    assert Online.from_bytes(vsdn.load(run), (tmp_path / "state").read_bytes()).ids == ("p", 7)
    code, _, said = online(SEEN, *options, "--draws", 3)
    assert code == 2
    assert "has draws 128, but 3 was given" in said


def test_a_bad_line_ends_it_and_what_came_before_is_kept(run, online, tmp_path):
    lines = [SEEN[0], "", "{oops", SEEN[2]]
    code, answers, said = online(lines, run, "--ahead", 1, "--state", tmp_path / "state")
    assert code == 2
    assert said == "error: line 3: JSON was expected, not '{oops'\n"
    assert len(answers) == 1
    kept = Online.from_bytes(vsdn.load(run), (tmp_path / "state").read_bytes())
    assert kept == vsdn.load(run).online(["p"]).update(0.0, {"a": 1.0})


def test_bad_lines_can_be_skipped_and_empty_ones_are_counted(run, online):
    lines = [SEEN[0], SEEN[0], {"id": "p", "time": 0.7, "values": {"b": None}}, SEEN[2]]
    code, answers, said = online(lines, run, "--ahead", 1, "--skip-bad")
    assert code == 0
    assert [each["time"] for each in answers] == [1.0, 2.0]  # what says nothing is answered with nothing
    assert "skipped line 2: series 'p' already has an observation at time 0.0" in said
    assert said.endswith("1 line with no value was ignored\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_keeps_the_state(run, monkeypatch, tmp_path, number):
    def lines():
        yield json.dumps(SEEN[0]).encode()
        signal.raise_signal(number)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts behind "&" ignores it
    monkeypatch.setattr(sys, "stdin", type("Stdin", (), {"buffer": lines()}))
    try:
        assert cli.main(["online", run, "--state", str(tmp_path / "state")]) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert Online.from_bytes(vsdn.load(run), (tmp_path / "state").read_bytes()).ids == ("p",)


def test_late_lines_are_replayed_in_a_window(run, online):
    late = [SEEN[2], {"id": "p", "time": 0.25, "values": {"b": 3.0}}]
    in_time = online(late[::-1], run, "--ahead", 1)[1][-1:]
    assert online(late, run, "--ahead", 1, "--window", 2)[1][-1:] == in_time
    assert online(late, run)[0] == 2


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("[1]", "an object with"),
        ('{"id": "p", "tiem": 1}', "but not 'tiem'"),
        ('{"id": "p", "time": 1}', "a time and values go together"),
        ('{"id": "p"}', "a time with values, or times"),
        ('{"id": "p", "time": 1, "values": [2]}', "values were expected as an object"),
        ('{"id": [1], "time": 1, "values": {"a": 2}}', "a text or a whole number"),
        ('{"id": "p", "time": 1, "values": {"a": "x"}}', "the text 'x'"),
        ('{"id": "p", "time": 1, "values": {"a": Infinity}}', "a finite number"),
        ('{"id": "p", "time": {}, "values": {"a": 1}}', "were expected"),
        ('{"id": "p", "time": 1, "values": {"a": 1, "a": 2}}', "'a' came twice"),
        ('{"id": "p", "id": "q", "time": 1, "values": {"a": 1}}', "each key was expected once, but 'id' came twice"),
        ('{"id": "z", "times": [1]}', "no observation of it"),
        ("[" * 100_000, "JSON was expected"),
        ("\x00", "JSON was expected"),
    ],
)
def test_what_is_wrong_with_a_line_is_said_in_one(run, online, line, says):
    code, answers, said = online([line], run, "--ahead", 1)
    assert (code, answers) == (2, [])
    assert said.startswith("error: line 1: ")
    assert says in said
    assert said.count("\n") == 1


def test_options_that_cannot_be_met_are_refused_before_anything_is_read(run, online, tmp_path):
    (tmp_path / "state").write_bytes(b"no state")
    for options, says in (
        (("--ahead", "0"), "above 0"),
        (("--ahead", "soon"), "--ahead wants numbers"),
        (("--quantiles", "2"), "a quantile lies between"),
        (("--state", tmp_path / "state"), "the state is damaged"),
        (("--state", tmp_path), "cannot"),
    ):
        code, answers, said = online(SEEN, run, *options)
        assert (code, answers) == (2, [])
        assert says in said
    assert (tmp_path / "state").read_bytes() == b"no state"


def test_dates_come_back_as_dates(online, tmp_path):
    run = make_run(tmp_path, [f"2024-01-0{day}" for day in range(1, 7)])
    line = {"id": "p", "time": "2024-03-01", "values": {"a": 1.0}}
    code, answers, _ = online([line, {"id": "p", "times": ["2024-04-01"]}], run, "--ahead", "1,1.5")
    assert code == 0
    assert [each["time"] for each in answers] == ["2024-03-02", "2024-03-02T12:00:00", "2024-04-01"]


def test_dates_come_back_in_the_zone_of_the_table(online, tmp_path):
    (tmp_path / "berlin").mkdir()
    run = make_run(tmp_path / "berlin", [f"2024-01-0{day}" for day in range(1, 7)])
    config = tmp_path / "berlin" / "run" / "config.json"
    tree = json.loads(config.read_text())
    tree["axis"] |= {"timezone": "Europe/Berlin", "whole_days": False}
    config.write_text(json.dumps(tree))
    line = {"id": "p", "time": "2024-03-30T12:00:00+00:00", "values": {"a": 1.0}}
    code, answers, _ = online([line], run, "--ahead", "1")
    assert (code, answers[0]["time"]) == (0, "2024-03-31T14:00:00+02:00")


def test_a_line_with_nothing_seen_may_still_ask(run, online):
    empty = {"id": "p", "time": 2.0, "values": {"a": None}}
    code, answers, _ = online([SEEN[0], empty, {**empty, "values": {}}, {**empty, "times": [3]}], run, "--ahead", 1)
    assert (code, [each["time"] for each in answers]) == (0, [1.0, 3.0])


def test_a_reader_that_has_seen_enough_ends_it_quietly(run, tmp_path):
    lines = "".join(json.dumps(SEEN[0] | {"time": time}) + "\n" for time in range(300))
    program = f"{sys.executable} -m vsdn.cli online {run} --ahead 0.5 --state {tmp_path / 'state'} | head -n 2"
    done = subprocess.run(program, shell=True, input=lines.encode(), capture_output=True, check=True)
    assert len(done.stdout.splitlines()) == 2
    assert done.stderr == b""
    assert (tmp_path / "state").exists()
