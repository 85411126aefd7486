"""Skeletons of fitted models: what is drawn is what they foretell, in the true units and by the subject's own bones."""

import functools
import itertools
import json
import shutil

import numpy as np
import pytest
from datafiles import trials, write_packed
from PIL import Image

from vsdn import load, skeletons
from vsdn.datasets import mocap
from vsdn.datasets.asf import CMU_DOFS, read_asf
from vsdn.errors import SettingsError
from vsdn.reproduction import poses, worker
from vsdn.reproduction.jobs import Record, make_jobs, write_result
from vsdn.reproduction.plans import parse_plan
from vsdn.reproduction.poses import draw_poses, hardest_frames
from vsdn.skeletons import joints, unseen_before
from vsdn.skeletons.shots import shoot

SIZE = 12  # frames of a piece
PLAN = """
title = "Tiny"
about = "Three rows."
dataset = "mocap"
folds = [0, 1]
per = "frame"
rows = [
    { title = "Last", model = "last-value" },
    { title = "Mean", model = "mean" },
    { title = "Decay", model = "gru-decay" },
]

[tasks.interpolation]
title = "from the frames before"
task = "interpolation"
removed = true
method = "prior"

[tasks.smoothing]
title = "from later frames too"
task = "interpolation"
removed = true
method = "smooth"
beside = "interpolation"
column = "smoothed"
only = ["last-value", "vsdn-s"]

[presets.tuned]
title = "tuned"
set = { epochs = 1, batch_size = 10, num_buckets = 1, max_step = 4.0, valid_paths = 1, num_paths = 1 }

[skeletons]
frames = 3
rows = [
    { row = "gru-decay-vae", task = "interpolation" },
    { row = "last-value-vae", task = "interpolation" },
    { row = "last-value-vae", task = "smoothing" },
    { row = "mean-vae", task = "interpolation" },
]

[quick]
series = 10
draws = 4
set = { hidden_size = 2, latent_size = 2, width = 2, init_width = 2 }
"""
BONE = """  begin
    name {name}
    direction {direction}
    length {length}
    axis 10 20 30 XYZ
    dof {dofs}
  end"""


