"""PyTorch: a plain loop, the same with everything hoisted that can be, and its step compiled."""

from collections.abc import Callable

import torch  # pyright: ignore[reportMissingImports]
from torch import Tensor  # pyright: ignore[reportMissingImports]
from torch.nn import functional as F  # pyright: ignore[reportMissingImports]

from peers.problem import Problem, Size


def tensors(problem: Problem) -> list[Tensor]:
    learned = [torch.from_numpy(array.copy()).requires_grad_() for array in problem[:10]]
    return [*learned, torch.from_numpy(problem.dt.copy())]


def make_plain(size: Size, problem: Problem) -> Callable[[int], tuple]:
    """As one writes it first: two networks' passes a step on [x, c], noise drawn in the step."""
    parts = tensors(problem)

    def loss() -> Tensor:
        first_state, first_context, first_bias, out, out_bias, raw_rate, x0, posterior, prior, log_diffusion, dt = parts
        first = torch.cat([first_state, first_context], 1)
        rate = F.softplus(raw_rate)
        drift = lambda x, c: (
            F.linear(torch.tanh(F.linear(torch.cat([x, c], 1), first, first_bias)), out, out_bias) - rate * x
        )
        each = lambda array: array.repeat_interleave(size.paths, 0)
        x, kl = each(x0), torch.zeros(size.series * size.paths)
        steps = (array.unbind(1) for array in (dt[..., None], log_diffusion, posterior, prior))
        for delta, log_sigma, context_q, context_p in zip(*steps, strict=True):
            delta, sigma = each(delta), each(log_sigma.exp())
            drift_q, drift_g = drift(x, each(context_q)), drift(x, each(context_p))
            kl = kl + 0.5 * (((drift_q - drift_g) / sigma) ** 2).sum(1) * delta[:, 0]
            x = x + drift_q * delta + sigma * delta.sqrt() * torch.randn_like(x)
        return kl.mean() + ((x - 1) ** 2).mean()

    return _step(parts, loss)


def make_hoisted(size: Size, problem: Problem, *, compiled: bool = False) -> Callable[[int], tuple]:
    """The context's product, the diffusion and the noise outside the loop; W x once for both drifts; one product for
    both outputs; the KL summed after the loop."""
    parts = tensors(problem)

    def move(
        x: Tensor, embedded: Tensor, delta: Tensor, kick: Tensor, state: Tensor, out: Tensor, bias: Tensor, rate: Tensor
    ) -> tuple[Tensor, Tensor]:
        """One step: the state that it reaches, and both drifts' difference."""
        both = F.linear(torch.tanh(F.linear(x, state) + embedded), out)
        drift = both[0] + bias - rate * x
        return x + drift * delta + kick, both[0] - both[1]

    move = torch.compile(move, dynamic=False) if compiled else move

    def loss() -> Tensor:
        first_state, first_context, first_bias, out, out_bias, raw_rate, x0, posterior, prior, log_diffusion, dt = parts
        rate = F.softplus(raw_rate)
        flat = lambda array: array.transpose(-3, -2).repeat_interleave(size.paths, -2)  # step, series × path, feature
        embedded = flat(F.linear(torch.stack([posterior, prior]), first_context, first_bias)).transpose(0, 1)
        sigma, delta = flat(log_diffusion.exp()), flat(dt[..., None])
        kick = sigma * delta.sqrt() * torch.randn_like(sigma)
        x, apart = x0.repeat_interleave(size.paths, 0), []
        # unbind, not indexing: its gradient is one stack instead of a full-size addition a step
        for context, step, push in zip(embedded.unbind(0), delta.unbind(0), kick.unbind(0), strict=True):
            x, difference = move(x, context, step, push, first_state, out, out_bias, rate)
            apart.append(difference)
        kl = 0.5 * ((torch.stack(apart) / sigma) ** 2 * delta).sum((0, 2))
        return kl.mean() + ((x - 1) ** 2).mean()

    return _step(parts, loss)


def _step(parts: list[Tensor], loss: Callable[[], Tensor]) -> Callable[[int], tuple]:
    def step(seed: int) -> tuple:
        torch.manual_seed(seed)
        for part in parts:
            part.grad = None
        value = loss()
        value.backward()
        return value.detach(), [part.grad for part in parts[:-1]]

    return step
