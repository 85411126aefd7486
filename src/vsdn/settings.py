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
    ] = Field(default="vsdn-s", description="which model to train")
    hidden_size: int | None = Field(
        default=None, ge=1, le=MOST_UNITS, description="size of the memory h, the deterministic hidden state"
    )
    latent_size: int | None = Field(default=None, ge=1, le=MOST_UNITS, description="size of the latent state x")
    width: int | None = Field(
        default=None, ge=1, le=MOST_UNITS, description="hidden units of the feed-forward networks"
    )
    init_width: int = Field(
        default=128,
        ge=1,
        le=MOST_UNITS,
        description="vsdn-*, latent-*: hidden units of the network of the initial latent state",
    )
    activation: Literal["tanh", "relu", "silu"] = Field(
        default="tanh", description="activation of the feed-forward networks"
    )
    flow: Literal["gru", "leaky"] = Field(
        default="gru",
        description="how the memory moves between observations: gated and bounded (gru), or with learned decay "
        "rates (leaky)",
    )
    keep_last: bool = Field(
        default=False,
        description="vsdn-*, ode-rnn: the memory stores the last value of each variable; the decoder predicts the "
        "change from it",
    )
    keep_usual: bool = Field(
        default=False,
        description="vsdn-*, ode-rnn: the memory stores each series' own mean, its swing with each of the periods, "
        "and the last departure from them; the decoder predicts the change from there",
    )
    keep_trend: bool = Field(
        default=False,
        description="vsdn-*, ode-rnn: the memory runs a level-and-trend filter of each variable; the decoder "
        "predicts the change from its forecast, in the filter's standard deviations",
    )
    keep_linear: bool = Field(
        default=False,
        description="vsdn-*, ode-rnn: the memory runs a Kalman filter of all variables together (series means, "
        "swings with the periods, fading departures); the decoder predicts the change from its "
        "forecast. At most 20 variables",
    )
    tell_error: bool = Field(
        default=False,
        description="vsdn-*, ode-rnn: the memory predicts each variable itself and receives its prediction error "
        "as input; the decoder predicts the change from that prediction. Not together with keep_*",
    )
    spread_memory: bool = Field(
        default=False,
        description="vsdn-*, ode-rnn, gru-ode, latent-*: initialise the units of the memory to hold information "
        "for different times, from one row to a whole series, instead of all for a few rows",
    )
    gru_ode_cell: Literal["full", "minimal"] = Field(
        default="full", description="gru-ode: a cell with two gates (full) or one (minimal)"
    )
    prep_size: int = Field(
        default=25,
        ge=1,
        le=MOST_UNITS,
        description="gru-ode, tell_error: units per variable that prepare an observation for the memory",
    )
    bayes_weight: float = Field(
        default=1e-4,
        ge=0,
        description="gru-ode: weight of the KL divergence from the Bayesian update to the update that the memory makes",
    )
    bayes_noise: float = Field(
        default=1e-2,
        ge=1e-6,
        le=1e3,  # 32 bits hold the square and its inverse
        description="gru-ode: observation noise in the Bayesian update, in standard deviations of the variable",
    )
    likelihood: Literal["gaussian", "student"] = Field(
        default="gaussian",
        description="distribution of the observations; student (Student's t with four degrees of freedom) "
        "tolerates rare extreme values. Not for linear, which is Gaussian",
    )
    scale_floor: float = Field(
        default=1e-3,
        gt=0,
        description="smallest scale of a predicted distribution, in standard deviations of the variable",
    )
    even_pull: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="exponent b of a variance-weighted loss (beta-NLL): gradients are multiplied by the predicted "
        "variance to the power b, so that values with a small variance do not dominate. For many "
        "repeated values, with select_by=crps. Not for linear",
    )

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Hidden size, latent size and width, once they are chosen."""
        if self.hidden_size is None or self.latent_size is None or self.width is None:
            raise SettingsError("hidden_size, latent_size and width must be chosen before a model is made")
        return self.hidden_size, self.latent_size, self.width


class ObjectiveSettings(Section):
    """What is maximised."""

    objective: Literal["vae", "iwae"] = Field(
        default="iwae",
        description="what is maximised: the VAE bound (vae), or a mixture of the VAE and the IWAE bound (iwae, see "
        "alpha)",
    )
    num_paths: int = Field(
        default=3, ge=1, le=MOST_PATHS, description="latent paths per series in training (K of the IWAE bound)"
    )
    alpha: float = Field(
        default=0.5, ge=0, le=1, description="weight of the IWAE bound if objective is iwae; the VAE bound has the rest"
    )
    beta: float = Field(default=1.0, ge=0, description="weight of the KL term in the VAE bound")
    kl_warmup: int = Field(
        default=0, ge=0, le=MOST_EPOCHS, description="epochs over which the weight of the KL term rises from 0 to beta"
    )
    save_memory: bool = Field(
        default=False,
        description="vsdn-f, vsdn-s: memory grows with the square root of the number of solver steps, but training "
        "is slower. For long series",
    )


class DataSettings(Section):
    """How a table becomes grids. Times are in the table's own unit (`time_unit` when they are dates)."""

    time_unit: Literal["second", "minute", "hour", "day", "week"] = Field(
        default="day", description="unit of time, if times are dates"
    )
    max_step: float | None = Field(
        default=None,
        gt=0,
        description="longest solver step, in the unit of the table's times; chosen from the data if not given",
    )
    time_scale: float | None = Field(
        default=None,
        gt=0,
        description="the model's unit of time, in the unit of the table's times; chosen from the data if not given",
    )
    start: float | str | None = Field(
        default=None, description="time or date at which all series start; each at its first observation if not given"
    )
    periods: tuple[float | str, ...] = Field(
        default=(),
        description="known periods, whose sine and cosine the model receives as input: numbers such as 7 or, if "
        "times are dates, hour, day, week, month, year",
    )
    window: int | None = Field(
        default=None,
        ge=2,
        description="rows of a training piece, into which longer series are cut; chosen from the data if not "
        "given. Not together with start",
    )
    num_buckets: int | None = Field(
        default=None,
        ge=1,
        le=6,
        description="at most so many padded lengths, each compiled once; chosen from the data if not given",
    )


