"""VSDN-F and VSDN-S as a plain PyTorch program: batched tensors, a Python loop over grid steps, eager mode, autograd.

It is the computation of `vsdn.models.vsdn` without known functions of time, and no straw man: the memory runs once a
series, whatever does not depend on the path's state stands outside its loop, prior and posterior drift are one product,
the KL is summed after the loop, and only real observations are decoded. Attributes have the names of the library's, so
that `load_state_dict` takes its weights.
"""

import math
from typing import NamedTuple

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from torch import Tensor, nn  # pyright: ignore[reportMissingImports]
from torch.nn import functional  # pyright: ignore[reportMissingImports]

from vsdn.grids.grid import Grid
from vsdn.settings import ModelSettings

LOG_DIFFUSION_BOUND = 4.0


class TorchGrid(NamedTuple):
    """A padded batch of series, points first, so that a step's slice is contiguous."""

    dt: Tensor  # point batch 1
    inputs: Tensor  # point batch 2*channel: [y∘m, m]
    seen: Tensor  # point batch 1
    flat: Tensor  # row: where in point*batch something was seen
    values: Tensor  # row 1 channel
    mask: Tensor  # row 1 channel

    @classmethod
    def make(cls, grid: Grid) -> "TorchGrid":
        first = lambda array: torch.from_numpy(np.array(array)).transpose(0, 1).contiguous()
        dt, values, mask = first(grid.dt).unsqueeze(2), first(grid.values), first(grid.mask)
        values, seen = torch.where(mask, values, 0.0), mask.any(2, keepdim=True)
        flat = seen.flatten().nonzero().squeeze(1)
        rows = lambda array: array.flatten(0, 1)[flat].unsqueeze(1)
        return cls(dt, torch.cat([values, mask.float()], 2), seen, flat, rows(values), rows(mask))


class MLP(nn.Module):
    def __init__(self, in_size: int, out_size: int, width: int):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(in_size, width), nn.Linear(width, out_size)])

    def forward(self, x: Tensor) -> Tensor:
        return self.layers[1](torch.relu(self.layers[0](x)))


class SplitMLP(nn.Module):
    def __init__(self, state_size: int, context_size: int, out_size: int, width: int):
        super().__init__()
        self.from_state = nn.Linear(state_size, width, bias=False)
        self.from_context = nn.Linear(context_size, width)
        self.out = nn.Linear(width, out_size)

    def forward(self, state: Tensor, embedded: Tensor) -> Tensor:
        return self.out(torch.relu(self.from_state(state) + embedded))


class Drift(nn.Module):
    def __init__(self, latent_size: int, context_size: int, width: int):
        super().__init__()
        self.net = SplitMLP(latent_size, context_size, latent_size, width)
        self.raw_rate = nn.Parameter(torch.zeros(latent_size))


class Diffusion(nn.Module):
    def __init__(self, hidden_size: int, latent_size: int, width: int):
        super().__init__()
        self.net = MLP(hidden_size, latent_size, width)

    def forward(self, h: Tensor) -> Tensor:
        return torch.exp(LOG_DIFFUSION_BOUND * torch.tanh(self.net(h) / LOG_DIFFUSION_BOUND))


class GRUFlow(nn.Module):
    def __init__(self, hidden_size: int, width: int):
        super().__init__()
        self.net = MLP(hidden_size, hidden_size, width)
        self.gate = nn.Linear(hidden_size, hidden_size)

    def forward(self, h: Tensor) -> Tensor:
        return torch.sigmoid(self.gate(h)) * (torch.tanh(self.net(h)) - h)


class GRUCell(nn.Module):
    """torch's own cell, but the inputs' product is taken once for all points; as fast, or a little faster."""

    def __init__(self, in_size: int, hidden_size: int):
        super().__init__()
        self.weight_ih = nn.Parameter(torch.zeros(3 * hidden_size, in_size))
        self.weight_hh = nn.Parameter(torch.zeros(3 * hidden_size, hidden_size))
        self.bias = nn.Parameter(torch.zeros(3 * hidden_size))
        self.bias_n = nn.Parameter(torch.zeros(hidden_size))

    def embed(self, inputs: Tensor) -> Tensor:
        return functional.linear(inputs, self.weight_ih, self.bias)

    def forward(self, embedded: Tensor, h: Tensor) -> Tensor:
        size, from_h = h.shape[1], functional.linear(h, self.weight_hh)
        reset, keep = torch.sigmoid(embedded[:, : 2 * size] + from_h[:, : 2 * size]).chunk(2, 1)
        new = torch.tanh(embedded[:, 2 * size :] + reset * (from_h[:, 2 * size :] + self.bias_n))
        return torch.lerp(new, h, keep)


