"""The SDE loop of a batch as one compiled kernel: the paths of `vsdn.sde`, up to rounding, and their gradients.

The kernel (`kernel/`, C++) runs on CPUs where it could be built; elsewhere the scan of `vsdn.sde` is used. It draws the
same noise internally, stores only the states, and supports only the drift network of `vsdn.nets`.
"""

import functools
import importlib
import os
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray, UInt32

from vsdn import sde
from vsdn.grids.grid import Grid, at_rows
from vsdn.nets import Drift
from vsdn.sde import Number, Path, Steps, path_seed, quantile_table

try:
    _kernel: Any = importlib.import_module("vsdn._kernel")
except ImportError:  # no compiler when it was installed
    _kernel = None

ACTIVATIONS = ("tanh", "relu", "silu")  # in the kernel's numbering
EMBEDS = 2**14  # largest context product (width × features) left to the kernel; XLA is faster beyond


class Weights(NamedTuple):
    """The drift network: H = out · act(from_state · x + from_context · c + first_bias) + bias − rate∘x."""

    from_state: Float[Array, "width latent"]
    from_context: Float[Array, "width context"]  # no columns if contexts are embedded already
    first_bias: Float[Array, " width"]
    out: Float[Array, "latent width"]
    bias: Float[Array, " latent"]
    rate: Float[Array, " latent"]


class Walks(NamedTuple):
    """The kernel's inputs, one series per entry of the leading axes."""

    x0: Float[Array, "batch path latent"]
    steps: Steps
    weights: Weights
    rows: Int[Array, "batch row"]  # the points whose states are returned
    seeds: UInt32[Array, "batch 2"]
    first_step: UInt32[Array, ""]


class Asked(NamedTuple):
    """The kernel's options."""

    activation: str
    prior_alone: bool


def is_built() -> bool:
    """Whether the kernel was built when the library was installed."""
    return _kernel is not None


def is_used(drift: Any) -> bool:
    """Whether a batch uses the kernel, here and now; VSDN_KERNEL=off selects the scan."""
    asked = os.environ.get("VSDN_KERNEL", "on") != "off"
    return is_built() and asked and jax.default_backend() == "cpu" and type(drift) is Drift


def what_is_lost() -> str | None:
    """The warning to show when the kernel is missing, or None."""
    if is_built() or jax.default_backend() != "cpu":
        return None
    return "the compiled SDE loop is missing, so training takes longer: install a C++ compiler, then vsdn once more"


def posterior_paths(
    drift: Any,
    x0: Float[Array, "batch path latent"],
    steps: Steps,
    grids: Grid,
    *,
    keys: Key[Array, " batch"],
    first_step: Number = 0,
) -> Path:
    """`sde.posterior_paths` for every series of a batch, with states at its rows only; no gradient in dt."""
    steps = steps._replace(dt=jax.lax.stop_gradient(steps.dt))
    if is_used(drift):
        walks = _prepare(drift, x0, steps, grids.rows, keys, first_step)
        results: Any = _paths(Asked(drift.net.activation, prior_alone=False), *walks)
        return results[1]

    def walk(x0: Array, steps: Steps, grid: Grid, key: PRNGKeyArray) -> Path:
        paths = sde.posterior_paths(drift, x0, steps, key=key, first_step=first_step)
        return paths._replace(states=jax.vmap(lambda states: at_rows(states, grid))(paths.states))

    return jax.vmap(walk)(x0, steps, grids, keys)


def prior_paths(
    drift: Any, x0: Float[Array, "batch path latent"], steps: Steps, *, keys: Key[Array, " batch"]
) -> Float[Array, "batch path point latent"]:
    """`sde.prior_paths` for every series of a batch; not differentiable."""
    if is_used(drift):
        steps = steps._replace(posterior=steps.prior)
        walks = _prepare(drift, x0, steps, jnp.zeros((len(x0), 0), jnp.int32), keys)
        return _forward(Asked(drift.net.activation, prior_alone=True), walks)[0]
    walk = lambda x0, steps, key: sde.prior_paths(drift, x0, steps, key=key)
    return jax.vmap(walk)(x0, steps, keys)


def _prepare(
    drift: Drift, x0: Array, steps: Steps, rows: Array, keys: Key[Array, " batch"], first_step: Number = 0
) -> Walks:
    net, rate = drift.net, jax.nn.softplus(drift.raw_rate)
    from_context, first_bias = net.from_context.weight, net.from_context.bias
    assert first_bias is not None
    assert net.out.bias is not None
    if from_context.size > EMBEDS:
        steps = jax.vmap(lambda steps: sde.embed(drift, steps))(steps)
        from_context, first_bias = from_context[:, :0], jnp.zeros_like(first_bias)
    weights = Weights(net.from_state.weight, from_context, first_bias, net.out.weight, net.out.bias, rate)
    seeds, first = jax.vmap(path_seed)(keys), jnp.asarray(first_step, jnp.uint32)
    return Walks(x0, steps, weights, rows.astype(jnp.int32), seeds, first)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _paths(asked: Asked, *walks: Any) -> tuple[Array, Path]:
    """All states, which only the backward pass uses, and the paths with their states at the rows."""
    return _forward(asked, Walks(*walks))


def _paths_forward(asked: Asked, *walks: Any) -> tuple[tuple[Array, Path], tuple[Walks, Array]]:
    states, paths = _forward(asked, Walks(*walks))
    return (states, paths), (Walks(*walks), states)


def _paths_backward(asked: Asked, kept: tuple[Walks, Array], cotangents: tuple[Array, Path]) -> tuple:
    walks, states = kept
    return *_backward(asked, walks, states, cotangents[1]), None, None, None


_paths.defvjp(_paths_forward, _paths_backward)


@functools.cache
def _register() -> None:
    """Registers the kernel with XLA."""
    for name, target in _kernel.targets().items():
        jax.ffi.register_ffi_target(f"vsdn_{name}", target, platform="cpu")


def _call(name: str, asked: Asked, results: Any, *arguments: Array, **numbers: Any) -> Any:
    _register()
    call = jax.ffi.ffi_call(f"vsdn_{name}_{arguments[0].dtype}", results, vmap_method="sequential")
    activation = np.int64(ACTIVATIONS.index(asked.activation))
    return call(*arguments, activation=activation, **numbers)


def _forward(asked: Asked, walks: Walks) -> tuple[Array, Path]:
    batch, paths, latent = walks.x0.shape
    shape = lambda *sizes: jax.ShapeDtypeStruct((batch, paths, *sizes), walks.x0.dtype)
    results = (shape(walks.steps.dt.shape[1] + 1, latent), shape(walks.rows.shape[1], latent), shape(), shape())
    arguments = (walks.x0, *walks.steps, *walks.weights, *walks[3:], quantile_table())
    states, *rest = _call("forward", asked, results, *arguments, prior_alone=asked.prior_alone)
    return states, Path(*rest)


def _backward(asked: Asked, walks: Walks, states: Array, cotangents: Path) -> tuple[Array, Steps, Weights]:
    given, learned = (walks.x0, *walks.steps, *walks.weights), (walks.x0, *walks.steps[1:], *walks.weights)
    results = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), learned)
    x0, *rest = _call("backward", asked, results, *given, walks.rows, states, *cotangents)
    return x0, Steps(jnp.zeros_like(walks.steps.dt), *rest[:3]), Weights(*rest[3:])
