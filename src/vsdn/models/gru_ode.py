"""GRU-ODE-Bayes (De Brouwer et al. 2019): a continuous-time GRU whose jumps learn to imitate Bayes' rule."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from vsdn.grids.grid import Grid, at_rows
from vsdn.likelihoods import Likelihood
from vsdn.memories.guessing import Preparation
from vsdn.memories.memory import AbstractFlow, AbstractFlowingMemory, Memory
from vsdn.models.base import Evidence, make_decoder, make_likelihood, masked_log_lik
from vsdn.models.recurrent import AbstractRecurrent
from vsdn.settings import ModelSettings


class GRUODE(AbstractFlow):
    """dh/dt = (1 − z)∘(g − h): the limit of a GRU's update for small steps.

    One gate lets h into the candidate g, another (z) holds h; in the minimal cell they are the same. The input is the
    clock: without one this is the authors' autonomous GRU-ODE.
    """

    gates: eqx.nn.Linear
    candidate: eqx.nn.Linear

    def __init__(self, hidden_size: int, clock_size: int, num_gates: int, *, key: PRNGKeyArray):
        gates_key, candidate_key = jr.split(key)
        self.gates = eqx.nn.Linear(hidden_size + clock_size, num_gates * hidden_size, key=gates_key)
        self.candidate = eqx.nn.Linear(hidden_size + clock_size, hidden_size, key=candidate_key)

    def __call__(self, h: Float[Array, " hidden"], clock: Float[Array, " clock"]) -> Float[Array, " hidden"]:
        gates = jax.nn.sigmoid(self.gates(jnp.concatenate([h, clock])))
        r, z = gates[: len(h)], gates[-len(h) :]
        g = jnp.tanh(self.candidate(jnp.concatenate([r * h, clock])))
        return (1 - z) * (g - h)

    def spread(self, log_span: Float[Array, " hidden"]) -> "GRUODE":
        hold = jnp.asarray(self.gates.bias).at[-len(log_span) :].set(log_span)
        return eqx.tree_at(lambda flow: flow.gates.bias, self, hold)


NUM_GATES = {"full": 2, "minimal": 1}


class Moments(NamedTuple):
    """Mean and variance of a Gaussian for each variable."""

    mean: Float[Array, "*any channel"]
    variance: Float[Array, "*any channel"]


def bayes(prior: Moments, y: Float[Array, "*any channel"], noise: float) -> Moments:
    """p_Bayes ∝ p_pre · N(y, noise²): the posterior once y is observed with that noise."""
    variance = 1 / (1 / prior.variance + 1 / noise**2)
    return Moments(variance * (prior.mean / prior.variance + y / noise**2), variance)


def gaussian_kl(p: Moments, q: Moments) -> Float[Array, "*any channel"]:
    """KL(p ‖ q) of each variable."""
    ratio = p.variance / q.variance
    return 0.5 * (ratio - 1 - jnp.log(ratio) + (p.mean - q.mean) ** 2 / q.variance)


class BayesMemory(AbstractFlowingMemory):
    """A GRU-ODE whose jumps are given how the observation compares with its own prediction."""

    flow: AbstractFlow
    preparation: Preparation
    cell: eqx.nn.GRUCell
    initial: Float[Array, " hidden"]
    decoder: eqx.nn.MLP
    likelihood: Likelihood

    def decode(self, h: Float[Array, " hidden"]) -> Float[Array, "channel param"]:
        """The likelihood's parameters D(h)."""
        return self.decoder(h).reshape(len(self.likelihood.families), -1)

    def foretell(self, h: Float[Array, " hidden"]) -> Moments:
        """The Gaussian, by moments, that h predicts for each variable."""
        params = self.decode(h)
        return Moments(self.likelihood.mean(params), self.likelihood.variance(params))

    def jump(
        self, h: Float[Array, " hidden"], y: Float[Array, " channel"], mask: Bool[Array, " channel"]
    ) -> Float[Array, " hidden"]:
        mean, variance = self.foretell(h)
        y = jnp.where(mask, y, 0.0)
        error = (y - mean) / jnp.sqrt(variance)
        news = jnp.stack([y, mean, jnp.log(variance), error], axis=1)
        return jnp.where(mask.any(), self.cell(self.preparation(news, mask), h), h)


class GRUODEBayes(AbstractRecurrent):
    """Its loss: −log p_pre(y) + weight · KL(p_Bayes ‖ p_post), before and after each jump, over the observed values.

    The KL is not a path's; either bound charges it in full, so that the loss is the authors' for any objective.
    """

    memory: BayesMemory
    likelihood: Likelihood
    noise: float = eqx.field(static=True)
    weight: float = eqx.field(static=True)

    def decode(self, h: Float[Array, " hidden"]) -> Float[Array, "channel param"]:
        return self.memory.decode(h)

    def jump_kl(self, grid: Grid, memory: Memory) -> Float[Array, "row channel"]:
        """KL(p_Bayes ‖ p_post) of each observed value; 0 for the others."""
        mask = grid.mask[grid.rows]
        y = jnp.where(mask, grid.values[grid.rows], 0.0)
        pre, post = (jax.vmap(self.memory.foretell)(at_rows(h, grid)) for h in (memory.pre, memory.arrived))
        return jnp.where(mask, gaussian_kl(bayes(pre, y, self.noise), post), 0.0)

    def evidence(self, grid: Grid, *, num_samples: int, key: PRNGKeyArray) -> Evidence:
        memory = self.memory.forward(grid)
        params = jax.vmap(self.decode)(at_rows(memory.pre, grid))
        log_lik = masked_log_lik(self.likelihood, params, grid)[None]
        kl = self.weight * jnp.sum(self.jump_kl(grid, memory))[None]
        return Evidence(log_lik, kl, kl)


def make_gru_ode(
    data_size: int, speeds: tuple[float, ...], settings: ModelSettings, *, key: PRNGKeyArray
) -> GRUODEBayes:
    """GRU-ODE-Bayes with fresh weights."""
    flow_key, preparation_key, cell_key, initial_key, decoder_key = jr.split(key, 5)
    (hidden, _, _), prep = settings.sizes, settings.prep_size
    likelihood = make_likelihood(data_size, settings)
    memory = BayesMemory(
        flow=GRUODE(hidden, 2 * len(speeds), NUM_GATES[settings.gru_ode_cell], key=flow_key),
        preparation=Preparation(data_size, prep, key=preparation_key),
        cell=eqx.nn.GRUCell(data_size * prep, hidden, key=cell_key),
        initial=0.1 * jr.normal(initial_key, (hidden,)),
        decoder=make_decoder(hidden, likelihood, settings, key=decoder_key),
        likelihood=likelihood,
    )
    return GRUODEBayes(memory=memory, likelihood=likelihood, noise=settings.bayes_noise, weight=settings.bayes_weight)
