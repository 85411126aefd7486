"""Exact inference in linear-Gaussian models of one series, with any gaps and any missing values; no solver steps.

The SDE is in modal form: A is block-diagonal, and each block is a pair of states that decays at a rate a and rotates at
a frequency ω. Written as one complex number, the pair has the flow e^{λt}, λ = −a + iω, and every integral has a closed
form.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Complex, Float, PRNGKeyArray


class Belief(NamedTuple):
    """A Gaussian belief about the state: N(mean, cov)."""

    mean: Float[Array, "*row latent"]
    cov: Float[Array, "*row latent latent"]


class LinearSDE(NamedTuple):
    """dx = (A x + b) dt + L dW. States m and m + num_modes form mode m; all modes decay, none grows."""

    rate: Float[Array, " mode"]  # a ≥ 0; at 0 a state is constant
    frequency: Float[Array, " mode"]  # ω
    push: Float[Array, " latent"]  # b
    diffusion: Float[Array, "latent latent"]  # L


class Transition(NamedTuple):
    """x ← F x + shift + N(0, cov): an SDE over a gap."""

    flow: Float[Array, "*row latent latent"]  # F
    shift: Float[Array, "*row latent"]
    cov: Float[Array, "*row latent latent"]


class Readout(NamedTuple):
    """y = C x + N(0, noise), independent from variable to variable."""

    weight: Float[Array, "channel latent"]  # C
    noise: Float[Array, " channel"]  # variances


class Filtered(NamedTuple):
    """The beliefs at each row, and how well each row was predicted."""

    before: Belief  # given the rows before it
    after: Belief  # given that row too
    log_lik: Float[Array, " row"]  # log-density of the row, given the rows before


def discretise(sde: LinearSDE, gap: Float[Array, ""]) -> Transition:
    """The SDE over a gap, exactly: flow e^{At}, shift ∫e^{As} b ds, covariance ∫e^{As} L Lᵀ e^{Aᵀs} ds."""
    rate, t = jax.lax.complex(-sde.rate, sde.frequency), jax.lax.complex(gap, jnp.zeros_like(gap))
    pairs = jnp.stack([rate[:, None] + rate.conj(), rate[:, None] + rate])
    moments = t * mean_exp(pairs * t) * _to_complex(sde.diffusion @ sde.diffusion.T)
    shift = t * mean_exp(rate * t) * jax.lax.complex(*jnp.split(sde.push, 2))
    fade, angle = jnp.exp(-sde.rate * gap), sde.frequency * gap
    cos, sin = jnp.diag(fade * jnp.cos(angle)), jnp.diag(fade * jnp.sin(angle))
    flow = jnp.block([[cos, -sin], [sin, cos]])
    return Transition(flow, jnp.concatenate([shift.real, shift.imag]), _to_real(moments))


@jax.custom_jvp
def mean_exp(z: Complex[Array, "*any"]) -> Complex[Array, "*any"]:
    """∫₀¹ e^{zs} ds = (e^z − 1)/z; by its power series near 0, where the quotient loses digits."""
    near, small, large = _near_and_far(z)
    return jnp.where(near, _power_series(small, 1), (jnp.exp(large) - 1.0) / large)


@mean_exp.defjvp
def _mean_exp_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    """Its derivative, ∫₀¹ s e^{zs} ds = (e^z − ∫₀¹ e^{zs} ds)/z: twice as fast as differentiating the series."""
    near, small, large = _near_and_far(primals[0])
    value = mean_exp(primals[0])
    slope = jnp.where(near, _power_series(small, 2), (jnp.exp(large) - value) / large)
    return value, slope * tangents[0]


def _near_and_far(z: Complex[Array, "*any"]) -> tuple[Bool[Array, "*any"], Array, Array]:
    """Where z is near 0, and z for either branch, replaced by a harmless value where the other one applies."""
    near = jnp.abs(z) < 0.5
    return near, jnp.where(near, z, 0.0), jnp.where(near, 1.0, z)


def _power_series(z: Complex[Array, "*any"], first: int, num_terms: int = 14) -> Complex[Array, "*any"]:
    """Σ zᵏ / (k! (k + first)) = ∫₀¹ s^{first − 1} e^{zs} ds, to 64-bit precision for |z| < ½."""
    total = jnp.zeros_like(z)
    for k in reversed(range(num_terms)):
        total = total * z + 1 / (math.factorial(k) * (k + first))
    return total


def _to_complex(cov: Float[Array, "latent latent"]) -> Complex[Array, "2 mode mode"]:
    """E[z z̄ᵀ] and E[z zᵀ] of z = u + iv from the covariance of (u, v), which they determine."""
    (uu, uv), (vu, vv) = (jnp.split(half, 2, axis=1) for half in jnp.split(cov, 2))
    return jax.lax.complex(jnp.stack([uu + vv, uu - vv]), jnp.stack([vu - uv, vu + uv]))


def _to_real(moments: Complex[Array, "2 mode mode"]) -> Float[Array, "latent latent"]:
    """The covariance of (u, v) from E[z z̄ᵀ] and E[z zᵀ] of z = u + iv."""
    both, other = 0.5 * (moments[1] + moments[0]), 0.5 * (moments[1] - moments[0])
    return jnp.block([[both.real, other.imag], [both.imag, -other.real]])


def advance(belief: Belief, transition: Transition) -> Belief:
    """The belief after a gap without observations."""
    flow, shift, cov = transition
    return Belief(flow @ belief.mean + shift, flow @ belief.cov @ flow.T + cov)


def observe(
    belief: Belief, readout: Readout, y: Float[Array, " channel"], mask: Bool[Array, " channel"]
) -> tuple[Belief, Float[Array, ""]]:
    """The belief updated with the observed entries of y, and their log-density.

    One variable at a time, which is exact because their noises are independent, and needs no matrix inverse.
    """

    def take(belief: Belief, entry: tuple[Array, ...]) -> tuple[Belief, Array]:
        weight, noise, y, seen = entry
        load = belief.cov @ weight
        variance = jnp.maximum(weight @ load, 0.0) + noise  # rounding may make a zero variance negative
        gain = jnp.where(seen, load / variance, 0.0)
        surprise = jnp.where(seen, y - weight @ belief.mean, 0.0)
        half = belief.cov - jnp.outer(gain, load)
        cov = half - jnp.outer(half @ weight, gain) + noise * jnp.outer(gain, gain)  # Joseph's form stays positive
        log_prob = jax.scipy.stats.norm.logpdf(surprise, 0.0, jnp.sqrt(variance))
        return Belief(belief.mean + gain * surprise, cov), jnp.where(seen, log_prob, 0.0)

    belief, log_probs = jax.lax.scan(take, belief, (readout.weight, readout.noise, y, mask), unroll=2)
    return belief, jnp.sum(log_probs)


def filter_rows(
    initial: Belief,
    transitions: Transition,
    readout: Readout,
    y: Float[Array, "row channel"],
    mask: Bool[Array, "row channel"],
) -> Filtered:
    """The Kalman filter: transition r leads to row r, the first from the initial belief."""

    @jax.checkpoint  # the backward pass stores one belief per row, not one per value
    def step(belief: Belief, row: tuple[Transition, Array, Array]) -> tuple[Belief, Filtered]:
        transition, y, mask = row
        before = advance(belief, transition)
        after, log_lik = observe(before, readout, y, mask)
        return after, Filtered(before, after, log_lik)

    return jax.lax.scan(step, initial, (transitions, y, mask))[1]


def look_back(known: Belief, transition: Transition, before: Belief, smoothed: Belief) -> Belief:
    """The belief before a transition, updated with what is known after it (Rauch, Tung & Striebel 1965).

    `before` is the predicted belief after the transition, `smoothed` the smoothed one.
    """
    gain = smoother_gain(known, transition, before)
    mean = known.mean + gain @ (smoothed.mean - before.mean)
    return Belief(mean, looked_back_cov(known, transition, gain, smoothed.cov))


def looked_back_cov(
    known: Belief, transition: Transition, gain: Float[Array, "latent latent"], later: Float[Array, "latent latent"]
) -> Float[Array, "latent latent"]:
    """P + G (P_later − P₊) Gᵀ, written as a sum that rounding cannot make negative."""
    keep = jnp.eye(len(gain), dtype=gain.dtype) - gain @ transition.flow
    return keep @ known.cov @ keep.T + gain @ (transition.cov + later) @ gain.T


def smoother_gain(known: Belief, transition: Transition, before: Belief) -> Float[Array, "latent latent"]:
    """P Fᵀ P₊⁻¹, ignoring directions in which P₊ is only rounding error."""
    values, vectors = jnp.linalg.eigh(0.5 * (before.cov + before.cov.T))
    least = values[-1] * len(values) * jnp.finfo(values.dtype).eps
    inverse = jnp.where(values > least, 1 / jnp.where(values > least, values, 1.0), 0.0)
    return known.cov @ transition.flow.T @ (vectors * inverse) @ vectors.T


def smooth_rows(filtered: Filtered, transitions: Transition) -> Belief:
    """The belief at each row, given all of them; transition r leads to row r."""

    def step(later: tuple, row: tuple[Filtered, Transition]) -> tuple[tuple, Belief]:
        known, transition = row
        smoothed, before, onward, any_later = later
        back = look_back(known.after, onward, before, smoothed)
        belief = jax.tree.map(lambda new, old: jnp.where(any_later, new, old), back, known.after)
        return (belief, known.before, transition, jnp.ones((), bool)), belief

    final = jax.tree.map(lambda part: part[-1], (filtered.after, filtered.before, transitions))
    begin = (final[0], final[1], final[2], jnp.zeros((), bool))
    return jax.lax.scan(step, begin, (filtered, transitions), reverse=True)[1]


def draw_rows(filtered: Filtered, transitions: Transition, *, key: PRNGKeyArray) -> Float[Array, "row latent"]:
    """A draw of the states at all rows jointly, given all of them; transition r leads to row r."""

    def step(later: tuple, row: tuple) -> tuple[tuple, Array]:
        known, transition, row_key = row
        x, before, onward, any_later = later
        gain = jnp.where(any_later, smoother_gain(known.after, onward, before), 0.0)
        mean = known.after.mean + gain @ (x - before.mean)
        nothing = jnp.zeros_like(known.after.cov)
        cov = jnp.where(any_later, looked_back_cov(known.after, onward, gain, nothing), known.after.cov)
        x = draw(Belief(mean, cov), key=row_key)
        return (x, known.before, transition, jnp.ones((), bool)), x

    final = jax.tree.map(lambda part: part[-1], (filtered.before, transitions))
    begin = (filtered.after.mean[-1], *final, jnp.zeros((), bool))
    keys = jr.split(key, len(filtered.log_lik))
    return jax.lax.scan(step, begin, (filtered, transitions, keys), reverse=True)[1]


def draw(belief: Belief, *, key: PRNGKeyArray) -> Float[Array, " latent"]:
    """A draw of the state; the covariance may be singular, or slightly indefinite by rounding."""
    values, vectors = jnp.linalg.eigh(0.5 * (belief.cov + belief.cov.T))
    eps = jr.normal(key, belief.mean.shape, belief.mean.dtype)
    return belief.mean + vectors @ (jnp.sqrt(jnp.maximum(values, 0.0)) * eps)


def read(belief: Belief, readout: Readout) -> tuple[Float[Array, " channel"], Float[Array, " channel"]]:
    """Mean and variance of each variable, measurement noise included."""
    variance = jnp.einsum("ci,ij,cj->c", readout.weight, belief.cov, readout.weight)
    return readout.weight @ belief.mean, jnp.maximum(variance, 0.0) + readout.noise
