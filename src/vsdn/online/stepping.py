"""A model's steps along many series at once, compiled: plain arrays in, plain arrays out, times in the user's unit."""

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array

from vsdn.answers import inference
from vsdn.answers.questions import Forecast, in_units, series_keys
from vsdn.errors import DataError
from vsdn.grids.marching import MOST_STEPS, Marching
from vsdn.models.base import AbstractOnline
from vsdn.online import filtering as online
from vsdn.tables.table import Scaler, TimeAxis

AT_ONCE = 32  # series in one loop: with more, most of them wait; with fewer, each has more to pay

States = list[Array]  # the arrays of a model's state, each with the series as its first axis


class Gaps(NamedTuple):
    """Stretches of time as the compiled steps want them: numbers of whole steps, and the rest in one array."""

    whole: np.ndarray  # int32
    rest: np.ndarray  # the last step's length in the model's unit, then the phase of each known period


@dataclass(frozen=True, eq=False)
class Stepper:
    """What all states of one fitted model share: its weights, its units and its compiled steps.

    Compiled steps take the weights as a list: a call that flattens a tree of modules would cost more than the step.
    """

    model: AbstractOnline
    scaler: Scaler
    marching: Marching
    axis: TimeAxis

    def begin(self, ids: Sequence[Any], *, draws: int, seed: int) -> States:
        """The states of fresh series, their number filled up to a power of two."""
        filled = [*ids, *[ids[0]] * (power_of_two(len(ids)) - len(ids))]
        keys = jr.key_data(series_keys(np.array(filled, object), seed))
        return self._begin(self._weights, keys, draws)

    def update(
        self, states: States, since: np.ndarray, times: np.ndarray, values: np.ndarray, mask: np.ndarray
    ) -> States:
        """The states of series that were at times `since`, after each took what was seen at its time."""
        gaps = self.gaps(since, times)
        scaled = np.where(mask, self.scaler.scale(values), 0.0)
        return self._update(self._weights, states, gaps.whole, gaps.rest, scaled, mask)

    def forecast(self, states: States, since: np.ndarray, times: np.ndarray, levels: tuple[float, ...]) -> Forecast:
        """What the states say of one time each, in the user's units."""
        gaps = self.gaps(since, times)
        parts = self._forecast(self._weights, states, gaps.whole, gaps.rest, levels)
        mean, std, quantiles = (np.asarray(part, np.float64) for part in parts)
        return in_units(self.scaler, mean, std, quantiles)

    def gaps(self, since: np.ndarray, times: np.ndarray) -> Gaps:
        """The stretch between each pair of times; one of more steps than can be gone in reason is refused."""
        length = times - since
        if (length > MOST_STEPS * self.marching.max_step).any():
            far = self.axis.spell(float(times[np.argmax(length)]))
            raise DataError(
                f"time {far} is more than {MOST_STEPS:,} steps of {self.marching.max_step:g} away from the last one"
            )
        whole = np.maximum(self.marching.num_steps(length) - 1, 0)
        rest = (length - whole * self.marching.max_step) / self.scaler.time_scale
        turns = since[:, None] / np.asarray(self.marching.periods, float)
        return Gaps(whole.astype(np.int32), np.column_stack([rest, 2 * np.pi * (turns % 1)]))

    @functools.cached_property
    def fingerprint(self) -> str:
        """A hash of the weights and the units: states of one model are not another's."""
        digest = hashlib.sha256(repr((type(self.model).__name__, self.scaler.to_json(), self.marching)).encode())
        for weight in self._weights:
            digest.update(np.asarray(weight).tobytes())
        return digest.hexdigest()[:16]

    @functools.cached_property
    def _parts(self) -> tuple[list[Array], Any, Any]:
        """The weights, what puts them back into a model, and the shapes of a state."""
        arrays, static = eqx.partition(self.model, eqx.is_array)
        weights, tree = jax.tree.flatten(arrays)
        begin = lambda key: self.model.begin(num_samples=1, key=key)
        whole = lambda weights: eqx.combine(jax.tree.unflatten(tree, weights), static)
        return weights, whole, jax.eval_shape(begin, jr.key(0))

    @property
    def _weights(self) -> list[Array]:
        return self._parts[0]

    @functools.cached_property
    def _begin(self) -> Any:
        _, whole, _ = self._parts

        @functools.partial(jax.jit, static_argnums=2)
        def begin(weights: list[Array], keys: Array, draws: int) -> States:
            one = lambda key: whole(weights).begin(num_samples=draws, key=key)
            return _pack(jax.vmap(one)(jr.wrap_key_data(keys)))

        return begin

    @functools.cached_property
    def _update(self) -> Any:
        _, whole, shapes = self._parts

        @jax.jit
        def update(weights: list[Array], states: States, steps: Array, rest: Array, y: Array, mask: Array) -> States:
            model = whole(weights)
            one = lambda state, steps, rest, y, mask: online.update(model, state, self._gap(steps, rest), y, mask)
            return _pack(_for_each(one, _unpack(states, shapes), steps, rest, y, mask))

        return update

    @functools.cached_property
    def _forecast(self) -> Any:
        _, whole, shapes = self._parts

        @functools.partial(jax.jit, static_argnums=4)
        def forecast(
            weights: list[Array], states: States, steps: Array, rest: Array, levels: tuple[float, ...]
        ) -> tuple[Array, ...]:
            model = whole(weights)
            one = lambda state, steps, rest: online.forecast(model, state, self._gap(steps, rest))
            mixtures = _for_each(one, _unpack(states, shapes), steps, rest)
            return inference.statistics(model.likelihood, jnp.moveaxis(mixtures, 0, 1), levels=levels)

        return forecast

    def _gap(self, steps: Array, rest: Array) -> online.Gap:
        max_step = jnp.asarray(self.marching.max_step / self.scaler.time_scale, rest.dtype)
        turn = 2 * np.pi * self.marching.max_step / np.asarray(self.marching.periods, float)
        return online.Gap(steps, rest[0], max_step, rest[1:], jnp.asarray(turn, rest.dtype))


