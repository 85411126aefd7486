"""Results as tables: Markdown for readers, CSV for programs; the paper's figures beside ours."""

import csv
import io
import math
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from vsdn.reproduction.jobs import NO_RECORD, Job, Record, Result, find_result, make_jobs
from vsdn.reproduction.plans import SCORES, Plan, Row

HEADINGS = {"nll": "NLL", "mse": "MSE", "crps": "CRPS", "coverage_50": "50 % covers", "coverage_90": "90 % covers"}
DIGITS = {"nll": 3, "mse": 4, "crps": 4, "coverage_50": 3, "coverage_90": 3}
RELATIVE = ("mse", "crps", "nll")
BESIDE = ("crps", "coverage_50", "coverage_90")
MARKS = "¹²³⁴⁵⁶⁷⁸⁹"


class Finished(NamedTuple):
    """A finished job and its result."""

    job: Job
    result: Result


class Spread(NamedTuple):
    """The mean and standard deviation over runs; no standard deviation for a single run."""

    mean: float
    std: float | None
    num_runs: int


def finished(plan: Plan, out: Path, record: Record = NO_RECORD) -> list[Finished]:
    """All finished runs of a plan, done here or recorded."""
    found = ((job, find_result(out, record, job)) for job in make_jobs(plan))
    return [Finished(job, result) for job, result in found if result is not None]


def score_of(result: Result, task: str, score: str, per: str) -> float:
    """A score of a run; NLL and MSE are means over values, or sums over a row's values averaged over rows."""
    scores = result["scores"][task]
    if per == "frame" and score in SCORES:
        return scores[score] * scores["num_values"] / scores["num_rows"]
    return scores[score]


def spread(values: Iterable[float]) -> Spread | None:
    """The spread of these scores, None if there are none; its std is NaN if a score is not finite."""
    values = list(values)
    if not values:
        return None
    deviate = statistics.stdev if all(map(math.isfinite, values)) else lambda _: math.nan
    return Spread(statistics.mean(values), deviate(values) if len(values) > 1 else None, len(values))


class Book:
    """The results of a plan, by row and preset."""

    def __init__(self, plan: Plan, runs: Sequence[Finished]):
        self.plan, self.runs = plan, runs

    @property
    def rivals(self) -> list[Row]:
        """The rows with which all others are compared."""
        return [row for name in self.plan.rivals for row in self.plan.rows if row.name == name]

    def results(self, preset: str, row: Row) -> list[Result]:
        return [run.result for run in self.runs if (run.job.preset, run.job.row) == (preset, row.name)]

    def repeats(self, preset: str, row: Row) -> set[int]:
        """The seeds or folds that are done."""
        return {run.job.repeat for run in self.runs if (run.job.preset, run.job.row) == (preset, row.name)}

    def spread(self, task: str, preset: str, row: Row, score: str) -> Spread | None:
        results = self.results(preset, row)
        return spread(score_of(result, task, score, self.plan.per) for result in results if task in result["scores"])

    def pairs(self, task: str, preset: str, row: Row, rival: Row) -> dict[int, tuple[Result, Result]]:
        """The results of a row and of its baseline, by seed or fold, where both are done."""
        found = lambda which: {
            run.job.repeat: run.result
            for run in self.runs
            if (run.job.preset, run.job.row) == (preset, which.name) and task in run.result["scores"]
        }
        ours, others = found(row), found(rival)
        return {repeat: (ours[repeat], others[repeat]) for repeat in sorted(ours.keys() & others.keys())}

    def ratio(self, task: str, preset: str, row: Row, rival: Row) -> dict[str, str] | None:
        """Mean scores relative to the baseline's (MSE, CRPS: ratios; NLL: difference), over what both have."""
        pairs = self.pairs(task, preset, row, rival).values()
        if not pairs:
            return None
        mean = lambda results, score: statistics.mean(score_of(each, task, score, self.plan.per) for each in results)
        ours, others = zip(*pairs, strict=True)
        return against(*({score: mean(results, score) for score in RELATIVE} for results in (ours, others)))

    def ratios(self, task: str, preset: str, row: Row, rival: Row, score: str) -> dict[int, float]:
        """The ratio of the score to the baseline's, for each seed or fold that both have."""
        related = lambda ours, other: ours / other if other else math.nan
        return {
            repeat: related(*(score_of(each, task, score, self.plan.per) for each in pair))
            for repeat, pair in self.pairs(task, preset, row, rival).items()
        }

    def digits(self, score: str) -> int:
        return self.plan.digits.get(score, DIGITS[score])

    def printed(self, task: str, row: Row, score: str) -> str:
        """The paper's figure."""
        figure = row.paper.get(task, {}).get(score)
        digits = self.plan.paper_digits.get(score, self.digits(score))
        return "" if figure is None else shown(figure, digits)

    def reasons(self) -> list[str]:
        """Why settings were changed, once each, in the order of their marks; empty for a quick run."""
        plan = self.plan
        if plan.series is not None:
            return []
        choices = [(*preset.models.values(), *preset.rows.values()) for preset in plan.presets.values()]
        own = [choice.why for each in choices for choice in each]
        common = [preset.why for preset in plan.presets.values()]
        return list(dict.fromkeys(why for why in (*common, *own) if why))

    def mark(self, why: str) -> str:
        reasons = self.reasons()
        return MARKS[reasons.index(why)] if why in reasons else ""

    def cell(self, task: str, preset: str, row: Row, score: str) -> str:
        """A table cell, e.g. −1.258 ± 0.004, with a mark if the model's own settings were changed."""
        found = self.spread(task, preset, row, score)
        own = self.plan.presets[preset].choices(row)[1:]
        marks = "".join(self.mark(choice.why) for choice in own)
        return "" if found is None else shown(found, self.digits(score)) + marks


