"""Parsers for the text formats of motion capture: skeletons (ASF) and their joint angles frame by frame (AMC)."""

import codecs
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vsdn.datasets.base import read_source
from vsdn.errors import DataError

# The degrees of freedom of CMU's skeletons, in the order of their AMC files, for use without an ASF file.
CMU_DOFS: dict[str, tuple[str, ...]] = {
    "root": ("TX", "TY", "TZ", "RX", "RY", "RZ"),
    **dict.fromkeys(("lowerback", "upperback", "thorax", "lowerneck", "upperneck", "head"), ("rx", "ry", "rz")),
    **{
        side + bone: dofs
        for side in "rl"
        for bone, dofs in {
            "clavicle": ("ry", "rz"),
            "humerus": ("rx", "ry", "rz"),
            "radius": ("rx",),
            "wrist": ("ry",),
            "hand": ("rx", "rz"),
            "fingers": ("rx",),
            "thumb": ("rx", "rz"),
        }.items()
    },
    **{
        side + bone: dofs
        for side in "rl"
        for bone, dofs in {
            "femur": ("rx", "ry", "rz"),
            "tibia": ("rx",),
            "foot": ("rx", "rz"),
            "toes": ("rx",),
        }.items()
    },
}
TURNS = ("rx", "ry", "rz")
SHIFTS = ("tx", "ty", "tz", "l")  # lengths; all other degrees of freedom are angles
INCH = 0.0254  # metres
CMU_UNIT = 0.45  # an inch in CMU's length unit, the default if a file does not say
LONGEST = 15  # digits of a frame's number


class Skeleton(NamedTuple):
    """The bones of an ASF file; the root, from which all hang, is not one of them."""

    names: tuple[str, ...]
    parents: tuple[str, ...]  # of each bone: another bone, or "root"
    directions: np.ndarray  # (bone, 3), of a bone from its parent's end, in the world's axes
    lengths: np.ndarray  # (bone,), in the file's unit
    axes: np.ndarray  # (bone, 3): the rotation of the bone's own axes, in degrees
    axis_orders: tuple[str, ...]  # such as "XYZ"
    dofs: tuple[tuple[str, ...], ...]  # such as ("rx", "rz"), in the order of AMC's numbers; () for a stiff bone
    root_order: tuple[str, ...]  # such as ("TX", "TY", "TZ", "RX", "RY", "RZ")
    length_unit: float = CMU_UNIT  # an inch in the file's length unit
    in_radians: bool = False  # whether motions without a unit of their own are in radians

    def metre(self) -> float:
        """How many of the file's length units make a metre."""
        return self.length_unit / INCH

    def dofs_of(self) -> dict[str, tuple[str, ...]]:
        """The degrees of freedom by bone, including the root's."""
        return {"root": self.root_order, **dict(zip(self.names, self.dofs, strict=True))}


class Motion(NamedTuple):
    """Joint angles in degrees, and translations in the file's length unit."""

    frames: np.ndarray  # (frame, column)
    columns: tuple[str, ...]  # such as "root_TX" and "lfoot_rz"


class _Line(NamedTuple):
    number: int
    words: list[str]


class _File(NamedTuple):
    """A file as lines of words, and its name for error messages."""

    path: Path
    lines: list[_Line]

    def fault(self, line: _Line, wanted: str) -> DataError:
        return DataError(f"{self.path}: line {line.number} should be {wanted}, but is {' '.join(line.words)[:60]!r}")

    def numbers(self, line: _Line, texts: Sequence[str], wanted: str) -> list[float]:
        try:
            found = [float(text) for text in texts]
        except ValueError:
            raise self.fault(line, wanted) from None
        if not np.isfinite(found).all():
            raise self.fault(line, wanted)
        return found


def _open(path: str | Path) -> _File:
    """The lines of a file, without comments and empty lines."""
    content = read_source(Path(path)).removeprefix(codecs.BOM_UTF8)
    lines = re.split(r"\r\n|\r|\n", content.decode("latin-1"))  # old files have paths in any code page, in comments
    words = ((number, line.partition("#")[0].split()) for number, line in enumerate(lines, start=1))
    return _File(Path(path), [_Line(number, line) for number, line in words if line])


def _is_radians(file: _File, line: _Line, word: str) -> bool:
    """Whether a unit of angles is radians (else degrees)."""
    if not word.upper().startswith(("DEG", "RAD")):
        raise file.fault(line, "a unit of angles, degrees or radians")
    return word.upper().startswith("RAD")


# -------------------------------------------------------------------------------------------------------------- AMC


