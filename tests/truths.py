"""What holds of every latent path and of the bounds that it gives, in standard errors."""

import itertools

import jax
import numpy as np

from vsdn.models.base import Evidence
from vsdn.training.objectives import iwae


def assert_mean(values, expected: float) -> None:
    """Independent values have this mean."""
    values = np.asarray(values)
    assert abs(values.mean() - expected) < 4 * values.std() / values.size**0.5


def assert_bounds_climb(evidence: Evidence, truth: float) -> None:
    """L_VAE ≤ L_IWAE^K ≤ L_IWAE^2K ≤ log P, and the last step is small; 2¹⁵ paths in all."""

    def mean_and_error(count):
        groups = jax.tree.map(lambda part: part.reshape(-1, count), evidence)
        bounds = np.asarray(jax.vmap(iwae)(groups))
        return bounds.mean(), bounds.std() / len(bounds) ** 0.5

    assert np.asarray(evidence.kl).mean() > 0.01  # the posterior is not the prior
    one_path = np.asarray(evidence.log_lik - evidence.kl)
    ladder = [(one_path.mean(), one_path.std() / one_path.size**0.5), *(mean_and_error(2**power) for power in range(8))]
    for (low, low_error), (high, high_error) in itertools.pairwise(ladder):
        assert low <= high + 4 * (low_error + high_error)
    assert ladder[0][0] < truth - 0.05  # the looseness that K removes
    assert all(bound <= truth + 4 * error for bound, error in ladder)
    assert_mean(np.exp(np.asarray(evidence.log_lik - evidence.log_ratio) - truth), 1.0)
    assert truth - ladder[-1][0] < 0.2 * (truth - ladder[0][0])
