"""Plans: what to reproduce, as data; a plan is a TOML file in `plans/`, checked when it is read."""

import tomllib
from importlib import resources
from typing import Any, Literal

from pydantic import Field, ValidationError

from vsdn.answers.requests import DRAWS
from vsdn.errors import SettingsError
from vsdn.settings import Section, Settings, first_fault, read_preset

PRESETS = ("paper", "tuned")
Values = dict[str, Any]  # flat settings, as in a preset
Figure = tuple[float, float]  # mean and standard deviation
POSED = "mocap"  # the data set whose frames are those of skeletons
SCORES = ("nll", "mse")  # the scores that the paper reports
APPENDIX_B = "appendix-b"  # not a plan, since it has no runs: gradients are measured, in a minute


class Asked(Section):
    """A question to a fitted model, and its titles."""

    title: str
    task: Literal["prediction", "interpolation"]
    after: float | tuple[float, ...] | None = None  # several times are pooled
    next: int | None = None
    removed: bool = False  # whether the removed rows of the test series are scored
    method: str | None = None
    only: tuple[str, ...] = ()  # the models, or rows by name, that are asked; all if empty
    presets: tuple[str, ...] = PRESETS  # with these settings
    beside: str | None = None  # the task in whose table this one has its columns
    column: str = ""  # the title of such a column


class Choice(Section):
    """A preset and changes to it, with the reason, which is printed below the table."""

    preset: str | None = None
    set: Values = Field(default_factory=dict)
    why: str = ""


class Row(Section):
    """A row of the table: a model to train, or a reference that needs no training."""

    model: str | None = None
    reference: str | None = None
    objective: Literal["vae", "iwae"] = "vae"
    set: Values = Field(default_factory=dict)
    tag: str = ""  # distinguishes rows of the same model and objective
    title: str
    paper: dict[str, dict[str, Figure]] = Field(default_factory=dict)  # by task

    @property
    def name(self) -> str:
        parts = (self.reference,) if self.model is None else (self.model, self.objective, self.tag)
        return "-".join(part for part in parts if part)


class Preset(Choice):
    """A column of the table: a preset for all models (or only some), with choices by model or by row."""

    title: str
    only: tuple[str, ...] = ()  # the models that it is for; all if empty
    without: tuple[str, ...] = ()  # rows, by name, that it is not for
    models: dict[str, Choice] = Field(default_factory=dict)
    rows: dict[str, Choice] = Field(default_factory=dict)  # by name, e.g. vsdn-s-iwae; they go before those by model

    def choices(self, row: Row) -> tuple[Choice, ...]:
        """The choices that apply to a row, the more specific later."""
        particular = self.models.get(row.model or ""), self.rows.get(row.name)
        return (self, *(choice for choice in particular if choice is not None))


class Posed(Section):
    """A row of a picture of skeletons: a model and a task."""

    row: str
    task: str


class Skeletons(Section):
    """A picture of skeletons: the truth, and below it the models' predictions."""

    rows: tuple[Posed, ...] = Field(min_length=1)
    frames: int = Field(default=8, ge=1, le=12)  # that are drawn side by side


class Quick(Section):
    """The changes that `--quick` makes: a look at everything in a minute or two."""

    series: int = Field(ge=10)  # of each part
    presets: tuple[str, ...] = ("tuned",)
    repeats: int = Field(default=1, ge=1)
    draws: int = Field(default=16, ge=1)
    set: Values = Field(default_factory=dict)


