"""A run that was stopped, at whatever moment and however rudely, ends in the same bytes as one that never was."""

import collections
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

import vsdn
from vsdn import checkpoint, cli, fitting, training
from vsdn.batches import Batches
from vsdn.models import MODELS as ALL_MODELS
from vsdn.settings import Settings
from vsdn.tables.frames import read_table
from vsdn.training.planning import make_plan

SMALL = {"hidden_size": 4, "latent_size": 3, "width": 5, "init_width": 4, "num_paths": 2, "valid_paths": 2}
QUICK = SMALL | {"batch_size": 10, "num_buckets": 1, "epochs": 3, "objective": "vae"}
NUM_BATCHES = 3  # of an epoch: 27 of the 30 series
SAME = ("model.safetensors", "metrics.jsonl", "checkpoint/state.safetensors")
# `last-value` compiles in a second; it has no noise of its own, but an optimiser and an order of its data.
SLOW = ("vsdn-s", "ode-rnn")
THOROUGH = ("latent-ode", "vsdn-f", "gru-ode", "latent-sde", "gru-decay", "linear")
MODELS = [
    "last-value",
    *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW),
    *(pytest.param(name, marks=pytest.mark.thorough) for name in THOROUGH),
]


@pytest.fixture(scope="module", autouse=True)
def as_users_run_it():
    """Promotion as users have it: optax itself does not keep to the strict one."""
    with jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("data") / "data.csv"
    assert cli.main(["datasets", "make", "double-ou", "--series", "30", "--out", str(path)]) == 0
    return path


def fit_command(data: Path, out: Path, **values: object) -> list[str]:
    options = [part for key, value in (QUICK | values).items() for part in ("--set", f"{key}={value}")]
    return ["fit", str(data), "--out", str(out), *options]


def assert_same_run(one: Path, other: Path) -> None:
    for name in SAME:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


# ------------------------------------------------------------------------------------------------------- in one piece


@pytest.fixture
def compiled_once(monkeypatch):
    """What trains and what validates are those that were made first, however often a run goes on."""

    def once(make):
        made = []

        def make_or_recall(*arguments):
            if not made:
                made.append(make(*arguments))
            return made[0]

        return make_or_recall

    for name in ("make_update", "make_score"):
        monkeypatch.setattr(training, name, once(getattr(training, name)))


@pytest.mark.parametrize("model", MODELS)
def test_training_goes_on_from_any_state_bit_for_bit(model, data, tmp_path, compiled_once):
    table = read_table(data)
    plan = make_plan(table, None, Settings().with_values(QUICK | {"model": model}))
    fresh = fitting.make_model(plan.settings, table)
    train = lambda state: list(training.train(fresh, plan.train, plan.valid, plan.settings, state))
    begun = training.first_state(fresh, plan.train, plan.settings)
    whole = train(begun)
    assert [int(state.step) for state, _ in whole] == [1, 2, 3, 3, 4, 5, 6, 6, 7, 8, 9, 9]
    (tmp_path / "checkpoint").mkdir()
    for place in (0, 2, 7):  # in an epoch, at its end but before its validation, and after that
        checkpoint.save_state(tmp_path, whole[place][0])
        rest = train(checkpoint.read_state(tmp_path, begun))
        assert [record for _, record in rest] == [record for _, record in whole[place + 1 :]]
        for (state, _), (expected, _) in zip(rest, whole[place + 1 :], strict=True):
            assert eqx.tree_equal(jax.tree.map(np.asarray, state), jax.tree.map(np.asarray, expected))


@pytest.mark.parametrize("model", ALL_MODELS)
def test_a_model_loads_as_it_was_saved(model, data, tmp_path):
    fitted = vsdn.fit(data, settings=SMALL | {"epochs": 0}, model=model, progress=False)
    fitted.save(tmp_path / "run")
    loaded = vsdn.load(tmp_path / "run")
    assert eqx.tree_equal(loaded.model, fitted.model)
    assert loaded.settings == fitted.settings


