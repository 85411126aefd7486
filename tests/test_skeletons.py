"""Joints against positions worked out by hand and against real walkers; pictures, and the command that draws them."""

import json

import matplotlib.image
import numpy as np
import pytest
from PIL import Image

from vsdn import cli
from vsdn.datasets.asf import Skeleton, read_amc, read_asf
from vsdn.errors import DataError, SettingsError
from vsdn.skeletons import draw_animation, draw_strip, joints
from vsdn.skeletons.drawing import SIDES
from vsdn.skeletons.notes import note_of
from vsdn.skeletons.posture import COLUMNS, links, sides
from vsdn.skeletons.shots import WIDEST, shoot, view_of

CMU = "http://mocap.cs.cmu.edu"
METRE = 0.45 / 0.0254  # in the unit of CMU's files
ROOT = ("TX", "TY", "TZ", "RX", "RY", "RZ")
ASF = """:units
  length 0.45
:root
  order TX TY TZ RX RY RZ
:bonedata
{bones}
:hierarchy
  begin
    root lleg rleg lowerback
  end
"""
BONE = """  begin
    name {0}
    direction {1}
    length 15
    axis 0 0 0 XYZ
    dof rx
  end"""


def make(*bones: tuple) -> Skeleton:
    """A skeleton of (name, parent, direction, length, axis in degrees, degrees of freedom)."""
    names, parents, directions, lengths, axes, dofs = zip(*bones, strict=True)
    arrays = (np.array(directions, float), np.array(lengths, float), np.array(axes, float))
    return Skeleton(names, parents, *arrays, ("XYZ",) * len(names), dofs, ROOT)


@pytest.fixture
def person():
    return make(
        ("lleg", "root", (0.3, -1, 0), 15, (0, 0, 20), ("rx", "rz")),
        ("lfoot", "lleg", (0, 0, 1), 3, (-90, 5, 20), ("rx",)),
        ("rleg", "root", (-0.3, -1, 0), 15, (0, 0, -20), ("rx", "rz")),
        ("rfoot", "rleg", (0, 0, 1), 3, (-90, -5, -20), ("rx",)),
        ("lowerback", "root", (0, 1, 0), 12, (0, 0, 0), ("rx", "ry", "rz")),
    )


def columns_of(skeleton: Skeleton) -> tuple[str, ...]:
    return tuple(f"{bone}_{dof}" for bone, dofs in skeleton.dofs_of().items() for dof in dofs)


@pytest.fixture
def walk(person):
    """Angles at random, and a root that goes 2 m along z."""
    frames = np.random.default_rng(1).uniform(-40, 40, (12, len(columns_of(person))))
    frames[:, :6] = 0
    frames[:, 2] = np.linspace(0, 2 * METRE, 12)
    return frames


def test_a_chain_worked_out_by_hand():
    chain = make(
        ("upper", "root", (1, 0, 0), METRE, (0, 0, 0), ("rz",)),
        ("lower", "upper", (1, 0, 0), METRE, (0, 0, 90), ("rx", "ry")),
    )
    columns = ("root_TX", "root_TY", "root_TZ", "upper_rz", "lower_rx", "lower_ry")
    frames = np.array([[0, 0, 0, 90, 0, 0], [METRE, 0, 0, 90, 0, 0], [0, 0, 0, 0, 90, 0], [0, 0, 0, 90, 90, 90]])
    # The own x of `lower` is the world's y, its own y the world's −x: rx takes x to −z, then ry turns about x.
    upper = [(0, 1, 0), (1, 1, 0), (1, 0, 0), (0, 1, 0)]
    lower = [(0, 2, 0), (1, 2, 0), (1, 0, -1), (1, 1, 0)]
    expected = np.stack([frames[:, :3] / METRE, upper, lower], axis=1)
    np.testing.assert_allclose(joints(chain, frames, columns), expected, atol=1e-12)


def test_no_angle_is_the_rest_pose(person):
    rest = joints(person, np.zeros((1, len(columns_of(person)))), columns_of(person))[0] * METRE
    vectors = person.lengths[:, None] * person.directions
    expected = [np.zeros(3), vectors[0], vectors[0] + vectors[1], vectors[2], vectors[2] + vectors[3], vectors[4]]
    np.testing.assert_allclose(rest, expected, atol=1e-12)
    np.testing.assert_array_equal(joints(person, np.zeros((1, 0)), ())[0] * METRE, rest)  # what is not given rests


def test_the_unit_of_lengths_is_the_files_own(person, walk):
    """An inch is so much of the file's lengths as it tells: 2.54 where they are centimetres."""
    columns = columns_of(person)
    places = joints(person._replace(length_unit=2.54), walk, columns)
    np.testing.assert_allclose(places, joints(person, walk, columns) * 0.45 / 2.54)
    np.testing.assert_allclose(places[-1, 0] * 100, walk[-1, :3])


