"""Data sets by name: each module makes or loads one, and says how it is split."""

from vsdn.datasets import double_ou

DATASETS = {"double-ou": double_ou}
