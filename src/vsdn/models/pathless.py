"""What models without latent paths share: forecasts of one component, and linearised interpolation."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from vsdn.grids.grid import Grid, Queries
from vsdn.models.base import AbstractOnline, Answer, Evidence, masked_log_lik
from vsdn.models.linearising import linearise
from vsdn.models.trying import look_again


class AbstractPathless(AbstractOnline):
    """A model without latent paths: its mixture has one component and its KL is zero."""

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
        return Answer(look_again(self, grid, num_samples=1, key=key))

    def interpolate(self, grid: Grid, queries: Queries, *, num_samples: int, key: PRNGKeyArray) -> Answer:
        return linearise(self, grid, queries, num_samples=num_samples, key=key)
