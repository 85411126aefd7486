"""Every setting, with its bounds and its meaning. A run's `config.json` holds them all."""

import json
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vsdn.errors import SettingsError

# What no one needs more of, and JAX cannot count or hold: it ends the process instead of raising an error.
MOST_UNITS = 2**16
MOST_PATHS = 10**5
MOST_EPOCHS = 10**6
LAST_SEED = 2**32 - 1


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class ModelSettings(Section):
    """What the model is. Sizes left open are chosen from the data."""

    model: Literal[
        "vsdn-f",
        "vsdn-s",
        "ode-rnn",
        "gru-ode",
        "latent-ode",
        "latent-sde",
        "gru-decay",
        "linear",
        "last-value",
        "mean",
    ] = Field(default="vsdn-s", description="which model")
    hidden_size: int | None = Field(default=None, ge=1, le=MOST_UNITS, description="size of the memory h")
    latent_size: int | None = Field(default=None, ge=1, le=MOST_UNITS, description="size of the latent state x")
    width: int | None = Field(
        default=None, ge=1, le=MOST_UNITS, description="hidden units of the feed-forward networks"
    )
    init_width: int = Field(
        default=128, ge=1, le=MOST_UNITS, description="hidden units of the network of the initial state"
    )
    activation: Literal["tanh", "relu", "silu"] = Field(default="tanh", description="of the feed-forward networks")
    flow: Literal["gru", "leaky"] = Field(default="gru", description="how the memory flows between observations")
    keep_last: bool = Field(
        default=False,
        description="vsdn-*, ode-rnn: h keeps what was last seen of each variable, the decoder foretells the change",
    )
    keep_usual: bool = Field(
        default=False,
        description="vsdn-*, ode-rnn: h keeps what is usual in a series, too: means, and their swing with each period",
    )
    keep_trend: bool = Field(
        default=False,
        description="vsdn-*, ode-rnn: h keeps a level and a trend of each variable, and how sure they are; the decoder "
        "foretells the change in those deviations",
    )
    keep_linear: bool = Field(
        default=False,
        description="vsdn-*, ode-rnn: h keeps the exact belief of a linear model of all variables together: what is "
        "usual in a series, its swing with each period, and departures that fade; the decoder foretells the change, in "
        "its deviations. For 20 variables at most",
    )
    tell_error: bool = Field(
        default=False,
        description="vsdn-*, ode-rnn: h foretells each variable itself, and is told how wrong that was and how sure; "
        "the decoder foretells the change, in its deviations",
    )
    spread_memory: bool = Field(
        default=False,
        description="vsdn-*, ode-rnn, gru-ode, latent-*: the units of h begin to hold what they took for one row up to "
        "all rows of a series, not for a few rows alike",
    )
    gru_ode_cell: Literal["full", "minimal"] = Field(default="full", description="gru-ode: two gates, or one")
    prep_size: int = Field(
        default=25,
        ge=1,
        le=MOST_UNITS,
        description="gru-ode, tell_error: units a variable that prepare what the memory takes",
    )
    bayes_weight: float = Field(
        default=1e-4, ge=0, description="gru-ode: weight of the KL from Bayes' rule to what its memory's jumps do"
    )
    bayes_noise: float = Field(
        default=1e-2,
        ge=1e-6,
        le=1e3,  # 32 bits hold the square and its inverse
        description="gru-ode: noise of a value in Bayes' rule, in deviations of its variable",
    )
    likelihood: Literal["gaussian", "student"] = Field(
        default="gaussian",
        description="family of the observations; student (t, four degrees of freedom): for rare values far from all "
        "others (not for linear)",
    )
    scale_floor: float = Field(
        default=1e-3, gt=0, description="least scale of a density, in deviations of its variable"
    )
    even_pull: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="in training, how evenly values pull at the networks, however narrow their densities: gradients "
        "are times the variance to this power (β-NLL); where many values repeat, with select_by=crps (not for linear)",
    )

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Hidden size, latent size and width, once they are chosen."""
        if self.hidden_size is None or self.latent_size is None or self.width is None:
            raise SettingsError("hidden_size, latent_size and width must be chosen before a model is made")
        return self.hidden_size, self.latent_size, self.width


class ObjectiveSettings(Section):
    """What is maximised."""

    objective: Literal["vae", "iwae"] = Field(default="iwae", description="the bound")
    num_paths: int = Field(default=3, ge=1, le=MOST_PATHS, description="latent paths K a series")
    alpha: float = Field(default=0.5, ge=0, le=1, description="share of the IWAE bound when objective is iwae")
    beta: float = Field(default=1.0, ge=0, description="weight of the KL in the VAE bound")
    kl_warmup: int = Field(
        default=0, ge=0, le=MOST_EPOCHS, description="epochs over which the weight of the KL rises from 0"
    )
    save_memory: bool = Field(
        default=False, description="for long series (vsdn-f, vsdn-s): memory by √steps instead of steps, but slower"
    )


class DataSettings(Section):
    """How a table becomes grids. Times are in the table's own unit (`time_unit` when they are dates)."""

    time_unit: Literal["second", "minute", "hour", "day", "week"] = Field(default="day", description="unit of dates")
    max_step: float | None = Field(
        default=None, gt=0, description="longest solver step; chosen from the data if not given"
    )
    time_scale: float | None = Field(
        default=None, gt=0, description="the model's unit of time; chosen from the data if not given"
    )
    start: float | str | None = Field(
        default=None, description="where series start; at the first observation if not given"
    )
    periods: tuple[float | str, ...] = Field(default=(), description="known periods, e.g. 7 or year (dates only)")
    window: int | None = Field(
        default=None, ge=2, description="rows of a training piece; long series are cut, unless start is given"
    )
    num_buckets: int | None = Field(
        default=None, ge=1, le=6, description="padded grid lengths at most, each compiled once"
    )