def test_bones_that_shift_are_refused(person, walk):
    dofs = (("rx", "rz", "ty"), *person.dofs[1:])
    with pytest.raises(
        DataError, match="bone 'lleg' should have the degrees of freedom rx, ry and rz alone, but has ty"
    ):
        joints(person._replace(dofs=dofs), walk, columns_of(person))


def test_bones_keep_their_length(person, walk):
    walk[:, 3:6] = 50
    ends = joints(person, walk, columns_of(person))[:, links(person)]
    lengths = np.linalg.norm(ends[:, :, 1] - ends[:, :, 0], axis=-1) * METRE
    expected = person.lengths * np.linalg.norm(person.directions, axis=1)
    np.testing.assert_allclose(lengths, np.broadcast_to(expected, lengths.shape))


def test_a_turn_of_the_root_turns_everything(person, walk):
    still = joints(person, walk, columns_of(person))
    walk[:, 4] = 90  # about y: z goes to x, x to −z
    turned = joints(person, walk, columns_of(person))
    x, y, z = np.moveaxis(still - still[:, :1], -1, 0)
    np.testing.assert_allclose(turned - still[:, :1], np.stack([z, y, -x], axis=-1), atol=1e-12)


def test_bones_may_be_listed_before_those_they_hang_from(person, walk):
    columns, back = columns_of(person), slice(None, None, -1)
    turned = Skeleton(*(field[back] for field in person[:7]), *person[7:])
    np.testing.assert_array_equal(joints(turned, walk, columns)[:, [0, 5, 4, 3, 2, 1]], joints(person, walk, columns))


def test_a_walker_goes_to_the_right_and_shows_the_right_side(person, walk):
    view = view_of(person, joints(person, walk, columns_of(person)))
    assert sides(person) == ["left", "left", "right", "right", "middle"]
    assert view.across[2] > 0.8  # it goes along z
    assert view.near[0] < -0.8  # left is x
    standing = view_of(person, joints(person, 0 * walk, columns_of(person)))
    np.testing.assert_allclose(standing, view, atol=1e-12)  # its feet say that it faces z, as the walker does


@pytest.fixture
def walker(shared_data):
    skeleton = read_asf(shared_data("cmu_mocap/asf/35.asf", CMU))
    return skeleton, read_amc(shared_data("cmu_mocap/raw_amc_examples/35_01.amc", CMU), skeleton)


def test_a_real_walker_walks_on_the_floor(walker):
    skeleton, motion = walker
    assert motion.columns == COLUMNS
    places = dict(zip(("root", *skeleton.names), np.moveaxis(joints(skeleton, motion.frames), 1, 0), strict=True))
    lowest = np.minimum.reduce([places[f"{side}{bone}"][:, 1] for side in "lr" for bone in ("foot", "toes")])
    assert lowest.min() > -0.03
    assert lowest.max() < 0.08  # one foot is always down
    head = places["head"][:, 1]
    assert head.min() > 1.5
    assert head.max() < 2.0
    assert np.ptp(head) < 0.1
    way = places["root"][-1] - places["root"][0]
    toes = np.mean([places[f"{side}toes"] - places[f"{side}foot"] for side in "lr"], axis=(0, 1))
    assert toes @ way > 0  # forwards
    assert (places["lfemur"] - places["rfemur"]).mean(axis=0) @ np.cross([0, 1, 0], way) > 0  # left is left


def test_skeleton_files_tell_the_same(walker, shared_data):
    skeleton, _ = walker
    with np.load(shared_data("cmu_mocap/cmu_amc62_locomotion_120fps.npz", CMU)) as file:
        vectors = file["bone_vectors"][file["subjects"].tolist().index(35)]
        assert tuple(file["bone_names"]) == skeleton.names
    np.testing.assert_allclose(skeleton.lengths[:, None] * skeleton.directions, vectors, atol=2e-5)
    known = json.loads(shared_data("cmu_mocap/skeleton.json", CMU).read_text())
    assert tuple(known["columns"]) == COLUMNS
    assert [known["parent"][name] for name in skeleton.names] == list(skeleton.parents)
    np.testing.assert_allclose([known["axis_deg"][name] for name in skeleton.names], skeleton.axes, atol=1e-9)


def test_pictures(person, walk, tmp_path):
    motions, columns = {"truth": walk, "</script>": walk + 5.0}, columns_of(person)
    draw_strip(tmp_path / "strip.png", person, motions, frames=[0, 5, 11], columns=columns, fps=10)
    picture = matplotlib.image.imread(tmp_path / "strip.png")[..., :3]
    for colour in ("left", "right"):
        wanted = np.array([int(SIDES[colour][k : k + 2], 16) for k in (1, 3, 5)]) / 255
        assert (np.abs(picture - wanted) < 0.01).all(axis=-1).sum() > 100
    draw_animation(tmp_path / "walk.gif", person, motions, columns=columns, fps=10, progress=False)
    with Image.open(tmp_path / "walk.gif") as film:
        assert film.n_frames == 12
        assert film.info["duration"] == 100  # true speed
    assert (tmp_path / "walk.gif").stat().st_size < 12 * 16_000  # 60 frames of it are below 1 MB
    draw_animation(tmp_path / "walk.html", person, motions, columns=columns, fps=10)
    page = (tmp_path / "walk.html").read_text("utf-8")
    assert page.count("</script>") == 1
    data = json.loads(page.partition("const data = ")[2].partition(", scale = ")[0])
    assert np.shape(data["motions"][1]["points"]) == (12, 6, 2)


