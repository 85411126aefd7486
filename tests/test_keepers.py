"""What a memory keeps of what it saw: against closed forms, regressions done at once, and whole joint Gaussians."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import oracles
import pytest

from vsdn.errors import SettingsError
from vsdn.memories.keepers import Last, Linear, Trend, Usual, make_keeper, squash
from vsdn.memories.keepers.base import stretch
from vsdn.memories.keepers.linear import LEAST_NOISE as LEAST_LINEAR_NOISE
from vsdn.memories.keepers.trend import LEAST_NOISE, MOST_SURPRISE
from vsdn.settings import ModelSettings

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


def trending(data_size, **numbers):
    """A keeper of trends with these numbers; as a rule nothing disquiets it, and values may be anywhere."""
    usual = {"rate": 0.8, "speed": 0.6, "roughness": 0.3, "noise": 0.2, "range": 1e9, "gain": 1e-12, "calm": 0.1}
    numbers = usual | numbers
    names = [f"log_{name}" for name in numbers]
    filled = [jnp.full(data_size, np.log(number)) for number in numbers.values()]
    return eqx.tree_at(lambda keeper: [getattr(keeper, name) for name in names], Trend(data_size), filled)


def believing(data_size, key, speeds=(SPEED,)):
    """A keeper of a linear belief with numbers of no particular kind."""
    fresh = Linear(data_size, speeds)
    keys = iter(jr.split(key, 4))
    return jax.tree.map(lambda leaf: leaf + 0.5 * jr.normal(next(keys), leaf.shape), fresh)


def clock_at(time):
    return jnp.array([np.sin(SPEED * time), np.cos(SPEED * time)])


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
    np.testing.assert_allclose(keeper.foretell(keeper.after(kept, jnp.asarray(1.7))).mean, left, rtol=1e-12)


@pytest.mark.parametrize(
    "make",
    [
        lambda: set_to(Last(2), rate=0.7),
        lambda: set_to(Usual(2, (SPEED, 0.4)), rate=0.7),
        lambda: trending(2),
        lambda: believing(2, jr.key(3), (SPEED, 0.4)),
    ],
    ids=["last", "usual", "trend", "linear"],
)
def test_two_short_whiles_are_one_long_while(make, key):
    keeper = make()
    begin = jr.normal(key, (keeper.size,)) if not keeper.settled else jnp.zeros(keeper.size)
    begin = keeper.timed(begin, jnp.array([0.6, 1.0, 0.8, 0.0]))
    kept = keeper.take(keeper.after(begin, jnp.asarray(0.2)), jnp.array([1.0, 9.0]), jnp.ones(2, bool))
    twice = keeper.after(keeper.after(kept, jnp.asarray(0.3)), jnp.asarray(0.9))
    np.testing.assert_allclose(twice, keeper.after(kept, jnp.asarray(1.2)), rtol=1e-9, atol=1e-12)


def test_the_mean_is_that_of_a_ridge_regression():
    """Mean alone: Σy / (n + ridge), as the least squares with that penalty have it; the level is what the last adds."""
    values = np.array([3.0, 1.0, -2.0, 4.0, 4.5])
    keeper = set_to(Usual(1, ()), share=0.0, ridge=2.5)
    for number, kept in enumerate(follow(keeper, np.arange(5.0), values), start=1):
        assert keeper.foretell(kept).mean[0] == pytest.approx(values[:number].sum() / (number + 1.0 + 2.5), rel=1e-9)


def test_a_known_swing_is_found_and_foretold():
    """A cosine of the clock, seen at irregular times without noise, is foretold a long while ahead."""
    times = np.sort(np.random.default_rng(1).uniform(0.0, 60.0, 400))
    truth = lambda time: 1.5 + 2.0 * np.cos(SPEED * time + 0.7)
    keeper = set_to(Usual(1, (SPEED,)), share=0.0, ridge=0.1)
    kept = follow(keeper, times, truth(times))[-1]
    for ahead in (0.0, 1.0, 2.5, 30.0):
        foretold = keeper.foretell(keeper.after(kept, jnp.asarray(ahead))).mean[0]
        assert foretold == pytest.approx(truth(times[-1] + ahead), abs=0.15)


@pytest.mark.parametrize("make", [lambda: Usual(3, (SPEED,)), lambda: trending(3, gain=0.1)], ids=["usual", "trend"])
def test_what_was_not_seen_moves_nothing(make, key):
    keeper = make()
    kept, y = jr.normal(key, (keeper.size,)), jnp.array([1.0, 2.0, 3.0])
    np.testing.assert_array_equal(keeper.take(kept, y, jnp.zeros(3, bool)), kept)
    one = keeper.take(kept, y, jnp.array([False, True, False])).reshape(-1, 3)
    np.testing.assert_array_equal(one[:, [0, 2]], kept.reshape(-1, 3)[:, [0, 2]])
    assert np.all(one[:4, 1] != kept.reshape(-1, 3)[:4, 1])


@pytest.mark.parametrize("num_clocks", [0, 1, 3])
def test_the_first_value_never_moves_what_is_usual_beyond_it(num_clocks):
    """However small the ridge: what is usual after one value lies between nought and that value."""
    keeper = set_to(Usual(1, (SPEED,) * num_clocks), share=0.0, ridge=1e-9)
    assert 0.0 < keeper.foretell(follow(keeper, [0.0], [7.0])[0]).mean[0] <= 7.0


def test_a_trend_is_the_one_of_the_whole_joint_gaussian():
    """Irregular rows, short gaps and long ones: mean and deviation of the next value, a while ahead and far ahead."""
    times, values = np.array([0.0, 0.01, 0.5, 0.52, 2.0, 9.0, 9.3]), np.array([0.3, 0.4, 0.9, 0.7, 3.0, -2.0, -2.6])
    numbers = {"rate": 0.8, "speed": 0.6, "roughness": 0.3, "noise": 0.2}
    keeper = trending(1, **numbers)
    numbers["noise"] = np.hypot(0.2, LEAST_NOISE)
    for count, kept in enumerate(follow(keeper, times, values), start=1):
        for ahead in (1e-3, 0.4, 30.0):
            wanted = oracles.trend(times[:count], values[:count], times[count - 1] + ahead, **numbers)
            foretold = keeper.foretell(keeper.after(kept, jnp.asarray(ahead)))
            assert foretold.mean[0] == pytest.approx(wanted.mean, rel=1e-8)
            assert 2 * foretold.log_scale[0] == pytest.approx(np.log(wanted.variance), abs=1e-8)


def test_a_trend_fades_and_its_level_stays():
    keeper = trending(1, roughness=1e-9, noise=1e-3, speed=5.0)
    kept = follow(keeper, [0.0, 0.05, 0.1], [1.0, 1.1, 1.2])[-1]
    near, far, farther = (
        float(keeper.foretell(keeper.after(kept, jnp.asarray(t))).mean[0]) for t in (0.05, 50.0, 500.0)
    )
    assert near == pytest.approx(1.3, abs=0.02)
    assert far == pytest.approx(1.2 + 2.0 / 0.8, rel=0.1)  # slope / rate beyond
    assert farther == pytest.approx(far, rel=1e-9)


def test_far_ahead_is_foretold_what_was_known_before():
    """As the product of the filter's law and N(0, 1 + range²) has it: near by the first, far by the second."""
    near, far = (trending(1, range=size) for size in (1e9, 0.75))
    kept = follow(near, [0.0, 0.5, 0.9], [2.0, 2.1, 1.9])[-1]
    for ahead in (0.0, 1.0, 1e3, 1e6):
        later = near.after(kept, jnp.asarray(ahead))
        filtered, foretold = near.foretell(later), far.foretell(later)
        precision = np.exp(-2 * filtered.log_scale) + 1.25**-2
        np.testing.assert_allclose(np.exp(-2 * foretold.log_scale), precision, rtol=1e-6)
        wanted = filtered.mean * np.exp(-2 * filtered.log_scale) / precision
        np.testing.assert_allclose(foretold.mean, wanted, rtol=1e-6)
    np.testing.assert_allclose(foretold.log_scale, np.log(1.25), atol=1e-5)


