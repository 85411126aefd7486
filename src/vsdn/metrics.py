"""Scores of a mixture over latent paths (leading axis `sample`), elementwise, in the model's units."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import logsumexp
from jaxtyping import Array, Float

from vsdn.likelihoods import Likelihood

Params = Float[Array, "sample *any channel param"]
Values = Float[Array, "*any channel"]


def log_prob(likelihood: Likelihood, params: Params, y: Values) -> Values:
    """The log-density of the mixture at y."""
    each = likelihood.log_prob(params, jnp.broadcast_to(y, params.shape[:-1]))
    return logsumexp(each, axis=0) - jnp.log(params.shape[0])


def nll(likelihood: Likelihood, params: Params, y: Values) -> Values:
    """Minus the log-density of the mixture at y."""
    return -log_prob(likelihood, params, y)


def cdf(likelihood: Likelihood, params: Params, y: Values) -> Values:
    """P(Y ≤ y) under the mixture; at the truth, the PIT."""
    return jnp.mean(likelihood.cdf(params, jnp.broadcast_to(y, params.shape[:-1])), axis=0)


def mean(likelihood: Likelihood, params: Params) -> Values:
    """The mixture's mean."""
    return jnp.mean(likelihood.mean(params), axis=0)


def std(likelihood: Likelihood, params: Params) -> Values:
    """The mixture's standard deviation: the spread between components plus that within them."""
    between = jnp.var(likelihood.mean(params), axis=0)
    return jnp.sqrt(between + jnp.mean(likelihood.variance(params), axis=0))


def quantiles(likelihood: Likelihood, params: Params, levels: Sequence[float]) -> Float[Array, "level *any channel"]:
    """The mixture's quantiles, at the same levels everywhere."""
    same = jnp.expand_dims(jnp.asarray(levels, params.dtype), range(1, params.ndim - 1))
    return quantiles_at(likelihood, params, same)


def quantiles_at(
    likelihood: Likelihood, params: Params, levels: Float[Array, "level ..."]
) -> Float[Array, "level *any channel"]:
    """The mixture's quantiles, with levels that may differ by element, by bisection of the distribution function."""
    low, high = (jnp.broadcast_to(end, (len(levels), *end.shape)) for end in _reach(likelihood, params))

    def halve(_, ends):
        low, high = ends
        middle = 0.5 * (low + high)
        below = jax.vmap(lambda y: cdf(likelihood, params, y))(middle) < levels
        return jnp.where(below, middle, low), jnp.where(below, high, middle)

    low, high = jax.lax.fori_loop(0, 40, halve, (low, high))
    return 0.5 * (low + high)


def _reach(likelihood: Likelihood, params: Params) -> tuple[Values, Values]:
    """Bounds that enclose nearly all of every component."""
    centre, reach = likelihood.mean(params), likelihood.reach(params)
    return jnp.min(centre - reach, axis=0), jnp.max(centre + reach, axis=0)


def crps(likelihood: Likelihood, params: Params, y: Values, num_nodes: int = 96) -> Values:
    """∫(F(z) − 1{z ≥ y})² dz by Gauss–Legendre quadrature, separately on either side of y."""
    nodes, weights = np.polynomial.legendre.leggauss(num_nodes)
    low, high = _reach(likelihood, params)
    low, high = jnp.minimum(low, y), jnp.maximum(high, y)

    def add(total, at):
        node, weight = at
        left, right = low + node * (y - low), y + node * (high - y)
        below = cdf(likelihood, params, left) ** 2 * (y - low)
        above = (1 - cdf(likelihood, params, right)) ** 2 * (high - y)
        return total + weight * (below + above), None

    unit = (jnp.asarray((nodes + 1) / 2, y.dtype), jnp.asarray(weights / 2, y.dtype))
    return jax.lax.scan(add, jnp.zeros_like(y), unit)[0]