class TrainingSettings(Section):
    """How it is trained."""

    epochs: int | None = Field(
        default=None,
        ge=0,
        le=MOST_EPOCHS,
        description="passes over the training data; chosen from the data if not given",
    )
    batch_size: int = Field(default=50, ge=1, description="series per training step")
    cut_share: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="share of the series of a training step that end at a random row; if not given 1 for latent-* "
        "and 0 for the others",
    )
    begin_share: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="share of the series of a training step that begin at a random row. Not together with start",
    )
    hide_share: float = Field(
        default=0.0,
        ge=0,
        le=0.5,
        description="vsdn-*, ode-rnn, gru-ode: average share of the rows that are masked from the memory in "
        "training, but still scored",
    )
    given_rows: int | None = Field(
        default=None,
        ge=1,
        description="vsdn-*, ode-rnn, gru-ode, latent-ode: in training and validation the model receives only so "
        "many first rows of a series as input, and predicts all others from them",
    )
    given_shift: float = Field(
        default=0.0,
        ge=0,
        description="standard deviation of a random shift of the rows of given_rows in training, one per series "
        "and variable, in standard deviations of the variable",
    )
    shift: float = Field(
        default=0.0,
        ge=0,
        description="standard deviation of a random shift of whole series in training, one per series and "
        "variable, in standard deviations of the variable",
    )
    stretch: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="in training each series runs faster or slower by a random factor; this is the standard "
        "deviation of its logarithm. Not together with periods",
    )
    rates: dict[str, float] = Field(
        default={},
        description='variables that are speeds or flows, each with its value at rest, as in rates={"speed": 0}; '
        "stretch scales them with the speed of the series",
    )
    learning_rate: float = Field(default=5e-3, gt=0, description="largest learning rate")
    schedule: Literal["cosine", "constant"] = Field(
        default="cosine", description="after the warm-up the learning rate falls along a cosine, or is constant"
    )
    lr_warmup: int = Field(
        default=100,
        ge=0,
        description="training steps over which the learning rate rises, but at most a quarter of all steps",
    )
    weight_decay: float = Field(default=1e-4, ge=0, description="weight decay of AdamW; 0 makes it Adam")
    clip: float = Field(default=1.0, gt=0, description="largest norm of a gradient; larger ones are scaled down to it")
    patience: int = Field(
        default=25, ge=1, description="training stops after so many epochs without a better validation score"
    )
    valid_share: float = Field(
        default=0.1,
        gt=0,
        lt=1,
        description="share of the table that is held out for validation if no validation table is given",
    )
    valid_paths: int = Field(
        default=16, ge=1, le=MOST_PATHS, description="latent paths per series for the validation score"
    )
    valid_rows: int | None = Field(
        default=None,
        ge=1,
        description="latent-*: rows per series, evenly spaced, that the validation score uses; all if not given",
    )
    valid_bound: bool = Field(
        default=False, description="also record the bound on the validation data after each epoch"
    )
    select_by: Literal["forecasts", "crps", "bound", "last"] | None = Field(
        default=None,
        description="which epoch is kept: the one with the best NLL (forecasts) or CRPS (crps) of validation "
        "forecasts, or the best validation bound (bound), or the last one (last). If not given bound "
        "with hide_share, else forecasts",
    )
    max_skipped: int = Field(
        default=50, ge=1, description="the run ends after so many training steps in a row without a finite gradient"
    )
    checkpoint_every: int = Field(
        default=200, ge=1, description="training steps between checkpoints; one is also written after each epoch"
    )
    seed: int = Field(default=0, ge=0, le=LAST_SEED, description="random seed: the same seed gives the same result")


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