def test_errors_larger_than_foretold_make_it_less_sure_and_time_calms_it():
    """The unrest moves by gain·(z² − 1), z in deviations as foretold, no more than MOST_SURPRISE of it at once."""
    keeper = trending(1, gain=0.1, calm=0.25)
    start = jnp.zeros(keeper.size)
    said = keeper.foretell(start)
    unrest = lambda kept: kept.reshape(-1, 1)[-1, 0]
    take = lambda error: keeper.take(start, said.mean + error * jnp.exp(said.log_scale), jnp.ones(1, bool))
    for error, wanted in ((0.0, -0.1), (1.0, 0.0), (3.0, 0.8), (1e6, 0.1 * (MOST_SURPRISE - 1))):
        assert unrest(take(error)) == pytest.approx(wanted, abs=1e-9)
    calm, stirred = keeper.take(start, said.mean, jnp.ones(1, bool)), take(3.0)
    again = lambda kept: keeper.foretell(keeper.after(kept, jnp.asarray(2.0))).log_scale[0]
    assert again(stirred) - again(calm) == pytest.approx(0.5 * 0.9 * np.exp(-0.25 * 2.0), rel=1e-9)


def test_a_variable_that_never_moves_breaks_nothing(key):
    """A thousand equal values, then a jump, in 32 bits: all that is kept stays a number, and so does its gradient."""
    keeper = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), trending(1, noise=1e-12, roughness=1e-12, gain=5.0))
    values = jnp.zeros((1000, 1), jnp.float32).at[-2:].set(1e4)

    def run(keeper):
        step = lambda kept, y: (keeper.take(keeper.after(kept, jnp.float32(0.1)), y, jnp.ones(1, bool)),) * 2
        return jax.lax.scan(step, jnp.zeros(keeper.size, jnp.float32), values)[1]

    def loss(keeper):
        kept = run(keeper)
        return jnp.sum(keeper.foretell(kept).log_scale), kept

    slopes, kept = eqx.filter_jit(eqx.filter_grad(loss, has_aux=True))(keeper)
    assert np.all(np.isfinite(kept))
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(slopes))


