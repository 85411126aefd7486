"""The time to a given validation score on Double-OU: vsdn on each series' own grid against a PyTorch loop on the
paper's uniform one (Δt = 0.01), the same model, batches, optimiser and score.

Example: python benchmarks/time_to_score.py
"""

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
import optax
import torch  # pyright: ignore[reportMissingImports]
from torch_vsdn import TorchGrid, TorchVSDN
from training_step import by_name

from vsdn import training
from vsdn.datasets import double_ou
from vsdn.fitting import make_model
from vsdn.settings import Settings, read_preset
from vsdn.training import planning

TARGET = -1.36  # nats a value on the validation part, each row from the rows before it
AT_MOST = 35.0  # times as long as vsdn
UNIFORM = 0.01


class Reached(NamedTuple):
    wall: float
    cpu: float
    epochs: int
    score: float


def make_plan(max_step: float) -> tuple[planning.Plan, Any]:
    """The shipped preset with the activation of the PyTorch program, on the published split."""
    train, valid, _ = double_ou.split(double_ou.make(legacy=True))
    values = read_preset("double-ou") | {
        "model": "vsdn-f",
        "activation": "relu",
        "max_step": max_step,
        "num_buckets": 1,
    }
    plan = planning.make_plan(train, valid, Settings().with_values(values))
    return plan, make_model(plan.settings, train)


def unit_of(plan: planning.Plan) -> float:
    """What turns a validation score into the data's own units."""
    return plan.valid.log_unit(plan.scaler.std)


def ours() -> Reached:
    """Compilation and validation included."""
    plan, model = make_plan(0.25)
    wall, cpu = time.perf_counter(), time.process_time()
    state = training.first_state(model, plan.train, plan.settings)
    for _, record in training.train(model, plan.train, plan.valid, plan.settings, state):
        if record is not None and record.valid_nll + unit_of(plan) < TARGET:
            spent = time.perf_counter() - wall, time.process_time() - cpu
            return Reached(*spent, record.epoch, record.valid_nll + unit_of(plan))
    raise RuntimeError(f"a validation score of {TARGET} was not reached")


def weights_of(rival: TorchVSDN, like: Any) -> Any:
    """PyTorch's weights as the library's."""
    own, (leaves, tree) = rival.state_dict(), jax.tree.flatten(like)
    named = [own[name].numpy() for name in by_name(like)]
    return jax.tree.unflatten(tree, [np.asarray(new, leaf.dtype) for new, leaf in zip(named, leaves, strict=True)])


def theirs(limit: float) -> Iterator[Reached]:
    """After each epoch, its scoring left out, until the limit of wall seconds."""
    plan, model = make_plan(UNIFORM)
    settings, objective = plan.settings.training, plan.settings.objective
    params, static = eqx.partition(model, eqx.is_inexact_array)
    score = training.make_score(static, settings)
    rival = TorchVSDN(2, plan.settings.model)
    rival.load_state_dict(by_name(params))
    steps = len(plan.train.epoch())
    rate: Any = optax.cosine_decay_schedule(settings.learning_rate, steps * (settings.epochs or 1), alpha=1e-3)
    optimiser = torch.optim.AdamW(rival.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay)
    latent, wall, cpu, number = plan.settings.model.sizes[1], 0.0, 0.0, 0
    for epoch in range(1, 1 + (settings.epochs or 1)):
        for series in plan.train.epoch(np.random.default_rng([settings.seed, epoch - 1])):
            grid = TorchGrid.make(plan.train.load(series).grid)
            began, began_cpu = time.perf_counter(), time.process_time()
            optimiser.param_groups[0]["lr"] = float(rate(number)) * min(1.0, (number + 1) / (settings.lr_warmup + 1))
            optimiser.zero_grad(set_to_none=True)
            noise = torch.randn(grid.dt.shape[0] - 1, grid.dt.shape[1], objective.num_paths, latent)
            rival.loss(grid, noise, objective.alpha).backward()
            torch.nn.utils.clip_grad_norm_(rival.parameters(), settings.clip)
            optimiser.step()
            wall, cpu, number = wall + time.perf_counter() - began, cpu + time.process_time() - began_cpu, number + 1
            if wall > limit:
                break
        nll = score(weights_of(rival, params), plan.valid) + unit_of(plan)
        yield Reached(wall, cpu, epoch, nll)
        if wall > limit or nll < TARGET:
            return


def report() -> str:
    """Everything measured, as Markdown."""
    torch.set_num_threads(1)  # at this batch two threads are slower
    mine = ours()
    print(mine, flush=True)
    rival = mine
    for rival in theirs(AT_MOST * mine.wall):
        print(rival, flush=True)
    verdict = "reached it" if rival.score < TARGET else "had not reached it"
    text = [
        "## Time to a given score",
        f"VSDN-F on Double-OU, the shipped preset, until the validation score is below {TARGET} nats a value. vsdn:",
        "its own grids (Δt = 0.25), compilation and validation counted; PyTorch: the hoisted loop of `torch_vsdn.py`",
        f"on the paper's grid (Δt = {UNIFORM}), training steps alone counted.",
        "",
        "| program | wall | CPU | epochs | score |",
        "|---|--:|--:|--:|--:|",
        *(
            f"| {name} | {each.wall:.0f} s | {each.cpu:.0f} s | {each.epochs} | {each.score:.3f} |"
            for name, each in (("vsdn", mine), ("torch, uniform grid", rival))
        ),
        "",
        f"After {rival.wall / mine.wall:.1f} times vsdn's wall time and {rival.cpu / mine.cpu:.1f} times its CPU time "
        f"PyTorch {verdict}.",
    ]
    return "\n".join(text) + "\n"


if __name__ == "__main__":
    print(report())