def power_of_two(count: int) -> int:
    """The least power of two that is no less: few sizes, so that few are compiled."""
    return 1 << max(count - 1, 0).bit_length()


@jax.jit
def pick(states: States, slots: Array) -> States:
    """The states of some series."""
    return [part[slots] for part in states]


@jax.jit
def put(states: States, slots: Array, new: States) -> States:
    """The states with those of some series replaced; a slot beyond the last is nobody's."""
    return [part.at[slots].set(own, mode="drop") for part, own in zip(states, new, strict=True)]


@functools.partial(jax.jit, static_argnums=1)
def enlarge(states: States, size: int) -> States:
    """The states with room for so many series."""
    return [jnp.zeros((size, *part.shape[1:]), part.dtype).at[: part.shape[0]].set(part) for part in states]


def _for_each(function: Any, *arrays: Any) -> Any:
    """`function` of each series. A batch's loop waits for its longest gap, so that one series is alone in it, and many
    come in parts, of like gaps if they were sorted."""
    count = {part.shape[0] for part in jax.tree.leaves(arrays)}.pop()
    if count == 1:
        alone = function(*jax.tree.map(lambda part: part[0], arrays))
        return jax.tree.map(lambda part: part[None], alone)
    if count <= AT_ONCE:
        return jax.vmap(function)(*arrays)
    return jax.lax.map(lambda each: function(*each), arrays, batch_size=AT_ONCE)


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _pack(state: Any) -> States:
    """The arrays of a state; keys as numbers, which calls pass on sooner and files can hold."""
    return [jr.key_data(leaf) if _is_key(leaf) else leaf for leaf in jax.tree.leaves(state)]


def _unpack(arrays: States, shapes: Any) -> Any:
    """The state of these arrays."""
    kinds, tree = jax.tree.flatten(shapes)
    whole = [jr.wrap_key_data(part) if _is_key(kind) else part for part, kind in zip(arrays, kinds, strict=True)]
    return jax.tree.unflatten(tree, whole)
