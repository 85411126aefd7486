"""Checks whether finished runs used the data that is there now."""

from collections.abc import Sequence
from pathlib import Path

from vsdn.datasets import DATASETS
from vsdn.errors import DataError
from vsdn.reproduction.jobs import Job
from vsdn.reproduction.tables import Finished

NUM_NAMED = 6


def data_remarks(left: Sequence[Job], done: Sequence[Finished], data: Path) -> list[str]:
    """Remarks on the data of these jobs, and on finished runs that used other data; if jobs are left, missing data are
    an error."""
    notes, others = dict[str, None](), list[str]()
    for job in {job.fold: job for job in (*left[:1], *(run.job for run in done))}.values():  # one job per fold
        try:
            seen, said = _look(job, data)
        except DataError:
            if left:
                raise
            continue
        notes |= dict.fromkeys(said)
        others += [run.job.name for run in done if run.job.fold == job.fold and run.result["data"] != seen]
    return [*notes, *_told(others, data)]


def _look(job: Job, data: Path) -> tuple[str, tuple[str, ...]]:
    """The fingerprint of the data that a job would learn from, and the loader's remarks on it."""
    from vsdn.fitting import fingerprint  # training code is imported only when needed
    from vsdn.reproduction.worker import limited

    parts = limited(DATASETS[job.dataset].load(data, job.fold), job.series)
    return fingerprint(parts.train, parts.valid), parts.train.notes


def _told(names: Sequence[str], data: Path) -> list[str]:
    if not names:
        return []
    some = ", ".join(names[:NUM_NAMED]) + (", …" if len(names) > NUM_NAMED else "")
    return [
        f"{len(names)} finished runs were made from other data than is read from {data} now ({some}): "
        "use --anew with another --out to repeat them"
    ]
