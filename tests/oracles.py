"""Closed forms to test against. This file imports nothing of ours."""

from typing import NamedTuple

import numpy as np
from scipy.linalg import expm
from scipy.stats import norm


class Mixture(NamedTuple):
    """A one-dimensional mixture of Gaussians with one scale."""

    log_weights: np.ndarray  # (component,)
    centres: np.ndarray  # (component,)
    scale: float

    @property
    def weights(self) -> np.ndarray:
        return np.exp(self.log_weights)

    def mean(self) -> float:
        return float(self.weights @ self.centres)

    def std(self) -> float:
        return float(np.sqrt(self.scale**2 + self.weights @ (self.centres - self.mean()) ** 2))

    def log_prob(self, value: float) -> float:
        return float(np.logaddexp.reduce(self.log_weights + norm.logpdf(value, self.centres, self.scale)))

    def cdf(self, value: float) -> float:
        return float(self.weights @ norm.cdf(value, self.centres, self.scale))

    def crps(self, value: float) -> float:
        """E|X − y| − ½ E|X − X′|, over all pairs of components."""
        pairs = mean_abs(self.centres[:, None] - self.centres, np.sqrt(2) * self.scale)
        return float(
            self.weights @ mean_abs(self.centres - value, self.scale) - self.weights @ pairs @ self.weights / 2
        )


def mean_abs(mean: np.ndarray, std: float) -> np.ndarray:
    """E|N(mean, std²)|."""
    return mean * (1 - 2 * norm.cdf(-mean / std)) + 2 * std * norm.pdf(mean / std)


