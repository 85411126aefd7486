"""What every model offers: evidence to train on, forecasts to use."""

from abc import abstractmethod
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from vsdn.grids import Grid, Queries
from vsdn.likelihoods import Likelihood


class Evidence(NamedTuple):
    """What one series says for a model, along each of its latent paths."""

    log_lik: Float[Array, " sample"]  # Σ log Φ over what was seen
    kl: Float[Array, " sample"]  # ½∫|u|² dt; 0 without a latent path
    log_ratio: Float[Array, " sample"]  # log dQ/dP of the path; 0 without one


class AbstractModel(eqx.Module):
    """A model of one series; `vmap` makes it one of many."""

    likelihood: eqx.AbstractVar[Likelihood]

    @abstractmethod
    def evidence(self, grid: Grid, *, num_samples: int, key: PRNGKeyArray) -> Evidence:
        """The evidence of `num_samples` latent paths for what was seen on the grid."""

    @abstractmethod
    def predict(self, grid: Grid, *, num_samples: int, key: PRNGKeyArray) -> Float[Array, "sample row channel param"]:
        """The mixture that foretells each row from the rows before it: its parameters, one component a path."""

    @abstractmethod
    def forecast(
        self, grid: Grid, queries: Queries, *, num_samples: int, key: PRNGKeyArray
    ) -> Float[Array, "sample query channel param"]:
        """The mixture that foretells each query from what was seen before it: its parameters, one component a path."""


def masked_log_lik(likelihood: Likelihood, params: Float[Array, "row channel param"], grid: Grid) -> Float[Array, ""]:
    """Σ log Φ over what was seen, of one path's parameters at the rows."""
    mask = grid.mask[grid.rows]
    y = jnp.where(mask, grid.values[grid.rows], 0.0)
    return jnp.sum(jnp.where(mask, likelihood.log_prob(params, y), 0.0))


def at_rows(points: Float[Array, "point *any"], grid: Grid) -> Float[Array, "row *any"]:
    """The entries at the points where something was seen.

    Its gradient is a gather by the inverse map: XLA's own, a scatter, took a fifth of a training step.
    """
    seen = grid.mask.any(axis=1)
    return _gather(points, grid.rows, jnp.maximum(jnp.cumsum(seen) - 1, 0), seen)


@jax.custom_vjp
def _gather(points: Array, rows: Array, row_of_point: Array, seen: Array) -> Array:
    return points[rows]


def _gather_forward(points: Array, rows: Array, row_of_point: Array, seen: Array) -> tuple[Array, tuple[Array, Array]]:
    return points[rows], (row_of_point, seen)


def _gather_backward(inverse: tuple[Array, Array], cotangent: Array) -> tuple[Array, None, None, None]:
    row_of_point, seen = inverse
    back = cotangent[row_of_point]
    return jnp.where(jnp.expand_dims(seen, range(1, back.ndim)), back, 0.0), None, None, None


_gather.defvjp(_gather_forward, _gather_backward)
