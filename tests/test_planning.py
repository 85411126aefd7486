"""Parts are disjoint, choices sensible, periods in the right unit."""

from typing import get_args

import numpy as np
import pytest
from examples import make_table

from vsdn.errors import DataError, SettingsError
from vsdn.models import HEEDS, MODELS
from vsdn.settings import DataSettings, ModelSettings, Settings
from vsdn.tables.table import Scaler, TimeAxis
from vsdn.training.planning import choose, cut_windows, hold_out, make_marching, make_plan, period_length


def test_held_out_series_are_disjoint_and_complete():
    table = make_table(40)
    parts = hold_out(table, None, 0.2, seed=3)
    train, valid = set(parts.train.ids.tolist()), set(parts.valid.ids.tolist())
    assert not train & valid
    assert train | valid == set(table.ids.tolist())
    assert len(valid) == 8
    assert parts.scored.all()


def test_few_series_hold_out_their_last_rows():
    table = make_table(3, max_rows=20)
    parts = hold_out(table, None, 0.2, seed=0)
    assert len(parts.train.times) + parts.scored.sum() == len(table.times)
    for i in range(3):
        seen = parts.train.times[parts.train.starts[i] : parts.train.starts[i + 1]]
        own = slice(table.starts[i], table.starts[i + 1])
        held = table.times[own][parts.scored[own]]
        assert not len(held) or seen.max() < held.min()


def test_the_scaler_sees_the_training_part_alone():
    table = make_table(40)
    plan = make_plan(table, None, Settings())
    train = hold_out(table, None, 0.1, seed=0).train
    wanted = Scaler.fit(train, plan.settings.data.time_scale)
    np.testing.assert_array_equal(plan.scaler.mean, wanted.mean)
    np.testing.assert_array_equal(plan.scaler.std, wanted.std)
    assert not np.array_equal(plan.scaler.mean, Scaler.fit(table).mean)


def test_a_scaled_training_part_is_standard_and_comes_back():
    table = make_table(30)
    scaler = Scaler.fit(table)
    scaled = scaler.scale(table.values)
    for channel in range(2):
        seen = scaled[table.mask[:, channel], channel]
        assert seen.mean() == pytest.approx(0, abs=1e-12)
        assert seen.std() == pytest.approx(1)
    np.testing.assert_allclose(scaler.unscale(scaled), table.values, atol=1e-12)


def test_nothing_is_left_open():
    settings = choose(Settings(), make_table(20))
    open_keys = [key for section in settings.model_dump().values() for key, value in section.items() if value is None]
    assert open_keys == ["start", "window", "given_rows", "valid_rows"]


def test_the_linear_model_has_two_modes_a_variable():
    linear = Settings().with_values({"model": "linear"})
    assert choose(linear, make_table(20)).model.latent_size == 8
    assert choose(linear.with_values({"latent_size": 3}), make_table(20)).model.latent_size == 3


def test_memory_is_saved_by_the_models_that_can_and_by_no_other():
    saving = lambda name: Settings().with_values({"model": name, "save_memory": True})
    assert choose(saving("vsdn-f"), make_table(20)).objective.save_memory
    with pytest.raises(SettingsError, match="save_memory is for vsdn-f, vsdn-s, not for linear"):
        choose(saving("linear"), make_table(20))


def test_rows_are_hidden_from_memories_that_flow_and_the_bound_tells_the_best_epoch_then():
    chosen = lambda **values: choose(Settings().with_values(values), make_table(20)).training.select_by
    assert [chosen(hide_share=share) for share in (0.0, 0.5)] == ["forecasts", "bound"]
    assert chosen(hide_share=0.5, select_by="forecasts") == "forecasts"
    with pytest.raises(SettingsError, match="hide_share is for vsdn-f, vsdn-s, ode-rnn, gru-ode, not for linear"):
        chosen(model="linear", hide_share=0.1)


def test_models_that_read_backward_are_trained_on_beginnings():
    share = lambda **values: choose(Settings().with_values(values), make_table(20)).training.cut_share
    assert [share(model=name) for name in ("latent-ode", "latent-sde", "vsdn-s")] == [1.0, 1.0, 0.0]
    assert share(model="latent-ode", cut_share=0.0) == 0.0


def test_series_with_a_common_start_do_not_begin_anywhere():
    begun = Settings().with_values({"begin_share": 0.5})
    assert choose(begun, make_table(20)).training.begin_share == 0.5
    with pytest.raises(SettingsError, match="have no common start: set begin_share or start, not both"):
        choose(begun.with_values({"start": 0.0}), make_table(20))


def test_what_is_shifted_must_be_given():
    shifted = Settings().with_values({"given_shift": 0.2})
    assert choose(shifted.with_values({"given_rows": 3}), make_table(20)).training.given_shift == 0.2
    with pytest.raises(SettingsError, match="given_shift shifts the rows that are given: set given_rows, too"):
        choose(shifted, make_table(20))