def double_ou_moments(step: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean (step, channel), variance (step,) of either channel and their covariance (step,), r being random."""
    decay = 0.95**step
    noise = 0.05 * 0.01 * (1 - decay**2) / (1 - 0.95**2)
    return (1 - decay)[:, None] * np.array([1.0, -1.0]), (1 - decay) ** 2 / 12 + noise, 0.99 * noise


def double_ou_predictive(
    steps: np.ndarray, values: np.ndarray, mask: np.ndarray, target: int, channel: int, grid_size: int
) -> Mixture:
    """The law of one channel at step `target`, given the rows of one series.

    By the dense joint Gaussian of the whole path given r (x = S (0.05 r + noise), S inverts x_n − 0.95 x_{n−1}),
    conditioned on what was seen, for each r of a midpoint grid.
    """
    solve = np.linalg.inv(np.eye(target) - 0.95 * np.eye(target, k=-1))  # steps 1 … target, from x(0) = 0
    pull, spread = 0.05 * solve.sum(axis=1), 0.05 * 0.01 * solve @ solve.T
    row, seen_channel = np.nonzero(mask & (steps > 0)[:, None])
    step = np.append(steps[row], target) - 1
    channels = np.append(seen_channel, channel)
    cov = spread[np.ix_(step, step)] * np.where(channels[:, None] == channels, 1.0, 0.99)
    middle = (np.arange(grid_size) + 0.5) / grid_size - 0.5
    level = np.stack(np.meshgrid(1 + middle, -1 + middle), axis=-1).reshape(-1, 2)
    mean = level[:, channels] * pull[step]  # (component, seen and target)
    gap = values[row, seen_channel] - mean[:, :-1]
    gain = np.linalg.solve(cov[:-1, :-1], cov[:-1, -1])
    log_lik = -0.5 * np.sum(gap * np.linalg.solve(cov[:-1, :-1], gap.T).T, axis=1)
    scale = float(np.sqrt(cov[-1, -1] - gain @ cov[:-1, -1]))
    return Mixture(log_lik - np.logaddexp.reduce(log_lik), mean[:, -1] + gap @ gain, scale)


class Moments(NamedTuple):
    mean: float
    variance: float


def trend(
    times: np.ndarray,
    values: np.ndarray,
    when: float,
    *,
    rate: float,
    speed: float,
    roughness: float,
    noise: float,
) -> Moments:
    """Of a measurement at `when`, given those at these times, by their whole joint Gaussian.

    Measured is a level of variance 1 at time 0, plus a Brownian motion, plus the integral of a stationary
    Ornstein-Uhlenbeck process with deviation `speed`, plus noise at each measurement.
    """
    t = np.append(times, when)
    first, later = np.minimum.outer(t, t), np.maximum.outer(t, t)
    decay = lambda span: np.exp(-rate * span)
    integral = 2 * rate * first - 1 + decay(first) + decay(later) - decay(later - first)
    joint = 1 + roughness**2 * first + (speed / rate) ** 2 * integral + noise**2 * np.eye(len(t))
    gain = np.linalg.solve(joint[:-1, :-1], joint[:-1, -1])
    return Moments(float(gain @ values), float(joint[-1, -1] - gain @ joint[:-1, -1]))


def departures(
    times: np.ndarray,
    which: np.ndarray,
    values: np.ndarray,
    when: float,
    *,
    usual: np.ndarray,
    loads: np.ndarray,
    rates: np.ndarray,
    noise: np.ndarray,
    speed: float,
) -> list[Moments]:
    """Of a measurement of each variable at `when`, given values of these variables at these times, by their whole joint
    Gaussian.

    Measured is usual @ [1, sin, cos] of the clock, plus parts that are independent of each other, each with the
    covariance loads @ loads.T between variables: a mean, a swing with the clock, and stationary Ornstein-Uhlenbeck
    processes with these rates; plus noise of these deviations at each measurement.
    """
    level = lambda t, j: usual[j] @ np.array([1.0, np.sin(speed * t), np.cos(speed * t)])
    found = []
    for variable in range(len(noise)):
        t, j = np.append(times, when), np.append(which, variable)
        apart = np.abs(np.subtract.outer(t, t))
        shapes = [np.ones_like(apart), np.cos(speed * apart), *(np.exp(-rate * apart) for rate in rates)]
        joint = sum((load @ load.T)[np.ix_(j, j)] * shape for load, shape in zip(loads, shapes, strict=True))
        joint = joint + np.diag(noise[j] ** 2)
        gain = np.linalg.solve(joint[:-1, :-1], joint[:-1, -1])
        away = values - np.array([level(*place) for place in zip(times, which, strict=True)])
        mean = level(when, variable) + gain @ away
        found.append(Moments(float(mean), float(joint[-1, -1] - gain @ joint[:-1, -1])))
    return found


class Pull(NamedTuple):
    """The posterior drift gain_k (y − x) on n equal steps of Brownian motion over a unit of time, of which y = x(1) + e
    with variance 1/r was seen: the best one for the VAE bound, and that bound."""

    gains: np.ndarray  # (step,)
    bound: float
    log_lik: float


def best_pull(r: float, y: float, num_steps: int) -> Pull:
    """By dynamic programming: the cost to come of step k is ½ p_k (x − y)², with 1/p_k = 1/r + what time is left.

    A step's own noise cannot be pulled back, so that log(1 + r) = ∫ r / (1 + r t) dt becomes its left Riemann sum: the
    bound falls short of the log-likelihood by half of the difference.
    """
    left = np.arange(num_steps)[::-1] / num_steps  # after each step
    to_come = r / (1 + r * left)
    gains = num_steps * to_come / (num_steps + to_come)
    known = -0.5 * (y**2 * r / (1 + r) + np.log(2 * np.pi / r))
    return Pull(gains, known - 0.5 * to_come.mean(), known - 0.5 * np.log1p(r))


def bayes_kl(pre: tuple[float, float], y: float, noise: float, post: tuple[float, float]) -> float:
    """KL(p_Bayes ‖ p_post) by quadrature, p_Bayes ∝ p_pre · N(y, noise²); pre and post are (mean, variance)."""
    log_normal = lambda x, mean, variance: -0.5 * ((x - mean) ** 2 / variance + np.log(2 * np.pi * variance))
    x = np.linspace(min(pre[0], y) - 15 * noise, max(pre[0], y) + 15 * noise, 200_001)
    log_product = log_normal(x, *pre) + log_normal(x, y, noise**2)
    log_bayes = log_product - np.log(np.trapezoid(np.exp(log_product), x))
    return float(np.trapezoid(np.exp(log_bayes) * (log_bayes - log_normal(x, *post)), x))


class LinearGaussian(NamedTuple):
    """x_{k+1} = x_k + (A x_k + b_k) δ_k + R_k √δ_k ε, seen as y = C x + σ v here and there."""

    dt: np.ndarray  # (step,)
    rates: np.ndarray  # A (latent, latent)
    push: np.ndarray  # b (step, latent)
    diffusion: np.ndarray  # R (step, latent)
    x0: np.ndarray
    readout: np.ndarray  # C (channel, latent)
    noise: float  # σ
    seen: np.ndarray  # bool (point, channel)

    def states(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean (point, latent) and covariance (point, latent, point, latent) of the whole path, dense."""
        steps, size = self.push.shape
        means, loads = [self.x0], [np.zeros((size, steps, size))]
        for k in range(steps):
            move = np.eye(size) + self.rates * self.dt[k]
            means.append(move @ means[-1] + self.push[k] * self.dt[k])
            load = np.einsum("ij,jkl->ikl", move, loads[-1])
            load[:, k, :] += np.diag(self.diffusion[k] * np.sqrt(self.dt[k]))
            loads.append(load)
        loading = np.stack(loads)
        return np.stack(means), np.einsum("pikl,qjkl->piqj", loading, loading)

    def log_lik(self, y: np.ndarray) -> float:
        """The exact log-density of what was seen of y (point, channel)."""
        residual, spread, _ = self._seen(y, len(y))
        return float(-0.5 * (residual @ np.linalg.solve(spread, residual) + np.linalg.slogdet(2 * np.pi * spread)[1]))

    def given(self, y: np.ndarray, num_points: int) -> tuple[np.ndarray, np.ndarray]:
        """Mean (point, latent) and covariance (point, latent, point, latent), given the rows at the first points."""
        mean, cov = self.states()
        residual, spread, shared = self._seen(y, num_points)
        gain = np.linalg.solve(spread, shared.reshape(len(residual), -1)).T
        shift = (gain @ residual).reshape(mean.shape)
        return mean + shift, cov - (gain @ shared.reshape(len(residual), -1)).reshape(cov.shape)

    def _seen(self, y: np.ndarray, num_points: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """How far what was seen lies from its mean, its covariance, and its covariance with the states."""
        mean, cov = self.states()
        at, channel = np.nonzero(self.seen & (np.arange(len(self.seen)) < num_points)[:, None])
        rows = self.readout[channel]
        shared = np.einsum("ni,nipj->npj", rows, cov[at])
        spread = np.einsum("nmj,mj->nm", shared[:, at], rows) + self.noise**2 * np.eye(len(at))
        return y[at, channel] - np.einsum("ni,ni->n", rows, mean[at]), spread, shared


class LinearSystem(NamedTuple):
    """dx = (A x + b) dt + N(0, Q dt) from N(m, P) at time 0, y = C x + N(0, R): any A, by matrix exponentials."""

    drift: np.ndarray  # A
    push: np.ndarray  # b
    spread: np.ndarray  # Q
    mean: np.ndarray  # m
    cov: np.ndarray  # P
    readout: np.ndarray  # C (channel, latent)
    noise: np.ndarray  # R, variances (channel,)

    def transition(self, gap: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Flow, shift and covariance over a gap, by Van Loan's block."""
        size = len(self.push)
        block = np.zeros((2 * size + 1, 2 * size + 1))
        block[:size, :size], block[:size, size:-1], block[:size, -1] = self.drift, self.spread, self.push
        block[size:-1, size:-1] = -self.drift.T
        power = expm(block * gap)
        flow = power[:size, :size]
        return flow, power[:size, -1], power[:size, size:-1] @ flow.T

    def values(self, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean (row · channel) and covariance of y at all of these times, dense."""
        mean, cov, size = self.mean, self.cov, len(self.mean)
        means, whole = [], np.zeros((len(times), len(times), size, size))
        for row, gap in enumerate(np.diff(times, prepend=0.0)):
            flow, shift, spread = self.transition(gap)
            mean, cov = flow @ mean + shift, flow @ cov @ flow.T + spread
            means.append(self.readout @ mean)
            whole[row, :row] = flow @ whole[row - 1, :row]
            whole[:row, row] = whole[row, :row].swapaxes(1, 2)
            whole[row, row] = cov
        seen = np.einsum("ci,pqij,dj->pcqd", self.readout, whole, self.readout)
        total = len(times) * len(self.noise)
        return np.concatenate(means), seen.reshape(total, total) + np.diag(np.tile(self.noise, len(times)))

    def log_lik(self, times: np.ndarray, y: np.ndarray, mask: np.ndarray) -> float:
        """The log-density of what the mask shows of y (row, channel)."""
        mean, cov = self.values(times)
        seen = mask.ravel()
        residual, cov = (y.ravel() - mean)[seen], cov[np.ix_(seen, seen)]
        return float(-0.5 * (residual @ np.linalg.solve(cov, residual) + np.linalg.slogdet(2 * np.pi * cov)[1]))

    def foretell(
        self, times: np.ndarray, y: np.ndarray, mask: np.ndarray, time: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of each variable at a time, given what the mask shows of y at earlier times."""
        mean, cov = self.values(np.append(times, time))
        seen = np.append(mask.ravel(), np.zeros(len(self.noise), bool))
        ask = slice(len(times) * len(self.noise), None)
        gain = np.linalg.solve(cov[np.ix_(seen, seen)], cov[seen, ask]).T
        return mean[ask] + gain @ (y.ravel() - mean[: ask.start])[seen[: ask.start]], np.diag(
            cov[ask, ask] - gain @ cov[seen, ask]
        )

    def joint(
        self, times: np.ndarray, y: np.ndarray, mask: np.ndarray, when: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Mean (time · channel) and covariance of y at other times, given what the mask shows of it at these."""
        order = np.argsort(np.concatenate([times, when]), kind="stable")
        mean, cov = self.values(np.concatenate([times, when])[order])
        place = np.argsort(order)  # of each time among all
        index = place[:, None] * len(self.noise) + np.arange(len(self.noise))
        seen, ask = index[: len(times)][mask], index[len(times) :].ravel()
        gain = np.linalg.solve(cov[np.ix_(seen, seen)], cov[np.ix_(seen, ask)]).T
        return mean[ask] + gain @ (y[mask] - mean[seen]), cov[np.ix_(ask, ask)] - gain @ cov[np.ix_(seen, ask)]
