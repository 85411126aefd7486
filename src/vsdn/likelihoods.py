"""Likelihoods: the families of distributions that the decoder parametrises, one per variable, in standardised units."""

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from vsdn.errors import SettingsError


class AbstractFamily(eqx.Module):
    """A parametric family Φ of distributions of a number; elementwise over leading axes, parameters last."""

    num_params: ClassVar[int]

    @abstractmethod
    def log_prob(self, params: Float[Array, "*any param"], y: Float[Array, "*any"]) -> Float[Array, "*any"]:
        """log Φ(y)."""

    @abstractmethod
    def mean(self, params: Float[Array, "*any param"]) -> Float[Array, "*any"]:
        """E[Y]."""

    @abstractmethod
    def variance(self, params: Float[Array, "*any param"]) -> Float[Array, "*any"]:
        """Var[Y]."""

    @abstractmethod
    def reach(self, params: Float[Array, "*any param"]) -> Float[Array, "*any"]:
        """A distance from the mean that Y hardly ever exceeds."""

    @abstractmethod
    def cdf(self, params: Float[Array, "*any param"], y: Float[Array, "*any"]) -> Float[Array, "*any"]:
        """P(Y ≤ y)."""

    @abstractmethod
    def sample(self, params: Float[Array, "*any param"], *, key: PRNGKeyArray) -> Float[Array, "*any"]:
        """One draw of Y."""

    def moved(
        self,
        params: Float[Array, "*any param"],
        by: Float[Array, "*any"],
        log_scale: Float[Array, "*any"] | None = None,
    ) -> Float[Array, "*any param"]:
        """The parameters of by + exp(log_scale)·Y, if it is in the family; the scale is one if not given."""
        raise SettingsError(f"what is kept wants densities that can be moved, which {type(self).__name__} cannot be")

    @abstractmethod
    def with_moments(self, mean: Float[Array, "*any"], variance: Float[Array, "*any"]) -> Float[Array, "*any param"]:
        """The parameters of the member with this mean and variance, or the nearest one."""


class AbstractLocationScale(AbstractFamily):
    """mean + scale·Z, where Z has a fixed distribution, symmetric about zero; the scale has a smooth floor, in standard
    deviations of the variable."""

    num_params: ClassVar[int] = 2
    variance_of_one: ClassVar[float]  # Var[Z]
    reach_of_one: ClassVar[float]  # |Z| hardly ever exceeds it
    floor: float = eqx.field(static=True, default=1e-3)

    @abstractmethod
    def log_density(self, z: Float[Array, "*any"]) -> Float[Array, "*any"]:
        """The log-density of Z."""

    @abstractmethod
    def below(self, z: Float[Array, "*any"]) -> Float[Array, "*any"]:
        """P(Z ≤ z)."""

    @abstractmethod
    def draw(self, shape: tuple[int, ...], *, key: PRNGKeyArray) -> Array:
        """Draws of Z."""

    def scale(self, params: Float[Array, "*any param"]) -> Float[Array, "*any"]:
        log_floor = np.log(self.floor)
        return jnp.exp(log_floor + jax.nn.softplus(params[..., 1] - log_floor))

    def log_prob(self, params: Float[Array, "*any param"], y: Float[Array, "*any"]) -> Float[Array, "*any"]:
        scale = self.scale(params)
        return self.log_density((y - params[..., 0]) / scale) - jnp.log(scale)

    def mean(self, params: Float[Array, "*any param"]) -> Float[Array, "*any"]:
        return params[..., 0]

    def variance(self, params: Float[Array, "*any param"]) -> Float[Array, "*any"]:
        return self.variance_of_one * self.scale(params) ** 2

    def reach(self, params: Float[Array, "*any param"]) -> Float[Array, "*any"]:
        return self.reach_of_one * self.scale(params)

    def cdf(self, params: Float[Array, "*any param"], y: Float[Array, "*any"]) -> Float[Array, "*any"]:
        return self.below((y - params[..., 0]) / self.scale(params))

    def sample(self, params: Float[Array, "*any param"], *, key: PRNGKeyArray) -> Float[Array, "*any"]:
        return params[..., 0] + self.scale(params) * self.draw(params.shape[:-1], key=key)

    def moved(
        self,
        params: Float[Array, "*any param"],
        by: Float[Array, "*any"],
        log_scale: Float[Array, "*any"] | None = None,
    ) -> Float[Array, "*any param"]:
        if log_scale is None:
            return params.at[..., 0].add(by)
        return jnp.stack([by + jnp.exp(log_scale) * params[..., 0], log_scale + params[..., 1]], axis=-1)

    def with_moments(self, mean: Float[Array, "*any"], variance: Float[Array, "*any"]) -> Float[Array, "*any param"]:
        log_scale = 0.5 * jnp.log(variance / self.variance_of_one)
        over = jnp.maximum(log_scale - jnp.log(self.floor), 1e-6)
        return jnp.stack([mean, jnp.log(self.floor) + over + jnp.log(-jnp.expm1(-over))], axis=-1)


class Gaussian(AbstractLocationScale):
    """N(mean, scale²)."""

    variance_of_one: ClassVar[float] = 1.0
    reach_of_one: ClassVar[float] = 8.0

    def log_density(self, z: Float[Array, "*any"]) -> Float[Array, "*any"]:
        return jax.scipy.stats.norm.logpdf(z)

    def below(self, z: Float[Array, "*any"]) -> Float[Array, "*any"]:
        return jax.scipy.stats.norm.cdf(z)

    def draw(self, shape: tuple[int, ...], *, key: PRNGKeyArray) -> Array:
        return jr.normal(key, shape)


