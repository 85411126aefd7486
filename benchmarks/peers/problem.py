"""The work: paths of a posterior SDE with their KL, and the gradient of a loss in all weights and contexts.

    dX = H(X, c_q) dt + R dW,    KL = ½∫|(H(X, c_q) − H(X, c_p))/R|² dt,    loss = mean KL + mean |X_T − 1|²

with H([x, c]) = out · tanh(first · [x, c]) − λ∘x, contexts c_q, c_p (series, step, hidden) and log R (series, step,
latent) given, and lengths of steps of each series' own.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


@dataclass(frozen=True)
class Size:
    name: str
    series: int
    paths: int
    steps: int
    latent: int
    hidden: int
    width: int

    @property
    def flops(self) -> float:
        """Of the products that no program can do without, two a cell: a path's state into the hidden layer and two out
        of it, a series' two contexts into it, and for each of them two in the gradient."""
        of_path, of_series = 3 * self.latent * self.width, 2 * self.hidden * self.width
        return 2.0 * 3 * (self.paths * of_path + of_series) * self.series * self.steps


SMALL = Size("small, 1,000 uniform steps", 250, 5, 1000, 15, 15, 25)
LARGE = Size("large", 64, 5, 250, 128, 512, 256)
FEW = Size("few paths", 64, 1, 100, 15, 15, 25)


class Problem(NamedTuple):
    """Arrays in float32; weights first."""

    first_state: np.ndarray  # width latent
    first_context: np.ndarray  # width hidden
    first_bias: np.ndarray
    out: np.ndarray  # latent width
    out_bias: np.ndarray
    raw_rate: np.ndarray
    x0: np.ndarray  # series latent
    posterior: np.ndarray  # series step hidden
    prior: np.ndarray
    log_diffusion: np.ndarray  # series step latent
    dt: np.ndarray  # series step


def make_problem(size: Size, dt: np.ndarray | None = None) -> Problem:
    """Random weights and contexts; `dt` (series, step) if the steps are not uniform on [0, 10]."""
    rng = np.random.default_rng(0)
    draw = lambda scale, *shape: (scale * rng.standard_normal(shape)).astype(np.float32)
    fan = lambda inputs, *shape: draw(1 / np.sqrt(inputs), *shape)
    steps = (size.series, size.steps)
    return Problem(
        first_state=fan(size.latent + size.hidden, size.width, size.latent),
        first_context=fan(size.latent + size.hidden, size.width, size.hidden),
        first_bias=draw(0.1, size.width),
        out=fan(size.width, size.latent, size.width),
        out_bias=draw(0.1, size.latent),
        raw_rate=np.full(size.latent, -3.0, np.float32),
        x0=draw(1.0, size.series, size.latent),
        posterior=draw(0.5, *steps, size.hidden),
        prior=draw(0.5, *steps, size.hidden),
        log_diffusion=draw(0.3, *steps, size.latent),
        dt=np.full(steps, 10.0 / size.steps, np.float32) if dt is None else dt.astype(np.float32),
    )