def test_one_scale_holds_all_panels(person, walk):
    """A model that strays is drawn at the true root, and it is told how far off it was; one that does not is left."""
    aside = lambda metres: walk + np.eye(len(columns_of(person)))[0] * metres * METRE
    motions = {"truth": walk, "far": aside(100), "near": aside(0.3)}
    shot = shoot(person, motions, [0, 3], columns_of(person))
    assert shot.half < WIDEST
    np.testing.assert_allclose(shot.points["truth"][:, 0, 0], 0, atol=1e-12)  # the camera goes with the truth
    np.testing.assert_allclose(shot.points["far"], shot.points["truth"], atol=1e-9)
    assert [note_of(shot, name, 1) for name in ("far", "near")] == ["0.0 cm\nroot 100.0 m off", "30.0 cm"]


def test_frames_that_were_seen_are_told(person, walk, tmp_path):
    seen, columns = np.array([1, 0, 0, 1] * 3, bool), columns_of(person)
    how = {"frames": [3, 6], "columns": columns, "fps": 10, "seen": seen, "caption": "A walk."}
    draw_strip(tmp_path / "strip.svg", person, {"truth": walk}, **how)
    text = (tmp_path / "strip.svg").read_text()  # matplotlib keeps texts as comments
    assert all(text.count(word) == 1 for word in ("<!-- 0.60 s", "removed (2)", "<!-- A walk. -->"))
    draw_animation(tmp_path / "walk.html", person, {"truth": walk}, **how)
    page = (tmp_path / "walk.html").read_text("utf-8")
    assert '"clock":["0.30 s, seen","0.60 s, removed (2)"],"caption":"A walk."' in page


@pytest.mark.parametrize("fps", [float("inf"), float("nan"), 0.0, -1.0])
def test_frames_a_second_are_a_finite_number_above_0(person, walk, tmp_path, fps):
    for draw, name in ((draw_strip, "x.png"), (draw_animation, "x.gif")):
        with pytest.raises(SettingsError, match=f"fps should be a finite number above 0, but is {fps}"):
            draw(tmp_path / name, person, {"truth": walk}, columns=columns_of(person), fps=fps)


def test_motions_that_do_not_fit_are_refused(person, walk):
    with pytest.raises(DataError, match="truth should be of finite numbers"):
        shoot(person, {"truth": walk + np.nan}, [0], columns_of(person))
    with pytest.raises(DataError, match=r"\(time, 62\), but it is \(12, 15\)"):
        joints(person, walk)
    with pytest.raises(DataError, match="has no head_rx"):
        joints(person, walk[:, :1], ["head_rx"])
    with pytest.raises(DataError, match="far has frames 0 to 2, but frame 3 was asked for"):
        shoot(person, {"truth": walk, "far": walk[:3]}, [3], columns_of(person))


def test_the_command(tmp_path, capsys):
    bones = {"lleg": ".3 -1 0", "rleg": "-.3 -1 0", "lowerback": "0 1 0"}
    asf, amc = tmp_path / "one.asf", tmp_path / "one.amc"
    asf.write_text(ASF.format(bones="\n".join(BONE.format(*bone) for bone in bones.items())))
    frame = "{0}\nroot 0 0 {0} 0 0 0\nlleg {0}\nrleg -{0}\nlowerback 0\n"
    amc.write_text(":FULLY-SPECIFIED\n:DEGREES\n" + "".join(frame.format(number) for number in range(1, 11)))
    ask = lambda *options: cli.main(["skeleton", str(amc), "--asf", str(asf), "--out", *map(str, options)])
    assert ask(tmp_path / "one.svg", "--frames", "0,9") == 0
    assert (tmp_path / "one.svg").read_text().count("0.07 s") == 1  # matplotlib keeps a title as a comment
    assert ask(tmp_path / "one.gif", "--quiet") == 0
    for options, said in (
        (["one.mp4"], "--out is a .png"),
        (["one.png", "--frames", "0,x"], "--frames wants whole numbers"),
        (["one.gif", "--fps", "inf"], "fps should be a finite number above 0, but is inf"),
        (["one.png", "--fps", "nan"], "--fps"),
        (["one.png", "--frames", "10"], "one has frames 0 to 9, but frame 10 was asked for"),
    ):
        capsys.readouterr()
        assert ask(tmp_path / options[0], *options[1:]) == 2
        assert said in capsys.readouterr().err
