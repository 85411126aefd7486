"""What the latent baselines share: a start z₀ inferred from the known rows, and forecasts that use no later ones.

Their posterior reads a series backward from its end, so each forecast needs a reading of its own: of the rows before it
only. Rows predicted from the same prefix share its reading and its paths.
"""

from abc import abstractmethod
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.export import is_symbolic_dim
from jax.scipy.stats import norm
from jaxtyping import Array, Float, Int, PRNGKeyArray

from vsdn.grids.grid import Grid, Queries, last_row, last_told, until, within
from vsdn.memories.memory import ODERNN
from vsdn.models.base import AbstractModel, Answer
from vsdn.nets import ACTIVATIONS, bounded_exp
from vsdn.sde import Noise, brownian, path_noise, path_seed
from vsdn.settings import ModelSettings

AT_ONCE = 2**16  # numbers held at once for a series: many short paths, or few long ones
FREE_BLOCK = 4  # prefixes at once if lengths are symbolic, as in an export


class Start(NamedTuple):
    """A Gaussian N(mean, diag scale²) for z₀; the prior is N(0, I)."""

    mean: Float[Array, " latent"]
    scale: Float[Array, " latent"]

    def draw(self, noise: Noise) -> Float[Array, " latent"]:
        """z₀ of one path, drawn with the noise of step −1."""
        return self.mean + self.scale * noise(jnp.asarray(-1))

    def kl(self) -> Float[Array, ""]:
        """KL(q ‖ N(0, I))."""
        return jnp.sum(0.5 * (self.mean**2 + self.scale**2 - 1.0) - jnp.log(self.scale))

    def log_ratio(self, z0: Float[Array, " latent"]) -> Float[Array, ""]:
        """log q(z₀) − log p(z₀)."""
        return jnp.sum(norm.logpdf(z0, self.mean, self.scale) - norm.logpdf(z0))


class Reading(NamedTuple):
    """The result of running the backward memory over the known rows."""

    start: Start
    context: Float[Array, "point hidden"]  # of everything known after each point


class Recognition(eqx.Module):
    """q(z₀): an ODE-RNN run from the last observed row back to the start, and a network applied to its final state."""

    memory: ODERNN
    head: eqx.nn.MLP
    bound: float = eqx.field(static=True)  # smooth bound on the log scale

    def __init__(
        self, data_size: int, clock_size: int, settings: ModelSettings, *, key: PRNGKeyArray, bound: float = 6.0
    ):
        memory_key, head_key = jr.split(key)
        (hidden, latent, width), activation = settings.sizes, settings.activation
        self.memory = ODERNN(
            data_size, clock_size, hidden, width, flow=settings.flow, activation=activation, key=memory_key
        )
        self.head = eqx.nn.MLP(hidden, 2 * latent, settings.init_width, 1, ACTIVATIONS[activation], key=head_key)
        self.bound = bound

    def __call__(self, grid: Grid, known: Int[Array, ""]) -> Reading:
        """The reading of the rows up to the point `known`, an observed one; the prior if there is none (−1)."""
        past = until(grid, known)
        context = self.memory.backward(past, self.memory.begin())
        end = self.memory.jump(context[0], past.values[0], past.mask[0])
        mean, log_scale = jnp.split(self.head(end), 2)
        scale = bounded_exp(log_scale, self.bound)
        nothing = known < 0
        return Reading(Start(jnp.where(nothing, 0.0, mean), jnp.where(nothing, 1.0, scale)), context)