def asf_text(subject: int) -> str:
    """A skeleton of CMU's bones, all of which hang from the root, longer the higher the subject's number."""
    bones = [name for name in CMU_DOFS if name != "root"]
    say = lambda k, name: BONE.format(
        name=name, direction=f"{np.cos(k):.3f} {np.sin(k):.3f} 0", length=5 + subject, dofs=" ".join(CMU_DOFS[name])
    )
    lines = [":units", "  angle deg", ":root", "  order TX TY TZ RX RY RZ", ":bonedata", *map(say, range(99), bones)]
    return "\n".join([*lines, ":hierarchy", "  begin", f"    root {' '.join(bones)}", "  end", ""])


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A data folder with made trials in short pieces, and a skeleton for each subject."""
    monkeypatch.setattr(mocap, "SEGMENT", SIZE)
    write_packed(tmp_path)
    folder = (tmp_path / mocap.PACKED.name).parent / "asf"
    folder.mkdir()
    for subject in (2, 16, 35, 39):
        (folder / f"{subject:02}.asf").write_text(asf_text(subject))
    return tmp_path


@pytest.fixture
def done(data, tmp_path, monkeypatch, lenient):
    """A function that trains the runs with these names, without scores; it gives the plan and the run folder."""
    monkeypatch.setattr(worker, "_score", lambda fitted, parts, job, task: {})
    out = tmp_path / "runs"

    def train(*names: str, text: str = PLAN):
        plan = parse_plan(text).made_quick()
        out.mkdir(exist_ok=True)
        for job in make_jobs(plan):
            if job.name in names:
                write_result(out, job, worker.do(job, out, data))
        return plan, out

    return train


made_trials = functools.cache(trials)


def raw(piece: str) -> np.ndarray:
    """The frames of a piece as they were made."""
    name, _, number = piece.partition("/")
    return made_trials()[name][int(number) * SIZE : (int(number) + 1) * SIZE]


def travel(skeleton, frames: np.ndarray) -> float:
    places = joints(skeleton, frames)
    return sum(np.sqrt(((b - a) ** 2).sum(axis=-1)).mean() for a, b in itertools.pairwise(places))


@pytest.mark.filterwarnings("ignore::vsdn.errors.FewParticlesWarning")
@pytest.mark.parametrize(
    "model", ["last-value", pytest.param("vsdn-s", marks=[pytest.mark.slow, pytest.mark.thorough])]
)
def test_what_is_drawn_is_what_the_models_foretell(model, done, data, tmp_path, monkeypatch):
    shapes, make = [], skeletons.strip.figure
    counted = lambda *args, **how: (made := make(*args, **how), shapes.append(made[1].shape))[0]
    monkeypatch.setattr(skeletons.strip, "figure", counted)
    text = PLAN.replace('model = "last-value"', f'model = "{model}"').replace("last-value-vae", f"{model}-vae")
    plan, out = done(f"{model}-vae-0", "mean-vae-0", text=text)
    assert draw_poses(plan, out, tmp_path / "results", data) == []
    strip, page = (tmp_path / "results" / "figures" / f"skeletons-tuned.{kind}" for kind in ("png", "html"))
    assert shapes == [(4, 3)]  # the truth and three rows, since `gru-decay` is not done; three frames
    with Image.open(strip) as picture:
        picture.verify()
    assert strip.stat().st_size < 300_000
    assert page.stat().st_size < 700_000
    drawn = json.loads(page.read_text("utf-8").partition("const data = ")[2].partition(", scale = ")[0])
    names = [motion["name"].partition("\n")[0] for motion in drawn["motions"]]
    assert names == ["truth", "Last", "Last, smoothed", "Mean"]

    # the same by another route: raw frames, units and skeleton of our own, each model asked anew
    parts = worker.limited(mocap.load(data, 0), plan.series)
    own = lambda piece: read_asf(data / "cmu_mocap" / "asf" / f"{piece[:2]}.asf")
    piece = max(parts.test.ids.tolist(), key=lambda piece: travel(own(piece), raw(piece)))
    assert f"Test piece {piece} of fold 0" in drawn["caption"]
    shown = parts.test.select(np.flatnonzero(parts.test.ids == piece))
    learnt = np.concatenate([raw(str(name)) for name in mocap.load(data, 0).train.ids])
    deviation = learnt.std(axis=0)
    deviation[deviation < 1e-4] = 1.0
    first = int(shown.times[0]) + 1
    frames = list(range(first, SIZE, poses.STRIDE))
    motions = {"truth": raw(piece)}
    fitted, mean = (load(out / name) for name in (f"{model}-vae-0", "mean-vae-0"))
    how = {"draws": plan.draws, "seed": 0}
    for name, answer in {
        "Last": fitted.forecast(shown, np.arange(first, SIZE), method="prior", **how),
        "Last, smoothed": fitted.interpolate(shown, np.arange(first, SIZE), **how),
        "Mean": mean.forecast(shown, np.arange(first, SIZE), **how),
    }.items():
        motions[name] = np.full((SIZE, 62), np.nan)
        motions[name][first:] = learnt.mean(axis=0) + deviation * answer["mean"].to_numpy().reshape(-1, 62)
    wanted = shoot(own(piece), motions, frames)
    for motion, name in zip(drawn["motions"], names, strict=True):
        np.testing.assert_allclose(motion["points"], wanted.points[name], atol=2e-3)
    assert not np.allclose(wanted.points["Last"], wanted.points["truth"], atol=1e-2)  # else nothing was compared
    gone = [frame for frame in range(first, SIZE) if frame not in shown.times]
    away = joints(own(piece), motions["Mean"][gone]) - joints(own(piece), raw(piece)[gone])
    assert drawn["motions"][3]["name"] == f"Mean\nmean {100 * np.sqrt((away**2).sum(axis=-1)).mean():.1f} cm"


def test_what_is_missing_is_left_out(done, data, tmp_path):
    results = tmp_path / "results"
    plan, out = done()
    assert draw_poses(plan, out, results, data) == []  # nothing is done
    plan, out = done("last-value-vae-0", "mean-vae-0")
    assert draw_poses(plan.model_copy(update={"skeletons": None}), out, results, data) == []
    assert not results.exists()
    shutil.rmtree(out / "mean-vae-0")
    (remark,) = draw_poses(plan, out, results, data)
    assert remark.startswith("mean-vae-0 is left out of the skeletons: ")
    assert {path.name for path in results.rglob("*.*")} == {"skeletons-tuned.png", "skeletons-tuned.html"}
    shutil.rmtree(data / "cmu_mocap" / "asf")
    (remark,) = draw_poses(plan, out, results, data)
    assert "no .asf file of a test subject" in remark
    (data / mocap.PACKED.name).unlink()
    (remark,) = draw_poses(plan, out, results, data)
    assert remark.startswith("no skeletons are drawn (tuned): the data folder")


def test_pictures_of_models_that_are_not_at_hand_stay_as_they_are(done, data, tmp_path):
    plan, out = done("mean-vae-0")
    draw = lambda name, *rows: draw_poses(
        plan, out, tmp_path / name, data, Record({f"{row}-vae-0": {} for row in rows})
    )
    assert draw("results", "mean") == []  # done here, too
    files = list((tmp_path / "results").rglob("*.*"))
    assert len(files) == 2
    for path in files:
        path.write_text("drawn elsewhere")
    why = f"the fitted models of last-value-vae-0 are not in {out}"
    (out / "last-value-vae-0").mkdir()  # begun, perhaps with other settings
    assert draw("results", "mean", "last-value") == [f"skeletons (tuned) stay as they are: {why}"]
    assert {path.read_text() for path in (tmp_path / "results").rglob("*.*")} == {"drawn elsewhere"}
    assert draw("fresh", "last-value") == [f"skeletons (tuned) are not drawn: {why}"]
    assert not (tmp_path / "fresh").exists()


def test_the_frames_that_are_longest_unseen_are_drawn():
    seen = np.array([0, 1, 0, 0, 1, 0, 1, 1, 1, 1, 0, 1], bool)
    assert unseen_before(seen).tolist() == [-1, 0, 1, 2, 0, 1, 0, 0, 0, 0, 1, 0]
    assert hardest_frames(seen, 1) == [3]
    assert hardest_frames(seen, 2) == [3, 10]
    assert hardest_frames(seen, 4) == [2, 3, 10]  # in the third stretch none was removed


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('dataset = "mocap"', 'dataset = "human36m"', "skeletons are drawn of mocap"),
        ('row = "mean-vae"', 'row = "mean"', "'mean' is none"),
        ('{ row = "mean-vae", task = "interpolation" }', '{ row = "mean-vae", task = "smoothing" }', "is not asked"),
        ('removed = true\nmethod = "prior"', 'method = "prior"', "'interpolation' is no task"),
        ("frames = 3", "frames = 0", "skeletons"),
    ],
)
def test_skeletons_that_cannot_be_drawn_are_refused(old, new, said):
    assert old in PLAN
    with pytest.raises(SettingsError, match=said):
        parse_plan(PLAN.replace(old, new))
