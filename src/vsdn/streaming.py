"""JSON lines in, forecasts out: an online state behind a pipe."""

import contextlib
import json
import math
import signal
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from vsdn.answers.replies import Forecast
from vsdn.answers.requests import level_name, read_levels
from vsdn.errors import DataError, RunError, SettingsError, VsdnError
from vsdn.files import check_writable, is_special, write_bytes
from vsdn.fitted import Fitted
from vsdn.online.tracking import ALONE, Online
from vsdn.tables.files import listing, shorten
from vsdn.tables.frames import parse_times

KEYS = ("id", "time", "values", "times")


class Message(NamedTuple):
    """One line of input: an observation, a request for forecasts, or both."""

    id: str | int
    time: Any = None
    values: dict[str, Any] | None = None
    times: list[Any] | None = None


@dataclass(frozen=True)
class Asking:
    """The forecasts that answer each line by default."""

    ahead: Sequence[float]  # horizons after the last observation, in the axis' unit
    quantiles: Sequence[float]

    def __post_init__(self):
        read_levels(self.quantiles)
        for horizon in self.ahead:
            if not 0 < horizon < math.inf:
                raise SettingsError(f"ahead wants numbers above 0, but {horizon} was given")


class Stream:
    """Holds the newest state, so that it can be saved however the stream ends."""

    def __init__(self, state: Online):
        self.state = state

    def answer(self, line: bytes, asking: Asking) -> list[str]:
        """The output lines for one line of input; the state is updated, or unchanged if the line is refused."""
        message = parse(line)
        state = self.state
        if message.values is not None:
            state = state.update(message.time, message.values, message.id)
        is_news = message.values is not None and state.num_ignored == self.state.num_ignored
        lines = list(_forecasts(state, message, asking)) if is_news or message.times is not None else []
        self.state = state
        return lines


def parse(line: bytes) -> Message:
    """The message in a line; refuses an invalid one."""
    try:
        fields = json.loads(line, object_pairs_hook=_fields)
    except DataError:
        raise
    except (ValueError, RecursionError):
        raise DataError(f"JSON was expected, not {shorten(line.decode(errors='replace').strip())}") from None
    if not isinstance(fields, dict):
        raise DataError(f"an object with {listing(KEYS)} was expected, not {shorten(fields)}")
    if strange := [name for name in fields if name not in KEYS]:
        raise DataError(f"the keys are {listing(KEYS)}, but not {shorten(strange[0])}")
    message = Message(fields.pop("id", ALONE), **fields)
    if not isinstance(message.values, dict | None) or not isinstance(message.times, list | None):
        raise DataError("values were expected as an object with a number by variable, and times as a list")
    if (message.time is None) != (message.values is None):
        raise DataError("a time and values go together, but one of them came alone")
    if message.values is None and message.times is None:
        raise DataError("a time with values, or times to forecast, were expected, but neither came")
    return message


def _fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object in a line; refuses duplicate keys, of which only the last would be kept."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        twice = next(name for place, (name, _) in enumerate(pairs) if name in dict(pairs[:place]))
        raise DataError(f"each key was expected once, but {shorten(twice)} came twice in one object")
    return fields


def _forecasts(state: Online, message: Message, asking: Asking) -> Iterator[str]:
    """One line per requested time; the default horizons apply to lines with an observation."""
    if message.times is None and (not asking.ahead or str(message.id) not in state.slots):
        return
    slot = state.find([message.id])
    if message.times is None:
        times = state.last[slot] + np.array(asking.ahead)
    else:
        times = parse_times(message.times, state.subject.axis)
    if not len(times):
        return
    answer = state.foretell(np.repeat(slot, len(times)), times, asking.quantiles)
    for place, time in enumerate(times):
        moment = state.subject.show(float(time))
        what = _by_variable(state.subject.variables, answer, place, asking.quantiles)
        yield json.dumps({"id": message.id, "time": moment, "forecast": what})


def _by_variable(variables: Sequence[str], answer: Forecast, place: int, levels: Sequence[float]) -> dict[str, Any]:
    """mean, std and quantiles of each variable; null where a number is not finite, which JSON cannot express."""
    table = np.column_stack([answer.mean[place], answer.std[place], answer.quantiles[place]])
    names = ["mean", "std", *map(level_name, levels)]
    finite = [[value if math.isfinite(value) else None for value in row] for row in table.tolist()]
    return {variable: dict(zip(names, row, strict=True)) for variable, row in zip(variables, finite, strict=True)}


def run(stream: Stream, lines: Iterable[bytes], asking: Asking) -> Iterator[list[str] | DataError]:
    """Yields the output lines of each input line, or why it was refused; empty lines are counted but not answered."""
    for number, line in enumerate(lines, 1):
        try:
            if line.strip():
                yield stream.answer(line, asking)
        except VsdnError as error:
            yield DataError(f"line {number}: {error}")


def read_state(fitted: Fitted, path: Path | None, **wanted: int | None) -> Online:
    """The state in a file if there is one, else a fresh one; refuses settings that differ from those of the file."""
    given = {name: value for name, value in wanted.items() if value is not None}
    if path is None or not path.exists() or is_special(path):
        return fitted.online([], **given)
    try:
        state = Online.from_bytes(fitted, path.read_bytes())
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from None
    except DataError as error:
        raise RunError(f"{path}: {error}") from None
    for name, value in given.items():
        if (own := getattr(state.subject, name)) != value:
            raise RunError(f"{path} has {name} {own}, but {value} was given: leave it out, or begin another state")
    return state


@contextlib.contextmanager
def saving(stream: Stream, path: Path | None) -> Iterator[None]:
    """A block after which the file holds the newest state, however it ended, including by SIGTERM."""
    if path is not None:
        check_writable(path)
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        if path is not None:
            write_bytes(path, stream.state.to_bytes())


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