class AbstractLatent(AbstractModel):
    """A model whose paths start from a draw of z₀ and are decoded from their state alone."""

    recognition: eqx.AbstractVar[Recognition]
    decoder: eqx.AbstractVar[eqx.nn.MLP]

    @abstractmethod
    def walk(
        self, grid: Grid, known: Int[Array, ""], *, num_samples: int, key: PRNGKeyArray
    ) -> Float[Array, "sample point latent"]:
        """Paths along the whole grid, conditioned on the observations up to the point `known` and none after it."""

    @abstractmethod
    def branch(
        self,
        z: Float[Array, " latent"],
        clock: Float[Array, " clock"],
        dt: Float[Array, ""],
        dw: Float[Array, " latent"],
    ) -> Float[Array, " latent"]:
        """z after one step beyond the known rows, driven by dw."""

    @abstractmethod
    def between(
        self,
        ends: tuple[Float[Array, " latent"], Float[Array, " latent"]],
        clock: Float[Array, " clock"],
        dt: Float[Array, ""],
        length: Float[Array, ""],
        key: PRNGKeyArray,
    ) -> Float[Array, " latent"]:
        """z inside a step whose two ends are known, `length` after the first."""

    def decode(self, states: Float[Array, "sample row latent"]) -> Float[Array, "sample row channel param"]:
        """The likelihood's parameters D(z)."""
        flat = jax.vmap(jax.vmap(self.decoder))(states)
        return flat.reshape(*flat.shape[:-1], len(self.likelihood.families), -1)

    def predict(self, grid: Grid, *, num_samples: int, key: PRNGKeyArray) -> Float[Array, "sample row channel param"]:
        known = jnp.where(grid.rows > 0, last_told(grid)[grid.rows - 1], -1)
        return self.decode(self._reach(grid, known, grid.rows, num_samples=num_samples, key=key))

    def forecast(
        self, grid: Grid, queries: Queries, *, num_samples: int, key: PRNGKeyArray
    ) -> Float[Array, "sample query channel param"]:
        known = jnp.where(queries.length > 0, last_row(grid)[queries.point], -1)
        states = self._reach(grid, known, queries.point, num_samples=num_samples, key=key)
        return self.decode(self._branches(grid, queries, states, key))

    def filter(self, grid: Grid, *, num_samples: int, key: PRNGKeyArray) -> Answer:
        states = self._reach(grid, grid.rows, grid.rows, num_samples=num_samples, key=key)
        return Answer(self.decode(states), states)

    def interpolate(self, grid: Grid, queries: Queries, *, num_samples: int, key: PRNGKeyArray) -> Answer:
        last, places = last_row(grid)[-1], within(grid, queries)
        paths = self.walk(grid, last, num_samples=num_samples, key=key)
        beyond = self._branches(grid, places, paths[:, places.point], key)
        dt = jnp.concatenate([grid.dt[1:], grid.dt[:1]])

        def inside(path: Array, states: Float[Array, "point latent"]) -> Float[Array, "query latent"]:
            def one(point, length):
                ends = states[point], states[jnp.minimum(point + 1, len(states) - 1)]
                bridge_key = jr.fold_in(jr.fold_in(key, path), point)
                return self.between(ends, grid.clock[point], dt[point], length, bridge_key)

            return jax.vmap(one)(places.point, places.length)

        known = (places.point < last)[:, None]
        states = jnp.where(known, jax.vmap(inside)(jnp.arange(num_samples), paths), beyond)
        return Answer(self.decode(states), states)

    def _reach(
        self,
        grid: Grid,
        known: Int[Array, " query"],
        point: Int[Array, " query"],
        *,
        num_samples: int,
        key: PRNGKeyArray,
    ) -> Float[Array, "sample query latent"]:
        """The states at each query's point, on paths conditioned on the rows up to its `known`; not differentiable.

        Each prefix is read and its paths simulated once, a block of prefixes in one vectorised call.
        """
        num_queries, (prefixes, prefix) = known.shape[0], _distinct(known)
        walk = lambda known: self.walk(grid, known, num_samples=num_samples, key=key)
        shape = jax.eval_shape(walk, known[0])
        numbers = shape.size + shape.shape[1] * self.recognition.memory.initial.size  # of one prefix's paths
        free = any(map(is_symbolic_dim, (num_queries, numbers)))
        size = FREE_BLOCK if free else min(num_queries, max(1, AT_ONCE // numbers))

        def walk_block(number: Array, states: Float[Array, "query sample latent"]) -> Array:
            walks = jax.vmap(walk)(jax.lax.dynamic_slice_in_dim(padded, number * size, size))
            place = prefix - number * size
            mine = (place >= 0) & (place < size)
            return jnp.where(mine[:, None, None], walks[jnp.clip(place, 0, size - 1), :, point], states)

        padded = jnp.concatenate([prefixes, jnp.full(size, -1, prefixes.dtype)])
        states = jnp.zeros((num_queries, num_samples, shape.shape[-1]), shape.dtype)
        num_blocks = jnp.max(prefix) // size + 1
        return jax.lax.fori_loop(0, num_blocks, walk_block, states).swapaxes(0, 1)

    def _branches(
        self, grid: Grid, queries: Queries, states: Float[Array, "sample query latent"], key: PRNGKeyArray
    ) -> Float[Array, "sample query latent"]:
        """The state at each query on every path, branching off from the point before it."""
        seed = path_seed(key)

        def branches(path: Array, states: Float[Array, "query latent"]) -> Float[Array, "query latent"]:
            noise, bridge_key = path_noise(seed, path, states[0]), jr.fold_in(key, path)

            def one(z, point, length):
                dw = brownian(length, point, queries.max_step, noise, bridge_key)
                return self.branch(z, grid.clock[point], length, dw)

            return jax.vmap(one)(states, queries.point, queries.length)

        return jax.vmap(branches)(jnp.arange(states.shape[0]), states)


def _distinct(numbers: Int[Array, " query"]) -> tuple[Int[Array, " query"], Int[Array, " query"]]:
    """The distinct numbers, ascending and padded with −1, and the position of each number among them."""
    order = jnp.argsort(numbers)
    ascending = numbers[order]
    rank = jnp.cumsum(jnp.diff(ascending, prepend=ascending[:1]) > 0)
    return jnp.full_like(numbers, -1).at[rank].set(ascending), jnp.zeros_like(rank).at[order].set(rank)
