"""Joint positions of a skeleton from the angles of a motion."""

from collections.abc import Callable, Sequence

import numpy as np

from vsdn.datasets.asf import CMU_DOFS, TURNS, Skeleton
from vsdn.errors import DataError

COLUMNS = tuple(f"{bone}_{dof}" for bone, dofs in CMU_DOFS.items() for dof in dofs)


def turns(angles: np.ndarray, order: Sequence[str]) -> np.ndarray:
    """Rotation matrices (time, 3, 3) of angles (time, angle) in degrees about the named axes; the first turns first."""
    matrix = np.broadcast_to(np.eye(3), (len(angles), 3, 3))
    for degrees, axis in zip(np.moveaxis(angles, -1, 0), order, strict=True):
        matrix = _turn(np.deg2rad(degrees), "xyz".index(axis[-1].lower())) @ matrix
    return matrix


def _turn(angle: np.ndarray, axis: int) -> np.ndarray:
    """Rotation matrices about x, y or z."""
    after, last = (axis + 1) % 3, (axis + 2) % 3
    matrix = np.zeros((len(angle), 3, 3))
    matrix[:, axis, axis] = 1
    matrix[:, after, after] = matrix[:, last, last] = np.cos(angle)
    matrix[:, last, after] = np.sin(angle)
    matrix[:, after, last] = -np.sin(angle)
    return matrix


def joints(skeleton: Skeleton, frames: np.ndarray, columns: Sequence[str] = COLUMNS) -> np.ndarray:
    """Positions (time, joint, 3) in metres: the root, then the far end of every bone in the skeleton's order.

    The columns of the frames are CMU's 62, or those that are named; degrees of freedom without a column stay at rest.
    """
    _check_bones_turn(skeleton)
    given = _entries(skeleton, np.asarray(frames, float), columns)
    spins = [dof for dof in skeleton.root_order if dof.startswith("R")]
    places, frame = {"root": given("root", ("TX", "TY", "TZ"))}, {"root": turns(given("root", spins), spins)}
    for bone in _parents_first(skeleton):
        name, parent = skeleton.names[bone], skeleton.parents[bone]
        own = turns(skeleton.axes[bone][None], skeleton.axis_orders[bone])  # C
        angles = [dof for dof in skeleton.dofs[bone] if dof.startswith("r")]
        frame[name] = frame[parent] @ own @ turns(given(name, angles), angles) @ own.swapaxes(1, 2)  # L_parent C M C⁻¹
        places[name] = places[parent] + frame[name] @ (skeleton.lengths[bone] * skeleton.directions[bone])
    return np.stack([places[name] for name in ("root", *skeleton.names)], axis=1) / skeleton.metre()


def _check_bones_turn(skeleton: Skeleton) -> None:
    """Refuses a skeleton in which a bone other than the root can do more than rotate."""
    for name, dofs in zip(skeleton.names, skeleton.dofs, strict=True):
        if shifts := [dof for dof in dofs if dof not in TURNS]:
            raise DataError(
                f"bone {name!r} should have the degrees of freedom rx, ry and rz alone, but has {shifts[0]}"
            )


def _entries(skeleton: Skeleton, frames: np.ndarray, columns: Sequence[str]) -> Callable[..., np.ndarray]:
    """A function from a bone and its degrees of freedom to their values (time, dof)."""
    if frames.ndim != 2 or frames.shape[1] != len(columns):
        raise DataError(f"a motion should be (time, {len(columns)}), but it is {frames.shape}")
    known = {f"{bone}_{dof}" for bone, dofs in skeleton.dofs_of().items() for dof in dofs}
    if strange := [column for column in columns if column not in known]:
        raise DataError(f"the skeleton has no {strange[0]}, which the motion gives")
    entries, rest = dict(zip(columns, frames.T, strict=True)), np.zeros(len(frames))
    return lambda bone, dofs: np.array([entries.get(f"{bone}_{dof}", rest) for dof in dofs]).reshape(-1, len(rest)).T


def _parents_first(skeleton: Skeleton) -> list[int]:
    """The numbers of the bones, each after its parent."""
    parents = dict(zip(skeleton.names, skeleton.parents, strict=True))

    def depth(name: str) -> int:
        return 0 if name == "root" else 1 + depth(parents[name])

    return sorted(range(len(skeleton.names)), key=lambda bone: depth(skeleton.names[bone]))


def links(skeleton: Skeleton) -> np.ndarray:
    """The two joints of every bone, (bone, 2)."""
    number = {name: index for index, name in enumerate(("root", *skeleton.names))}
    pairs = zip(skeleton.parents, skeleton.names, strict=True)
    return np.array([(number[parent], number[name]) for parent, name in pairs])


def sides(skeleton: Skeleton) -> list[str]:
    """The side of every bone: lfoot, which has the twin rfoot, is left; lowerback, which has none, is in the middle."""
    twins = {"l": "r", "r": "l"}
    twin = lambda name: twins.get(name[0], "") + name[1:]
    paired = [name[0] in twins and twin(name) in skeleton.names for name in skeleton.names]
    words = {"l": "left", "r": "right"}
    return [words[name[0]] if has else "middle" for name, has in zip(skeleton.names, paired, strict=True)]
