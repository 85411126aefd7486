"""One training step (loss and gradient) of VSDN-F and VSDN-S on Double-OU: this library against a PyTorch loop.

Both compute the same: before anything is timed, weights and noise are shared and loss and every gradient must agree.
Sizes are the paper's (preset paper-double-ou). Programs are timed in turn (`timing.py`). Needs PyTorch:
`make bench-step` sets it up and runs this.

Example: python benchmarks/training_step.py --model vsdn-s --max-step 0.25 --repeats 30
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import timing
import torch  # pyright: ignore[reportMissingImports]
from torch_vsdn import TorchGrid, TorchVSDN

from vsdn import training
from vsdn.batches import Batch, Batches
from vsdn.datasets import double_ou
from vsdn.grids.marching import Marching, make_grids
from vsdn.models import MODELS
from vsdn.sde import noise_at, path_seed
from vsdn.settings import Settings, read_preset
from vsdn.tables.table import Scaler

TOLERANCE = 1e-4
MEMORY_STEPS = (0.25, 0.1, 0.05, 0.025)

TEXT = """## One training step of the whole model, against a PyTorch loop
Loss and gradient of a Double-OU batch, the paper's sizes, Δt = {max_step:g}, float32, {repeats} rounds, ms. Weights and
noise are shared and all gradients compared before anything is timed.

{times}

Temporary memory of vsdn's compiled step in MB, and what one more grid step adds, in sizes of the states
(batch × paths × latent floats). What each further path adds (from 10 to 20 paths) is its states; the rest is a
series' own, however many its paths: memory, contexts and diffusion, and their cotangents.

| model | {heading} |
|---|{rule}
{memory}

{notes}
- `python benchmarks/training_step.py{options}`
"""


class Case(NamedTuple):
    """A model with fresh weights and one batch for it."""

    settings: Settings
    batch: Batch
    params: Any
    static: Any

    @property
    def noise_shape(self) -> tuple[int, int, int, int]:
        """(batch, sample, step, latent)."""
        size, num_points = self.batch.grid.dt.shape
        return size, self.settings.objective.num_paths, num_points - 1, self.settings.model.sizes[1]


class Memory(NamedTuple):
    """Temporary memory of the compiled step against the number of grid steps."""

    num_steps: list[int]
    num_bytes: list[int]
    states: float  # its slope, in sizes of the states of all paths at one step
    path: float  # how much another path adds where there are many, in sizes of its own state


def make_case(model: str, max_step: float, batch_size: int, **given: Any) -> Case:
    """The paper's sizes on one padded batch of Double-OU."""
    settings = Settings().with_values(read_preset("paper-double-ou") | {"model": model} | given)
    table = double_ou.make(batch_size, seed=0)
    batches = Batches.make(make_grids(table, Scaler.fit(table, 1.0), Marching(max_step, start=0.0)), batch_size, 1)
    fresh = MODELS[model](len(table.variables), (), settings.model, key=jr.key(0))
    return Case(settings, batches.load(batches.epoch()[0]), *eqx.partition(fresh, eqx.is_inexact_array))


def compile_step(case: Case) -> Any:
    """The library's step, compiled: (params, batch, key) to loss and gradient."""

    def loss(params: Any, batch: Batch, key: Any) -> jax.Array:
        model = eqx.combine(params, case.static)
        return training.mean_loss(model, batch, jnp.ones(()), settings=case.settings.objective, key=key)

    return jax.jit(jax.value_and_grad(loss)).lower(case.params, case.batch, jr.key(0)).compile()


def by_name(tree: Any) -> dict[str, torch.Tensor]:
    """The arrays of a model under the names that PyTorch gives them."""
    part = lambda key: str(key.idx if isinstance(key, jax.tree_util.SequenceKey) else key.name)
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {".".join(map(part, path)): torch.from_numpy(np.array(leaf)) for path, leaf in leaves}


def make_rival(case: Case) -> TorchVSDN:
    """The PyTorch program with the same weights."""
    rival = TorchVSDN(case.batch.grid.values.shape[2], case.settings.model)
    rival.load_state_dict(by_name(case.params))
    return rival


def shared_noise(case: Case, key: Any) -> torch.Tensor:
    """The normals that the library draws from this key, steps first."""
    size, num_paths, num_steps, latent = case.noise_shape
    at = lambda key, path, number: noise_at(path_seed(key), path, number, latent)
    of_path = lambda key, path: jax.vmap(lambda number: at(key, path, number))(jnp.arange(num_steps))
    of_series = lambda key: jax.vmap(lambda path: of_path(key, path))(jnp.arange(num_paths))
    noise = jax.vmap(of_series)(jr.split(key, size))
    return torch.from_numpy(np.array(noise)).permute(2, 0, 1, 3).contiguous()


def check_same(case: Case, step: Any, rival: TorchVSDN) -> float:
    """The largest relative difference of the loss and of each gradient; an error if it is above the tolerance."""
    key = jr.key(1)
    loss, grads = step(case.params, case.batch, key)
    rival_loss = rival.loss(TorchGrid.make(case.batch.grid), shared_noise(case, key), case.settings.objective.alpha)
    rival_loss.backward()
    ours = by_name(grads) | {"loss": torch.tensor(float(loss))}
    theirs = {name: param.grad for name, param in rival.named_parameters()} | {"loss": rival_loss.detach()}
    gaps = {name: float((theirs[name] - ours[name]).norm() / ours[name].norm()) for name in theirs}
    worst = max(gaps, key=lambda name: gaps[name])
    if not gaps[worst] < TOLERANCE:
        raise AssertionError(f"not the same computation: {worst} differs by {gaps[worst]:.1e}, more than {TOLERANCE}")
    return gaps[worst]


