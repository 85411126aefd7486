"""Compiled online steps for many series at once: plain arrays in, plain arrays out, times in the user's unit."""

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
from vsdn.answers.questions import series_keys
from vsdn.answers.replies import Forecast, in_units
from vsdn.errors import DataError
from vsdn.grids.marching import MOST_STEPS, Marching
from vsdn.models.base import AbstractOnline
from vsdn.online import filtering as online
from vsdn.tables.table import Scaler, TimeAxis

AT_ONCE = 32  # series per loop: with more, most of them wait; with fewer, each has more overhead

States = list[Array]  # the arrays of a model's state, each with the series as its first axis


class Gaps(NamedTuple):
    """Time intervals as the compiled steps take them: numbers of whole steps, and the remainder in one array."""

    whole: np.ndarray  # int32
    rest: np.ndarray  # the last step's length in the model's unit, then the phase of each known period


@dataclass(frozen=True, eq=False)
class Stepper:
    """What all online states of one fitted model share: its weights, units and compiled steps.

    Compiled steps take the weights as a list: flattening a tree of modules at each call would cost more than the step.
    """

    model: AbstractOnline
    scaler: Scaler
    marching: Marching
    axis: TimeAxis

    def begin(self, ids: Sequence[Any], *, draws: int, seed: int) -> States:
        """The states of new series, padded to a power of two."""
        filled = [*ids, *[ids[0]] * (power_of_two(len(ids)) - len(ids))]
        keys = jr.key_data(series_keys(np.array(filled, object), seed))
        return self._begin(self._weights, keys, draws)

    def update(
        self, states: States, since: np.ndarray, times: np.ndarray, values: np.ndarray, mask: np.ndarray
    ) -> States:
        """The states of series last at times `since`, each updated with the observation at its time."""
        gaps = self.gaps(since, times)
        scaled = np.where(mask, self.scaler.scale(values), 0.0)
        return self._update(self._weights, states, gaps.whole, gaps.rest, scaled, mask)

    def forecast(self, states: States, since: np.ndarray, times: np.ndarray, levels: tuple[float, ...]) -> Forecast:
        """The forecast of each state at one time, in the user's units."""
        gaps = self.gaps(since, times)
        parts = self._forecast(self._weights, states, gaps.whole, gaps.rest, levels)
        mean, std, quantiles = (np.asarray(part, np.float64) for part in parts)
        return in_units(self.scaler, mean, std, quantiles)

    def gaps(self, since: np.ndarray, times: np.ndarray) -> Gaps:
        """The interval between each pair of times; refuses one with too many steps."""
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
        """A hash of the weights and the units, which ties saved states to this model."""
        digest = hashlib.sha256(repr((type(self.model).__name__, self.scaler.to_json(), self.marching)).encode())
        for weight in self._weights:
            digest.update(np.asarray(weight).tobytes())
        return digest.hexdigest()[:16]

    @functools.cached_property
    def _parts(self) -> tuple[list[Array], Any, Any]:
        """The weights, a function that puts them back into a model, and the shapes of a state."""
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
    """The smallest power of two that is not less: few sizes, so that few shapes are compiled."""
    return 1 << max(count - 1, 0).bit_length()


@jax.jit
def pick(states: States, slots: Array) -> States:
    """The states of the series in these slots."""
    return [part[slots] for part in states]


@jax.jit
def put(states: States, slots: Array, new: States) -> States:
    """The states with those in these slots replaced; slots out of range are ignored."""
    return [part.at[slots].set(own, mode="drop") for part, own in zip(states, new, strict=True)]


@functools.partial(jax.jit, static_argnums=1)
def enlarge(states: States, size: int) -> States:
    """The states with room for `size` series."""
    return [jnp.zeros((size, *part.shape[1:]), part.dtype).at[: part.shape[0]].set(part) for part in states]


def _for_each(function: Any, *arrays: Any) -> Any:
    """Applies `function` to each series. A batched loop waits for its longest gap, so a single series runs alone, and
    many run in parts, of similar gaps if they were sorted."""
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
    """The arrays of a state; random keys as numbers, which are cheaper to pass and can be saved."""
    return [jr.key_data(leaf) if _is_key(leaf) else leaf for leaf in jax.tree.leaves(state)]


def _unpack(arrays: States, shapes: Any) -> Any:
    """The state made of these arrays."""
    kinds, tree = jax.tree.flatten(shapes)
    whole = [jr.wrap_key_data(part) if _is_key(kind) else part for part, kind in zip(arrays, kinds, strict=True)]
    return jax.tree.unflatten(tree, whole)