class Student(AbstractLocationScale):
    """Student's t with four degrees of freedom: an unexpected value costs a few nats, not its square.

    With four, everything is elementary and the variance, twice the squared scale, is finite.
    """

    variance_of_one: ClassVar[float] = 2.0
    reach_of_one: ClassVar[float] = 40.0

    def log_density(self, z: Float[Array, "*any"]) -> Float[Array, "*any"]:
        return np.log(3 / 8) - 2.5 * jnp.log1p(z**2 / 4)

    def below(self, z: Float[Array, "*any"]) -> Float[Array, "*any"]:
        w = z / jnp.sqrt(4 + z**2)
        return 0.5 + 0.75 * w - 0.25 * w**3

    def draw(self, shape: tuple[int, ...], *, key: PRNGKeyArray) -> Array:
        normal_key, chi_key = jr.split(key)
        half_chi = jnp.sum(jr.exponential(chi_key, (2, *shape)), axis=0)  # ½χ² with four degrees
        return jr.normal(normal_key, shape) * jnp.sqrt(2 / half_chi)


FAMILIES: dict[str, Callable[..., AbstractFamily]] = {"gaussian": Gaussian, "student": Student}


class Likelihood(eqx.Module):
    """A family for each variable; parameters have the layout (channel, param), padded to the widest family."""

    families: tuple[AbstractFamily, ...]  # one per variable
    even_pull: float = eqx.field(static=True, default=0.0)

    @property
    def num_params(self) -> int:
        return max(family.num_params for family in self.families)

    def log_prob(
        self, params: Float[Array, "*any channel param"], y: Float[Array, "*any channel"]
    ) -> Float[Array, "*any channel"]:
        return self._by_family(lambda family, p, y: family.log_prob(p, y), params, y)

    def mean(self, params: Float[Array, "*any channel param"]) -> Float[Array, "*any channel"]:
        return self._by_family(lambda family, p: family.mean(p), params)

    def variance(self, params: Float[Array, "*any channel param"]) -> Float[Array, "*any channel"]:
        return self._by_family(lambda family, p: family.variance(p), params)

    def reach(self, params: Float[Array, "*any channel param"]) -> Float[Array, "*any channel"]:
        return self._by_family(lambda family, p: family.reach(p), params)

    def cdf(
        self, params: Float[Array, "*any channel param"], y: Float[Array, "*any channel"]
    ) -> Float[Array, "*any channel"]:
        return self._by_family(lambda family, p, y: family.cdf(p, y), params, y)

    def sample(self, params: Float[Array, "*any channel param"], *, key: PRNGKeyArray) -> Float[Array, "*any channel"]:
        keys = {family: jr.fold_in(key, number) for number, family in enumerate(dict.fromkeys(self.families))}
        return self._by_family(lambda family, p: family.sample(p, key=keys[family]), params)

    def moved(
        self,
        params: Float[Array, "*any channel param"],
        by: Float[Array, "*#any channel"],
        log_scale: Float[Array, "*#any channel"] | None = None,
    ) -> Float[Array, "*any channel param"]:
        by = jnp.broadcast_to(by, params.shape[:-1])
        log_scale = None if log_scale is None else jnp.broadcast_to(log_scale, params.shape[:-1])
        for family in dict.fromkeys(self.families):
            at = (..., self._channels(family), slice(family.num_params))
            scale = None if log_scale is None else log_scale[at[:2]]
            params = params.at[at].set(family.moved(params[at], by[at[:2]], scale))
        return params

    def with_moments(
        self, mean: Float[Array, "*any channel"], variance: Float[Array, "*any channel"]
    ) -> Float[Array, "*any channel param"]:
        params = jnp.zeros((*mean.shape, self.num_params), mean.dtype)
        for family in dict.fromkeys(self.families):
            own = self._channels(family)
            part = family.with_moments(mean[..., own], variance[..., own])
            params = params.at[..., own, : family.num_params].set(part)
        return params

    def pulled(self, params: Float[Array, "*any channel param"]) -> Float[Array, "*any channel param"]:
        """The same parameters, with gradients multiplied by the variance to the power `even_pull`.

        A value pulls on its mean with (y − mean) / variance: where most values repeat, variables with narrow densities
        drown the others. Like β-NLL (Seitzer et al., 2022), but the value of the objective is unchanged.
        """
        if not self.even_pull:
            return params
        fixed = jax.lax.stop_gradient(params)
        return fixed + self.variance(fixed)[..., None] ** self.even_pull * (params - fixed)

    def _channels(self, family: AbstractFamily) -> np.ndarray:
        return np.array([number for number, other in enumerate(self.families) if other == family])

    def _by_family(self, apply: Callable, params: Array, *arrays: Array) -> Array:
        """Applies `apply` to the channels of each family at once and restores the channels' order."""
        kinds = list(dict.fromkeys(self.families))
        if len(kinds) == 1:
            return apply(kinds[0], params[..., : kinds[0].num_params], *arrays)
        out = jnp.zeros(params.shape[:-1], params.dtype)
        for family in kinds:
            own = self._channels(family)
            part = apply(family, params[..., own, : family.num_params], *(array[..., own] for array in arrays))
            out = out.at[..., own].set(part)
        return out
