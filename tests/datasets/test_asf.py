"""AMC and ASF files: whole ones are read to the last digit, damaged ones refused with the line."""

import json
import re

import numpy as np
import pytest
from datafiles import amc_text

from vsdn.datasets import asf, mocap
from vsdn.errors import DataError

SOURCE = "mocap.cs.cmu.edu (docs/datasets.md tells what is packed how)"
ASF = """# a comment
:version 1.10
:name VICON
:units
  mass 1.0
  length 0.45
  angle deg
:documentation
   begin with anything: 1 2 3
:root
   order TX TY TZ RX RY RZ
   axis XYZ
   position 0 0 0
   orientation 0 0 0
:bonedata
  begin
     id 1
     name hip   # stiff: it has no dof
     direction 0 -1 0
     length 2.5
     axis 0 0 20 XYZ
  end
  begin
     id 2
     name leg
     direction 0.6 0 0.8
     length 7
     axis 90 0 0 XYZ
     dof rx rz
     limits (-160.0 20.0)
            (-70.0 70.0)
  end
:hierarchy
  begin
    hip leg
    root hip
  end
"""
DOFS = {"root": ("TX", "TY", "TZ", "RX", "RY", "RZ"), "leg": ("rx", "rz")}
FRAMES = np.random.default_rng(1).normal(size=(3, 8))


def write(tmp_path, name: str, text: str):
    (tmp_path / name).write_text(text)
    return tmp_path / name


def test_asf_tells_the_skeleton(tmp_path):
    skeleton = asf.read_asf(write(tmp_path, "a.asf", ASF))
    assert skeleton.names == ("hip", "leg")
    assert skeleton.parents == ("root", "hip")
    assert skeleton.directions.tolist() == [[0, -1, 0], [0.6, 0, 0.8]]
    assert skeleton.lengths.tolist() == [2.5, 7]
    assert skeleton.axes.tolist() == [[0, 0, 20], [90, 0, 0]]
    assert skeleton.axis_orders == ("XYZ", "XYZ")
    assert skeleton.dofs == ((), ("rx", "rz"))
    assert skeleton.dofs_of() == {**DOFS, "hip": ()}


@pytest.mark.parametrize("unit", ["rad", "radians", "RADS", "Radian"])
def test_asf_axes_in_radians_are_turned_to_degrees(tmp_path, unit):
    text = ASF.replace("angle deg", f"angle {unit}").replace("axis 90 0 0", f"axis {np.pi / 2} 0 0")
    assert asf.read_asf(write(tmp_path, "a.asf", text)).axes[1].tolist() == [90, 0, 0]


def test_amc_comes_back_as_it_was_written(tmp_path):
    skeleton = asf.read_asf(write(tmp_path, "a.asf", ASF))
    text = amc_text(FRAMES, DOFS).replace("\n2\n", "\n\n# in between\n2   # a number\n").replace("\n", "\r\n")
    frames, columns = asf.read_amc(write(tmp_path, "a.amc", text), skeleton)
    assert np.array_equal(frames, FRAMES)
    assert columns == (*(f"root_{dof}" for dof in DOFS["root"]), "leg_rx", "leg_rz")


IN_RADIANS = np.hstack([FRAMES[:, :3], np.radians(FRAMES[:, 3:])])


@pytest.mark.parametrize("unit", ["RADIANS", "RADIAN", "rad"])
def test_amc_in_radians_is_turned_to_degrees_but_for_lengths(tmp_path, unit):
    text = amc_text(IN_RADIANS, DOFS, unit=unit)
    frames, columns = asf.read_amc(write(tmp_path, "a.amc", text))
    np.testing.assert_allclose(frames, FRAMES, rtol=1e-14)
    assert columns[-2:] == ("leg_1", "leg_2")  # no skeleton of CMU's has it


@pytest.mark.parametrize("unit", ["deg", "radians"])
def test_amc_without_a_unit_has_that_of_the_skeleton(tmp_path, unit):
    skeleton = asf.read_asf(write(tmp_path, "a.asf", ASF.replace("angle deg", f"angle {unit}")))
    text = amc_text(FRAMES if unit == "deg" else IN_RADIANS, DOFS, unit="SAMPLES-PER-SECOND 120")
    np.testing.assert_allclose(asf.read_amc(write(tmp_path, "a.amc", text), skeleton).frames, FRAMES, rtol=1e-14)
    text = amc_text(FRAMES, DOFS, unit="Degrees")  # which counts more than the skeleton's
    assert np.array_equal(asf.read_amc(write(tmp_path, "a.amc", text), skeleton).frames, FRAMES)


