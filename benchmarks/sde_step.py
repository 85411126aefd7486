"""One training step of a latent SDE with path KL: vsdn's loop against the field's, on the work of `peers/problem.py`.

Example: python benchmarks/sde_step.py --size own --repeats 20
"""

import argparse
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pictures
import timing
from peers.problem import FEW, LARGE, SMALL, Problem, Size, make_problem

Program = Callable[[int], tuple]
NAMES = ("own", "uniform", "large", "few")
REPEATS = {"own": 20, "uniform": 4, "large": 6, "few": 30}
LEFT_OUT = {  # a run would take the better part of an hour
    "uniform": ("tree", "adjoint", "2 threads"),
    "large": ("tree", "adjoint"),
}
TITLES = {
    "own": "Small, on the Double-OU grids (Δt = 0.25)",
    "uniform": "Small, 1,000 uniform steps",
    "large": "Large",
    "few": "Few paths",
}
ONE_CORE = "vsdn, one core"
LIMITS = ("matrix product", "normals of jax", "normals of vsdn")  # of the machine, in the same rounds
INNER, DRAWS = 1024, 2**22


def own_grid() -> tuple[Size, np.ndarray]:
    """The small size on the grids of 250 Double-OU series, and their steps."""
    from vsdn.batches import Batches
    from vsdn.datasets import double_ou
    from vsdn.grids.marching import Marching, make_grids
    from vsdn.tables.table import Scaler

    table = double_ou.make(SMALL.series, seed=0)
    batches = Batches.make(make_grids(table, Scaler.fit(table, 1.0), Marching(0.25, start=0.0)), SMALL.series, 1)
    dt = np.asarray(batches.load(batches.epoch()[0]).grid.dt)[:, 1:]
    return replace(SMALL, steps=dt.shape[1]), dt


def make_case(name: str) -> tuple[Size, Problem]:
    if name == "own":
        size, dt = own_grid()
        return size, make_problem(size, dt)
    size = {"uniform": SMALL, "large": LARGE, "few": FEW}[name]
    return size, make_problem(size)


def with_threads(make: Callable[..., Program], count: int) -> Callable[..., Program]:
    """The program with so many threads of PyTorch."""

    def made(size: Size, problem: Problem) -> Program:
        import torch  # pyright: ignore[reportMissingImports]

        torch.set_num_threads(count)
        return make(size, problem)

    return made


def makers() -> dict[str, Callable[[Size, Problem], Program]]:
    """Every program by its name; a library is loaded when one of its own is made."""

    def peer(module: str, function: str = "make", **options: bool) -> Callable[[Size, Problem], Program]:
        load = lambda: getattr(__import__(f"peers.{module}", fromlist=[function]), function)
        return lambda size, problem: load()(size, problem, **options)

    named = {
        "vsdn": peer("ours"),
        ONE_CORE: peer("ours"),
        "vsdn, scan": peer("ours", kernel=False),
        "lax.scan, plain": peer("plain_scan"),
        "diffrax": peer("diffrax_peer"),
        "diffrax, Brownian tree": peer("diffrax_peer", tree=True),
    }
    torch_programs = {
        "torch, plain loop": peer("torch_loops", "make_plain"),
        "torch, hoisted": peer("torch_loops", "make_hoisted"),
        "torch.compile, hoisted": peer("torch_loops", "make_hoisted", compiled=True),
        "torchsde sdeint": peer("torchsde_peer"),
        "torchsde sdeint_adjoint": peer("torchsde_peer", adjoint=True),
    }
    for name, make in torch_programs.items():
        for count in sorted({1, timing.num_cores()}):
            named[f"{name}, {count} thread{'s' * (count > 1)}"] = with_threads(make, count)
    return named