@pytest.mark.parametrize("every", [2, 200])
def test_a_run_cut_by_an_error_goes_on(every, data, tmp_path, monkeypatch):
    fit = fit_command(data, tmp_path / "whole", model="last-value", checkpoint_every=every)
    assert cli.main(fit) == 0
    count = iter(range(8))
    keep = fitting._keep

    def keep_some(*arguments, **options) -> None:
        keep(*arguments, **options)
        if next(count, None) is None:
            raise KeyboardInterrupt

    monkeypatch.setattr(fitting, "_keep", keep_some)
    fit[3] = str(tmp_path / "cut")
    assert cli.main(fit) == 130
    monkeypatch.undo()
    assert cli.main(["resume", str(tmp_path / "cut")]) == 0
    assert_same_run(tmp_path / "cut", tmp_path / "whole")


def test_interrupt_keeps_the_very_step_at_which_it_stops(data, tmp_path, monkeypatch):
    train, out = training.train, tmp_path / "run"

    def train_and_interrupt(*arguments):
        for state, record in train(*arguments):
            if int(state.step) == 5:
                signal.raise_signal(signal.SIGTERM)
            yield state, record

    monkeypatch.setattr(training, "train", train_and_interrupt)
    assert cli.main(fit_command(data, out, model="last-value", checkpoint_every=200)) == 130
    assert int(load_file(checkpoint.checkpoint_path(out))["step"]) == 5
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_half_written_files_are_cleared_away(data, tmp_path):
    out = tmp_path / "run"
    assert cli.main(fit_command(data, out, model="last-value", epochs=0)) == 0
    parts = [out / ".0123456789abcdef.part", out / "checkpoint" / ".fedcba9876543210.part"]
    for part in parts:
        part.write_bytes(b"half")
    (tmp_path / ".run.01234567.part").mkdir()
    assert cli.main(["info", str(out)]) == 0
    assert cli.main(["resume", str(out)]) == 0
    assert not any(part.exists() for part in parts)
    assert cli.main([*fit_command(data, out, model="last-value", epochs=0), "--overwrite"]) == 0


def test_a_kill_while_a_run_is_replaced_loses_neither_run_nor_room(data, tmp_path):
    """Between two renames the old run stands aside, and comes back; what was left behind long ago is cleared away."""
    out, aside = tmp_path / "run", tmp_path / f".run.01234567{checkpoint.ASIDE}"
    assert cli.main(fit_command(data, out, model="last-value", epochs=0)) == 0
    out.rename(aside)
    assert cli.main(["info", str(out)]) == 0
    assert not aside.exists()
    fresh, stale = tmp_path / ".run.00000001.part", tmp_path / ".run.00000002.part"
    for left in (fresh, stale):
        left.mkdir()
    os.utime(stale, (0, 0))
    assert cli.main([*fit_command(data, out, model="last-value", epochs=0), "--overwrite"]) == 0
    assert sorted(path.name for path in tmp_path.glob(".run*")) == [fresh.name]  # another process may be at work there


# ------------------------------------------------------------------------------------------------------ not finite


@pytest.fixture
def poison(monkeypatch):
    """A function after which the training batches whose number it is told have a loss that is NaN."""

    def spoil(is_bad: Callable[[int], bool]) -> None:
        load, number = Batches.load, iter(range(10**6))

        def load_spoilt(self: Batches, series: np.ndarray):
            batch = load(self, series)
            if len(self.bucket) < 10:  # the validation part
                return batch
            return batch._replace(weight=batch.weight * (jnp.nan if is_bad(next(number)) else 1.0))

        monkeypatch.setattr(Batches, "load", load_spoilt)

    return spoil


