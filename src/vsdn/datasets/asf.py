"""The text formats of motion capture: a skeleton (ASF) and its joint angles frame by frame (AMC)."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vsdn.datasets.base import read_source
from vsdn.errors import DataError

# The degrees of freedom of CMU's skeletons, in the order of their AMC files, for where the ASF file is not at hand.
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
LENGTHS = ("TX", "TY", "TZ", "l")  # all other degrees of freedom are angles


class Skeleton(NamedTuple):
    """Bones as an ASF file lists them; the root, which all hang from, is not one of them."""

    names: tuple[str, ...]
    parents: tuple[str, ...]  # of each bone: another bone, or "root"
    directions: np.ndarray  # (bone, 3), of a bone from its parent's end, in the world's axes
    lengths: np.ndarray  # (bone,), in the file's unit
    axes: np.ndarray  # (bone, 3): the rotation of the bone's own axes, in degrees
    axis_orders: tuple[str, ...]  # such as "XYZ"
    dofs: tuple[tuple[str, ...], ...]  # such as ("rx", "rz"), in the order of AMC's numbers; () for a stiff bone
    root_order: tuple[str, ...]  # such as ("TX", "TY", "TZ", "RX", "RY", "RZ")

    def dofs_of(self) -> dict[str, tuple[str, ...]]:
        """The degrees of freedom by bone, the root's among them."""
        return {"root": self.root_order, **dict(zip(self.names, self.dofs, strict=True))}


class Motion(NamedTuple):
    """Joint angles in degrees and translations in the file's unit."""

    frames: np.ndarray  # (frame, column)
    columns: tuple[str, ...]  # such as "root_TX" and "lfoot_rz"


class _Line(NamedTuple):
    number: int
    words: list[str]


class _File(NamedTuple):
    """Lines of words, and how errors refer to them."""

    path: Path
    lines: list[_Line]

    def fault(self, line: _Line, wanted: str) -> DataError:
        return DataError(f"{self.path}: line {line.number} should be {wanted}, but is {' '.join(line.words)[:60]!r}")

    def numbers(self, line: _Line, texts: Sequence[str], wanted: str) -> list[float]:
        try:
            return [float(text) for text in texts]
        except ValueError:
            raise self.fault(line, wanted) from None


def _open(path: str | Path) -> _File:
    """The lines of a file, without comments and empty ones."""
    text = read_source(Path(path)).decode("latin-1")  # old files have paths in any code page, in comments
    words = ((number, line.partition("#")[0].split()) for number, line in enumerate(text.splitlines(), start=1))
    return _File(Path(path), [_Line(number, line) for number, line in words if line])


# -------------------------------------------------------------------------------------------------------------- AMC


def read_amc(path: str | Path, skeleton: Skeleton | None = None) -> Motion:
    """The frames of an AMC file, with columns named by the skeleton (None: by CMU's, else numbered)."""
    file = _open(path)
    in_radians = any(line.words[0].upper() == ":RADIANS" for line in file.lines)
    blocks = _blocks(file)
    layout = [(line.words[0], len(line.words) - 1) for line in blocks[0]]
    frames = np.array([_frame(file, block, layout) for block in blocks])
    if not np.isfinite(frames).all():
        frame = int(np.argmin(np.isfinite(frames).all(axis=1)))
        raise DataError(f"{file.path}: frame {frame + 1} should hold finite numbers")
    dofs = _name_dofs(file.path, layout, skeleton)
    is_angle = np.array([dof not in LENGTHS for _, dof in dofs])
    frames[:, is_angle] *= 180 / np.pi if in_radians else 1.0
    return Motion(frames, tuple(f"{bone}_{dof}" for bone, dof in dofs))


def _blocks(file: _File) -> list[list[_Line]]:
    """The lines of each frame, without its number."""
    blocks: list[list[_Line]] = []
    last = None
    for line in file.lines:
        is_number = len(line.words) == 1 and line.words[0].isdecimal()
        if is_number:
            if last is not None and int(line.words[0]) != last + 1:
                raise file.fault(line, f"the number of frame {last + 1}")
            last = int(line.words[0])
            blocks.append([])
        elif last is not None:
            blocks[-1].append(line)
        elif not line.words[0].startswith(":"):
            raise file.fault(line, "a keyword such as :DEGREES or the number of the first frame")
    if not blocks or not blocks[0]:
        raise DataError(f"{file.path} should be an AMC file, but it has no frame")
    return blocks


def _frame(file: _File, block: list[_Line], layout: list[tuple[str, int]]) -> list[float]:
    """The numbers of a frame, which should have the bones of the first."""
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
    units = {line.words[0]: line.words[1:] for line in sections.get(":units", [])}
    to_degrees = 180 / np.pi if units.get("angle", ["deg"])[:1] == ["rad"] else 1.0
    each = [_read_bone(file, name, fields) for name, fields in bones.items()]
    directions, lengths, axes, axis_orders, dofs = zip(*each, strict=True)
    return Skeleton(
        names=tuple(bones),
        parents=tuple(parents[name] for name in bones),
        directions=np.array(directions),
        lengths=np.array(lengths),
        axes=np.array(axes) * to_degrees,
        axis_orders=axis_orders,
        dofs=dofs,
        root_order=_root_order(file, sections.get(":root", [])),
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


def _root_order(file: _File, lines: list[_Line]) -> tuple[str, ...]:
    for line in lines:
        if line.words[0] == "order":
            return tuple(word.upper() for word in line.words[1:])
    raise DataError(f"{file.path} should be an ASF file, but its :root has no 'order'")


def _bones(file: _File, lines: list[_Line]) -> dict[str, dict[str, _Line]]:
    """The lines of each bone by their first word."""
    bones, fields = {}, None
    for line in lines:
        if line.words[0] == "begin":
            fields = {}
        elif line.words[0] == "end" and fields is not None:
            if len(fields.get("name", line).words) != 2 or (name := fields["name"].words[1]) in bones:
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
    """Direction, length, axis, its order, and the degrees of freedom."""
    for field, count in (("direction", 3), ("length", 1), ("axis", 4)):
        if field not in fields:
            raise DataError(f"{file.path}: bone {name!r} should have a line {field!r}, but it has none")
        if len(fields[field].words) != count + 1:
            raise file.fault(fields[field], f"{field!r} and {count} values")
    numbers = lambda field: file.numbers(fields[field], fields[field].words[1:4], f"{field!r} and numbers")
    dofs = tuple(word.lower() for word in fields["dof"].words[1:]) if "dof" in fields else ()
    return numbers("direction"), numbers("length")[0], numbers("axis"), fields["axis"].words[4].upper(), dofs


def _parents(file: _File, lines: list[_Line], bones: set[str]) -> dict[str, str]:
    """The parent of each bone, all of which should hang from the root."""
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
