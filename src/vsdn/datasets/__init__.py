"""Data sets by name: each module makes or loads one, and says how it is split."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vsdn.datasets import double_ou
from vsdn.datasets.base import Dataset, Parts, check_fold


@dataclass(frozen=True)
class _Generated(Dataset):
    __doc__ = double_ou.__doc__

    make = staticmethod(double_ou.make)
    split = staticmethod(double_ou.split)
    published_csv = staticmethod(double_ou.published_csv)


def _load_double_ou(folder: Path, fold: int = 0) -> Parts:
    """The published series, which are generated: the folder is not read."""
    check_fold(fold, 1)
    return Parts(*double_ou.split(double_ou.make(legacy=True)))


DATASETS: dict[str, Any] = {"double-ou": _Generated("double-ou", "Double-OU", "", (), 1, _load_double_ou)}
