"""The fused kernel is the scan: values and gradients in 64 bit, whatever the sizes; and what happens without it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from examples import thorough

from vsdn import fused, sde
from vsdn.grids.grid import Grid
from vsdn.nets import Drift
from vsdn.sde import Steps

kernel = pytest.mark.skipif(not fused.is_built(), reason="the kernel was not built: no C++ compiler at installation")
SIZES = {  # series, paths, steps, latent, context, width
    "several features": (7, 3, 9, 5, 4, 11),
    "one of each": (1, 1, 4, 1, 1, 1),
    "whole registers": (5, 2, 6, 16, 16, 32),
    "more paths than a block": (2, 67, 4, 3, 2, 5),
    "more series than a block": (70, 2, 5, 6, 3, 9),
    "more tasks than there may be": (800, 5, 2, 2, 1, 3),
    "wide": (3, 2, 3, 37, 130, 133),  # contexts embedded by XLA
}
THOROUGH = ("one of each", "more paths than a block", "more tasks than there may be")


def make_case(series, paths, steps, latent, context, width, activation="tanh"):
    """A drift, first states, steps and grids of a batch; some end in padding, and the last step moves none.

    Drawn by numpy, for which no shape is compiled.
    """
    chance = np.random.default_rng(series + latent)
    normal = lambda *shape: jnp.asarray(chance.normal(size=shape))
    drift = eqx.filter_eval_shape(Drift, latent, context, width, activation=activation, key=jr.key(0))
    scale = lambda shape: shape[-1] ** -0.5 if len(shape) > 1 else 1.0
    weigh = lambda leaf: jnp.asarray(scale(leaf.shape) * chance.normal(size=leaf.shape))
    drift = jax.tree.map(lambda leaf: weigh(leaf) if isinstance(leaf, jax.ShapeDtypeStruct) else leaf, drift)
    dt = chance.uniform(0.02, 0.3, (series, steps))
    if steps > 3:
        dt[::2, -3:] = 0.0
        dt[:, -1] = 0.0
    prior, posterior = normal(series, steps, context), normal(series, steps, context)
    diffusion = jnp.asarray(np.exp(0.3 * chance.normal(size=(series, steps, latent))))
    walks = Steps(jnp.asarray(dt), prior, posterior, diffusion)
    seen = np.arange(steps + 1) % 3 == 0
    seen[-1] = False
    rows = np.concatenate([np.flatnonzero(seen), [steps, steps]]).astype(np.int32)  # padding names the last point twice
    all_series = lambda part: jnp.asarray(np.broadcast_to(part, (series, *part.shape)))
    nothing = np.zeros((steps + 1, 1))
    grids = Grid(*map(all_series, (nothing[:, 0], nothing, seen[:, None], nothing, rows)))
    return drift, normal(series, paths, latent), walks, grids


def value_and_gradients(case, *, key, use_kernel, monkeypatch):
    """The paths, and the gradients of a loss that weighs each of their numbers differently."""
    drift, x0, steps, grids = case
    monkeypatch.setenv("VSDN_KERNEL", "on" if use_kernel else "off")
    assert fused.is_used(drift) is use_kernel
    (_, paths), gradients = loss_and_gradients((drift, x0, steps), grids, jr.split(key, len(x0)), use_kernel)
    drift, x0, steps = gradients
    assert not np.any(steps.dt)  # data, not learned
    return paths, (drift, x0, steps._replace(dt=None))


@eqx.filter_jit
def loss_and_gradients(learned, grids, keys, use_kernel):
    """Compiled once a shape and way, for all tests; `use_kernel` tells the ways apart."""

    def loss(learned):
        drift, x0, steps = learned
        paths = fused.posterior_paths(drift, x0, steps, grids, keys=keys)
        weights = jnp.cos(jnp.arange(paths.kl.size)).reshape(paths.kl.shape)
        told = jnp.sum(jnp.sin(paths.states[:, :, :-2]) * weights[..., None, None])  # padding is scored by nobody
        return told + jnp.sum(weights * paths.kl) + jnp.sum(weights * paths.log_ratio**2), paths

    return eqx.filter_value_and_grad(loss, has_aux=True)(learned)


@kernel
@pytest.mark.parametrize(
    "size", [pytest.param(size, marks=pytest.mark.thorough) if size in THOROUGH else size for size in SIZES]
)
def test_the_kernel_is_the_scan(size, x64, key, monkeypatch):
    case = make_case(*SIZES[size])
    fast, slow = (value_and_gradients(case, key=key, use_kernel=use, monkeypatch=monkeypatch) for use in (True, False))
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(fast), jax.tree.leaves(slow), strict=True):
        scale = float(jnp.abs(b).max())
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11 * scale, err_msg=jax.tree_util.keystr(path))
        assert scale > 0


@pytest.fixture
def processor(request):
    """The code for one kind of processor, where it runs here."""
    kinds = fused._kernel.processors()
    if request.param not in kinds:
        pytest.skip(f"this processor has no {request.param}")
    fused._kernel.use(request.param)
    yield request.param
    fused._kernel.use(kinds[0])


@pytest.mark.slow
@kernel
@pytest.mark.parametrize(
    "processor", ["avx512", pytest.param("avx2", marks=pytest.mark.thorough), "any"], indirect=True
)
def test_the_code_for_every_processor_is_the_scan(processor, key, monkeypatch):
    for enable, tolerance in ((True, 1e-9), (False, 3e-5)):
        with jax.enable_x64(enable):
            for size in ("several features", "wide"):
                case = make_case(*SIZES[size])
                ask = lambda use, case=case: value_and_gradients(case, key=key, use_kernel=use, monkeypatch=monkeypatch)
                for a, b in zip(jax.tree.leaves(ask(True)), jax.tree.leaves(ask(False)), strict=True):
                    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * float(jnp.abs(b).max()))


@kernel
def test_an_unknown_processor_is_refused():
    with pytest.raises(ValueError, match="no processor of kind abacus"):
        fused._kernel.use("abacus")


@kernel
@pytest.mark.parametrize("activation", ["relu", *thorough("tanh", "silu")])
def test_every_activation_is_the_scans_in_both_precisions(activation, key, monkeypatch):
    for enable, tolerance in ((True, 1e-10), (False, 3e-5)):
        with jax.enable_x64(enable):
            case = make_case(*SIZES["several features"], activation=activation)
            both = (
                value_and_gradients(case, key=key, use_kernel=use, monkeypatch=monkeypatch) for use in (True, False)
            )
            for a, b in zip(*map(jax.tree.leaves, both), strict=True):
                np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * float(jnp.abs(b).max()))


@kernel
def test_the_activations_hold_where_they_saturate(key, monkeypatch):
    """Contexts so large that every unit is at its limit, or beyond what e^x can hold."""
    for activation in fused.ACTIVATIONS:
        drift, x0, steps, grids = make_case(*SIZES["several features"], activation=activation)
        steps = steps._replace(prior=1e3 * steps.prior, posterior=-3e3 * steps.posterior)
        case = (drift, x0, steps, grids)
        both = (value_and_gradients(case, key=key, use_kernel=use, monkeypatch=monkeypatch) for use in (True, False))
        for a, b in zip(*map(jax.tree.leaves, both), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4 * float(jnp.abs(b).max()))


@kernel
def test_prior_paths_are_the_scans(x64, key, monkeypatch):
    for size in ("several features", "wide", "more paths than a block"):
        drift, x0, steps, _ = make_case(*SIZES[size])
        keys = jr.split(key, len(x0))
        fast = jax.jit(lambda x0, steps, keys, drift=drift: fused.prior_paths(drift, x0, steps, keys=keys))
        slow = jax.jit(lambda x0, steps, key, drift=drift: sde.prior_paths(drift, x0, steps, key=key))
        one_by_one = [slow(x0[i], jax.tree.map(lambda p, i=i: p[i], steps), keys[i]) for i in range(len(x0))]
        np.testing.assert_allclose(fast(x0, steps, keys), np.stack(one_by_one), rtol=1e-11, atol=1e-12)


@kernel
def test_what_is_not_a_number_stays_so(key):
    """A weight that is NaN must not be hidden by the kernel: training counts on seeing it."""
    drift, x0, steps, grids = make_case(*SIZES["several features"])
    keys, walk = jr.split(key, len(x0)), eqx.filter_jit(fused.posterior_paths)
    for where in (lambda d: d.net.from_state.weight, lambda d: d.net.out.weight, lambda d: d.net.from_context.bias):
        bad = eqx.tree_at(where, drift, where(drift).at[(0,) * where(drift).ndim].set(jnp.nan))
        paths = walk(bad, x0, steps, grids, keys=keys)
        assert np.isnan(np.asarray(paths.kl)).all()


@kernel
def test_the_kernel_repeats_itself_bit_for_bit(key, monkeypatch):
    case = make_case(*SIZES["more series than a block"])
    one, two = (value_and_gradients(case, key=key, use_kernel=True, monkeypatch=monkeypatch) for _ in range(2))
    assert eqx.tree_equal(one, two)


def test_another_drift_goes_through_the_scan(x64, key):
    class Pull(eqx.Module):
        def embed(self, context):
            return context[:5]

        def __call__(self, x, embedded):
            return embedded - x

    _, x0, steps, grids = make_case(7, 3, 9, 5, 5, 11)
    assert not fused.is_used(Pull())
    paths = eqx.filter_jit(fused.posterior_paths)(Pull(), x0, steps, grids, keys=jr.split(key, len(x0)))
    assert paths.states.shape == (7, 3, grids.rows.shape[1], 5)
    np.testing.assert_allclose(paths.states[:, :, 0], x0)


def test_without_the_kernel_the_scan_takes_over_and_says_so(key, monkeypatch):
    drift, x0, steps, grids = make_case(*SIZES["several features"])
    ask = lambda: jax.jit(lambda keys: fused.posterior_paths(drift, x0, steps, grids, keys=keys))(
        jr.split(key, len(x0))
    )
    before = ask()
    monkeypatch.setattr(fused, "_kernel", None)
    assert not fused.is_used(drift)
    np.testing.assert_allclose(ask().states, before.states, rtol=1e-5, atol=1e-5)
    assert "compiler" in str(fused.what_is_lost())
