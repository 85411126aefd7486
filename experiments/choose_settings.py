"""How settings are chosen, of rivals and of VSDN: on validation parts alone, by the least MSE of a study's candidates.

Which of them was taken, and where a percent or two were not worth another setting, the pages of results say.

Example: python experiments/choose_settings.py mocap-gru-ode --data data --out runs/choose
"""

import argparse
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from looking import write_rows
from origins_ushcn import ORIGINS, SCORES
from rows import Values, fit_row

from vsdn.datasets import DATASETS, ushcn
from vsdn.reproduction.plans import read_plan


class Study(NamedTuple):
    """A row of a plan, the folds it is tried on, what is asked, and what each candidate changes of its settings."""

    plan: str
    preset: str
    row: str
    folds: tuple[int, ...]
    asked: Values
    candidates: dict[str, Values]


SHORT = {"spread_memory": False, "activation": "tanh", "epochs": 12, "patience": 12, "learning_rate": 1e-2}
LONGER = SHORT | {"spread_memory": True, "epochs": 25, "patience": 25}
RELU = LONGER | {"activation": "relu"}
AS_IT_WAS: Values = {}
SLOWER = {"learning_rate": 1e-2}
BRIEF = SLOWER | {"epochs": 10, "spread_memory": False}
AROUND = {"after": ORIGINS, "next": ushcn.NUM_NEXT}
DECAYS: dict[str, Values] = {f"weight decay {decay}": {"weight_decay": decay} for decay in (0.0001, 0.1, 0.3)}
DECAYING = ("vsdn-f-vae-linear", "vsdn-s-iwae-usual", "gru-ode-vae", "gru-ode-vae-plain")
SMALL = RELU | {"hidden_size": 15, "width": 25, "init_width": 128, "weight_decay": 1e-4, "learning_rate": 3e-2}
STUDIES = {
    "mocap-gru-ode": Study(
        "mocap",
        "tuned",
        "gru-ode-vae",
        (0,),
        {},
        {f"rate {rate}": {"learning_rate": rate} for rate in (0.001, 0.003, 0.01)},
    ),
    "ushcn-gru-ode": Study(
        "ushcn",
        "tuned",
        "gru-ode-vae",
        (1, 3),
        AROUND,
        {
            "12 epochs": SHORT,
            "25 epochs, spread": LONGER,
            "25 epochs, spread, relu, rate 0.02": RELU | {"learning_rate": 2e-2},
            "25 epochs, spread, relu, appendix C's sizes": SMALL,
            "25 epochs, spread, relu, appendix C's sizes, no year": SMALL | {"periods": []},
        },
    ),
    "ushcn-vsdn-usual": Study(
        "ushcn",
        "paper",
        "vsdn-f-vae-usual",
        (0, 1, 2, 3, 4),
        AROUND,
        {
            "25 epochs, spread, rate 0.03": AS_IT_WAS,
            "10 epochs, rate 0.01": BRIEF,
            "25 epochs, spread, rate 0.01": SLOWER,
        },
    ),
    "ushcn-vsdn-linear": Study(
        "ushcn",
        "paper",
        "vsdn-f-vae-linear",
        (0, 1, 2, 3, 4),
        AROUND,
        {
            "25 epochs, spread, rate 0.03, an even pull": AS_IT_WAS,
            "10 epochs, rate 0.01, an even pull": BRIEF,
            "25 epochs, spread, rate 0.01, an even pull": SLOWER,
        },
    ),
} | {f"ushcn-decay-{row}": Study("ushcn", "paper", row, (0, 1, 2, 3, 4), AROUND, DECAYS) for row in DECAYING}


def try_out(study: Study, name: str, data: Path, out: Path) -> dict[str, float]:
    """A candidate's scores on the validation parts, means over folds."""
    found = []
    for fold in study.folds:
        parts = DATASETS[read_plan(study.plan).dataset].load(data, fold)
        changed, run = study.candidates[name], out / f"{name}, fold {fold}"
        fitted = fit_row(study.plan, study.preset, study.row, parts, changed, run)
        found.append(fitted.evaluate(parts.valid, draws=64, **study.asked))
    return {score: round(mean(each[score] for each in found), 4) for score in SCORES}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data files")
    parser.add_argument("--out", type=Path, default=Path("runs/choose"), help="folder for the runs")
    options, rows = parser.parse_args(), []
    study = STUDIES[options.study]
    for name in study.candidates:
        rows.append({"candidate": name, **try_out(study, name, options.data, options.out / options.study)})
        print(rows[-1], flush=True)
    least = min(row["mse"] for row in rows)
    rows = [row | {"least": "least" * (row["mse"] == least)} for row in rows]
    write_rows(Path("experiments/results") / f"choice-{options.study}.csv", rows)


if __name__ == "__main__":
    main()
