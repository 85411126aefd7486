"""A plan of three rows, and results of it by hand."""

from pathlib import Path

from vsdn.reproduction.jobs import make_jobs, write_result

TINY = """
title = "Tiny"
about = "Two rows."
dataset = "double-ou"
seeds = [1, 2]
rows = [
    { title = "Last", model = "last-value", paper.prediction = { nll = [-1.0, 0.25], mse = [0.5, 0.125] } },
    { title = "Mean", model = "mean" },
    { title = "Floor", reference = "bayes-optimal" },
]

[tasks.prediction]
title = "Prediction: the next row"
task = "prediction"
after = 4.0
next = 1

[presets.paper]
title = "appendix C"
only = ["last-value"]
set = { epochs = 1 }
why = "Too long otherwise."

[presets.tuned]
title = "tuned"
set = { epochs = 2, batch_size = 10, num_buckets = 1 }

[quick]
series = 12
set = { epochs = 1 }
"""


def fill(plan, out: Path) -> None:
    """Results by hand: the scores of a seed are its number above those of the first."""
    for job in make_jobs(plan):
        base = {"last-value-vae": -1.0, "mean-vae": 0.5, "bayes-optimal": -2.0}[job.row] + job.repeat
        scores = {"nll": base, "mse": 0.25, "crps": 0.125, "coverage_50": 0.5, "coverage_90": 0.9}
        counts = {"num_values": 30, "num_rows": 10}
        origin = {"versions": {"vsdn": "0", "commit": None}, "data": "d", "notes": []}
        about = {"epochs": 2, "seconds": 60, "cpu_seconds": 90, "parameters": 4}
        about = about | {"settings": job.settings.model_dump()} if job.settings else {}
        above = {"prediction": 0.0, "smoothing": 10.0}
        told = {task: scores | counts | {"nll": base + above[task]} for task in job.tasks}
        write_result(out, job, {"scores": told, **about, **origin})