def against(ours: dict[str, float], others: dict[str, float]) -> dict[str, str]:
    """Mean scores relative to others: ratios, but for the NLL, which may be negative, differences."""
    related = lambda score: ours[score] - others[score] if score == "nll" else ours[score] / others[score]
    return {score: f"{related(score):.2f}".replace("-", "−") for score in ours}


def shown(found: Spread | tuple[float, float], digits: int) -> str:
    """A spread as text, e.g. −1.258 ± 0.004, with a minus sign, not a hyphen."""
    mean, std = found[0], found[1]
    text = f"{mean:.{digits}f}" + ("" if std is None else f" ± {std:.{digits}f}")
    return text.replace("-", "−")


def markdown(plan: Plan, runs: Sequence[Finished]) -> str:
    """The page of a plan: for each task the paper's figures beside ours, then calibration, then cost."""
    book, pages = Book(plan, runs), [f"# {plan.title}\n", f"{plan.about.strip()}\n"]
    if plan.series is not None:
        pages.append(f"**A quick look, not the protocol**: {plan.series} series of each part, few epochs.\n")
    for name, asked in plan.tasks.items():
        if asked.beside is None:
            pages += [f"## {asked.title}\n", _compared(book, name), "", _calibration(book, name), ""]
            for rival in book.rivals:
                pages += [_relative(book, name, rival), "", _relative_by_repeat(book, name, rival), ""]
    pages += ["## Cost\n", _cost(book), "", _protocol(book)]
    return "\n".join(pages)


def _compared(book: Book, task: str) -> str:
    plan, rows = book.plan, book.plan.rows
    tasks = [name for name, asked in plan.tasks.items() if task in (name, asked.beside)]
    printed = any(task in row.paper for row in rows)
    heads, columns = ["model"], [[row.title for row in rows]]
    for score in SCORES:
        if printed:
            heads.append(f"{HEADINGS[score]}, the paper")
            columns.append([book.printed(task, row, score) for row in rows])
        for name in tasks:
            for preset, about in plan.presets.items():
                if preset not in plan.tasks[name].presets:
                    continue
                also = f", {plan.tasks[name].column}" if name != task else ""
                heads.append(f"{HEADINGS[score]}, {about.title}{also}{book.mark(about.why)}")
                columns.append([book.cell(name, preset, row, score) for row in rows])
    return _table(heads, zip(*columns, strict=True))


