"""Data sets by name: each module makes or loads one, and says how it is split."""

from pathlib import Path

from vsdn.datasets import double_ou
from vsdn.datasets.base import Dataset, Parts, check_fold


def _load_double_ou(folder: Path, fold: int = 0) -> Parts:
    """The published series, which are generated: the folder is not read."""
    check_fold(fold, 1)
    return Parts(*double_ou.split(double_ou.make(legacy=True)))


DATASETS: dict[str, Dataset] = {
    "double-ou": Dataset("double-ou", (double_ou.__doc__ or "").splitlines()[0], "", (), 1, _load_double_ou)
}
