"""Online states: one or many series followed as their data arrive; immutable, with constant cost per update."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jax.numpy as jnp
import numpy as np

from vsdn.answers.questions import MEMORY
from vsdn.answers.replies import Forecast, forecast_frame
from vsdn.answers.requests import QUANTILES, as_list, read_levels
from vsdn.errors import DataError
from vsdn.online import statefile
from vsdn.online.stepping import States, enlarge, pick, power_of_two, put
from vsdn.online.subject import Row, Subject
from vsdn.tables.files import listing, shorten
from vsdn.tables.frames import parse_times

ALONE = "series"  # id of the only series if none is given, as in a table without an id column


class Followed(Protocol):
    """A fitted model that can be followed."""

    def subject(self, *, draws: int, seed: int, window: int) -> Subject: ...


@dataclass(frozen=True, eq=False, repr=False)
class Online:
    """One or many series, each at the time of its last observation. An update gives a new state."""

    subject: Subject
    ids: tuple[Any, ...]
    slots: Mapping[str, int]  # the position of each id
    last: np.ndarray  # float64: the time of the last observation; NaN before the first
    states: States  # padded to a power of two
    num_ignored: int = 0  # updates without any value
    behind: "Online | None" = None  # the state before the rows in the replay window
    rows: tuple[tuple[Row, ...], ...] = ()  # the replay window: these rows, of each series

    def __post_init__(self):
        self.last.flags.writeable = False

    @classmethod
    def begin(cls, subject: Subject, ids: Sequence[Any]) -> "Online":
        """The state before any observation."""
        behind = cls.begin(dataclasses.replace(subject, window=0), ()) if subject.window else None
        return cls(subject, (), {}, np.empty(0), [], behind=behind)._with(ids)

    def update(self, time: Any, values: Mapping[str, Any], id: Any = None) -> "Online":
        """The state updated with these values (numbers by variable; None and NaN are unobserved) at a later time.

        If there is more than one series, `id` says which; a new id starts a new series. An update without any value is
        counted and ignored.
        """
        row = self.subject.read_row(time, values)
        if not row.mask.any():
            return dataclasses.replace(self, num_ignored=self.num_ignored + 1)
        if id is None and len(self.ids) == 1:
            grown, slot = self, 0
        else:
            id = self._check_id(id)
            grown = self if str(id) in self.slots else self._with([id])
            slot = grown.slots[str(id)]
        if row.time <= grown.last[slot]:
            return grown._replay(slot, row)
        return grown._take(np.array([slot]), np.array([row.time]), row.values[None], row.mask[None])

    def update_many(self, ids: Sequence[Any], times: Any, values: Any) -> "Online":
        """The state after row i of `values` (a column per variable; NaN is unobserved) came for series i at time i."""
        ids = [self._check_id(id) for id in ids]
        moments, values = parse_times(times, self.subject.axis), self.subject.read_values(values, len(ids))
        if len(moments) != len(ids):
            raise DataError(f"a time for each of {len(ids)} ids was expected, but {len(moments)} came")
        mask = ~np.isnan(values)
        seen = np.flatnonzero(mask.any(axis=1))
        fresh = {str(ids[row]): ids[row] for row in seen if str(ids[row]) not in self.slots}
        state = dataclasses.replace(self, num_ignored=self.num_ignored + len(ids) - len(seen))._with([*fresh.values()])
        slots = np.array([state.slots[str(ids[row])] for row in seen], np.int64)
        cells = np.where(mask, values, 0.0)
        for turn in _turns(slots):
            chosen = seen[turn]
            state = state._take_or_replay(slots[turn], moments[chosen], cells[chosen], mask[chosen])
        return state

    def forecast(
        self,
        times: Any,
        *,
        ids: Any = None,
        quantiles: Sequence[float] | float = QUANTILES,
        backend: str = "pyarrow",
    ) -> Any:
        """A frame of mean, std and quantiles of every variable of each series (or of `ids`) at future times."""
        levels, names = read_levels(quantiles), self.ids if ids is None else [self._check_id(id) for id in as_list(ids)]
        moments = parse_times(times, self.subject.axis)
        slots, times = np.repeat(self.find(names), len(moments)), np.tile(moments, len(names))
        if not len(times):
            raise DataError("a forecast was asked for without a series or without a time")
        answer = self.foretell(slots, times, levels)
        layout = dataclasses.replace(self.subject.layout, backend=backend)
        layout = dataclasses.replace(layout, id=None) if self.ids == (ALONE,) else layout
        own = np.array(self.ids, object)[slots]
        return forecast_frame(layout, self.subject.axis, self.subject.variables, own, times, answer, levels)

    def foretell(self, slots: np.ndarray, times: np.ndarray, quantiles: Sequence[float]) -> Forecast:
        """Mean, standard deviation and quantiles for pairs of a series' position in `ids` and a time in axis units."""
        levels = read_levels(quantiles)
        self._check_future(slots, times)
        size = max(1, min(power_of_two(len(times)), MEMORY // (4 * 64 * self.subject.draws)))
        chunks = [slice(first, first + size) for first in range(0, len(times), size)]
        parts = [self._foretell(slots[chunk], times[chunk], size, levels) for chunk in chunks]
        return Forecast(*(np.concatenate(each) for each in zip(*parts, strict=True)))

    def last_time(self, id: Any = None) -> float:
        """The time of a series' last observation, in the axis' unit; NaN before the first."""
        return float(self.last[self.find([self.ids[0] if id is None and len(self.ids) == 1 else id])[0]])

    def to_bytes(self) -> bytes:
        """The whole state as a safetensors file, which `from_bytes` reads."""
        subject, ahead = self.subject, self._arrays()
        arrays = ahead if self.behind is None else ahead | self._window_arrays()
        about = {"ids": self.ids, "draws": subject.draws, "seed": subject.seed, "window": subject.window}
        return statefile.dump(arrays, about | {"ignored": self.num_ignored, "model": subject.stepper.fingerprint})

    @classmethod
    def from_bytes(cls, fitted: Followed, content: bytes) -> "Online":
        """The state that was written; refuses one of another model and damaged bytes."""
        arrays, about = statefile.parse(content)
        subject = fitted.subject(draws=about.draws, seed=about.seed, window=about.window)
        if about.model != subject.stepper.fingerprint:
            raise DataError("the state is one of another model: it goes on only with the model that it began with")
        state = cls.begin(subject, about.ids)
        with statefile.refusing():
            state = state._from_arrays(arrays)
            if state.behind is not None:
                state = state._with_window(arrays)
        return dataclasses.replace(state, num_ignored=about.ignored)

    def __repr__(self) -> str:
        return f"Online({len(self.ids)} series: {listing(self.ids)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Online) and self.to_bytes() == other.to_bytes()

    def __hash__(self) -> int:
        return hash(self.to_bytes())

    # ------------------------------------------------------------------------------------------------------- series

    def _check_id(self, id: Any) -> Any:
        id = id.item() if isinstance(id, np.generic) else id
        if isinstance(id, bool) or not isinstance(id, str | int):
            raise DataError(f"a series' id is a text or a whole number, but not {shorten(id)}")
        return id

    def find(self, ids: Sequence[Any]) -> np.ndarray:
        """The slots of these series; refuses one that was never observed."""
        for id in ids:
            if str(id) not in self.slots:
                raise DataError(f"series {shorten(id)} is asked for, but there was no observation of it")
        return np.array([self.slots[str(id)] for id in ids], np.int64)

    def _with(self, ids: Sequence[Any]) -> "Online":
        """The state with new series added."""
        if not len(ids):
            return self
        ids = [self._check_id(id) for id in ids]
        names = (*self.ids, *ids)
        slots = {str(id): slot for slot, id in enumerate(names)}
        if len(slots) < len(names):
            raise DataError(f"each series was expected once, but the ids are {listing(names)}")
        fresh = self.subject.stepper.begin(ids, draws=self.subject.draws, seed=self.subject.seed)
        size = power_of_two(len(names))
        if self.ids:
            places = _fill(np.arange(len(self.ids), len(names)), power_of_two(len(ids)), size)
            room = enlarge(self.states, size) if size > power_of_two(len(self.ids)) else self.states
            fresh = put(room, places, fresh)
        return dataclasses.replace(
            self,
            ids=names,
            slots=slots,
            last=np.concatenate([self.last, np.full(len(ids), np.nan)]),
            states=fresh,
            behind=None if self.behind is None else self.behind._with(ids),
            rows=self.rows + ((),) * len(ids) if self.subject.window else (),
        )

    def _origin(self, slots: np.ndarray, times: np.ndarray) -> np.ndarray:
        """The start of the gap to each time: the last observation, else the given start, else the time itself."""
        start, last = self.subject.stepper.marching.start, self.last[slots]
        return np.where(np.isnan(last), times if start is None else start, last)

    # ------------------------------------------------------------------------------------------------------ updates

    def _take(self, slots: np.ndarray, times: np.ndarray, values: np.ndarray, mask: np.ndarray) -> "Online":
        """The state updated with rows of different series, each later than all before."""
        since = self._origin(slots, times)
        for place in np.flatnonzero(times < since):
            raise self._early(slots[place], times[place])
        if len(self.ids) == 1:
            states = self.subject.stepper.update(self.states, since, times, values, mask)
        else:
            states = self._step(slots, since, times, values, mask)
        last = self.last.copy()
        last[slots] = times
        moved = dataclasses.replace(self, last=last, states=states)
        return moved if self.behind is None else moved._remember(slots, times, values, mask)

    def _step(self, slots: np.ndarray, since: np.ndarray, times: np.ndarray, *cells: np.ndarray) -> States:
        """The states updated with rows of some series, longest gaps first."""
        order, size = np.argsort(since - times), power_of_two(len(slots))
        places = _fill(slots[order], size, power_of_two(len(self.ids)))
        rows = (_fill(part[order], size, 0) for part in (since, times, *cells))
        return put(self.states, places, self.subject.stepper.update(pick(self.states, places), *rows))

    def _remember(self, slots: np.ndarray, times: np.ndarray, values: np.ndarray, mask: np.ndarray) -> "Online":
        """The state with rows added to the replay window; those that leave the window update the state `behind`."""
        rows, old = list(self.rows), []
        for slot, *row in zip(slots.tolist(), times.tolist(), values, mask, strict=True):
            rows[slot] = (*rows[slot], Row(*row))
            if len(rows[slot]) > self.subject.window:
                old.append((slot, *rows[slot][0]))
                rows[slot] = rows[slot][1:]
        behind = self.behind
        if old and behind is not None:
            behind = behind._take(*(np.array(part) for part in zip(*old, strict=True)))
        return dataclasses.replace(self, rows=tuple(rows), behind=behind)

    def _take_or_replay(self, slots: np.ndarray, times: np.ndarray, values: np.ndarray, mask: np.ndarray) -> "Online":
        """The state updated with rows of different series, each of which may be late."""
        late, state = times <= self.last[slots], self
        for place in np.flatnonzero(late):
            state = state._replay(int(slots[place]), Row(float(times[place]), values[place], mask[place]))
        now = ~late
        return state._take(slots[now], times[now], values[now], mask[now]) if now.any() else state

    def _replay(self, slot: int, late: Row) -> "Online":
        """The state as if a late row had come in time; refuses a row older than the replay window."""
        kept = self.rows[slot] if self.rows else ()
        if late.time in (self.last[slot], *(row.time for row in kept)):
            raise DataError(
                f"series {shorten(self.ids[slot])} already has an observation at time {self.subject.show(late.time)}: "
                "one update for each time was expected"
            )
        if self.behind is None or late.time <= self.behind.last[slot]:
            raise self._late(slot, late.time)
        rows = sorted((*kept, late), key=lambda row: row.time)
        alone = dataclasses.replace(self._alone(slot), rows=((),))
        for time, values, mask in rows:
            alone = alone._take(np.array([0]), np.array([time]), values[None], mask[None])
        return self._with_alone(slot, alone)

    def _alone(self, slot: int) -> "Online":
        """A state of one series only, as it was before its replay window."""
        past = self.behind
        if past is None:
            return self
        id, at = self.ids[slot], np.array([slot])
        own = {"ids": (id,), "slots": {str(id): 0}, "last": past.last[at], "states": pick(past.states, at)}
        return dataclasses.replace(self, behind=dataclasses.replace(past, **own), **own)

    def _with_alone(self, slot: int, alone: "Online") -> "Online":
        """The state with one series replaced by that of a single-series state."""
        last, at = self.last.copy(), np.array([slot])
        last[slot] = alone.last[0]
        states = put(self.states, at, alone.states)
        rows = alone.rows and (*self.rows[:slot], alone.rows[0], *self.rows[slot + 1 :])
        behind = self.behind
        if behind is not None and alone.behind is not None:
            behind = behind._with_alone(slot, alone.behind)
        return dataclasses.replace(self, last=last, states=states, rows=rows, behind=behind)

    def _early(self, slot: int, time: float) -> DataError:
        start, show = self.subject.stepper.marching.start, self.subject.show
        return DataError(
            f"series {shorten(self.ids[slot])} has an observation at time {show(time)}, before the given start "
            f"{start if start is None else show(start)}: every one must come at the start or after it"
        )

    def _late(self, slot: int, time: float) -> DataError:
        show, window = self.subject.show, self.subject.window
        hint = f"only the last {window} can be replayed" if window else "a window would keep the last ones to replay"
        return DataError(
            f"series {shorten(self.ids[slot])} has an observation at time {show(time)} that comes too late, after the "
            f"one at {show(self.last[slot])}: {hint}"
        )

    # ---------------------------------------------------------------------------------------------------- forecasts

    def _check_future(self, slots: np.ndarray, times: np.ndarray) -> None:
        last, start = self.last[slots], self.subject.stepper.marching.start
        unseen = np.isnan(last)
        for place in np.flatnonzero(unseen & (start is None)):
            raise DataError(f"series {shorten(self.ids[slots[place]])} has no observation yet: there is no forecast")
        since = np.where(unseen, start or 0.0, last)
        for place in np.flatnonzero((times < since) | (times == last)):
            raise DataError(
                f"time {self.subject.show(times[place])} was asked for series {shorten(self.ids[slots[place]])}, which "
                f"is at {self.subject.show(since[place])} already: a forecast from here needs a later time"
            )

    def _foretell(
        self, slots: np.ndarray, times: np.ndarray, size: int, levels: tuple[float, ...]
    ) -> tuple[np.ndarray, ...]:
        since, moments = (_fill(part, size, 0) for part in (self._origin(slots, times), times))
        states = self.states if len(self.ids) == size == 1 else pick(self.states, _fill(slots, size, 0))
        answer = self.subject.stepper.forecast(states, since, moments, levels)
        return tuple(part[: len(slots)] for part in (answer.mean, answer.std, answer.quantiles))

    # -------------------------------------------------------------------------------------------------------- bytes

    def _arrays(self) -> dict[str, np.ndarray]:
        states = {f"state.{place}": np.asarray(part)[: len(self.ids)] for place, part in enumerate(self.states)}
        return {"last": self.last} | states

    def _window_arrays(self) -> dict[str, np.ndarray]:
        behind = {} if self.behind is None else self.behind._arrays()
        rows = [row for own in self.rows for row in own]
        width = len(self.subject.variables)
        return {f"behind.{name}": part for name, part in behind.items()} | {
            "rows.count": np.array([len(own) for own in self.rows], np.int64),
            "rows.time": np.array([row.time for row in rows], np.float64),
            "rows.values": np.array([row.values for row in rows], np.float64).reshape(-1, width),
            "rows.mask": np.array([row.mask for row in rows], bool).reshape(-1, width),
        }

    def _from_arrays(self, arrays: Mapping[str, np.ndarray], prefix: str = "") -> "Online":
        """The state with its arrays replaced by those of a file."""
        own = {f"{prefix}{name}": part for name, part in self._arrays().items()}
        statefile.check_alike({name: arrays[name] for name in own}, own)
        size = power_of_two(len(self.ids))
        states = [jnp.asarray(_fill(arrays[f"{prefix}state.{place}"], size, 0)) for place in range(len(self.states))]
        return dataclasses.replace(self, last=arrays[f"{prefix}last"], states=states)

    def _with_window(self, arrays: Mapping[str, np.ndarray]) -> "Online":
        """The state with the replay window of a file."""
        rows = [Row(float(time), *own) for time, *own in zip(*(arrays[f"rows.{n}"] for n in Row._fields), strict=True)]
        ends = np.cumsum(arrays["rows.count"]).tolist()
        if len(ends) != len(self.ids) or ends[-1:] not in ([], [len(rows)]):
            raise ValueError("rows are lacking")
        each = tuple(tuple(rows[first:end]) for first, end in zip([0, *ends], ends, strict=False))
        behind = None if self.behind is None else self.behind._from_arrays(arrays, "behind.")
        return dataclasses.replace(self, rows=each, behind=behind)


def _turns(slots: np.ndarray) -> Iterator[np.ndarray]:
    """The rows split into rounds with at most one row per series: the first of each, then the second, ..."""
    order = np.argsort(slots, kind="stable")
    ranked = slots[order]
    place = np.empty(len(slots), np.int64)
    place[order] = np.arange(len(slots)) - np.searchsorted(ranked, ranked)
    for turn in range(int(place.max(initial=-1)) + 1):
        yield np.flatnonzero(place == turn)


def _fill(part: np.ndarray, size: int, filling: float) -> np.ndarray:
    """The array padded along its first axis."""
    if len(part) == size:
        return part
    return np.concatenate([part, np.full((size - len(part), *part.shape[1:]), filling, part.dtype)])