def _calibration(book: Book, task: str) -> str:
    plan = book.plan
    tasks = [name for name, asked in plan.tasks.items() if task in (name, asked.beside)]
    heads, lines = ["model", "settings", *(HEADINGS[score] for score in BESIDE)], []
    for row in plan.rows:
        for preset, about in plan.presets.items():
            for name in tasks:
                if book.spread(name, preset, row, BESIDE[0]) is None:
                    continue
                also = f", {plan.tasks[name].column}" if name != task else ""
                cells = [book.cell(name, preset, row, score) for score in BESIDE]
                lines.append([row.title, "none" if row.model is None else f"{about.title}{also}", *cells])
    return _table(heads, lines)


def _relative(book: Book, task: str, rival: Row) -> str:
    """Every model compared with a baseline with the same settings, over the seeds or folds that both have."""
    plan = book.plan
    titles = {preset: about.title for preset, about in plan.presets.items()}
    columns = [("the paper", lambda row: _printed_ratio(row, rival, task))]
    columns += [(titles[preset], lambda row, at=preset: book.ratio(task, at, row, rival)) for preset in plan.presets]
    found = {title: [ratio(row) for row in plan.rows] for title, ratio in columns}
    cells = {
        f"{HEADINGS[what]}, {title}": ["" if each is None else each.get(what, "") for each in ratios]
        for what in RELATIVE
        for title, ratios in found.items()
    }
    told = {head: column for head, column in cells.items() if any(column)}
    lines = zip([row.title for row in plan.rows], *told.values(), strict=True)
    some = [line for line in lines if any(line[1:])]
    above = f"Against *{rival.title}* with the same settings on the same {plan.repeated}:\n\n"
    return above + _table(["model", *told], some)


def _relative_by_repeat(book: Book, task: str, rival: Row) -> str:
    """The MSE relative to a baseline's, seed by seed or fold by fold, to show that no single one decides the mean."""
    plan, repeats, lines = book.plan, book.plan.repeats, []
    for row in plan.rows:
        for preset, about in plan.presets.items():
            found = book.ratios(task, preset, row, rival, "mse")
            mean = spread(found.values())
            if mean is not None and row != rival:
                cells = [f"{found[repeat]:.2f}" if repeat in found else "" for repeat in repeats]
                settings = "none" if row.model is None else about.title
                lines.append([row.title, settings, *cells, shown(mean, 2)])
    one = plan.repeated.removesuffix("s")
    above = f"MSE as a part of that of *{rival.title}*, {one} by {one}:\n\n"
    return above + _table(["model", "settings", *(f"{one} {repeat}" for repeat in repeats), "mean"], lines)


def _printed_ratio(row: Row, rival: Row, task: str) -> dict[str, str] | None:
    """The ratio of the paper's means."""
    if task not in row.paper or task not in rival.paper:
        return None
    return against(*({score: figure[0] for score, figure in each.paper[task].items()} for each in (row, rival)))


def _cost(book: Book) -> str:
    heads, lines = ["model", "settings", "runs", "epochs", "minutes a run", "CPU-minutes a run", "parameters"], []
    for row in book.plan.rows:
        for preset, about in book.plan.presets.items():
            results = [result for result in book.results(preset, row) if "epochs" in result]
            if not results:
                continue
            epochs = statistics.mean(result["epochs"] for result in results)
            minutes = [_minutes(results, name) for name in ("seconds", "cpu_seconds")]
            cells = [str(len(results)), f"{epochs:.0f}", *minutes, f"{results[0]['parameters']:,}"]
            lines.append([row.title, about.title, *cells])
    return _table(heads, lines)


