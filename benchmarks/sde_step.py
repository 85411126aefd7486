"""One training step of a latent SDE with path KL: vsdn's loop against the field's, on the work of `peers/problem.py`.

Example: python benchmarks/sde_step.py --size own --repeats 20
"""

import argparse
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # or torch's idle threads would burn the cores of a busy machine

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import timing
from peers.problem import FEW, LARGE, SMALL, Problem, Size, make_problem

from vsdn.batches import Batches
from vsdn.data import Scaler
from vsdn.datasets import double_ou
from vsdn.grids import Marching, make_grids
from vsdn.sde import noise_at, path_seed

Program = Callable[[int], tuple]
NAMES = ("own", "uniform", "large", "few")
REPEATS = {"own": 12, "uniform": 3, "large": 3, "few": 15}
LONG = ("uniform", "large")  # sizes at which some are left out, or a run would take the better part of an hour
LEFT_OUT = ("tree", "adjoint", "threads")
TITLES = {
    "own": "Small, on the Double-OU grids (Δt = 0.25)",
    "uniform": "Small, 1,000 uniform steps",
    "large": "Large",
    "few": "Few paths",
}


def own_grid() -> tuple[Size, np.ndarray]:
    """The small size on the grids of 250 Double-OU series, and their steps."""
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


def with_threads(make: Callable[[], Program], count: int) -> Callable[[], Program]:
    """The program with so many threads of PyTorch."""

    def made() -> Program:
        import torch  # pyright: ignore[reportMissingImports]

        run = make()

        def step(seed: int) -> tuple:
            torch.set_num_threads(count)
            return run(seed)

        return step

    return made


def makers(size: Size, problem: Problem) -> dict[str, Callable[[], Program]]:
    """Every program by its name, to be made when it is wanted."""
    from peers import diffrax_peer, ours, plain_scan, torch_loops, torchsde_peer

    named: dict[str, Callable[[], Program]] = {
        "vsdn": lambda: ours.make(size, problem),
        "vsdn, scan": lambda: ours.make(size, problem, kernel=False),
        "lax.scan, plain": lambda: plain_scan.make(size, problem),
        "diffrax": lambda: diffrax_peer.make(size, problem),
        "diffrax, Brownian tree": lambda: diffrax_peer.make(size, problem, tree=True),
    }
    torch_programs: dict[str, Callable[[], Program]] = {
        "torch, plain loop": lambda: torch_loops.make_plain(size, problem),
        "torch, hoisted": lambda: torch_loops.make_hoisted(size, problem),
        "torch.compile, hoisted": lambda: torch_loops.make_hoisted(size, problem, compiled=True),
        "torchsde sdeint": lambda: torchsde_peer.make(size, problem),
        "torchsde sdeint_adjoint": lambda: torchsde_peer.make(size, problem, adjoint=True),
    }
    for name, make in torch_programs.items():
        for count in sorted({1, timing.num_cores()}):
            named[f"{name}, {count} thread{'s' * (count > 1)}"] = with_threads(make, count)
    return named


def check_same(losses: dict[str, float]) -> None:
    """All programs must find the same mean loss; their noise differs, so within what noise does."""
    middle = np.nanmedian(list(losses.values()))
    far = {name: loss for name, loss in losses.items() if not abs(loss - middle) < 0.1 * abs(middle)}
    if far:
        raise AssertionError(f"not the same computation: {far} against {middle:.3f}")


def run(name: str, wanted: Iterable[str] | None, repeats: int | None) -> tuple[Size, dict[str, timing.Timing]]:
    """The timings of all programs of a size; one that cannot be made or run is said and left out."""
    size, problem = make_case(name)
    programs, losses = {}, {}
    for title, make in makers(size, problem).items():
        if wanted is not None and not any(part in title for part in wanted):
            continue
        if wanted is None and name in LONG and any(part in title for part in LEFT_OUT):
            continue
        try:
            program = make()
            losses[title] = float(program(0)[0])
        except Exception as error:  # a peer that does not run here must not end the others
            print(f"{title}: left out, {type(error).__name__}: {str(error).splitlines()[0]}", file=sys.stderr)
            continue
        programs[title] = lambda program=program: program(0)
    check_same(losses)
    return size, timing.time_in_turn(programs, repeats or REPEATS[name])


def peak_memory(name: str, title: str) -> float:
    """What one step of a program adds to the peak of a process of its own, in MB."""
    command = [sys.executable, __file__, "--size", name, "--memory-of", title]
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    return json.loads(lines.splitlines()[-1])


def _measure_memory(name: str, title: str) -> float:
    size, problem = make_case(name)
    tiny = replace(size, series=2, paths=2, steps=2)
    makers(tiny, make_problem(tiny))[title]()(0)  # libraries loaded, compilers warm
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    makers(size, problem)[title]()(0)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e3


