"""torchsde's `sdeint` and `sdeint_adjoint`, Euler with fixed steps and its own path KL (`logqp`).

Time is counted in steps, so that each series can have lengths of its own: drift·δ and diffusion·√δ, with dt = 1.
"""

from collections.abc import Callable

import torch  # pyright: ignore[reportMissingImports]
import torchsde  # pyright: ignore[reportMissingImports]
from torch import Tensor, nn  # pyright: ignore[reportMissingImports]
from torch.nn import functional as F  # pyright: ignore[reportMissingImports]

from peers.problem import Problem, Size
from peers.torch_loops import tensors


class LatentSDE(nn.Module):
    """The drift in the form that torchsde asks for: f the posterior's, h the prior's, g the diffusion."""

    noise_type, sde_type = "diagonal", "ito"

    def __init__(self, size: Size, parts: list[Tensor]):
        super().__init__()
        self.size = size
        self.learned = nn.ParameterList([nn.Parameter(part.detach().clone()) for part in parts[:10]])
        self.dt = parts[10].clamp(min=1e-12)  # it divides by the diffusion: a step of no length would give 0/0

    def begin(self) -> Tensor:
        """What does not depend on the state, once a solve: it is in every step's reach."""
        each = lambda array: array.repeat_interleave(self.size.paths, 0)
        *self.weights, x0, posterior, prior, log_diffusion = self.learned
        first_state, first_context, first_bias, *_ = self.weights
        embed = lambda context: each(F.linear(context, first_context, first_bias)).unbind(1)
        self.posterior, self.prior, self.state = embed(posterior), embed(prior), first_state
        self.delta = each(self.dt[..., None]).unbind(1)
        self.sigma = (each(log_diffusion.exp()) * each(self.dt.sqrt()[..., None])).unbind(1)
        return each(x0)

    def number(self, t: Tensor) -> int:
        return min(max(int(float(t) + 1e-3), 0), self.size.steps - 1)

    def drift(self, t: Tensor, x: Tensor, contexts: tuple[Tensor, ...]) -> Tensor:
        _, _, _, out, out_bias, raw_rate = self.weights
        number = self.number(t)
        hidden = torch.tanh(F.linear(x, self.state) + contexts[number])
        return (F.linear(hidden, out, out_bias) - F.softplus(raw_rate) * x) * self.delta[number]

    def f(self, t: Tensor, x: Tensor) -> Tensor:
        return self.drift(t, x, self.posterior)

    def h(self, t: Tensor, x: Tensor) -> Tensor:
        return self.drift(t, x, self.prior)

    def g(self, t: Tensor, x: Tensor) -> Tensor:
        return self.sigma[self.number(t)]


def make(size: Size, problem: Problem, *, adjoint: bool = False) -> Callable[[int], tuple]:
    sde = LatentSDE(size, tensors(problem))
    ends = torch.tensor([0.0, float(size.steps)])

    def step(seed: int) -> tuple:
        torch.manual_seed(seed)
        sde.zero_grad(set_to_none=True)
        x0 = sde.begin()
        if adjoint:  # its gradient reaches parameters of the module, not what was computed from them before the solve
            solve = lambda: torchsde.sdeint_adjoint(
                sde,
                x0,
                ends,
                dt=1.0,
                method="euler",
                logqp=True,
                adjoint_method="euler",
                adjoint_params=tuple(sde.learned[:6]),
            )
        else:
            solve = lambda: torchsde.sdeint(sde, x0, ends, dt=1.0, method="euler", logqp=True)
        states, kl = solve()
        loss = kl.sum(0).mean() + ((states[-1] - 1) ** 2).mean()
        loss.backward()
        return loss.detach(), [part.grad for part in sde.learned]

    return step
