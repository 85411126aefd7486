"""Writes docs/settings.md, the reference of all settings, from their descriptions: `make docs`."""

import json
import re
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from vsdn.settings import Settings

PATH = Path(__file__).with_name("settings.md")
TITLES = {"model": "Model", "objective": "Objective", "data": "Data", "training": "Training"}
STARRED = re.compile(r"\b(vsdn-|latent-|keep_)\*")  # as code, or Markdown reads the stars as emphasis
KINDS = {bool: "true or false", int: "whole number", float: "number"}
SIGNS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
HEAD = """# Settings

Made from the descriptions in `src/vsdn/settings.py` by `make docs`; do not edit. Every setting has a default, so none
has to be given. [Choosing a model](models.md) says which ones to try for your data.

- [How to give settings](#how-to-give-settings)
- [Settings chosen from the data](#settings-chosen-from-the-data)
- All settings: [Model](#model), [Objective](#objective), [Data](#data), [Training](#training)
- [What some settings change, measured](#what-some-settings-change-measured)

## How to give settings

On the command line, one at a time, from a file, or from a preset (a set of settings that ships with the library):

```
$ vsdn fit data.csv --out run --set epochs=30 --set keep_usual=true --set 'periods=[7]'
$ vsdn fit data.csv --out run --config settings.toml
$ vsdn fit data.csv --out run --preset double-ou --set epochs=10
```

A value of `--set` is read as JSON if it is valid JSON, otherwise as text. `settings.toml` holds one setting per line,
with or without sections; a JSON file and the `config.json` of an earlier run work too. `vsdn fit --help` lists the
presets, and [`src/vsdn/presets`](../src/vsdn/presets) shows what they set. In Python:

```python
fitted = vsdn.fit(frame, model="vsdn-f", preset="double-ou", settings={"epochs": 10, "keep_last": True})
fitted.settings  # all settings of the run, none left open
```

If several sources give the same setting, the later one in this list wins: default, preset, file, `--set` (or
`settings`), the options `--model`, `--objective` and `--seed`. An unknown name, a value outside its bounds, or
settings that exclude each other end the command with one sentence and exit code 2 (in Python with a
`vsdn.errors.SettingsError`). If the model cannot use them, `hide_share`, `given_rows` and `save_memory` are refused;
`keep_*`, `tell_error`, `spread_memory` and `even_pull` are ignored with a remark; settings of another model, such as
`gru_ode_cell`, are ignored. `vsdn info run` shows every setting of a run.

## Settings chosen from the data

These have the default *open*. They are chosen when the run starts, from the training data, the model and other
settings, and stored with the run.

| setting | choice |
|---|---|
| `hidden_size` | 32 for up to 8 variables, 64 for up to 32, else 128 |
| `latent_size` | the same; for `linear` four times the number of variables, at most 64 |
| `width` | 64, 128 or 256, with the same limits |
| `time_scale` | a tenth of the median length of a series, so that a typical series lasts ten units |
| `max_step` | half the median gap between rows, but at least 1/200 of the median length of a series |
| `window` | 200 rows if a series has more than 400 and `start` is not given, else none |
| `epochs` | as many as make about 3,000 training steps, between 40 and 300 |
| `num_buckets` | 1 to 3, by the number of training steps in an epoch |
| `cut_share` | 1 for `latent-ode` and `latent-sde`, else 0 |
| `select_by` | `bound` with `hide_share`, else `forecasts` |

`given_rows`, `valid_rows` and `start` are *none* by default, which switches them off: all rows are input, all are
scored, and each series starts at its first observation.
"""
FOOT = """
## What some settings change, measured

Evidence from our own runs, with the page that has it. *(not recorded)* marks figures without a committed record of
the run. NLL is the negative log-likelihood, CRPS the continuous ranked probability score; less is better for both.
*Appendix C* stands for the sizes in the paper, *tuned* for our own, chosen on validation data.

- **`keep_last`** keeps networks from losing to the model `last-value` on data that moves little (not recorded).
  Beside `keep_usual`, `keep_trend` or `keep_linear` it has no further effect.
- **`keep_usual`** is for series that differ in their mean or season: stations, patients, machines. On USHCN, tuned,
  it lowers the MSE of `ode-rnn` from 0.624 to 0.519 ([results](results/ushcn.md)).
- **`keep_trend`** is for variables that move smoothly from row to row, such as bodies, vehicles and most sensors. On
  CMU MoCap, tuned, it lowers the MSE of `ode-rnn` from 18.8 to 0.71 a frame and its NLL from −3.7 to −150.4, both
  with `likelihood=student` ([results](results/mocap.md)). Its standard deviations follow how much a variable moved
  recently; far ahead it predicts the variable's own mean and standard deviation.
- **`keep_linear`** is for series with means of their own, departures that last for a while, and variables that inform
  one another; 20 variables at most. On USHCN, tuned, with `even_pull`, it has the lowest MSE of all configurations at
  the published forecast origin (t = 150): 0.505. Over nine forecast origins (t = 142, 144 ... 158) tuned `keep_usual`
  with `even_pull` is lower (0.530 against 0.543). With appendix C's sizes it is the lowest over nine origins (0.535
  against 0.544). Use it with `even_pull`. On Double-OU it does not help: validation NLL of VSDN-F, tuned, one seed,
  −1.435 with it and −1.447 without (not recorded). We think the reason is that all its processes start at zero, which
  the filter does not know. A run on USHCN takes about twice as long as with `keep_usual`; a minute or two come before
  the first epoch.
- **`tell_error`** is error feedback, as GRU-ODE-Bayes has it. On Double-OU it lowers the NLL by 0.08 to 0.11 with
  appendix C's sizes and six epochs, and by 0.010 to 0.012 tuned, to the level of `gru-ode`
  ([results](results/double-ou.md)). On CMU MoCap, appendix C's sizes, it lowers the MSE of VSDN-F (VAE) from 22.5 to
  20.0 a frame (mean of five folds; GRU-ODE: 22.0).
- **`spread_memory`** is for data in which values from hundreds of rows ago still matter. On USHCN, appendix C's
  sizes, `gru-ode` has an MSE of 0.595 with it and 0.614 with its authors' initialisation
  ([results](results/ushcn.md)).
- **`likelihood=student`** is for rare values that nothing announces. A value far outside a narrow Gaussian can cost
  millions of nats and decide what is learned; with Student's t it costs some forty. On CMU MoCap (`ode-rnn` with
  `keep_trend`, validation part of fold 0, one seed; not recorded) the NLL falls from −139.8 to −151.7 a frame, the
  MSE from 0.81 to 0.76, the CRPS from 0.0328 to 0.0305, and 50 % intervals cover 55 % of the values instead of 65 %.
  Do not use it where the mean of skewed values matters (rain): it follows their middle.
- **`even_pull=0.5`**, a variance-weighted loss (beta-NLL, Seitzer et al. 2022), with `select_by=crps`, is for data in
  which many values repeat, such as days without rain. Only gradients change; the bound, path weights and scores stay
  as they are. On USHCN, appendix C's sizes, it lowers VSDN-S (IWAE) from 0.651 to 0.550 in MSE and from 0.322 to
  0.238 in CRPS, and `gru-ode` from 0.595 to 0.553 and from 0.327 to 0.312 ([results](results/ushcn.md)). Where few
  values repeat it changes little: on CMU MoCap (VSDN-S tuned, validation part of fold 0; not recorded) the CRPS is
  0.0329 with and without it, the NLL 0.03 nats a value worse.
- **`scale_floor`** is worth raising where many values repeat and forecasts are mixtures (`hide_share` on USHCN):
  without that they become too sure.
- **`stretch`, `rates`, `shift`** are for few series, when new ones may be faster, slower or at another level. Name in
  `rates` every variable that is a speed or a flow, with its value at rest; otherwise stretched series contradict
  themselves. On subject 35, with all three and `keep_last` for VSDN and `ode-rnn`, 90 % intervals of the paper's
  models cover 89 to 91 % of the values, before that 75 to 82 % (not recorded; [results](results/subject-35.md)).
- **`select_by=crps`** is for validation data with values far outside the training data. By NLL a few such values
  chose the second of twelve epochs (VSDN-F on CMU MoCap, fold 1, appendix C's sizes) or the first of forty
  (`ode-rnn`, folds 1 and 2, Gaussian).
- **`select_by=bound`** with a small `max_step`, and **`hide_share`**, are for VSDN's latent paths: see [what the
  latent path is for](models.md#what-the-latent-path-is-for).
"""