def read_amc(path: str | Path, skeleton: Skeleton | None = None) -> Motion:
    """The frames of an AMC file, with columns named by the skeleton (None: as in CMU's, else numbered)."""
    file = _open(path)
    head, blocks = _blocks(file)
    in_radians = _unit(file, head, skeleton)
    layout = _layout(file, blocks[0])
    frames = np.array([_frame(file, block, layout) for block in blocks])
    if not np.isfinite(frames).all():
        frame = int(np.argmin(np.isfinite(frames).all(axis=1)))
        raise DataError(f"{file.path}: frame {frame + 1} should hold finite numbers")
    dofs = _name_dofs(file.path, layout, skeleton)
    is_angle = np.array([dof.lower() not in SHIFTS for _, dof in dofs])
    frames[:, is_angle] *= 180 / np.pi if in_radians else 1.0
    return Motion(frames, tuple(f"{bone}_{dof}" for bone, dof in dofs))


def _unit(file: _File, head: list[_Line], skeleton: Skeleton | None) -> bool:
    """Whether angles are in radians: by the keyword that stands alone, else by the skeleton."""
    units = [line for line in head if len(line.words) == 1 and line.words[0].upper() != ":FULLY-SPECIFIED"]
    told = [_is_radians(file, line, line.words[0][1:]) for line in units]
    if len(set(told)) > 1:
        raise file.fault(units[-1], "the only unit of angles")
    return told[0] if told else skeleton is not None and skeleton.in_radians


def _blocks(file: _File) -> tuple[list[_Line], list[list[_Line]]]:
    """The keywords at the top, and the lines of each frame without its number."""
    head: list[_Line] = []
    blocks: list[list[_Line]] = []
    last = None
    for line in file.lines:
        if len(line.words) == 1 and line.words[0].isdecimal():
            last = _frame_number(file, line, last)
            blocks.append([])
        elif last is not None:
            blocks[-1].append(line)
        elif line.words[0].startswith(":"):
            head.append(line)
        else:
            raise file.fault(line, "a keyword such as :DEGREES or the number of the first frame")
    if not blocks or not blocks[0]:
        raise DataError(f"{file.path} should be an AMC file, but it has no frame")
    return head, blocks


def _frame_number(file: _File, line: _Line, last: int | None) -> int:
    """The number of a frame, which must follow the one before."""
    number = int(line.words[0]) if len(line.words[0]) <= LONGEST else None
    if number is None or last not in (None, number - 1):
        raise file.fault(line, "the number of a frame" if last is None else f"the number of frame {last + 1}")
    return number


def _layout(file: _File, block: list[_Line]) -> list[tuple[str, int]]:
    """Each bone of the first frame, including the root, and how many numbers it has."""
    layout: dict[str, int] = {}
    for line in block:
        if line.words[0] in layout:
            raise file.fault(line, f"another bone than {line.words[0]!r}, which the frame has already")
        layout[line.words[0]] = len(line.words) - 1
    if "root" not in layout:
        raise DataError(f"{file.path}: the first frame should have a line 'root', but has none")
    return list(layout.items())


def _frame(file: _File, block: list[_Line], layout: list[tuple[str, int]]) -> list[float]:
    """The numbers of a frame, which must have the bones of the first."""
    values = []
    for line, (bone, count) in zip(block, layout, strict=False):
        try:
            values += map(float, line.words[1:])
            fits = line.words[0] == bone and len(line.words) == count + 1
        except ValueError:
            fits = False
        if not fits:
            raise file.fault(line, f"{bone!r} and {count} number{'s' * (count != 1)}, as in the first frame")
    if len(block) != len(layout):
        where = block[-1].number if block else file.lines[-1].number
        raise DataError(
            f"{file.path}: the frame that ends on line {where} should have {len(layout)} bones, as the first"
        )
    return values


def _name_dofs(path: Path, layout: Iterable[tuple[str, int]], skeleton: Skeleton | None) -> list[tuple[str, str]]:
    known = CMU_DOFS if skeleton is None else skeleton.dofs_of()
    names = []
    for bone, count in layout:
        dofs = known.get(bone, ())
        if len(dofs) != count and skeleton is not None:
            raise DataError(f"{path}: {bone!r} has {count} numbers, but {len(dofs)} degrees of freedom in the skeleton")
        names += [(bone, dof) for dof in (dofs if len(dofs) == count else map(str, range(1, count + 1)))]
    return names


# -------------------------------------------------------------------------------------------------------------- ASF


def read_asf(path: str | Path) -> Skeleton:
    """The skeleton of an ASF file."""
    file = _open(path)
    sections = _sections(file)
    bones = _bones(file, sections.get(":bonedata", []))
    parents = _parents(file, sections.get(":hierarchy", []), set(bones))
    length_unit, in_radians = _units(file, sections.get(":units", []))
    each = [_read_bone(file, name, fields) for name, fields in bones.items()]
    directions, lengths, axes, axis_orders, dofs = zip(*each, strict=True)
    return Skeleton(
        names=tuple(bones),
        parents=tuple(parents[name] for name in bones),
        directions=np.array(directions),
        lengths=np.array(lengths),
        axes=np.array(axes) * (180 / np.pi if in_radians else 1.0),
        axis_orders=axis_orders,
        dofs=dofs,
        root_order=_root_order(file, sections.get(":root", [])),
        length_unit=length_unit,
        in_radians=in_radians,
    )