def test_what_is_stretched_keeps_to_no_calendar_and_rates_are_for_it():
    stretched = Settings().with_values({"stretch": 0.1})
    with pytest.raises(SettingsError, match="do not keep to a calendar: set stretch or periods, not both"):
        choose(stretched.with_values({"periods": [7.0]}), make_table(20))
    with pytest.raises(SettingsError, match="rates grow as series run faster: set stretch, too"):
        choose(Settings().with_values({"rates": {"a": 0.0}}), make_table(20))
    with pytest.raises(SettingsError, match=r'training.rates is .*: input should be names with values, e.g. {"speed"'):
        Settings().with_values({"rates": "speed=0"})


def test_rates_have_their_rest_in_the_models_units():
    table = make_table(20)
    first, *others = table.variables
    settings = Settings().with_values({"stretch": 0.1, "rates": {first: 3.0}})
    plan = make_plan(table, None, settings)
    assert plan.train.rest[0] == pytest.approx((3.0 - plan.scaler.mean[0]) / plan.scaler.std[0])
    assert np.isnan(plan.train.rest[1:]).all()
    assert len(plan.train.rest) == 1 + len(others) > 1
    with pytest.raises(SettingsError, match=f"rates names 'speed', but the table's variables are .*{first}"):
        make_plan(table, None, settings.with_values({"rates": {"speed": 0.0}}))


def test_windows_keep_every_row_and_their_size():
    table = make_table(5, max_rows=30)
    pieces = cut_windows(table, 7)
    assert np.diff(pieces.starts).max() == 7
    np.testing.assert_array_equal(pieces.times, table.times)
    assert set(table.starts.tolist()) <= set(pieces.starts.tolist())


def test_periods_are_numbers_or_names_of_dates():
    dates = TimeAxis("date", "hour")
    assert period_length("day", dates) == pytest.approx(24)
    assert period_length(7, TimeAxis()) == 7
    assert make_marching(DataSettings(max_step=1.0, periods=("year",)), TimeAxis("date")).periods[0] == pytest.approx(
        365.2425
    )
    with pytest.raises(SettingsError, match="a period is a number"):
        period_length("day", TimeAxis())


def test_too_little_to_learn_from():
    table = make_table(1)
    single = table.keep_rows(np.arange(len(table.times)) < 1)
    single.mask[:] = [[True, False]]
    with pytest.raises(DataError, match="only 1 observation in all"):
        make_plan(single, None, Settings())


def test_variables_that_never_change_are_named():
    table = make_table(12)
    assert not any("never changes" in note for note in make_plan(table, None, Settings()).notes)
    table.values[table.mask[:, 1], 1] = 3.5
    said = [note for note in make_plan(table, None, Settings()).notes if "never changes" in note]
    assert len(said) == 1
    assert said[0].endswith(f": {table.variables[1]}")


def test_variables_that_are_mostly_one_value_are_named():
    table, mostly = make_table(12), lambda note: "mostly one value" in note
    assert not any(map(mostly, make_plan(table, None, Settings()).notes))
    seen = np.flatnonzero(table.mask[:, 0])
    table.values[seen[: int(0.9 * len(seen))], 0] = 0.25
    said = list(filter(mostly, make_plan(table, None, Settings()).notes))
    assert len(said) == 1
    assert said[0].endswith(f": {table.variables[0]}")
    for heeded in ({"even_pull": 0.5}, {"model": "last-value"}):
        assert not any(map(mostly, make_plan(table, None, Settings().with_values(heeded)).notes))


@pytest.mark.parametrize(
    ("asked", "model", "said"),
    [
        ("keep_usual", "ode-rnn", []),
        ("keep_usual", "gru-ode", ["keep_usual is for vsdn-f, vsdn-s, ode-rnn: gru-ode goes without"]),
        ("spread_memory", "gru-ode", []),
        ("even_pull", "mean", []),
        (
            "even_pull",
            "linear",
            [
                "even_pull is for vsdn-f, vsdn-s, ode-rnn, gru-ode, latent-ode, latent-sde, gru-decay, last-value, "
                "mean: linear goes without"
            ],
        ),
        (
            "spread_memory",
            "linear",
            ["spread_memory is for vsdn-f, vsdn-s, ode-rnn, gru-ode, latent-ode, latent-sde: linear goes without"],
        ),
    ],
)
def test_what_is_asked_of_a_model_that_cannot_do_it_is_said(asked, model, said):
    settings = Settings().with_values({"model": model, asked: True})
    assert [note for note in make_plan(make_table(12), None, settings).notes if asked in note] == said


def test_every_model_has_its_lines():
    names = set(get_args(ModelSettings.model_fields["model"].annotation))
    assert names == set(MODELS) == set(HEEDS)
    known = {name for section in Settings().model_dump().values() for name in section}
    assert set.union(*map(set, HEEDS.values())) <= known
