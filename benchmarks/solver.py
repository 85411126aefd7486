"""Would a better solver pay? Euler–Maruyama against SRA1 (Rößler 2010: strong order 1.5 for additive noise, two drifts
a step): errors on one Brownian path, time a path, and what the length of the step does to the score of a model.

Example: python benchmarks/solver.py
"""

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import timing
from peers.ours import make_drift
from peers.problem import SMALL, make_problem

from vsdn import training
from vsdn.datasets import double_ou
from vsdn.fitting import make_model
from vsdn.settings import Settings, read_preset
from vsdn.training import planning

HORIZON, LONGEST, FINEST = 10.0, 0.5, 2**-9  # contexts change every LONGEST; the reference has steps of FINEST
STEPS = (0.5, 0.25, 0.125, 0.0625)
PATHS, EPOCHS = 512, 8

Step = Callable[..., jax.Array]  # drift, x, dt, ΔW, ΔZ = ∫(W − W₀)dt, sigma → x


def euler(drift: Callable, x: jax.Array, dt: float, dw: jax.Array, dz: jax.Array, sigma: jax.Array) -> jax.Array:
    return x + drift(x) * dt + sigma * dw


def sra1(drift: Callable, x: jax.Array, dt: float, dw: jax.Array, dz: jax.Array, sigma: jax.Array) -> jax.Array:
    first = drift(x)
    second = drift(x + 0.75 * first * dt + 1.5 * sigma * dz / dt)
    return x + (first + 2 * second) * dt / 3 + sigma * dw


SOLVERS: dict[str, Step] = {"Euler": euler, "SRA1": sra1}


def make_paths(solver: Step, dt: float) -> Callable[[jax.Array], jax.Array]:
    """key → the ends of paths whose Brownian motion is the same for every solver and step."""
    problem = make_problem(SMALL)
    drift = make_drift(problem)
    numbers = jnp.arange(round(HORIZON / dt))
    fine, coarse = round(dt / FINEST), round(LONGEST / dt)
    contexts = jax.vmap(drift.embed)(jnp.asarray(problem.prior[0]))
    sigma = jnp.exp(jnp.asarray(problem.log_diffusion[0]))
    x0 = jnp.asarray(problem.x0[0])

    def path(key: jax.Array) -> jax.Array:
        def step(x, number):
            place = number * fine + jnp.arange(fine)
            small = jax.vmap(lambda n: jr.normal(jr.fold_in(key, n), x.shape))(place) * FINEST**0.5
            motion = jnp.cumsum(small, 0)
            dw, dz = motion[-1], (motion.sum(0) - 0.5 * motion[-1]) * FINEST  # trapezoids
            at = number // coarse
            return solver(lambda x: drift(x, contexts[at]), x, dt, dw, dz, sigma[at]), None

        return jax.lax.scan(step, x0, numbers)[0]

    return jax.jit(lambda key: jax.vmap(path)(jr.split(key, PATHS)))


def errors() -> dict[str, list[float]]:
    """Root mean square distance to the reference at the horizon, of each solver at each step."""
    key = jr.key(0)
    truth = make_paths(euler, FINEST)(key)
    rms = lambda ends: float(jnp.sqrt(jnp.mean((ends - truth) ** 2)))
    return {name: [rms(make_paths(solver, dt)(key)) for dt in STEPS] for name, solver in SOLVERS.items()}


def at_error(errors: list[float], wanted: float) -> float:
    """The step at which a solver with these errors at STEPS has the wanted one, by the power law through them."""
    slope, level = np.polyfit(np.log(STEPS), np.log(errors), 1)
    return float(np.exp((np.log(wanted) - level) / slope))