class TrainingSettings(Section):
    """How it is trained."""

    epochs: int | None = Field(
        default=None,
        ge=0,
        le=MOST_EPOCHS,
        description="passes over the training part; chosen from the data if not given",
    )
    batch_size: int = Field(default=50, ge=1, description="series a step")
    cut_share: float | None = Field(
        default=None, ge=0, le=1, description="part of them cut after a random row; chosen by the model if not given"
    )
    begin_share: float = Field(
        default=0.0, ge=0, le=1, description="part of them begun at a random row, so that a start is anywhere"
    )
    hide_share: float = Field(
        default=0.0,
        ge=0,
        le=0.5,
        description="part of the rows that the memory is not told of, but that are scored (vsdn-*, ode-rnn, gru-ode)",
    )
    given_rows: int | None = Field(
        default=None,
        ge=1,
        description="of each series so many rows are told, the first, and all others foretold from them, in training "
        "and validation (vsdn-*, ode-rnn, gru-ode, latent-ode)",
    )
    given_shift: float = Field(
        default=0.0,
        ge=0,
        description="in training the given rows (see given_rows) are shifted at random, each variable alike in all of "
        "them, by so many of its deviations",
    )
    shift: float = Field(
        default=0.0,
        ge=0,
        description="in training whole series are shifted at random, each variable by so many of its deviations",
    )
    stretch: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="in training series run faster or slower at random: the deviation of the logarithm of their pace",
    )
    rates: dict[str, float] = Field(
        default={},
        description="variables that tell how fast something goes, each with its value at rest, as in "
        'rates={"speed": 0}: they grow with the pace of a series (see stretch)',
    )
    learning_rate: float = Field(default=5e-3, gt=0, description="at its highest")
    schedule: Literal["cosine", "constant"] = Field(
        default="cosine", description="of the learning rate, after its warm-up"
    )
    lr_warmup: int = Field(default=100, ge=0, description="steps over which the learning rate rises")
    weight_decay: float = Field(default=1e-4, ge=0, description="AdamW's; 0 is Adam")
    clip: float = Field(default=1.0, gt=0, description="largest norm of a gradient")
    patience: int = Field(default=25, ge=1, description="epochs without a better validation score before it stops")
    valid_share: float = Field(
        default=0.1, gt=0, lt=1, description="part of the table held out when no validation table is given"
    )
    valid_paths: int = Field(default=16, ge=1, le=MOST_PATHS, description="paths a series for the validation score")
    valid_rows: int | None = Field(
        default=None,
        ge=1,
        description="latent-*: rows a series, evenly spread, that the validation score is of; all if not given",
    )
    valid_bound: bool = Field(default=False, description="also keep the bound on the validation part, each epoch")
    select_by: Literal["forecasts", "crps", "bound", "last"] | None = Field(
        default=None,
        description="which epoch is kept: the best in forecasts of the validation part by their NLL, or by their CRPS, "
        "which no single value decides, or in its bound (the default with hide_share), or the last",
    )
    max_skipped: int = Field(default=50, ge=1, description="steps in a row with no finite gradient before the run ends")
    checkpoint_every: int = Field(
        default=200, ge=1, description="steps between checkpoints; one is also written each epoch"
    )
    seed: int = Field(default=0, ge=0, le=LAST_SEED, description="same seed, same result")


