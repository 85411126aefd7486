"""What a memory keeps of what it saw: against closed forms, and against regressions done at once."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from vsdn.keeping import Last, Usual, make_keeper, squash, stretch

pytestmark = pytest.mark.usefixtures("x64")
SPEED = 1.3


def set_to(keeper, **numbers):
    """The keeper with these numbers for every variable: share, rate, ridge."""
    places = {
        "share": lambda keeper: (keeper.last if isinstance(keeper, Usual) else keeper).share,
        "rate": lambda keeper: (keeper.last if isinstance(keeper, Usual) else keeper).log_rate,
        "ridge": lambda keeper: keeper.log_ridge,
    }
    for name, number in numbers.items():
        stored = number if name == "share" else np.log(number)
        keeper = eqx.tree_at(places[name], keeper, jnp.full_like(places[name](keeper), stored))
    return keeper


def follow(keeper, times, values):
    """What is kept after each of these values of one variable, the first of them at time 0 or later."""
    kept, last, all_kept = jnp.zeros(keeper.size), 0.0, []
    step = jax.jit(lambda kept, dt, y: keeper.take(keeper.after(kept, dt), y, jnp.ones(1, bool)))
    for time, value in zip(times, values, strict=True):
        kept, last = step(kept, jnp.asarray(time - last), jnp.asarray([value])), time
        all_kept.append(kept)
    return all_kept


def test_what_is_squashed_is_stretched_again():
    x = jnp.array([-1e6, -3.0, -1e-9, 0.0, 1e-9, 0.5, 40.0])
    np.testing.assert_allclose(stretch(squash(x)), x, rtol=1e-12)
    assert np.all(np.abs(squash(x)) <= np.log1p(np.abs(x)) + 1e-12)


def test_the_last_value_fades(key):
    keeper = set_to(Last(3), share=0.8, rate=0.5)
    y, mask = jnp.array([2.0, -30.0, 1.0]), jnp.array([True, True, False])
    kept = keeper.take(jnp.zeros(3), y, mask)
    left = 0.8 * np.exp(-0.5 * 1.7) * np.array([2.0, -30.0, 0.0])
    np.testing.assert_allclose(keeper.foretold(keeper.after(kept, jnp.asarray(1.7))), left, rtol=1e-12)


@pytest.mark.parametrize("make", [lambda: set_to(Last(2), rate=0.7), lambda: set_to(Usual(2, (SPEED, 0.4)), rate=0.7)])
def test_two_short_whiles_are_one_long_while(make, key):
    keeper = make()
    kept = keeper.take(
        keeper.after(jr.normal(key, (keeper.size,)), jnp.asarray(0.2)), jnp.array([1.0, 9.0]), jnp.ones(2, bool)
    )
    twice = keeper.after(keeper.after(kept, jnp.asarray(0.3)), jnp.asarray(0.9))
    np.testing.assert_allclose(twice, keeper.after(kept, jnp.asarray(1.2)), rtol=1e-9, atol=1e-12)


def test_the_mean_is_that_of_a_ridge_regression():
    """Mean alone: Σy / (n + ridge), as the least squares with that penalty have it; the level is what the last adds."""
    values = np.array([3.0, 1.0, -2.0, 4.0, 4.5])
    keeper = set_to(Usual(1, ()), share=0.0, ridge=2.5)
    for number, kept in enumerate(follow(keeper, np.arange(5.0), values), start=1):
        assert keeper.foretold(kept)[0] == pytest.approx(values[:number].sum() / (number + 1.0 + 2.5), rel=1e-9)


def test_a_known_swing_is_found_and_foretold():
    """A cosine of the clock, seen at irregular times without noise, is foretold a long while ahead."""
    times = np.sort(np.random.default_rng(1).uniform(0.0, 60.0, 400))
    truth = lambda time: 1.5 + 2.0 * np.cos(SPEED * time + 0.7)
    keeper = set_to(Usual(1, (SPEED,)), share=0.0, ridge=0.1)
    kept = follow(keeper, times, truth(times))[-1]
    for ahead in (0.0, 1.0, 2.5, 30.0):
        foretold = keeper.foretold(keeper.after(kept, jnp.asarray(ahead)))[0]
        assert foretold == pytest.approx(truth(times[-1] + ahead), abs=0.15)


def test_what_was_not_seen_moves_nothing(key):
    keeper = Usual(3, (SPEED,))
    kept, y = jr.normal(key, (keeper.size,)), jnp.array([1.0, 2.0, 3.0])
    np.testing.assert_array_equal(keeper.take(kept, y, jnp.zeros(3, bool)), kept)
    one = keeper.take(kept, y, jnp.array([False, True, False])).reshape(-1, 3)
    np.testing.assert_array_equal(one[:, [0, 2]], kept.reshape(-1, 3)[:, [0, 2]])
    assert np.all(one[:4, 1] != kept.reshape(-1, 3)[:4, 1])


@pytest.mark.parametrize("num_clocks", [0, 1, 3])
def test_the_first_value_never_moves_what_is_usual_beyond_it(num_clocks):
    """However small the ridge: what is usual after one value lies between nought and that value."""
    keeper = set_to(Usual(1, (SPEED,) * num_clocks), share=0.0, ridge=1e-9)
    assert 0.0 < keeper.foretold(follow(keeper, [0.0], [7.0])[0])[0] <= 7.0


def test_usual_goes_with_last():
    assert make_keeper(2, (), keep_last=False, keep_usual=False) is None
    assert isinstance(make_keeper(2, (), keep_last=True, keep_usual=False), Last)
    assert isinstance(make_keeper(2, (SPEED,), keep_last=False, keep_usual=True), Usual)