def test_a_linear_belief_is_the_one_of_the_whole_joint_gaussian(key):
    """Three variables, rows with one of them and rows with more: mean and deviation of each, near and far ahead."""
    keeper, rng = believing(3, key), np.random.default_rng(2)
    times, masks = np.array([0.4, 0.5, 2.0, 2.3, 9.0, 9.1]), rng.random((6, 3)) < 0.6
    masks[0], masks[1] = True, [False, True, False]
    values, kept, last = rng.normal(size=(6, 3)), keeper.timed(jnp.zeros(keeper.size), clock_at(0.4)), 0.4
    numbers = {
        "usual": np.asarray(keeper.usual),
        "loads": np.asarray(keeper.loads),
        "rates": np.exp(keeper.log_rate),
        "noise": np.hypot(np.exp(keeper.log_noise), LEAST_LINEAR_NOISE),
        "speed": SPEED,
    }
    for count, (time, y, mask) in enumerate(zip(times, values, masks, strict=True), start=1):
        kept = keeper.after(kept, jnp.asarray(time - last))
        kept, last = keeper.take(kept, jnp.asarray(y), jnp.asarray(mask)), time
        row, which = np.nonzero(masks[:count])
        for ahead in (0.0, 0.3, 5.0, 80.0):
            foretold = keeper.foretell(keeper.after(kept, jnp.asarray(ahead)))
            wanted = oracles.departures(times[row], which, values[row, which], time + ahead, **numbers)
            np.testing.assert_allclose(foretold.mean, [one.mean for one in wanted], rtol=1e-8, atol=1e-9)
            np.testing.assert_allclose(2 * foretold.log_scale, np.log([one.variance for one in wanted]), atol=1e-8)