def _minutes(results: list[Result], name: str) -> str:
    """The mean duration of the runs for which it is known."""
    known = [result[name] for result in results if result.get(name) is not None]
    return f"{statistics.mean(known) / 60:.1f}" if known else ""


def _protocol(book: Book) -> str:
    """The notes below the tables: what is averaged over what, why settings were changed, what is not done yet."""
    plan = book.plan
    unit, over = "frames of the sum over a frame's values" if plan.per == "frame" else "observed values", _repeats(book)
    lines = [
        f"Mean ± standard deviation over {over}. NLL and MSE are means over {unit}, CRPS and coverage over values."
    ]
    lines += _of_fewer(book)
    lines += [f"{asked.column}: {asked.title}." for asked in plan.tasks.values() if asked.beside]
    lines += [f"{book.mark(why)} {why}" for why in book.reasons()]
    missing = [job.name for job in make_jobs(plan) if job.name not in {run.job.name for run in book.runs}]
    if missing:
        some = ", ".join(missing[:6]) + (", …" if len(missing) > 6 else "")
        lines.append(f"Not done yet: {len(missing)} of {len(missing) + len(book.runs)} runs ({some}).")
    lines.append("Every run: `runs.csv`. All settings: `settings.json`. What it was run with: `versions.json`.")
    return "\n\n".join(lines) + "\n"


def _repeats(book: Book) -> str:
    """The seeds or folds, e.g. seeds 1, 2; or folds 0, 1 (appendix C) and 0, 1, 2 (tuned), if they differ."""
    plan = book.plan
    done = {preset: sorted({job.repeat for job, _ in book.runs if job.preset == preset}) for preset in plan.presets}
    told = {preset: ", ".join(map(str, repeats)) for preset, repeats in done.items() if repeats}
    if len(set(told.values())) > 1:
        return f"{plan.repeated} " + " and ".join(f"{text} ({plan.presets[at].title})" for at, text in told.items())
    return f"{plan.repeated if max(map(len, done.values())) > 1 else plan.repeated[:-1]} {''.join(set(told.values()))}"


def _of_fewer(book: Book) -> list[str]:
    """A note on rows whose means are over fewer seeds or folds than those of others with the same settings."""
    trained, told = [row for row in book.plan.rows if row.model], []
    for preset, about in book.plan.presets.items():
        done = {row.title: sorted(book.repeats(preset, row)) for row in trained if book.repeats(preset, row)}
        most = max(map(len, done.values()), default=0)
        few = {title: ", ".join(map(str, each)) for title, each in done.items() if len(each) < most}
        told += [f"{title}, {about.title} ({at})" for title, at in few.items()]
    return [f"Over fewer {book.plan.repeated}: {'; '.join(told)}."] if told else []


def _table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table; all but the texts on the left are right-aligned."""
    sides = ["---" if head in ("model", "settings") else "--:" for head in heads]
    line = lambda cells: "|" + "".join(f" {cell} |" if cell else " |" for cell in cells)
    return "\n".join(line(cells) for cells in (heads, sides, *lines))


def table_csv(plan: Plan, runs: Sequence[Finished]) -> str:
    """One line for each mean in the tables."""
    book, lines = Book(plan, runs), []
    for task in plan.tasks:
        for row in plan.rows:
            for score, figure in row.paper.get(task, {}).items():
                of = {"task": task, "row": row.name, "settings": "the paper", "score": score}
                lines.append({**of, "mean": figure[0], "std": figure[1]})
            for preset in plan.presets:
                for score in HEADINGS:
                    of = {"task": task, "row": row.name, "settings": preset, "score": score}
                    if found := book.spread(task, preset, row, score):
                        lines.append({**of, **found._asdict()})
    return csv_text(["task", "row", "settings", "score", "mean", "std", "num_runs"], lines)


def csv_text(columns: Sequence[str], lines: Iterable[dict[str, Any]]) -> str:
    """These columns of the lines as CSV text."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()