def test_steps_without_a_finite_loss_are_skipped_counted_and_said(data, tmp_path, poison, capsys):
    poison(lambda number: number in (1, 4, 5))
    assert cli.main(fit_command(data, tmp_path / "run", model="last-value")) == 0
    assert "3 steps without a finite gradient were skipped\n" in capsys.readouterr().err
    records = checkpoint.read_metrics(tmp_path / "run")
    assert [record.skipped for record in records] == [1, 3, 3]
    assert all(np.isfinite([record.loss, record.valid_nll]).all() for record in records)
    assert cli.main(["info", str(tmp_path / "run"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["skipped steps"] == 3


def test_a_skipped_step_moves_nothing(data, poison):
    table = read_table(data)
    plan = make_plan(table, None, Settings().with_values(QUICK | {"model": "last-value"}))
    fresh = fitting.make_model(plan.settings, table)
    poison(lambda number: number == 1)
    begun = training.first_state(fresh, plan.train, plan.settings)
    states = training.train(fresh, plan.train, plan.valid, plan.settings, begun)
    (first, _), (second, _), (third, _) = (next(states) for _ in range(3))
    assert eqx.tree_equal(second.params, first.params)
    assert eqx.tree_equal(second.opt_state, first.opt_state)
    assert not eqx.tree_equal(third.params, second.params)
    assert [int(state.skipped_in_row) for state in (first, second, third)] == [0, 1, 0]


def test_too_many_skipped_in_a_row_end_the_run_with_the_best_weights(data, tmp_path, poison, capsys, monkeypatch):
    params_after, keep, out = {}, fitting._keep, tmp_path / "run"

    def keep_and_note(folder, state, records, **when) -> None:
        params_after[int(state.epoch)] = state.params
        keep(folder, state, records, **when)

    monkeypatch.setattr(fitting, "_keep", keep_and_note)
    poison(lambda number: number >= 2 * NUM_BATCHES)  # all steps after the second epoch
    assert cli.main(fit_command(data, out, model="last-value", max_skipped=2)) == 0
    said = capsys.readouterr().err
    assert "2 steps without a finite gradient were skipped\n" in said
    assert "ended early: 2 steps in a row had no finite gradient\n" in said
    records = checkpoint.read_metrics(out)
    assert [record.skipped for record in records] == [0, 0, 2]  # the epoch that was ended has its record
    best = 1 + int(np.argmin([record.valid_nll for record in records]))
    assert records[-1].best_epoch == best
    assert eqx.tree_equal(checkpoint.read_weights(out, params_after[best]), params_after[best])
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    monkeypatch.undo()
    assert cli.main(["resume", str(out)]) == 0  # it is over, and stays so, even if all is well again
    assert "ended early: 2 steps in a row" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_a_run_without_one_finite_score_keeps_its_first_weights(data, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(training.loop, "make_score", lambda *_: lambda *_: float("inf"))
    assert cli.main(fit_command(data, tmp_path / "run", model="last-value")) == 0
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    told = [json.loads(line, parse_constant=pytest.fail) for line in lines]  # Infinity is not JSON
    assert [each["valid_nll"] for each in told] == [None] * 3
    assert checkpoint.read_metrics(tmp_path / "run")[-1].best_nll == float("inf")
    capsys.readouterr()
    assert cli.main(["info", str(tmp_path / "run"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail)["validation nll"] is None


# -------------------------------------------------------------------------------------------------- in another process

CHILD = """
import os, sys, time
from vsdn import cli

sync, pause = os.fsync, float(sys.argv[1])

def slow_sync(number):  # a wider door for whoever wants to come in between
    time.sleep(pause)
    sync(number)

os.fsync = slow_sync
sys.exit(cli.main(sys.argv[2:]))
"""


def start(pause: float, command: list[str], cache: Path | None = None) -> subprocess.Popen[str]:
    """The command in a process of its own, which waits for `pause` seconds over every file that it writes."""
    own = {} if cache is None else {"JAX_COMPILATION_CACHE_DIR": str(cache)}
    arguments = [sys.executable, "-c", CHILD, str(pause), *command]
    return subprocess.Popen(arguments, env=os.environ | own, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def wait_until(happened: Callable[[], object], process: subprocess.Popen[str], most: float = 120.0) -> None:
    """Returns as soon as it happened, or the process ended."""
    end = time.monotonic() + most
    while not happened() and process.poll() is None:
        assert time.monotonic() < end
        time.sleep(0.002)


def num_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.mark.slow
def test_interrupt_says_how_to_go_on(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = {"model": "last-value", "epochs": 8, "checkpoint_every": 200}
    assert cli.main(fit_command(data, Path("whole"), **values)) == 0
    process = start(0.05, fit_command(data, Path("cut"), **values))
    wait_until(lambda: num_lines(tmp_path / "cut" / "metrics.jsonl") >= 2, process)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert said.splitlines()[-1] == "stopped; go on with: vsdn resume cut"
    epochs = num_lines(tmp_path / "cut" / "metrics.jsonl")
    assert 2 <= epochs < 8
    command = re.sub(".*: vsdn ", "", said.splitlines()[-1]).split()
    assert cli.main(command) == 0
    assert_same_run(tmp_path / "cut", tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("kills", [(2, 3, 6), pytest.param(tuple(range(10)), marks=pytest.mark.thorough)], ids=len)
def test_kill_at_many_moments(kills, data, tmp_path, capsys):
    """Kills 0 and 1 fall into the start, 2 into the making of the folder, 3 to 9 into the first seven epochs."""
    chance, whole, timed = random.Random(0), tmp_path / "whole", tmp_path / "timed"
    cache = tmp_path / "xla"  # a kill may hurt it

    def fit(out: Path, every: int) -> list[str]:
        return fit_command(data, out, model="vsdn-f", epochs=8, checkpoint_every=every)

    assert start(0, fit(whole, 200), cache).communicate()[0]  # compiles what all others need
    began, moments = time.monotonic(), []
    process = start(0.02, fit(timed, 1), cache)
    for happened in (timed.exists, (timed / "metrics.jsonl").exists, lambda: False):
        wait_until(happened, process)
        moments.append(time.monotonic() - began)
    start_up, first_epoch, other_epochs = moments[0], moments[1] - moments[0], (moments[2] - moments[1]) / 7
    process.communicate()
    assert_same_run(timed, whole)

    hit, runs = collections.Counter(), [tmp_path / f"run{every}" for every in (1, 2, 3)]
    for kill in kills:  # the runs in turn, each gone on with from where its last kill left it
        every, out = 1 + kill % 3, runs[kill % 3]
        process = start(0.02, ["resume", str(out)] if out.exists() else fit(out, every), cache)
        if kill < 2:
            time.sleep(chance.uniform(0, 0.8 * start_up))
        elif kill == 2:
            wait_until(lambda out=out: list(tmp_path.glob(f".{out.name}.*.part")), process)
            time.sleep(chance.uniform(0, 0.06))
        else:
            wait_until(out.exists, process)
            wait_until(lambda out=out, kill=kill: num_lines(out / "metrics.jsonl") >= kill - 3, process)
            time.sleep(chance.uniform(0, first_epoch if kill == 3 else other_epochs))
        process.kill()
        said = process.communicate()[1]
        assert process.returncode in (0, -signal.SIGKILL), said  # what a kill left was never too bad to go on with
        hit["end" if process.returncode == 0 else "training" if out.exists() else "start"] += 1
    for every, out in ((1 + number, runs[number]) for number in sorted({kill % 3 for kill in kills})):
        capsys.readouterr()
        assert cli.main(["resume", str(out)] if out.exists() else fit(out, every)) == 0, capsys.readouterr().err
        assert_same_run(out, whole)
        assert not list(out.rglob("*.part"))
    with capsys.disabled():
        print(f"\nkills by phase: {dict(hit)}; start-up {start_up:.1f} s, an epoch {other_epochs:.2f} s")
    assert hit["training"] >= (6 if len(kills) == 10 else 2)
    assert hit["start"] >= (2 if len(kills) == 10 else 1)