def seconds_of(solver: Step, dt: float) -> float:
    """Seconds of a loop with its own normals, gradient included: two a step for SRA1, which needs ΔZ as well."""
    problem = make_problem(SMALL)
    drift = make_drift(problem)
    embedded, sigma = drift.embed(jnp.asarray(problem.prior[0, 0])), jnp.exp(jnp.asarray(problem.log_diffusion[0, 0]))

    def end(x0: jax.Array, key: jax.Array) -> jax.Array:
        @jax.checkpoint
        def step(x, number):
            one, two = jr.normal(jr.fold_in(key, number), (2, *x.shape))
            dw, dz = one * dt**0.5, 0.5 * dt**1.5 * (one + two / 3**0.5)
            return solver(lambda x: drift(x, embedded), x, dt, dw, dz, sigma), None

        return jax.lax.scan(step, x0, jnp.arange(round(HORIZON / dt)))[0].sum()

    x0, keys = jnp.broadcast_to(jnp.asarray(problem.x0[0]), (PATHS, SMALL.latent)), jr.split(jr.key(0), PATHS)
    run = jax.jit(jax.vmap(jax.grad(end)))
    run(x0, keys)
    return min(_timed(lambda: jax.block_until_ready(run(x0, keys))) for _ in range(5))


def _timed(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def scores() -> list[tuple[float, float, float]]:
    """Step, validation score and seconds an epoch of VSDN-F, trained shortly at each step."""
    train, valid, _ = double_ou.split(double_ou.make(legacy=True))
    rows = []
    for dt in STEPS[:3]:
        values = read_preset("double-ou") | {"model": "vsdn-f", "max_step": dt, "epochs": EPOCHS, "num_buckets": 1}
        plan = planning.make_plan(train, valid, Settings().with_values(values))
        model = make_model(plan.settings, train)
        state = training.first_state(model, plan.train, plan.settings)
        ends, best = [], float("inf")
        for _, record in training.train(model, plan.train, plan.valid, plan.settings, state):
            if record is not None:
                ends, best = [*ends, time.perf_counter()], record.best_nll
        rows.append((dt, best + plan.valid.log_unit(plan.scaler.std), (ends[-1] - ends[0]) / (len(ends) - 1)))
        print(rows[-1], flush=True)
    return rows


def report() -> str:
    """Everything measured, as Markdown."""
    found = errors()
    order = {name: timing.exponent(list(STEPS), each) for name, each in found.items()}
    cost = {name: seconds_of(solver, 0.25) for name, solver in SOLVERS.items()}
    cells = lambda numbers: " | ".join(f"{each:.2e}" for each in numbers)
    alike = STEPS[0] / at_error(found["Euler"], found["SRA1"][0])  # steps of Euler's for one of SRA1's, at its error
    by_step = scores()
    text = [
        "## A better solver",
        "Strong error at the end of the small problem's paths (contexts change every 0.5, reference Δt = 1/512), and",
        "the time of a path with its gradient as a scan, against Euler's.",
        "",
        f"| solver | {' | '.join(f'Δt = {dt:g}' for dt in STEPS)} | order | time × Euler |",
        f"|---|{'--:|' * (len(STEPS) + 2)}",
        *(
            f"| {name} | {cells(found[name])} | {order[name]:.2f} | {cost[name] / cost['Euler']:.2f} |"
            for name in SOLVERS
        ),
        "",
        f"What the step does to the score: VSDN-F, Double-OU, {EPOCHS} epochs.",
        "",
        "| Δt | validation score | seconds an epoch |",
        "|--:|--:|--:|",
        *(f"| {dt:g} | {score:.3f} | {seconds:.1f} |" for dt, score, seconds in by_step),
        "",
        f"At the error that SRA1 has at Δt = {STEPS[0]:g}, Euler takes {alike:.0f} steps for one of SRA1's, which",
        f"costs {cost['SRA1'] / cost['Euler']:.1f} of Euler's: as a solver it pays. As a part of the model it would",
        "cost its weights: a step of Euler's is Gaussian, so that KL, path weights and particles are exact at any Δt,",
        "which is part of the model; a step of SRA1's has no density in closed form. And the scores hardly depend",
        "on Δt. So it is measured here, and not offered.",
    ]
    return "\n".join(text) + "\n"


if __name__ == "__main__":
    print(report())
