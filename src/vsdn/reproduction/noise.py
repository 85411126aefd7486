"""Appendix B measured: how much noisier gradients are when the diffusion depends on the state, R(x, t) against R(t).

One scalar SDE, dX = H(X, t) dt + R dW, in Euler steps from X₀ = 0, with the loss −log N(y; X_T, 1) of one observation
at its end, as in the appendix. log R is a network of the paper's width; so is H, alone or with a pull back to zero.
Both cases share weights and noise: the only difference is that R is given X_t, or 0 in its place. The gradient of every
path is computed by automatic differentiation; measured is the trace of its covariance over many paths. The hidden units
are tanh, not ReLU, so that R(x, t) is bounded: the exp of a function that grows with x would explode by itself.
"""

import csv
import io
import math
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import track

from vsdn.files import replacing, write_bytes

DT = 0.1
STEPS = (10, 20, 50, 100, 200, 400)
SETTINGS = ((0.0, 1.0), (1.0, 1.0), (1.0, 4.0), (1.0, 8.0))  # pull to zero; factor of log R
NUM_INITS = 8
NUM_DRAWS = 1024
CHUNK = 512  # paths at once, so that their gradients fit in the cache
NAME = "gradient-variance"  # of the files
WIDTH = 25  # as the paper's
TARGET = 1.0
LINEAR = ((1.0, 0.5), (1.0, 1.5))  # a and θ of the linear case, where θ² < 2a and where it is not
LINEAR_DRAWS = 2**17
CASES = {"R(t)": 0.0, "R(x, t)": 1.0}  # factor of x in the input of R
HIGHEST = 1e9  # top of the picture; single initialisations go far beyond
COLOURS = {"R(t)": "#1f6fb4", "R(x, t)": "#d1495b"}

Loss = Callable[[Float[Array, ""]], Float[Array, ""]]


class Net(eqx.Module):
    """A scalar function of x and of time with period 1, so that longer sequences end at the same phase."""

    net: eqx.nn.MLP

    def __init__(self, gain: float, *, key: PRNGKeyArray):
        net = eqx.nn.MLP(3, "scalar", WIDTH, 1, jnp.tanh, key=key)
        last = lambda net: (net.layers[-1].weight, net.layers[-1].bias)
        self.net = eqx.tree_at(last, net, replace_fn=lambda leaf: gain * leaf)

    def __call__(self, x: Float[Array, ""], t: Float[Array, ""]) -> Float[Array, ""]:
        return self.net(jnp.stack([x, jnp.sin(2 * jnp.pi * t), jnp.cos(2 * jnp.pi * t)]))


