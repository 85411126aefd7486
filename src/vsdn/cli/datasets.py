"""The commands about data sets: list them, and write one as a table."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from vsdn.cli.console import print_rows, remark
from vsdn.cli.options import Json, Quiet
from vsdn.datasets import DATASETS, double_ou
from vsdn.datasets.base import Dataset, Parts, check_fold, concatenate, data_folder
from vsdn.errors import SettingsError
from vsdn.files import check_writable, write_bytes
from vsdn.settings import LAST_SEED
from vsdn.tables.frames import check_suffix, table_frame, write_frame
from vsdn.tables.table import Table

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="The built-in data sets.")
DataFolder = Annotated[
    Path | None, typer.Option(help="Where downloaded files are. [default: the folder in VSDN_DATA, else data]")
]
PARTS = "all, train, valid or test"


@app.command("list")
def list_datasets(data: DataFolder = None, as_json: Json = False) -> None:
    """List the data sets: what they are, whom to cite, and whether their files are there.

    Example: vsdn datasets list --data downloads
    """
    folder = data_folder(data)
    rows = {name: _describe(dataset, folder) for name, dataset in DATASETS.items()}
    if as_json:
        print(json.dumps(rows))
        return
    lines = [((name, row["about"]), ("", row["citation"]), ("", row["files"])) for name, row in rows.items()]
    print_rows(line for three in lines for line in three)


def _describe(dataset: Dataset, folder: Path) -> dict[str, Any]:
    """The description of a data set; `files` says whether it can be made."""
    found = dataset.found(folder)
    names = " or ".join(source.name for source in dataset.sources)
    missing = f"not in {folder}: {names}" if dataset.sources else "needs no file"
    files = missing if found is None else f"there: {folder / found.name}"
    here = found is not None or not dataset.sources
    return {
        "about": dataset.about,
        "citation": dataset.citation,
        "folds": dataset.num_folds,
        "here": here,
        "files": files,
    }


@app.command("make")
def make_dataset(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(DATASETS)}.")],
    out: Annotated[Path, typer.Option(help="A .csv or .parquet file.")],
    part: Annotated[str, typer.Option(help=f"{PARTS}; of motion also removed: the frames taken out of test.")] = "all",
    fold: Annotated[int, typer.Option(min=0, help="Which split, of data sets that have several.")] = 0,
    data: DataFolder = None,
    series: Annotated[int | None, typer.Option(min=1, help="double-ou: how many series. [default: 10000]")] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, max=LAST_SEED, help="double-ou: same seed, same data. [default: 432]")
    ] = None,
    legacy: Annotated[
        bool, typer.Option("--legacy", help="double-ou: the published draw, and its layout in CSV.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Write a data set as a table.

    Example: vsdn datasets make double-ou --out double-ou.csv --seed 432 --legacy

    Example: vsdn datasets make ushcn --data downloads --part train --fold 2 --out train.parquet
    """
    if name not in DATASETS:
        raise SettingsError(f"there is no data set {name!r}; the data sets are {', '.join(DATASETS)}")
    dataset = DATASETS[name]
    check_fold(fold, dataset.num_folds)
    if name == double_ou.DATASET.name:
        _make_double_ou(out, part, series or 10_000, 432 if seed is None else seed, legacy)
        return
    for option, given in {"series": series, "seed": seed, "legacy": legacy or None}.items():
        if given is not None:
            raise SettingsError(f"--{option} is for double-ou, which is generated; {name} is read from files")
    check_suffix(out)
    check_writable(out)
    table = _part(dataset.load(data_folder(data), fold), part)
    remark(table.notes, quiet)
    write_frame(table_frame(table), out)


def _make_double_ou(out: Path, part: str, series: int, seed: int, legacy: bool) -> None:
    if legacy and part == "all" and out.suffix == ".csv":
        write_bytes(out, double_ou.published_csv(series, seed=seed))
        return
    table = double_ou.make(series, seed=seed, legacy=legacy)
    if part != "all":  # which is in the order of the series
        table = _part(Parts(*double_ou.split(table, seed)), part)
    if not table.num_series:
        raise SettingsError(f"--part {part} should have at least one series, but of --series {series} it has none")
    write_frame(table_frame(table), out)


def _part(parts: Parts, name: str) -> Table:
    tables = {"all": concatenate(parts[:3]), **parts._asdict()}
    if tables.get(name) is None:
        had = [known for known, table in tables.items() if table is not None]
        raise SettingsError(f"--part is one of {', '.join(had)}, but got {name!r}")
    return tables[name]