class Settings(Section):
    """All settings, by section; `with_values` finds a key in whichever section has it."""

    model: ModelSettings = ModelSettings()
    objective: ObjectiveSettings = ObjectiveSettings()
    data: DataSettings = DataSettings()
    training: TrainingSettings = TrainingSettings()

    def with_values(self, values: dict[str, Any]) -> "Settings":
        """These settings with flat `values` (no section named) in place of their own."""
        sections = self.model_dump()
        for key, value in values.items():
            sections[section_of(key)][key] = value
        return validated(sections)


def section_of(key: str) -> str:
    """The section that has this key."""
    for name, field in Settings.model_fields.items():
        if key in field.annotation.model_fields:  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
            return name
    raise SettingsError(f"there is no setting {key!r}; the settings are {', '.join(all_keys())}")


def all_keys() -> list[str]:
    return [key for section in Settings().model_dump().values() for key in section]


def validated(sections: dict[str, Any]) -> Settings:
    """Checked settings; the first thing wrong becomes one sentence."""
    try:
        return Settings.model_validate(sections)
    except ValidationError as error:
        raise SettingsError(f"setting {first_fault(error)}") from None


def first_fault(error: ValidationError) -> str:
    """The first thing that pydantic found wrong: where, what came, and what was wanted."""
    first = error.errors()[0]
    where, came = ".".join(str(part) for part in first["loc"]) or "table", repr(first.get("input"))
    if first["type"] == "missing":
        return f"{where} is missing"
    came = came if len(came) <= 60 else came[:59] + "…"
    wanted = 'input should be names with values, e.g. {"speed": 0}' if first["type"] == "dict_type" else first["msg"]
    return f"{where} is {came}: {wanted[0].lower()}{wanted[1:]}"


def parse_assignments(texts: list[str]) -> dict[str, Any]:
    """{'epochs': 12} of ['epochs=12']; a value is JSON if it can be read as such, else text."""
    values = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise SettingsError(f"--set wants KEY=VALUE, e.g. epochs=12, but got {text!r}")
        try:
            values[key.strip()] = json.loads(value)
        except json.JSONDecodeError:
            values[key.strip()] = value.strip()
    return values


def preset_names() -> list[str]:
    folder = resources.files("vsdn") / "presets"
    return sorted(file.name.removesuffix(".toml") for file in folder.iterdir() if file.name.endswith(".toml"))


def read_preset(name: str) -> dict[str, Any]:
    """The flat values of a preset that ships with the library."""
    if name not in preset_names():
        raise SettingsError(f"there is no preset {name!r}; the presets are {', '.join(preset_names())}")
    return tomllib.loads((resources.files("vsdn") / "presets" / f"{name}.toml").read_text("utf-8"))


def read_config(path: Path) -> dict[str, Any]:
    """The flat values of a TOML or JSON file; sections, as in config.json, are taken apart."""
    try:
        text = path.read_text("utf-8")
        tree = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise SettingsError(f"cannot read the settings file {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{path} is not valid {'JSON' if path.suffix == '.json' else 'TOML'}: {error}") from None
    tree = tree.get("settings", tree) if isinstance(tree, dict) else tree
    if not isinstance(tree, dict):
        raise SettingsError(f"{path} should hold settings by name, but holds {repr(tree)[:60]}")
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat.update(value if isinstance(value, dict) else {key: value})
    return flat