def one_core(name: str) -> float:
    """The median wall time of vsdn's step in a process that may use one core, in ms."""
    command = [sys.executable, __file__, "--size", name, "--one-core"]
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(lines.splitlines()[-1])


def rates() -> tuple[float, float, float]:
    """The machine: GFLOP/s of XLA's matrix product (1024³), and millions a second of jax's normals and of vsdn's."""
    matrix = jnp.ones((1024, 1024))
    product = jax.jit(lambda a: a @ a)
    exact = jax.jit(lambda key: jr.normal(key, (2**22,)))
    place = jax.vmap(
        lambda key: jax.vmap(lambda n: noise_at(path_seed(key), jnp.zeros((), jnp.int32), n, 16))(jnp.arange(256))
    )
    table = jax.jit(lambda key: place(jr.split(key, 2**10)))
    key = jr.key(0)
    named = {
        "product": lambda: product(matrix).block_until_ready(),
        "exact": lambda: exact(key).block_until_ready(),
        "table": lambda: table(key).block_until_ready(),
    }
    times = timing.time_in_turn(named, 20)
    seconds = {name: each.median / 1e3 for name, each in times.items()}
    return 2 * 1024**3 / seconds["product"] / 1e9, 2**22 / seconds["exact"] / 1e6, 2**22 / seconds["table"] / 1e6


def report(
    names: Iterable[str] = NAMES,
    wanted: Iterable[str] | None = None,
    repeats: int | None = None,
    *,
    memory: bool = True,
) -> str:
    """Everything measured, as Markdown."""
    flops, exact, table = rates()
    text = [
        "## One training step of a latent SDE with path KL",
        "Forward and gradient, float32, ms; every program does the same work on the same steps (`peers/problem.py`),",
        "and all find the same mean loss within a tenth, for their noise differs. Ratios are medians over rounds:",
        "above 1, vsdn is faster. At the long sizes Brownian tree, adjoint and PyTorch on two threads are left out.",
    ]
    for name in names:
        size, timings = run(name, wanted, repeats)
        ours = timings["vsdn"]
        share = size.flops / (ours.median / 1e3) / 1e9 / flops
        alone = one_core(name)
        text += [
            "",
            f"### {TITLES[name]}: {size.series} series × {size.paths} paths × {size.steps} steps, "
            f"latent {size.latent}, hidden {size.hidden}, width {size.width}",
            timing.HEAD.format("program"),
            *timing.time_rows(timings),
            "",
            f"- {size.flops / 1e9:.3g} GFLOP of products in a step: vsdn runs at {100 * share:.0f} % of XLA's own "
            f"matrix product (1024³, {flops:.0f} GFLOP/s on all cores, the same run).",
            f"- On one core vsdn takes {alone:.4g} ms: {alone / ours.median:.2f} times as long.",
        ]
        if memory:
            peaks = [f"{title} {peak_memory(name, title):.0f}" for title in _memory_titles(timings)]
            text.append(f"- Peak memory that a step adds, MB: {'; '.join(peaks)}.")
    text += [
        "",
        f"Normals, millions a second on all cores: jax.random.normal {exact:.0f}, vsdn's by table {table:.0f}.",
    ]
    return "\n".join(text) + "\n"


def _memory_titles(timings: dict[str, timing.Timing]) -> list[str]:
    """One of each kind that was timed."""
    return [
        title for title in timings if not title.endswith("threads") and "tree" not in title and "adjoint" not in title
    ]


def main() -> None:
    about, _, example = (__doc__ or "").partition("Example: ")
    parser = argparse.ArgumentParser(description=about, epilog=f"Example: {example}")
    parser.add_argument("--size", choices=NAMES, help="one of them; all if not given")
    parser.add_argument(
        "--only", nargs="*", help="programs whose names have one of these parts; vsdn must be among them"
    )
    parser.add_argument("--repeats", type=int, help="rounds")
    parser.add_argument("--no-memory", action="store_true", help="leave out what needs a process for each program")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    parser.add_argument("--one-core", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory_of:
        print(json.dumps(_measure_memory(options.size, options.memory_of)))
    elif options.one_core:
        from peers import ours

        step = ours.make(*make_case(options.size))
        timed = timing.time_in_turn({"vsdn": lambda: step(0)}, REPEATS[options.size])
        print(json.dumps(timed["vsdn"].median))
    else:
        names = [options.size] if options.size else NAMES
        print(report(names, options.only, options.repeats, memory=not options.no_memory))


if __name__ == "__main__":
    if "--one-core" in sys.argv and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # before XLA makes its threads
    main()
