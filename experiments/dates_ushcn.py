"""Were USHCN's dates learned by heart? All stations share one calendar: a day's weather could be known by its number.

Validation stations without their first year are foretold row by row twice: as they are, and a whole year early. The
season is the same, the days are others: what a model knows by heart of the days of its training stations is wrong then.
An honest year-to-year difference remains, and is the same for all models; `mean` and `last-value` show its size.

Example: python experiments/dates_ushcn.py runs/ushcn/gru-ode-vae-0 runs/ushcn/vsdn-s-iwae-0 --data data
"""

import dataclasses

from looking import fold_of, make_parser, write_rows

import vsdn
from vsdn.datasets import ushcn
from vsdn.tables.table import Table

YEAR = 49.0216  # in the file's unit of time
SCORES = ("nll", "mse", "crps")


def moved(table: Table, by: float) -> Table:
    """The table without its first year, with all times moved."""
    later = table.keep_rows(table.times > YEAR)
    return dataclasses.replace(later, times=later.times - by)


def main() -> None:
    options, rows = make_parser(__doc__, "ushcn-dates.csv", draws=32).parse_args(), []
    for run in options.runs:
        fitted, valid = vsdn.load(run), ushcn.load(options.data, fold_of(run)).valid
        for calendar, by in (("its own", 0.0), ("a year early", YEAR)):
            scores = fitted.evaluate(moved(valid, by), "prediction", draws=options.draws)
            rows.append({"run": run.name, "calendar": calendar, **{score: scores[score] for score in SCORES}})
            print(rows[-1], flush=True)
    write_rows(options.results, rows)


if __name__ == "__main__":
    main()