def _sections(file: _File) -> dict[str, list[_Line]]:
    """The lines under each keyword."""
    sections: dict[str, list[_Line]] = {}
    lines: list[_Line] = []
    for line in file.lines:
        if line.words[0].startswith(":"):
            lines = sections.setdefault(line.words[0].lower(), [])
        else:
            lines.append(line)
    return sections


def _units(file: _File, lines: list[_Line]) -> tuple[float, bool]:
    """An inch in the file's length unit (default: CMU's), and whether angles are in radians (default: degrees)."""
    units = {line.words[0].lower(): line for line in lines}
    length, angle = units.get("length"), units.get("angle")
    in_radians = angle is not None and _is_radians(file, angle, "".join(angle.words[1:]))
    return CMU_UNIT if length is None else _length_unit(file, length), in_radians


def _length_unit(file: _File, line: _Line) -> float:
    wanted = "'length' and a number above 0"
    numbers = file.numbers(line, line.words[1:], wanted)
    if len(numbers) != 1 or numbers[0] <= 0:
        raise file.fault(line, wanted)
    return numbers[0]


def _root_order(file: _File, lines: list[_Line]) -> tuple[str, ...]:
    """The root's degrees of freedom; refuses a root that does not rest at the origin, unrotated."""
    for line in lines:
        if line.words[0] in ("position", "orientation"):  # programs disagree on their effect on a motion
            wanted = f"{line.words[0]!r} and three zeros (a root that rests elsewhere is not read)"
            if file.numbers(line, line.words[1:], wanted) != [0, 0, 0]:
                raise file.fault(line, wanted)
    for line in lines:
        if line.words[0] == "order":
            return tuple(dof.upper() for dof in _dofs(file, line, (*SHIFTS[:3], *TURNS)))
    raise DataError(f"{file.path} should be an ASF file, but its :root has no 'order'")


def _dofs(file: _File, line: _Line, known: tuple[str, ...]) -> tuple[str, ...]:
    """Degrees of freedom, in lower case."""
    dofs = tuple(word.lower() for word in line.words[1:])
    if len(set(dofs)) < len(dofs) or not set(dofs) <= set(known):
        raise file.fault(line, f"{line.words[0]!r} and some of {' '.join(known)}, each once")
    return dofs


def _bones(file: _File, lines: list[_Line]) -> dict[str, dict[str, _Line]]:
    """The lines of each bone, by first word."""
    bones, fields = {}, None
    for line in lines:
        if line.words[0] == "begin":
            fields = {}
        elif line.words[0] == "end" and fields is not None:
            if len(fields.get("name", line).words) != 2 or (name := fields["name"].words[1]) in (*bones, "root"):
                raise file.fault(line, "the end of a bone with a name of its own")
            bones[name], fields = fields, None
        elif fields is not None:
            fields.setdefault(line.words[0], line)  # further limits begin with a bracket: nothing here reads them
        else:
            raise file.fault(line, "'begin'")
    if not bones:
        raise DataError(f"{file.path} should be an ASF file, but it has no bone")
    if fields is not None:
        raise DataError(f"{file.path}: the last bone has no 'end', the file may be cut off")
    return bones


def _read_bone(file: _File, name: str, fields: dict[str, _Line]) -> tuple:
    """Direction, length, axis, axis order, and degrees of freedom of a bone."""
    for field, count in (("direction", 3), ("length", 1), ("axis", 4)):
        if field not in fields:
            raise DataError(f"{file.path}: bone {name!r} should have a line {field!r}, but it has none")
        if len(fields[field].words) != count + 1:
            raise file.fault(fields[field], f"{field!r} and {count} values")
    numbers = lambda field: file.numbers(fields[field], fields[field].words[1:4], f"{field!r} and finite numbers")
    order = fields["axis"].words[4].upper()
    if sorted(order) != ["X", "Y", "Z"]:
        raise file.fault(fields["axis"], "'axis', three numbers and an order of X, Y and Z such as XYZ")
    dofs = _dofs(file, fields["dof"], (*SHIFTS, *TURNS)) if "dof" in fields else ()
    return numbers("direction"), numbers("length")[0], numbers("axis"), order, dofs


def _parents(file: _File, lines: list[_Line], bones: set[str]) -> dict[str, str]:
    """The parent of each bone; refuses bones that do not hang from the root."""
    parents: dict[str, str] = {}
    for line in lines:
        for bone in () if line.words in (["begin"], ["end"]) else line.words[1:]:
            if bone not in bones or bone in parents:
                raise file.fault(line, f"a bone and its children, each of :bonedata and listed once ({bone!r} is not)")
            parents[bone] = line.words[0]
    hanging = {"root"}
    while more := {bone for bone, parent in parents.items() if parent in hanging} - hanging:
        hanging |= more
    if loose := sorted(bones - hanging):
        raise DataError(f"{file.path}: bone {loose[0]!r} should hang from the root by :hierarchy, but it does not")
    return parents
