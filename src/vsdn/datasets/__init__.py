"""Data sets by name: each module makes or loads one, and says how it is split."""

from vsdn.datasets import double_ou, human36m, mocap, mocap35, ushcn
from vsdn.datasets.base import Dataset

DATASETS: dict[str, Dataset] = {
    module.DATASET.name: module.DATASET for module in (double_ou, ushcn, mocap, mocap35, human36m)
}