def limit(title: str) -> Callable[[], float]:
    """What the machine can do at best: XLA's matrix product, jax's normals, vsdn's."""
    import jax
    import jax.numpy as jnp
    import jax.random as jr

    from vsdn.sde import noise_at, path_seed

    key, matrix = jr.key(0), jnp.ones((INNER, INNER))
    of_step = lambda seed, number: noise_at(seed, jnp.zeros((), jnp.int32), number, 16)
    of_series = lambda key: jax.vmap(lambda number: of_step(path_seed(key), number))(jnp.arange(256))
    programs: dict[str, Callable[[], jax.Array]] = {
        "matrix product": lambda product=jax.jit(lambda a: a @ a): product(matrix),
        "normals of jax": lambda draw=jax.jit(lambda key: jr.normal(key, (DRAWS,))): draw(key),
        "normals of vsdn": lambda draw=jax.jit(lambda key: jax.vmap(of_series)(jr.split(key, DRAWS // 4096))): draw(
            key
        ),
    }
    return lambda: float(programs[title]().block_until_ready().ravel()[0])


def serve(name: str, title: str) -> None:
    """This process becomes one program."""
    if title in LIMITS:
        timing.serve(lambda: limit(title))
        return
    (size, problem), make = make_case(name), makers()[title]
    tiny = replace(size, series=2, paths=2, steps=2)

    def made() -> Callable[[], float]:
        program = make(size, problem)
        return lambda: float(program(0)[0])

    timing.serve(made, warm=lambda: make(tiny, make_problem(tiny))(0))


def check_same(timings: dict[str, timing.Timing], num_paths: int) -> None:
    """All programs must find the same mean loss; their noise differs, so within what noise does with so many paths."""
    losses = {name: each.value for name, each in timings.items()}
    middle = np.nanmedian(list(losses.values()))
    near = 0.1 * max(1.0, (1250 / num_paths) ** 0.5) * abs(middle)
    far = {name: loss for name, loss in losses.items() if not abs(loss - middle) < near}
    if far:
        raise AssertionError(f"not the same computation: {far} against {middle:.3f}")


def run(name: str, wanted: Iterable[str] | None, repeats: int | None) -> dict[str, timing.Timing]:
    """The timings of all programs of a size, and of the machine's limits."""
    is_wanted = lambda title: (
        title in ("vsdn", ONE_CORE) or any(part in title for part in wanted)
        if wanted is not None
        else not any(part in title for part in LEFT_OUT.get(name, ()))
    )
    titles = [*filter(is_wanted, makers()), *LIMITS]
    commands = {title: [__file__, "--size", name, "--serve", title] for title in titles}
    timings = timing.time_in_turn(commands, repeats or REPEATS[name], one_core=(ONE_CORE,))
    size = make_case(name)[0]
    check_same({title: each for title, each in timings.items() if title not in LIMITS}, size.series * size.paths)
    return timings


def limits_of(size: Size, timings: dict[str, timing.Timing]) -> list[str]:
    """How near the machine's limit vsdn is, and what its second core brings."""
    ours, (product, exact, table) = timings["vsdn"], (timings[title] for title in LIMITS)
    rate = 2e-6 * INNER**3 / product.median
    share = size.flops / (2 * INNER**3) / timing.ratio_of(ours.wall, product.wall)
    millions = lambda each: DRAWS / each.median / 1e3
    draws = size.series * size.paths * size.steps * size.latent / 1e6
    return [
        f"- {size.flops / 1e9:.3g} GFLOP of products in a step: vsdn runs at {100 * share:.0f} % of XLA's own matrix "
        f"product ({INNER}³, {rate:.0f} GFLOP/s on all cores, the same rounds).",
        f"- On one core vsdn takes {timing.ratio_of(timings[ONE_CORE].wall, ours.wall):.2f} times as long.",
        f"- Normals, millions a second on all cores: jax.random.normal {millions(exact):.0f}, vsdn's by table, as XLA "
        f"compiles them, {millions(table):.0f}; a step wants {draws:.3g} million.",
    ]


HEADING = """## One training step of a latent SDE with path KL
Forward and gradient, float32, ms; every program does the same work on the same steps (`peers/problem.py`),
and all find the same mean loss, within what their noise allows. Each has a process of its own;
ratios are medians over rounds: above 1, vsdn is faster. Peak: what a program adds to its process' memory.
"""


def report(name: str, wanted: Iterable[str] | None = None, repeats: int | None = None, out: Path | None = None) -> str:
    """What was measured of one size, as Markdown; a picture goes into the folder `out`."""
    size, timings = make_case(name)[0], run(name, wanted, repeats)
    programs = {title: each for title, each in timings.items() if title not in LIMITS}
    text = [
        f"### {TITLES[name]}: {size.series} series × {size.paths} paths × {size.steps} steps, "
        f"latent {size.latent}, hidden {size.hidden}, width {size.width}",
        timing.HEAD.format("program"),
        *timing.time_rows(programs),
        "",
        *limits_of(size, timings),
    ]
    if LEFT_OUT.get(name) and wanted is None:
        text.append(f"- Left out, for they take too long here: {', '.join(LEFT_OUT[name])}.")
    if out is not None:
        medians = {title: each.median for title, each in programs.items()}
        text += ["", pictures.bars(TITLES[name], medians, out / f"sde_step_{name}.svg", "one training step, ms")]
    return "\n".join(text) + "\n"


def main() -> None:
    about, _, example = (__doc__ or "").partition("Example: ")
    parser = argparse.ArgumentParser(description=about, epilog=f"Example: {example}")
    parser.add_argument("--size", choices=NAMES, help="one of them; all if not given")
    parser.add_argument("--only", nargs="*", help="programs whose names have one of these parts, beside vsdn")
    parser.add_argument("--repeats", type=int, help="rounds")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.size, options.serve)
    else:
        print(HEADING)
        for name in [options.size] if options.size else NAMES:
            print(report(name, options.only, options.repeats), flush=True)


if __name__ == "__main__":
    main()