class Plan(Section):
    """A table or figure of the paper, and the runs that it needs."""

    title: str
    about: str  # the protocol, printed above the tables
    dataset: str
    per: Literal["value", "frame"] = "value"  # the unit over which NLL and MSE are means
    seeds: tuple[int, ...] = ()
    folds: tuple[int, ...] = ()
    draws: int = Field(default=DRAWS, ge=1)
    digits: dict[str, int] = Field(default_factory=dict)  # of a score
    paper_digits: dict[str, int] = Field(default_factory=dict)  # of a score, as the paper prints it, if not the same
    rivals: tuple[str, ...] = ()  # the rows that all others are compared with, by name
    curves: bool = False  # whether the bounds are drawn against epochs
    skeletons: Skeletons | None = None
    tasks: dict[str, Asked]
    presets: dict[str, Preset]
    rows: tuple[Row, ...]
    quick: Quick
    set: Values = Field(default_factory=dict)  # overrides everything else
    series: int | None = None  # of each part at most

    @property
    def repeats(self) -> tuple[int, ...]:
        """The seeds or folds over which means are taken."""
        return self.folds or self.seeds

    @property
    def repeated(self) -> str:
        return "folds" if self.folds else "seeds"

    def with_repeats(self, repeats: tuple[int, ...]) -> "Plan":
        return self.model_copy(update={self.repeated: repeats})

    def with_presets(self, names: tuple[str, ...]) -> "Plan":
        """The plan with only these presets, as far as it has them."""
        return self.model_copy(update={"presets": {name: p for name, p in self.presets.items() if name in names}})

    def made_quick(self) -> "Plan":
        """The plan with the changes of `--quick`."""
        quick = self.quick
        few = self.with_presets(quick.presets).with_repeats(self.repeats[: quick.repeats])
        return few.model_copy(update={"set": self.set | quick.set, "series": quick.series, "draws": quick.draws})

    def has(self, preset: str, row: Row) -> bool:
        """Whether this row is run with this preset; references count as tuned."""
        if row.model is None:
            return preset == "tuned"
        only, without = self.presets[preset].only, self.presets[preset].without
        return (not only or row.model in only) and row.name not in without

    def asks(self, task: str, row: Row, preset: str) -> bool:
        """Whether the model of this row, trained with these settings, is asked this task."""
        only, presets = self.tasks[task].only, self.tasks[task].presets
        return preset in presets and (not only or row.model in only or row.name in only)

    def choice(self, preset: str, row: Row) -> Choice:
        """The preset of a row and all changes to it, combined."""
        choices = self.presets[preset].choices(row)
        name = [choice.preset for choice in choices if choice.preset][-1:]
        values = {key: value for choice in choices for key, value in choice.set.items()}
        why = " ".join(choice.why for choice in choices if choice.why)
        return Choice(preset=name[0] if name else None, set=values | row.set | self.set, why=why)

    def settings(self, preset: str, row: Row, seed: int) -> Settings:
        """The settings of a run; those left open are chosen from the data."""
        choice = self.choice(preset, row)
        which = {"model": row.model, "objective": row.objective, "seed": seed}
        return Settings().with_values((read_preset(choice.preset) if choice.preset else {}) | choice.set | which)


def plan_names() -> list[str]:
    folder = resources.files("vsdn.reproduction") / "plans"
    return sorted(file.name.removesuffix(".toml") for file in folder.iterdir() if file.name.endswith(".toml"))


def read_plan(name: str) -> Plan:
    """A plan that ships with the library."""
    if name not in plan_names():
        raise SettingsError(f"there is no plan {name!r}; the names are {', '.join([*plan_names(), APPENDIX_B])}")
    return parse_plan((resources.files("vsdn.reproduction") / "plans" / f"{name}.toml").read_text("utf-8"))


def parse_plan(text: str) -> Plan:
    """The checked plan of a TOML text."""
    try:
        plan = Plan.model_validate(tomllib.loads(text))
    except ValidationError as error:
        raise SettingsError(f"the plan's {first_fault(error)}") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"the plan is not valid TOML: {error}") from None
    _check(plan)
    return plan


def _check(plan: Plan) -> None:
    """Refuses a plan with an invalid run, before any is started."""
    if bool(plan.seeds) == bool(plan.folds):
        raise SettingsError("a plan has seeds or folds, and not both")
    if unknown := plan.presets.keys() - set(PRESETS):
        raise SettingsError(f"the presets of a plan are {' and '.join(PRESETS)}, but not {sorted(unknown)[0]!r}")
    names = [row.name for row in plan.rows]
    if twice := {name for name in names if names.count(name) > 1}:
        raise SettingsError(f"two rows of a plan are called {sorted(twice)[0]}: give them a tag")
    for rival in plan.rivals:
        if rival not in names:
            raise SettingsError(f"the rival {rival!r} is no row of the plan")
    for preset in plan.presets.values():
        if unknown := preset.rows.keys() - set(names):
            raise SettingsError(f"a preset of the plan names an unknown row {sorted(unknown)[0]!r}")
    for row in plan.rows:
        if (row.model is None) == (row.reference is None):
            raise SettingsError(f"the row {row.title!r} should have a model or a reference, and not both")
        if unknown := row.paper.keys() - plan.tasks.keys():
            raise SettingsError(f"the row {row.title!r} has figures of an unknown task {sorted(unknown)[0]!r}")
        if any(figures.keys() != set(SCORES) for figures in row.paper.values()):
            raise SettingsError(f"the row {row.title!r} should have the paper's {' and '.join(SCORES)} of a task")
        for preset in plan.presets:
            if row.model is not None and plan.has(preset, row):
                plan.settings(preset, row, 0)
    if plan.skeletons is not None:
        _check_skeletons(plan, plan.skeletons)


def _check_skeletons(plan: Plan, wanted: Skeletons) -> None:
    if plan.dataset != POSED:
        raise SettingsError(f"skeletons are drawn of {POSED}, but this plan is of {plan.dataset}")
    rows = {row.name: row for row in plan.rows if row.model is not None}
    for each in wanted.rows:
        if each.row not in rows:
            raise SettingsError(f"skeletons are drawn of rows with a model, but {each.row!r} is none")
        if each.task not in plan.tasks or not plan.tasks[each.task].removed:
            raise SettingsError(f"skeletons are drawn at removed frames, of which {each.task!r} is no task")
        if not any(plan.asks(each.task, rows[each.row], preset) for preset in plan.presets):
            raise SettingsError(f"{each.row} is drawn by the task {each.task}, which its model is not asked")