def reference() -> str:
    """The whole page: how settings are given, a table a section, and what is known of some of them."""
    parts = [HEAD, *(_section(name, title) for name, title in TITLES.items())]
    return "\n".join(parts) + FOOT


def _section(name: str, title: str) -> str:
    section: Any = Settings.model_fields[name].annotation
    rows = [_row(key, field) for key, field in section.model_fields.items()]
    return "\n".join([f"## {title}", "", "| setting | default | values | meaning |", "|---|---|---|---|", *rows, ""])


def _row(key: str, field: FieldInfo) -> str:
    meaning = STARRED.sub(r"`\g<0>`", field.description or "")
    return f"| `{key}` | {_default(key, field)} | {_values(field)} | {meaning} |"


def _default(key: str, field: FieldInfo) -> str:
    if field.default is None:
        return "none" if key in ("given_rows", "valid_rows", "start") else "open"
    value = list(field.default) if isinstance(field.default, tuple) else field.default
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def _values(field: FieldInfo) -> str:
    """The choices, or the kind of value and its bounds."""
    kind, *_ = [kind for kind in get_args(field.annotation) or [field.annotation] if kind is not type(None)]
    for choices in (field.annotation, kind):
        if get_origin(choices) is Literal:
            return ", ".join(f"`{choice}`" for choice in get_args(choices))
    if field.annotation == float | str | None:
        return "number or text"
    if get_origin(field.annotation) is tuple:
        return "list of numbers or names"
    if get_origin(field.annotation) is dict:
        return "names with numbers"
    return f"{KINDS[kind]}{_bounds(field)}"


def _bounds(field: FieldInfo) -> str:
    found = {side: getattr(rule, side) for rule in field.metadata for side in SIGNS if hasattr(rule, side)}
    text = {side: f"{bound:,}" if isinstance(bound, int) else f"{bound:g}" for side, bound in found.items()}
    if "ge" in text and "le" in text:
        return f", {text['ge']} to {text['le']}"
    return "".join(f", {SIGNS[side]} {bound}" for side, bound in text.items())


if __name__ == "__main__":
    PATH.write_text(reference(), encoding="utf-8")
