"""Appendix B: the measured variance of gradients against closed forms, and what the figure is made of."""

import csv

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import matplotlib.image
import numpy as np
import pytest

from vsdn import cli
from vsdn.reproduction import noise

DRAWS = 20_000


@pytest.mark.parametrize("num_steps", [3, 30])
@pytest.mark.parametrize("case", noise.CASES)
def test_the_linear_case_has_the_variance_that_is_written_down(case, num_steps, key, x64):
    a, theta, x0 = 1.0, 0.4, 1.5
    sde = noise.LinearSDE(jnp.asarray(a), jnp.asarray(theta))
    sees = noise.CASES[case]
    found = noise.measure(sde, sees, num_steps, num_draws=DRAWS, key=key, x0=x0, loss=noise.end_itself)["diffusion"]
    exact = noise.linear_variance(sees, num_steps, a=a, theta=theta, x0=x0)
    assert abs(found.variance - exact) < 4 * found.error
    assert found.error < 0.1 * exact  # else it would say nothing
    assert noise.can_be_measured(sees, num_steps, DRAWS, a=a, theta=theta)
    assert found.squared_mean < 16 * exact / DRAWS  # E ∂X_T/∂θ = 0


@pytest.mark.parametrize("case", noise.CASES)
def test_the_closed_form_is_exact(case, x64):
    """(∂X_3/∂θ)² is quadratic in each of three normals: three nodes of Gauss and Hermite an axis integrate it."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(3)
    eps = np.stack(np.meshgrid(nodes, nodes, nodes), axis=-1).reshape(-1, 3)
    weight = (
        np.prod(np.stack(np.meshgrid(weights, weights, weights), axis=-1).reshape(-1, 3), axis=1) / weights.sum() ** 3
    )
    sees, x0 = jnp.asarray(noise.CASES[case]), jnp.asarray(1.5)
    state = lambda theta, eps: noise.end_state(noise.LinearSDE(jnp.asarray(1.0), theta), x0, eps, sees)
    slopes = jax.vmap(jax.grad(state), (None, 0))(jnp.asarray(0.8), jnp.asarray(eps))
    exact = noise.linear_variance(noise.CASES[case], 3, a=1.0, theta=0.8, x0=1.5)
    np.testing.assert_allclose(weight @ slopes**2, exact, rtol=1e-12)


@eqx.filter_jit
def by_hand(sde, x0, sees, eps):
    """∂L/∂θ by the chain rule of equations 27 and 29."""
    root, by_x = np.sqrt(noise.DT).item(), lambda part: jax.grad(lambda x, t: sde.terms(x, t, sees)[part])
    states, times = [x0], [jnp.asarray(noise.DT * n, x0.dtype) for n in range(len(eps))]
    for t, each in zip(times, eps, strict=True):
        drift, diffusion = sde.terms(states[-1], t, sees)
        states.append(states[-1] + drift * noise.DT + diffusion * root * each)
    total, passed_on = 0.0, states[-1] - noise.TARGET  # ∂L/∂X_3
    for x, t, each in list(zip(states[:-1], times, eps, strict=True))[::-1]:
        own = eqx.filter_grad(lambda sde, x=x, t=t: sde.terms(x, t, sees)[1])(sde).diffusion
        own = jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(own)])
        total = total + passed_on * own * root * each
        passed_on = passed_on * (1 + noise.DT * by_x(0)(x, t) + root * each * by_x(1)(x, t))
    return total


def test_gradients_are_those_of_the_appendix(key, x64):
    sde = noise.NeuralSDE(1.0, 3.0, key=key)
    x0, sees = jnp.asarray(0.3), jnp.asarray(1.0)
    found = noise.gradients(sde, x0, sees, 3, 2, noise.end_loss, key=key)
    eps = jr.normal(key, (2, 3), x0.dtype)[1]
    expected = by_hand(sde, x0, sees, eps)
    np.testing.assert_allclose(found["diffusion"][1], expected, rtol=1e-9)


def test_a_diffusion_that_is_not_told_x_does_not_depend_on_it(key):
    sde, t = noise.NeuralSDE(1.0, 3.0, key=key), jnp.asarray(0.3)
    told = [sde.terms(jnp.asarray(x), t, jnp.asarray(sees))[1] for sees in (0.0, 1.0) for x in (-1.0, 0.0, 2.0)]
    assert told[0] == told[1] == told[2] == told[4]
    assert told[3] != told[4]


def test_spread_is_the_trace_of_the_covariance():
    draws = np.random.default_rng(3).normal([1, 0, 2], [1, 2, 3], (500, 3))
    found = noise.spread(draws)
    assert found.variance == pytest.approx(np.trace(np.cov(draws.T)))
    assert abs(found.squared_mean - 5) < 1


def test_growth_and_excess_compare_the_right_rows():
    rows = [
        noise.Row("N", 1.0, case, "drift", steps, init, 10.0**init * (steps if sees else 2.0), 0.0, 1.0)
        for case, sees in noise.CASES.items()
        for steps in noise.STEPS
        for init in (0, 1)
    ]
    assert noise.growth(rows, diffusion="R(t)") == [1, 1]
    assert noise.growth(rows, diffusion="R(x, t)") == [40, 40]
    assert noise.excess(rows, steps=400) == [200, 200]


@pytest.mark.slow
def test_run_writes_table_picture_and_result(tmp_path, monkeypatch):
    monkeypatch.setattr(noise, "STEPS", (2, 4))
    monkeypatch.setattr(noise, "SETTINGS", ((1.0, 2.0),))
    said = noise.run(tmp_path / "b", quick=True, progress=False)
    assert "From 2 to 4 steps" in said
    with (tmp_path / "b" / "gradient-variance.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * (len(noise.SETTINGS) * 2 * 2 + len(noise.LINEAR))
    assert all(float(row["variance"]) > 0 for row in rows)
    assert matplotlib.image.imread(tmp_path / "b" / "gradient-variance.png").std() > 0.05


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """The folders that the command would measure into, and whether quickly; in a folder of its own."""
    asked = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(noise, "run", lambda out, *, quick, progress: asked.append((str(out), quick)))
    return asked


def test_a_quick_look_leaves_the_results_alone(measured):
    assert cli.main(["reproduce", "appendix-b"]) == cli.main(["reproduce", "appendix-b", "--quick"]) == 0
    assert cli.main(["reproduce", "appendix-b", "--quick", "--results", "mine"]) == 0
    quick = ("runs/appendix-b-quick/results", True)
    assert measured == [("experiments/results/appendix-b", False), quick, ("mine", True)]


def test_listing_measures_nothing(measured, tmp_path, capsys):
    assert cli.main(["reproduce", "appendix-b", "--list", "--results", "mine"]) == 0
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "gradient-variance.png").touch()
    assert cli.main(["reproduce", "appendix-b", "--list", "--results", "mine"]) == 0
    assert capsys.readouterr().out == "to do  appendix-b\ndone   appendix-b\n"
    assert measured == []


@pytest.mark.parametrize(
    "words", ["--out o", "--jobs 2", "--model mean", "--seeds 1", "--folds 0", "--preset tuned", "--data d", "--anew"]
)
def test_what_means_nothing_without_runs_is_refused(words, measured, capsys):
    assert cli.main(["reproduce", "appendix-b", *words.split()]) == 2
    option = words.split()[0]
    said = f"error: appendix-b measures gradients and has no runs, so it takes no {option}\n"
    assert capsys.readouterr().err == said
    assert measured == []