def test_a_linear_belief_is_read_by_its_parts(key):
    """What is foretold is what is usual in all series, in this one, and the departures; the clock is told as it is."""
    keeper = believing(2, key)
    kept = keeper.timed(jnp.zeros(keeper.size), clock_at(1.0))
    for y in ([1.0, -2.0], [0.5, 3.0]):
        kept = keeper.take(keeper.after(kept, jnp.asarray(0.7)), jnp.array(y), jnp.ones(2, bool))
    said, read = keeper.foretell(kept), keeper.read(jnp.stack([kept, kept]))[1]
    assert read.shape == (keeper.read_size,)
    log_scale, clock, (mean, own, fast, slow) = read[:2], read[2:4], stretch(read[4:]).reshape(4, 2)
    np.testing.assert_allclose(clock, clock_at(2.4), rtol=1e-12)
    np.testing.assert_allclose(mean, said.mean, rtol=1e-12)
    np.testing.assert_allclose(log_scale, said.log_scale, rtol=1e-12)
    in_all = keeper.usual @ jnp.concatenate([jnp.ones(1), clock])
    np.testing.assert_allclose(in_all + own + fast + slow, mean, rtol=1e-10)
    far = keeper.after(kept, jnp.asarray(2 * np.pi / SPEED * 1000))  # the same hour, long after
    np.testing.assert_allclose(stretch(keeper.read(far)[6:]), [*own, 0, 0, 0, 0], rtol=1e-6, atol=1e-9)


def test_a_linear_belief_stays_sound_for_a_hundred_thousand_rows_of_32_bits():
    keeper = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), Linear(2, (SPEED,)))
    keeper = eqx.tree_at(lambda keeper: keeper.log_noise, keeper, jnp.full(2, -20.0, jnp.float32))
    y = jnp.asarray(np.random.default_rng(4).normal(size=(100_000, 2)), jnp.float32)

    def step(kept, y):
        before = keeper.after(kept, jnp.float32(0.01))
        return keeper.take(before, y, jnp.ones(2, bool)), keeper.foretell(before)

    begin = keeper.timed(jnp.zeros(keeper.size, jnp.float32), clock_at(0.0).astype(jnp.float32))
    kept, said = jax.jit(lambda y: jax.lax.scan(step, begin, y))(y)
    assert np.all(np.isfinite(said.mean))
    assert np.all(np.isfinite(kept))
    mean, told = kept[:10], np.asarray(kept[10:110], float).reshape(10, 10)
    assert np.linalg.eigvalsh(told).max() < 1 + 1e-4
    assert np.abs(mean).max() < 50


def test_no_time_changes_nothing(key):
    keeper = trending(3, gain=0.1)
    kept = jr.normal(key, (keeper.size,))
    np.testing.assert_array_equal(keeper.after(kept, jnp.asarray(0.0)), kept)


def test_one_keeper_is_made_of_the_settings():
    make = lambda **settings: make_keeper(2, (SPEED,), ModelSettings(**settings))
    assert make() is None
    assert isinstance(make(keep_last=True), Last)
    assert isinstance(make(keep_last=True, keep_usual=True), Usual)
    assert isinstance(make(keep_last=True, keep_trend=True), Trend)
    assert isinstance(make(keep_last=True, keep_linear=True), Linear)
    with pytest.raises(SettingsError, match="keep_usual and keep_trend cannot go together"):
        make(keep_usual=True, keep_trend=True)
    with pytest.raises(SettingsError, match="for 20 variables at most, but there are 21"):
        make_keeper(21, (), ModelSettings(keep_linear=True))
    with pytest.raises(SettingsError, match="keep_trend and keep_linear cannot go together"):
        make(keep_trend=True, keep_linear=True)
    with pytest.raises(SettingsError, match="tell_error and keep_last cannot go together"):
        make(keep_last=True, tell_error=True)