class ODERNN(nn.Module):
    def __init__(self, data_size: int, hidden_size: int, width: int):
        super().__init__()
        self.flow = GRUFlow(hidden_size, width)
        self.cell = GRUCell(2 * data_size, hidden_size)
        self.initial = nn.Parameter(torch.zeros(hidden_size))

    def forward(self, dt: Tensor, inputs: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        """The memory before and after it took what was seen at each point."""
        h, pre, post = self.initial.expand(dt.shape[1], -1), [], []
        for step, embedded, jumps in zip(dt, self.cell.embed(inputs).unbind(0), seen, strict=True):
            h = torch.addcmul(h, self.flow(h), step)
            pre.append(h)
            h = torch.where(jumps, self.cell(embedded, h), h)
            post.append(h)
        return torch.stack(pre), torch.stack(post)


class Filter(nn.Module):
    def forward(self, grid: TorchGrid, pre: Tensor, post: Tensor) -> Tensor:
        return torch.where(grid.seen[1:], pre[1:] + post[1:], post[:-1])


class Smoother(nn.Module):
    def __init__(self, backward: ODERNN):
        super().__init__()
        self.backward = backward

    def forward(self, grid: TorchGrid, pre: Tensor, post: Tensor) -> Tensor:
        dt = torch.cat([torch.zeros_like(grid.dt[:1]), grid.dt[1:].flip(0)])
        back, _ = self.backward(dt, grid.inputs.flip(0), grid.seen.flip(0))
        return post[:-1] + back.flip(0)[:-1]


class TorchVSDN(nn.Module):
    def __init__(self, data_size: int, settings: ModelSettings):
        super().__init__()
        hidden, latent, width = settings.sizes
        self.memory = ODERNN(data_size, hidden, width)
        smooth = settings.model == "vsdn-s"
        self.encoder = Smoother(ODERNN(data_size, hidden, width)) if smooth else Filter()
        self.drift = Drift(latent, hidden, width)
        self.diffusion = Diffusion(hidden, latent, width)
        self.initial = MLP(hidden, latent, settings.init_width)
        self.decoder = SplitMLP(latent, hidden, 2 * data_size, width)
        self.log_floor = math.log(settings.scale_floor)

    def paths(self, grid: TorchGrid, pre: Tensor, post: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """States (point batch sample latent), KL and log-ratio (batch sample) of the posterior's paths."""
        embed = self.drift.net.from_context
        contexts = torch.stack([embed(self.encoder(grid, pre, post)), embed(post[:-1])], 1).unsqueeze(3)
        dt, sigma = grid.dt[1:].unsqueeze(2), self.diffusion(post[:-1]).unsqueeze(2)
        kicks, decay = sigma * dt.sqrt() * noise, 1 - functional.softplus(self.drift.raw_rate) * dt
        x = self.initial(pre[0]).unsqueeze(1).expand(-1, noise.shape[2], -1)
        states, gaps = [x], []
        for step, rest, context, kick in zip(*(each.unbind(0) for each in (dt, decay, contexts, kicks)), strict=True):
            posterior, prior = self.drift.net(x, context).unbind(0)
            gaps.append(posterior - prior)
            x = torch.addcmul(torch.addcmul(kick, x, rest), posterior, step)
            states.append(x)
        kernel = torch.stack(gaps) * (dt.sqrt() / sigma)  # u √dt
        kl = 0.5 * kernel.square().sum((0, 3))
        return torch.stack(states), kl, kl + (kernel * noise).sum((0, 3))

    def log_lik(self, grid: TorchGrid, pre: Tensor, states: Tensor) -> Tensor:
        """Σ log Φ (batch sample) over what was seen."""
        at_rows = lambda points: points.flatten(0, 1).index_select(0, grid.flat)
        embedded = self.decoder.from_context(at_rows(pre)).unsqueeze(1)
        mean, raw = self.decoder(at_rows(states), embedded).unflatten(2, (-1, 2)).unbind(3)
        log_scale = self.log_floor + functional.softplus(raw - self.log_floor)
        z = (grid.values - mean) * torch.exp(-log_scale)
        log_prob = -0.5 * z.square() - log_scale - 0.5 * math.log(2 * math.pi)
        by_row = torch.where(grid.mask, log_prob, 0.0).sum(2)
        return by_row.new_zeros(states.shape[1:3]).index_add(0, grid.flat % states.shape[1], by_row)

    def loss(self, grid: TorchGrid, noise: Tensor, alpha: float) -> Tensor:
        """Minus (1 − α) L_VAE + α L_IWAE, an observed value."""
        pre, post = self.memory(grid.dt, grid.inputs, grid.seen)
        states, kl, log_ratio = self.paths(grid, pre, post, noise)
        log_lik = self.log_lik(grid, pre, states)
        vae = (log_lik - kl).mean(1)
        iwae = torch.logsumexp(log_lik - log_ratio, 1) - math.log(noise.shape[2])
        return -torch.sum((1 - alpha) * vae + alpha * iwae) / grid.mask.sum()
