"""Rows of a plan, trained apart: with other seeds, other settings, on data of one's choice."""

from pathlib import Path
from typing import Any

import vsdn
from vsdn.datasets.base import Parts
from vsdn.fitted import Fitted
from vsdn.reproduction.plans import read_plan

Values = dict[str, Any]


def fit_row(plan: str, preset: str, row: str, parts: Parts, changed: Values, out: Path) -> Fitted:
    """The model of a row, with these settings changed; a stopped run is resumed."""
    chosen = read_plan(plan)
    which = next(each for each in chosen.rows if each.name == row)
    choice = chosen.choice(preset, which)
    known: Values = {"valid": parts.valid, "progress": False}
    if (out / "config.json").exists():
        fitted = vsdn.resume(out, parts.train, **known)
    else:
        known |= {"model": which.model, "objective": which.objective, "preset": choice.preset}
        fitted = vsdn.fit(parts.train, **known, settings=choice.set | changed, out=out)
    if fitted.interrupted:
        raise SystemExit("interrupted: the same command goes on")
    return fitted