def test_lengths_of_bones_are_no_angles(tmp_path):
    skeleton = asf.read_asf(write(tmp_path, "a.asf", ASF.replace("dof rx rz", "dof tx l")))
    text = amc_text(np.hstack([IN_RADIANS[:, :6], FRAMES[:, 6:]]), DOFS, unit="RADIANS")
    np.testing.assert_allclose(asf.read_amc(write(tmp_path, "a.amc", text), skeleton).frames, FRAMES, rtol=1e-14)


@pytest.mark.parametrize("byte", [b"\x85", b"\x0c", b"\x1c", b"\x1d", b"\x1e", b"\x0b"])
def test_bytes_of_other_code_pages_end_no_line(tmp_path, byte):
    path = write(tmp_path, "a.amc", "")
    path.write_bytes(b"# a" + byte + b"b 1\r" + WHOLE.encode())
    assert np.array_equal(asf.read_amc(path).frames, FRAMES)


def test_a_byte_order_mark_is_no_text(tmp_path):
    for name, text in {"a.amc": WHOLE[WHOLE.index(":") :], "a.asf": ASF[ASF.index(":") :]}.items():
        (tmp_path / name).write_text(text, encoding="utf-8-sig")
    assert np.array_equal(asf.read_amc(tmp_path / "a.amc", asf.read_asf(tmp_path / "a.asf")).frames, FRAMES)


def test_asf_tells_the_unit_of_lengths(tmp_path):
    for line, unit in {"length 0.45": 0.45, "length 2.54": 2.54, "": 0.45}.items():
        skeleton = asf.read_asf(write(tmp_path, "a.asf", ASF.replace("length 0.45", line)))
        assert skeleton.length_unit == unit
        assert skeleton.metre() == unit / 0.0254


def test_cmu_columns_need_no_asf(tmp_path):
    frames = np.arange(124.0).reshape(2, 62)
    read, columns = asf.read_amc(write(tmp_path, "a.amc", amc_text(frames)))
    assert columns == mocap.COLUMNS
    assert np.array_equal(read, frames)


