"""The training bounds, as functions of the evidence of one series."""

import jax.numpy as jnp
from jax.nn import logsumexp
from jaxtyping import Array, Float

from vsdn.models.base import Evidence


def vae(evidence: Evidence, beta: Float[Array, ""] | float = 1.0) -> Float[Array, ""]:
    """L_VAE: the mean over paths of Σ log Φ − β KL."""
    return jnp.mean(evidence.log_lik - beta * evidence.kl)


def iwae(evidence: Evidence) -> Float[Array, ""]:
    """L_IWAE^K: the log of the mean weight of the K paths."""
    return logsumexp(evidence.log_lik - evidence.log_ratio) - jnp.log(evidence.log_lik.shape[0])


def mixed(evidence: Evidence, alpha: float, beta: Float[Array, ""] | float = 1.0) -> Float[Array, ""]:
    """(1 − α) L_VAE + α L_IWAE^K."""
    return (1 - alpha) * vae(evidence, beta) + alpha * iwae(evidence)