def make_program(title: str, model: str, max_step: float, batch_size: int) -> Callable[[], float]:
    """What is timed, by its title; each program draws its own noise."""
    case = make_case(model, max_step, batch_size)
    if title == "vsdn":
        step, key = compile_step(case), jr.key(2)
        return lambda: float(jax.block_until_ready(step(case.params, case.batch, key))[0])
    rival, grid, alpha = make_rival(case), TorchGrid.make(case.batch.grid), case.settings.objective.alpha
    size, num_paths, num_steps, latent = case.noise_shape
    torch.set_num_threads(int(title.split()[1]))  # "torch, 2 threads"

    def run() -> float:
        rival.zero_grad(set_to_none=True)
        loss = rival.loss(grid, torch.randn(num_steps, size, num_paths, latent), alpha)
        loss.backward()
        return loss.item()

    return run


def time_programs(model: str, max_step: float, batch_size: int, repeats: int) -> dict[str, timing.Timing]:
    """The library and PyTorch on one and on all cores, in turn."""
    threads = [f"torch, {count} thread{'s' * (count > 1)}" for count in sorted({1, timing.num_cores()})]
    options = ["--model", model, "--max-step", str(max_step), "--batch-size", str(batch_size)]
    commands = {title: [__file__, *options, "--serve", title] for title in ("vsdn", *threads)}
    return timing.time_in_turn(commands, repeats)


def measure_memory(model: str, batch_size: int) -> Memory:
    """Temporary bytes of the compiled step at several step lengths, and their slope."""
    num_paths = make_case(model, MEMORY_STEPS[0], batch_size).noise_shape[1]
    slopes: list[float] = []
    for count in (4 * num_paths, 2 * num_paths, num_paths):
        cases = [make_case(model, max_step, batch_size, num_paths=count) for max_step in MEMORY_STEPS]
        num_bytes = [compile_step(case).memory_analysis().temp_size_in_bytes for case in cases]
        num_steps = [case.noise_shape[2] for case in cases]
        slopes.append(float(np.polyfit(num_steps, num_bytes, 1)[0]))
    state = 4.0 * batch_size * num_paths * cases[0].noise_shape[3]
    return Memory(num_steps, num_bytes, slopes[2] / state, (slopes[0] - slopes[1]) / (2 * state))


def memory_row(model: str, memory: Memory) -> str:
    sizes = " | ".join(f"{each / 1e6:.0f}" for each in memory.num_bytes)
    return f"| {model} | {sizes} | {memory.states:.1f} | {memory.path:.2f} |"


def run(model: str, max_step: float, batch_size: int, repeats: int) -> tuple[list[str], str]:
    """The rows of one model, and a sentence on its batch."""
    case = make_case(model, max_step, batch_size)
    step, rival = compile_step(case), make_rival(case)
    gap = check_same(case, step, rival)
    timings = time_programs(model, max_step, batch_size, repeats)
    size, num_paths, num_steps, _ = case.noise_shape
    note = f"{model}: {size} series × {num_paths} paths × {num_steps} steps; largest difference to PyTorch {gap:.0e}."
    return timing.time_rows(timings, label=f"{model}: "), note


def report(models: list[str], max_step: float, batch_size: int, repeats: int) -> str:
    """Everything measured, as Markdown."""
    times, notes = [timing.HEAD.format("program")], []
    for model in models:
        rows, note = run(model, max_step, batch_size, repeats)
        times, notes = times + rows, [*notes, note]
    memory = {model: measure_memory(model, batch_size) for model in models}
    num_steps = memory[models[0]].num_steps
    model = f" --model {models[0]}" * (len(models) == 1)
    return TEXT.format(
        max_step=max_step,
        repeats=repeats,
        times="\n".join(times),
        heading=" | ".join(f"{number} steps" for number in num_steps) + " | states a step | of each further path",
        rule="--:|" * (len(num_steps) + 2),
        memory="\n".join(memory_row(name, each) for name, each in memory.items()),
        notes="\n".join(f"- {note}" for note in notes),
        options=f"{model} --batch-size {batch_size} --max-step {max_step:g} --repeats {repeats}",
    )


def parse_arguments() -> argparse.Namespace:
    about, _, example = (__doc__ or "").partition("Example: ")
    parser = argparse.ArgumentParser(description=about, epilog=f"Example: {example}")
    parser.add_argument("--model", choices=("vsdn-f", "vsdn-s"), help="one of them; both if not given")
    parser.add_argument("--max-step", type=float, default=0.25, help="longest solver step (default %(default)s)")
    parser.add_argument("--batch-size", type=int, default=250, help="series a step (default %(default)s, the paper's)")
    parser.add_argument("--repeats", type=int, default=30, help="timed steps of each program (default %(default)s)")
    parser.add_argument("--out", type=Path, help="write the tables to this file too")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    if arguments.serve:
        choice = (arguments.model, arguments.max_step, arguments.batch_size)
        tiny = (arguments.model, arguments.max_step, 2)
        make = lambda choice: make_program(arguments.serve, *choice)
        timing.serve(lambda: make(choice), warm=lambda: make(tiny)())
        return
    models = [arguments.model] if arguments.model else ["vsdn-f", "vsdn-s"]
    text = report(models, arguments.max_step, arguments.batch_size, arguments.repeats)
    print(text, end="")
    if arguments.out is not None:
        arguments.out.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
