"""What models without a latent path share: forecasts of one component, and interpolation by trying values out."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from vsdn.grids import Grid, Queries, query_keys, within
from vsdn.likelihoods import Likelihood
from vsdn.models.base import AbstractOnline, Answer, Evidence, masked_log_lik
from vsdn.particles import effective_size, either

QUERIES_AT_ONCE = 32


class AbstractPathless(AbstractOnline):
    """A model without latent paths: its mixture has one component, and nothing is charged."""

    has_states: ClassVar[bool] = False
    has_paths: ClassVar[bool] = False

    def log_likelihood(
        self, grid: Grid, *, num_samples: int, key: PRNGKeyArray
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        params = self.predict(grid, num_samples=num_samples, key=key)[0]
        return masked_log_lik(self.likelihood, params, grid), jnp.full((), jnp.nan)

    def evidence(self, grid: Grid, *, num_samples: int, key: PRNGKeyArray) -> Evidence:
        params = self.predict(grid, num_samples=num_samples, key=key)[0]
        log_lik = masked_log_lik(self.likelihood, params, grid)[None]
        return Evidence(log_lik, jnp.zeros_like(log_lik), jnp.zeros_like(log_lik))

    def filter(self, grid: Grid, *, num_samples: int, key: PRNGKeyArray) -> Answer:
        states = jax.tree.map(lambda part: part[grid.rows], self._along(grid, key))
        return Answer(jax.vmap(self.look, out_axes=1)(states, grid.clock[grid.rows]))

    def interpolate(self, grid: Grid, queries: Queries, *, num_samples: int, key: PRNGKeyArray) -> Answer:
        """Values drawn from what is foretold, each weighed by how well the later rows are foretold once it was seen."""
        states, places = self._along(grid, key), within(grid, queries)
        everything = jnp.ones(len(self.likelihood.families), bool)

        def one(own_key, point, length, clock):
            before = jax.tree.map(lambda part: part[point], states)
            here = either(length > 0, self.branch(before, grid.clock[point], length, queries.max_step), before)
            params = self.look(here, clock)[0]
            many = jnp.broadcast_to(params, (num_samples, *params.shape))
            values = self.likelihood.sample(many, key=own_key)
            go_on = lambda y: self._foretold(grid, self.take(here, y, everything, clock), point, length)
            log_weights = jax.nn.log_softmax(jax.vmap(go_on)(values))
            return mixture_of(self.likelihood, values, log_weights), effective_size(log_weights)

        asked = (query_keys(queries, key), places.point, places.length, places.clock)
        params, size = jax.lax.map(lambda at: one(*at), asked, batch_size=QUERIES_AT_ONCE)
        return Answer(params.swapaxes(0, 1), size=size)

    def _along(self, grid: Grid, key: PRNGKeyArray) -> Any:
        """The state at each point, after it took what was seen there."""

        def step(state, at):
            dt, before, clock, y, mask = at
            moved = either(dt > 0, self.advance(state, before, dt), state)
            state = either(mask.any(), self.take(moved, y, mask, clock), moved)
            return state, state

        before = jnp.concatenate([grid.clock[:1], grid.clock[:-1]])
        inputs = (grid.dt, before, grid.clock, grid.values, grid.mask)
        return jax.lax.scan(step, self.begin(num_samples=1, key=key), inputs)[1]

    def _foretold(self, grid: Grid, state: Any, point: Int[Array, ""], length: Float[Array, ""]) -> Float[Array, ""]:
        """The log-density of all rows after a point, from a state `length` after it."""

        def step(carry, at):
            state, total = carry
            number, dt, before, clock, y, mask = at
            dt = jnp.where(number == point + 1, dt - length, dt)
            moved = either(dt > 0, self.advance(state, before, dt), state)
            log_prob = self.likelihood.log_prob(self.look(moved, clock)[0], jnp.where(mask, y, 0.0))
            taken = either(mask.any(), self.take(moved, y, mask, clock), moved)
            total = total + jnp.where(number > point, jnp.sum(jnp.where(mask, log_prob, 0.0)), 0.0)
            return (either(number > point, taken, state), total), None

        inputs = (jnp.arange(1, len(grid.dt), dtype=jnp.int32), grid.dt[1:], grid.clock[:-1], grid.clock[1:])
        inputs = (*inputs, grid.values[1:], grid.mask[1:])
        return jax.lax.scan(step, (state, jnp.zeros((), grid.dt.dtype)), inputs)[0][1]


def mixture_of(
    likelihood: Likelihood, values: Float[Array, "sample channel"], log_weights: Float[Array, " sample"]
) -> Float[Array, "sample channel param"]:
    """Weighted values as a mixture of as many equal components, with the same mean and deviation (Liu & West 2001)."""
    weights, count = jnp.exp(log_weights)[:, None], len(values)
    mean = jnp.sum(weights * values, axis=0)
    variance = jnp.sum(weights * (values - mean) ** 2, axis=0)
    places = (jnp.arange(count, dtype=values.dtype) + 0.5) / count
    chosen = values[jnp.clip(jnp.searchsorted(jnp.cumsum(jnp.exp(log_weights)), places), 0, count - 1)]
    keep = (1 - effective_size(log_weights) ** -0.4) ** 0.5  # Silverman's rule for the width
    centre = mean + keep * (chosen - mean)
    return likelihood.with_moments(centre, jnp.broadcast_to(variance * (1 - keep**2), centre.shape))