WHOLE = amc_text(FRAMES, DOFS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it has no frame"),
        (":DEGREES\n1\n", "it has no frame"),
        ("\x00\x01\x02 PK", "line 1 should be a keyword such as :DEGREES or the number of the first frame"),
        (WHOLE[: WHOLE.rindex("leg")], r"the frame that ends on line 11 should have 2 bones"),
        (WHOLE[: WHOLE.rindex(" ")], "line 12 should be 'leg' and 2 numbers, as in the first frame"),
        (WHOLE[: WHOLE.rindex("root")], "the frame that ends on line 10 should have 2 bones"),
        (WHOLE.replace("\n2\n", "\n3\n"), "line 7 should be the number of frame 2, but is '3'"),
        (WHOLE.replace("leg", "arm", 2).replace("arm", "leg", 1), "line 9 should be 'leg'"),
        (WHOLE.replace("leg ", "leg x", 1), "line 6 should be 'leg' and 2 numbers"),
        (re.sub(r"leg \S+", "leg 1e999", WHOLE, count=1), "frame 1 should hold finite numbers"),
        (WHOLE + "tail 1.0\n", "the frame that ends on line 13 should have 2 bones"),
        (
            WHOLE.replace("DEGREES", "GRADIANS"),
            "line 3 should be a unit of angles, degrees or radians, but is ':GRADIANS'",
        ),
        (
            WHOLE.replace(":DEGREES", ":DEGREES\n:RADIANS"),
            "line 4 should be the only unit of angles, but is ':RADIANS'",
        ),
        (WHOLE.replace("\n1\n", f"\n{'1' * 5000}\n"), "line 4 should be the number of a frame, but is '1"),
        (WHOLE.replace("\n2\n", f"\n{'2' * 5000}\n"), "line 7 should be the number of frame 2, but is '2"),
        (re.sub(r"(root.*)", r"\1\nleg 1 2", WHOLE), "line 7 should be another bone than 'leg', which the frame has"),
        (re.sub(r"root.*\n", "", WHOLE), "the first frame should have a line 'root', but has none"),
    ],
)
def test_damaged_amc_is_refused(tmp_path, text, message):
    with pytest.raises(DataError, match=message) as caught:
        asf.read_amc(write(tmp_path, "a.amc", text))
    assert "a.amc" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_amc_of_another_skeleton_is_refused(tmp_path):
    skeleton = asf.read_asf(write(tmp_path, "a.asf", ASF.replace("dof rx rz", "dof rx")))
    with pytest.raises(DataError, match="'leg' has 2 numbers, but 1 degrees of freedom in the skeleton"):
        asf.read_amc(write(tmp_path, "a.amc", WHOLE), skeleton)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (ASF, "", "no bone"),
        ("   order TX TY TZ RX RY RZ\n", "", ":root has no 'order'"),
        (ASF[ASF.index("     limits") :], "", "the last bone has no 'end'"),
        ("     length 7\n", "", "bone 'leg' should have a line 'length'"),
        ("length 7", "length", "line 27 should be 'length' and 1 values"),
        ("length 7", "length seven", "line 27 should be 'length' and finite numbers"),
        ("length 7", "length nan", "line 27 should be 'length' and finite numbers"),
        ("direction 0 -1 0", "direction 0 inf 0", "line 19 should be 'direction' and finite numbers"),
        ("axis 90 0 0 XYZ", "axis 90 0 XYZ", "line 28 should be 'axis' and 4 values"),
        *[
            (
                "90 0 0 XYZ",
                f"90 0 0 {order}",
                f"line 28 should be 'axis', three numbers .*, but is 'axis 90 0 0 {order}'",
            )
            for order in ("ABC", "XY", "XXX", "XYZZ")
        ],
        (
            "dof rx rz",
            "dof rx ry rq",
            "line 29 should be 'dof' and some of tx ty tz l rx ry rz, each once, but is 'dof",
        ),
        (
            "dof rx rz",
            "dof rx rx rz",
            "line 29 should be 'dof' and some of tx ty tz l rx ry rz, each once, but is 'dof",
        ),
        (
            "RX RY RZ",
            "RX RY RQ",
            "line 11 should be 'order' and some of tx ty tz rx ry rz, each once, but is 'order TX",
        ),
        ("RX RY RZ", "RX RY RX", "line 11 should be 'order' and some of tx ty tz rx ry rz, each once"),
        ("position 0 0 0", "position 0 1 0", "line 13 should be 'position' and three zeros"),
        ("orientation 0 0 0", "orientation 0 0", "line 14 should be 'orientation' and three zeros"),
        ("angle deg", "angle grad", "line 7 should be a unit of angles, degrees or radians, but is 'angle grad'"),
        ("angle deg", "angle", "line 7 should be a unit of angles"),
        *[
            ("length 0.45", f"length{value}", "line 6 should be 'length' and a number above 0")
            for value in (" 0", " -1", " inf", " x", " 1 2", "")
        ],
        ("name leg", "name hip", "a bone with a name of its own"),
        ("name leg", "name root", "a bone with a name of its own"),
        ("    hip leg\n", "", "bone 'leg' should hang from the root"),
        ("root hip", "leg hip", "bone 'hip' should hang from the root"),
        ("root hip", "root hip wing", r"\('wing' is not\)"),
        ("  begin\n     id 1\n", "     id 1\n", "line 16 should be 'begin'"),
    ],
)
def test_damaged_asf_is_refused(tmp_path, old, new, message):
    assert old in ASF
    with pytest.raises(DataError, match=message) as caught:
        asf.read_asf(write(tmp_path, "a.asf", ASF.replace(old, new, 1)))
    assert "a.asf" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_files_are_refused(tmp_path):
    for read in (asf.read_amc, asf.read_asf):
        with pytest.raises(DataError, match=r"nowhere\.x cannot be read: No such file"):
            read(tmp_path / "nowhere.x")


def test_every_skeleton_of_cmu_is_read(shared_data):
    told = json.loads(shared_data("cmu_mocap/skeleton.json", SOURCE).read_text())
    paths = sorted(shared_data("cmu_mocap/asf", SOURCE).glob("*.asf"))
    assert len(paths) > 20
    for path in paths:
        skeleton = asf.read_asf(path)
        assert dict(zip(skeleton.names, skeleton.parents, strict=True)).items() <= told["parent"].items()
        assert {bone: dofs for bone, dofs in skeleton.dofs_of().items() if dofs} == asf.CMU_DOFS
        np.testing.assert_allclose(np.linalg.norm(skeleton.directions, axis=1), 1, atol=1e-4)
        turned = skeleton.axes - [told["axis_deg"][bone] for bone in skeleton.names]
        np.testing.assert_allclose(np.cos(np.radians(turned)), 1, atol=1e-9)  # −180 is 180


@pytest.mark.parametrize("name", ["02_03", "09_06", "35_01"])
def test_raw_amc_equals_the_packed_trial(name, shared_data):
    packed = mocap.read_packed(shared_data(mocap.PACKED.name, SOURCE))  # both at 120 frames a second
    frames = next(recording.frames for recording in packed if recording.name == name)
    skeleton = asf.read_asf(shared_data(f"cmu_mocap/asf/{name[:2]}.asf", SOURCE))
    raw, columns = asf.read_amc(shared_data(f"cmu_mocap/raw_amc_examples/{name}.amc", SOURCE), skeleton)
    assert columns == mocap.COLUMNS
    assert raw.shape == frames.shape
    assert np.abs(raw - frames)[:, :3].max() < 0.51e-4  # packed in steps of 1e-4 ...
    assert np.abs(raw - frames)[:, 3:].max() < 0.51e-2  # ... and 0.01 degrees