class AbstractSDE(eqx.Module):
    """dX = H dt + R dW."""

    drift: eqx.AbstractVar[Any]  # φ
    diffusion: eqx.AbstractVar[Any]  # θ

    @abstractmethod
    def terms(
        self, x: Float[Array, ""], t: Float[Array, ""], sees: Float[Array, ""]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """H and R at a point; R is given x if sees is 1, and 0 in its place if sees is 0."""


class NeuralSDE(AbstractSDE):
    """dX = (N_φ − pull·X) dt + exp(N_θ) dW."""

    drift: Net
    diffusion: Net
    pull: Float[Array, ""]

    def __init__(self, pull: float, gain: float, *, key: PRNGKeyArray):
        drift_key, diffusion_key = jr.split(key)
        self.drift = Net(1.0, key=drift_key)
        self.diffusion = Net(gain, key=diffusion_key)
        self.pull = jnp.asarray(pull)

    def terms(
        self, x: Float[Array, ""], t: Float[Array, ""], sees: Float[Array, ""]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        return self.drift(x, t) - self.pull * x, jnp.exp(self.diffusion(sees * x, t))


class LinearSDE(AbstractSDE):
    """dX = −a X dt + θ dW, or θ X dW, for which the variance of the gradient has a closed form."""

    drift: Float[Array, ""]  # a
    diffusion: Float[Array, ""]  # θ

    def terms(
        self, x: Float[Array, ""], t: Float[Array, ""], sees: Float[Array, ""]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        return -self.drift * x, self.diffusion * (1 - sees + sees * x)


class Spread(NamedTuple):
    """The distribution of a gradient over draws of the noise."""

    variance: float  # the trace of the covariance
    error: float  # its standard error
    squared_mean: float  # |E g|², corrected for the finite number of draws; at least 0


class Row(NamedTuple):
    """One measurement: a line of the CSV file."""

    model: str  # what H is: N, N - x or, in the linear case, -ax
    scale: float  # factor of log R; θ in the linear case
    diffusion: str  # R(t) or R(x, t)
    gradient: str  # of the drift (φ) or of the diffusion (θ)
    steps: int
    init: int
    variance: float
    standard_error: float
    squared_mean: float


def end_loss(x: Float[Array, ""]) -> Float[Array, ""]:
    """−log N(y; x, 1), up to a constant."""
    return 0.5 * (x - TARGET) ** 2


def end_itself(x: Float[Array, ""]) -> Float[Array, ""]:
    """X_T, which is differentiated in the linear case."""
    return x


def end_state(
    sde: AbstractSDE, x0: Float[Array, ""], noise: Float[Array, " step"], sees: Float[Array, ""]
) -> Float[Array, ""]:
    """X_T after Euler steps with these normals."""

    @jax.checkpoint
    def step(x, at):
        t, eps = at
        drift, diffusion = sde.terms(x, t, sees)
        return x + drift * DT + diffusion * math.sqrt(DT) * eps, None

    times = DT * jnp.arange(noise.shape[0], dtype=noise.dtype)
    return jax.lax.scan(step, x0, (times, noise))[0]


@eqx.filter_jit
def gradients(
    sde: AbstractSDE,
    x0: Float[Array, ""],
    sees: Float[Array, ""],
    num_steps: int,
    num_draws: int,
    loss: Loss,
    *,
    key: PRNGKeyArray,
) -> dict[str, Float[Array, "draw parameter"]]:
    """The gradients of the loss in the parameters of drift and diffusion, one per path."""
    noise = jr.normal(key, (num_draws, num_steps), x0.dtype)
    gradient = eqx.filter_grad(lambda sde, eps: loss(end_state(sde, x0, eps, sees)))
    grads = jax.vmap(lambda eps: gradient(sde, eps))(noise)
    flat = lambda tree: jnp.concatenate([leaf.reshape(num_draws, -1) for leaf in jax.tree.leaves(tree)], axis=1)
    return {"drift": flat(grads.drift), "diffusion": flat(grads.diffusion)}


def measure(
    sde: AbstractSDE, sees: float, num_steps: int, *, num_draws: int, key: PRNGKeyArray, x0: float, loss: Loss
) -> dict[str, Spread]:
    """The spread of the gradients of drift and diffusion over draws of the noise."""
    start, seen = jnp.asarray(x0, float), jnp.asarray(sees, float)
    keys = jr.split(key, -(-num_draws // CHUNK))
    size = min(num_draws, CHUNK)
    chunks = [gradients(sde, start, seen, num_steps, size, loss, key=each) for each in keys]
    return {name: spread(np.concatenate([chunk[name] for chunk in chunks])) for name in chunks[0]}


def spread(draws: np.ndarray) -> Spread:
    """The trace of the covariance of vectors, one per row, with its standard error, and their squared mean."""
    draws = draws.astype(float)
    count, mean = len(draws), draws.mean(axis=0)
    squares = ((draws - mean) ** 2).sum(axis=1)
    variance = squares.sum() / (count - 1)
    squared_mean = max(float((mean**2).sum() - variance / count), 0.0)
    return Spread(float(variance), float(squares.std(ddof=1) / math.sqrt(count)), squared_mean)


def linear_variance(sees: float, num_steps: int, *, a: float, theta: float, x0: float) -> float:
    """Var ∂X_T/∂θ of the linear case in Euler steps: bounded with R = θ; with R = θx as n²ρⁿ, ρ = (1 − aΔ)² + θ²Δ."""
    decay, n = (1 - a * DT) ** 2, num_steps
    if not sees:
        return DT * (1 - decay**n) / (1 - decay)
    rho = decay + theta**2 * DT
    return x0**2 * (n * DT * rho ** (n - 1) + n * (n - 1) * theta**2 * DT**2 * rho ** (n - 2))


def can_be_measured(sees: float, num_steps: int, num_draws: int, *, a: float, theta: float) -> bool:
    """Whether this many draws give the variance of the linear case to a tenth: with R = θx a few rare paths dominate.

    E X⁴ / (E X²)² grows as κⁿ, and the square of the relative error is about that by the number of draws.
    """
    m, s = (1 - a * DT) ** 2, theta**2 * DT
    kappa = (m**2 + 6 * m * s + 3 * s**2) / (m + s) ** 2
    return not sees or kappa**num_steps < num_draws / 100


def network_rows(num_inits: int, num_draws: int, *, seed: int = 0, show: bool = True) -> list[Row]:
    """The measurements of the networks: every length, setting, initialisation and case."""
    rows = []
    plan = [(n, pull, gain, init) for n in STEPS for pull, gain in SETTINGS for init in range(num_inits)]
    for n, pull, gain, init in track(plan, "gradients", console=Console(stderr=True), transient=True, disable=not show):
        weight_key, noise_key = jr.split(jr.fold_in(jr.key(seed), init))
        sde = NeuralSDE(pull, gain, key=weight_key)
        for case, sees in CASES.items():
            found = measure(sde, sees, n, num_draws=num_draws, key=noise_key, x0=0.0, loss=end_loss)
            model = "N - x" if pull else "N"
            rows += [Row(model, gain, case, name, n, init, *each) for name, each in found.items()]
    return rows


def linear_rows(num_draws: int, *, seed: int = 0) -> list[Row]:
    """The measurements of ∂X_T/∂θ in the linear case, from X₀ = 1, where `num_draws` draws suffice."""
    rows = []
    for n in STEPS:
        for a, theta in LINEAR:
            sde = LinearSDE(jnp.asarray(a), jnp.asarray(theta))
            for case, sees in CASES.items():
                if can_be_measured(sees, n, num_draws, a=a, theta=theta):
                    found = measure(sde, sees, n, num_draws=num_draws, key=jr.key(seed), x0=1.0, loss=end_itself)
                    rows.append(Row("-ax", theta, case, "diffusion", n, 0, *found["diffusion"]))
    return rows


def pick(rows: list[Row], **wanted: object) -> list[Row]:
    """The rows with these entries."""
    return [row for row in rows if all(getattr(row, name) == value for name, value in wanted.items())]


def growth(rows: list[Row], **wanted: object) -> list[float]:
    """The factor by which the variance grows from the shortest sequence to the longest, for each initialisation."""
    ends = [{row.init: row.variance for row in pick(rows, steps=n, **wanted)} for n in (STEPS[0], STEPS[-1])]
    return [ends[1][init] / ends[0][init] for init in ends[0]]


def excess(rows: list[Row], **wanted: object) -> list[float]:
    """The ratio of the variance with R(x, t) to that with R(t), for each initialisation."""
    plain, told = ({row.init: row.variance for row in pick(rows, diffusion=case, **wanted)} for case in CASES)
    return [told[init] / plain[init] for init in plain]


def statement(rows: list[Row]) -> str:
    """The result in words: one line per setting and gradient, medians over initialisations with their range."""
    lines = [
        f"From {STEPS[0]} to {STEPS[-1]} steps the variance of the gradient grows by these factors, and at {STEPS[-1]} "
        "steps that with R(x, t) is so many times that with R(t): median (least to most) over initialisations."
    ]
    for pull, gain in SETTINGS:
        for gradient in ("drift", "diffusion"):
            which = {"model": "N - x" if pull else "N", "scale": gain, "gradient": gradient}
            plain, told = (_range(growth(rows, diffusion=case, **which)) for case in CASES)
            more = _range(excess(rows, steps=STEPS[-1], **which))
            lines.append(
                f"- H = {which['model']}, log R x {gain:g}, gradient of the {gradient}: "
                f"{plain} with R(t), {told} with R(x, t); {more} times."
            )
    return "\n".join(lines)


def _range(values: list[float]) -> str:
    return f"{median(values):.2g} ({min(values):.2g} to {max(values):.2g})"


def csv_of(rows: list[Row]) -> bytes:
    """The measurements as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Row._fields)
    writer.writerows([f"{cell:.6g}" if isinstance(cell, float) else cell for cell in row] for row in rows)
    return text.getvalue().encode()


def draw_noise(rows: list[Row], path: Path) -> None:
    """Draws the picture: variance against sequence length, one column per setting, the linear case last."""
    columns = len(SETTINGS) + 1
    picture = Figure(figsize=(3.0 * columns, 6.0), layout="constrained")
    FigureCanvasAgg(picture)
    places = picture.subplots(2, columns, sharex=True, subplot_kw={"xscale": "log", "yscale": "log"})
    for row, gradient in zip(places, ("drift", "diffusion"), strict=True):
        for place, (pull, gain) in zip(row, SETTINGS, strict=False):
            which = {"model": "N - x" if pull else "N", "scale": gain, "gradient": gradient}
            _draw_networks(place, pick(rows, **which))
            drift = "N(x, t) − x" if pull else "N(x, t)"
            place.set_title(f"H = {drift}, log R × {gain:g}", fontsize=9, loc="left")
        letter = {"drift": "φ", "diffusion": "θ"}[gradient]
        row[0].set_ylabel(f"variance of ∂L/∂{letter} ({gradient}),\nby that of R(t) at {STEPS[0]} steps", fontsize=9)
    for place, (a, theta) in zip(places[:, -1], LINEAR, strict=True):
        _draw_linear(place, pick(rows, model="-ax", scale=theta), a, theta)
    for place in places.ravel():
        place.set_xticks(STEPS, [str(n) for n in STEPS], minor=False)
        place.set_xticks([], minor=True)
        place.tick_params(which="both", labelsize=8, labelbottom=True)
        place.spines[["top", "right"]].set_visible(False)
    handles = [*places[0, 0].get_legend_handles_labels()[0], *places[0, -1].get_legend_handles_labels()[0]]
    labels = [str(handle.get_label()) for handle in handles]
    picture.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False, fontsize=9)
    picture.supxlabel(f"steps of {DT:g} to the observation", fontsize=9)
    with replacing(path) as file:
        picture.savefig(file, format=path.suffix[1:], dpi=110)


def _draw_networks(place: Axes, rows: list[Row]) -> None:
    first = {row.init: row.variance for row in pick(rows, diffusion="R(t)", steps=STEPS[0])}
    for case, colour in COLOURS.items():
        runs = [[row.variance / first[row.init] for row in pick(rows, diffusion=case, steps=n)] for n in STEPS]
        for run in zip(*runs, strict=True):
            place.plot(STEPS, run, color=colour, lw=0.6, alpha=0.5)
        place.plot(
            STEPS, [median(run) for run in runs], ".-", color=colour, lw=2, label=f"{case}: median, and each start"
        )
    low, high = place.get_ylim()
    place.set_ylim(low, min(high, HIGHEST))


def _draw_linear(place: Axes, rows: list[Row], a: float, theta: float) -> None:
    along = np.unique(np.geomspace(STEPS[0], STEPS[-1], 60).astype(int))
    for case, colour in COLOURS.items():
        shown = pick(rows, diffusion=case)
        exact = [linear_variance(CASES[case], int(n), a=a, theta=theta, x0=1.0) for n in along]
        name = "θ" if case == "R(t)" else "θx"
        place.plot(along, exact, color=colour, lw=1, label=f"R = {name}: exact")
        place.plot(
            [row.steps for row in shown],
            [row.variance for row in shown],
            "o",
            color=colour,
            mfc="white",
            ms=5,
            label="measured",
        )
    low, high = place.get_ylim()
    place.set_ylim(max(low, 1e-4), max(high, 3.0))
    place.set_ylabel("variance", fontsize=9)
    place.set_title(f"H = −x, θ = {theta:g}: ∂X_T/∂θ", fontsize=9, loc="left")


def run(out: Path, *, quick: bool = False, progress: bool = True) -> str:
    """The result in words; writes the measurements to `out` as gradient-variance.csv, .png and .txt."""
    out.mkdir(parents=True, exist_ok=True)
    num_inits, num_draws, linear_draws = (2, 256, 2048) if quick else (NUM_INITS, NUM_DRAWS, LINEAR_DRAWS)
    rows = network_rows(num_inits, num_draws, show=progress) + linear_rows(linear_draws)
    write_bytes(out / f"{NAME}.csv", csv_of(rows))
    draw_noise(rows, out / f"{NAME}.png")
    said = statement(rows)
    write_bytes(out / f"{NAME}.txt", said.encode() + b"\n")
    Console().print(said, highlight=False)
    return said
