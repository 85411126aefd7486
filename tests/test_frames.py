"""Frames in, frames out: everything that a table can hold, and everything that it can have wrong."""

import datetime as dt
import gzip
import os
import re
import stat
import uuid
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from vsdn.errors import DataError
from vsdn.tables.frames import (
    Columns,
    answer_columns,
    parse_times,
    read_queries,
    read_table,
    time_column,
    to_frame,
    write_frame,
)
from vsdn.tables.table import Scaler, Table, TimeAxis

BACKENDS = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.Table}
IDS = {"text": np.array(["b", "b", "a", "b"], object), "integer": np.array([7, 7, 3, 7])}
TIMES = {
    "number": (np.array([1.0, 2.5, 1.0, 0.1]), None),
    "day": (np.array(["2024-03-01", "2024-03-03", "2024-03-01", "2023-12-31"], "M8[D]"), None),
    "date": (np.array(["2024-03-01T12:30", "2024-03-03", "2024-03-01", "1969-12-31T23:59:59.25"], "M8[us]"), None),
    "zoned": (np.array(["2024-03-01T12:30", "2024-03-03", "2024-03-01", "2023-06-30"], "M8[us]"), "Europe/Berlin"),
}
WIDE = {"x": np.array([1.5, np.nan, 3.0, 0.0]), "y": np.array([np.nan, 4.0, 1e-300, -2.0])}


def columns_of(form: str, ids: np.ndarray, times: np.ndarray) -> dict[str, np.ndarray]:
    """The little table above, in either form."""
    if form == "wide":
        return {"id": ids, "time": times, **WIDE}
    x, y = np.flatnonzero(~np.isnan(WIDE["x"])), np.flatnonzero(~np.isnan(WIDE["y"]))
    rows = np.concatenate([x, y])
    names = np.array(["x"] * len(x) + ["y"] * len(y), object)
    return {
        "id": ids[rows],
        "time": times[rows],
        "variable": names,
        "value": np.concatenate([WIDE["x"][x], WIDE["y"][y]]),
    }


def assert_same(a: Table, b: Table) -> None:
    """The same series, in whatever order."""
    assert sorted(a.ids.tolist()) == sorted(b.ids.tolist())
    b = b.select([b.ids.tolist().index(i) for i in a.ids.tolist()])
    for field in ("ids", "starts", "times", "values", "mask"):
        np.testing.assert_array_equal(getattr(a, field), getattr(b, field), err_msg=field)
    assert a.variables == b.variables


def write_text(folder: Path, text: str | bytes, name: str = "data.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


# ------------------------------------------------------------------------------------------------------ round trips


@pytest.mark.parametrize("via", ["frame", ".csv", ".parquet"])
@pytest.mark.parametrize("kind", TIMES)
@pytest.mark.parametrize("form", ["wide", "long"])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("ids", IDS)
def test_what_goes_in_comes_back(ids, backend, form, kind, via, tmp_path):
    times, zone = TIMES[kind]
    frame = to_frame(columns_of(form, IDS[ids], times), backend, timezone=zone)
    assert isinstance(frame, BACKENDS[backend])
    if via != "frame":
        write_frame(frame, tmp_path / f"table{via}")
        frame = tmp_path / f"table{via}"
    table = read_table(frame)
    assert table.ids.tolist() == list(dict.fromkeys(IDS[ids].tolist()))
    assert table.starts.tolist() == [0, 3, 4]
    assert table.variables == ("x", "y")
    np.testing.assert_array_equal(table.mask, [[1, 1], [1, 0], [0, 1], [1, 1]])
    np.testing.assert_array_equal(table.values, [[0, -2], [1.5, 0], [0, 4], [3, 1e-300]])
    np.testing.assert_array_equal(time_column(table.times, table.axis), times[[3, 0, 1, 2]])
    assert table.axis.kind == ("number" if kind == "number" else "date")
    assert table.axis.whole_days == (kind == "day")
    assert table.axis.timezone == ("UTC" if zone and via == ".csv" else zone)  # CSV keeps instants and offsets alone
    assert (table.layout.form, table.layout.id, table.layout.time) == (form, "id", "time")
    assert table.layout.backend == (backend if via == "frame" else "pyarrow")
    assert table.notes == ()


@pytest.mark.parametrize("backend", BACKENDS)
def test_dates_come_back_as_dates_of_the_frame(backend):
    times, zone = TIMES["zoned"]
    frame = to_frame({"time": times, "x": WIDE["x"]}, backend, timezone=zone)
    table = read_table(frame)
    back = to_frame({"time": time_column(table.times, table.axis)}, backend, timezone=table.axis.timezone)
    expected = sorted(np.delete(times, 1).tolist())
    column = pa.table(back)["time"] if backend != "pyarrow" else back["time"]
    assert column.type.tz == zone
    assert [stamp.astimezone(dt.UTC).replace(tzinfo=None) for stamp in column.to_pylist()] == expected


def test_nan_is_written_as_an_empty_cell(tmp_path):
    write_frame(to_frame({"id": np.array(["a", "b"]), "x": np.array([np.nan, 1.0])}, "pyarrow"), tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text() == "id,x\na,\nb,1\n"


def test_csv_texts_are_quoted_where_needed(tmp_path):
    ids = np.array(['a,"b"', "c\nd"], object)
    path = tmp_path / "t.csv"
    write_frame(to_frame({"id": ids, "time": np.array([0.0, 1.0]), "x": np.array([1.0, 2.0])}, "polars"), path)
    assert read_table(path).ids.tolist() == ids.tolist()


def test_lazy_frames_categories_and_small_types_are_read():
    frame = pl.DataFrame({"id": ["a", "b"], "time": [1, 2], "x": [True, False], "y": [1, 2]})
    frame = frame.with_columns(pl.col("id").cast(pl.Categorical), pl.col("y").cast(pl.Int8))
    for source in (frame, frame.lazy(), frame.to_arrow(), frame.to_pandas()):
        table = read_table(source)
        assert table.ids.tolist() == ["a", "b"]
        assert table.values.tolist() == [[1, 1], [0, 2]]


def test_dates_among_datetimes_keep_the_datetimes_hours():
    times = [dt.date(1970, 1, 2), dt.datetime(1970, 1, 3, 12), None]
    frame = pd.DataFrame({"id": [1, "a", 1], "time": pd.Series(times, dtype=object), "x": [1.0, 2.0, 3.0]})
    table = read_table(frame[:2])
    assert (table.times.tolist(), table.ids.tolist()) == ([1.0, 2.5], ["1", "a"])
    with pytest.raises(DataError, match=r"row 3 \(id '1'\), column 'time': .* the cell is empty"):
        read_table(frame)


def test_integer_ids_keep_their_dtype():
    frame = pa.table({"id": pa.array([1, 2], pa.int16()), "time": [0, 0], "x": [1, 2]})
    assert read_table(frame).ids.dtype == np.int16


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_wide_and_long_are_the_same_table(data):
    cell = st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False))
    key = st.tuples(st.sampled_from("abc"), st.floats(-1e6, 1e6).map(lambda t: t + 0.0))  # no negative zero
    keys = data.draw(st.lists(key, min_size=1, max_size=12, unique=True))
    cells = data.draw(st.lists(st.tuples(cell, cell), min_size=len(keys), max_size=len(keys)))
    wide = pd.DataFrame(keys, columns=["id", "time"])
    for j, name in enumerate("xy"):
        wide[name] = np.array([row[j] if row[j] is not None else np.nan for row in cells])
    long = wide.melt(["id", "time"])
    if not wide[["x", "y"]].notna().to_numpy().any():
        for frame in (wide, long):
            with pytest.raises(DataError, match="every value is empty"):
                read_table(frame)
        return
    table = read_table(wide, variables=("x", "y"))
    assert_same(table, read_table(long, variables=("x", "y")))
    assert_same(table, read_table(wide.sample(frac=1, random_state=len(keys))))
    assert table.num_observations == wide[["x", "y"]].notna().sum().sum()
    assert all(np.all(np.diff(table.times[i:j]) > 0) for i, j in zip(table.starts, table.starts[1:], strict=False))


@pytest.mark.parametrize("form", ["wide", "long"])
def test_many_shuffled_rows_are_the_same_table(form):
    rng = np.random.default_rng(0)
    num = 5000
    columns = {
        "id": rng.integers(0, 40, num),
        "time": rng.permutation(num) / 8.0,
        "variable": rng.choice(["x", "y", "z"], num),
        "value": rng.normal(size=num),
    }
    frame = pd.DataFrame(columns)
    if form == "wide":
        frame = frame.pivot(index=["id", "time"], columns="variable", values="value").reset_index()
    table = read_table(frame, variables=("x", "y", "z"))
    assert_same(table, read_table(frame.sample(frac=1, random_state=1), variables=("x", "y", "z")))
    first = frame.sort_values("time").query("id == @table.ids[0]")
    np.testing.assert_array_equal(table.times[: table.starts[1]], first["time"])
    assert table.ids.tolist() == frame["id"].drop_duplicates().tolist()


# ------------------------------------------------------------------------------------------------ what is understood


def test_a_table_without_ids_is_one_series():
    table = read_table(pa.table({"Time": [2, 1], "x": [1.0, 2.0]}))
    assert table.layout.id is None
    assert (table.ids.tolist(), table.layout.time, table.values.tolist()) == (["series"], "Time", [[2.0], [1.0]])


def test_columns_can_be_named_and_are_recognised_in_any_case():
    frame = pa.table({"Station": ["a"], "TIME": [1], "id": [3.0]})
    table = read_table(frame, columns=Columns(id="Station"))
    assert (table.layout.id, table.layout.time, table.variables) == ("Station", "TIME", ("id",))
    frame = pa.table({"ID": [1], "day": [1], "what": ["x"], "much": [2.0], "remark": ["?"]})
    table = read_table(frame, columns=Columns(time="day", variable="what", value="much"))
    assert (table.layout.form, table.variables, table.values.item()) == ("long", ("x",), 2.0)
    assert table.notes == ("column 'remark' was ignored",)


def test_columns_are_called_as_is_known_where_the_table_has_them_so():
    known, frame = Columns("Station", "day", "what", "much"), pa.table({"Station": ["a"], "day": [1], "x": [3.0]})
    table = read_table(frame, known=known)
    assert (table.layout.id, table.layout.time, table.layout.form) == ("Station", "day", "wide")
    ids, times = read_queries(frame, axis=table.axis, known=known)
    assert (ids.tolist(), times.tolist()) == (["a"], [1.0])
    long = pa.table({"ID": ["a"], "time": [1], "what": ["x"], "much": [3.0]})
    assert_same(read_table(long, known=known), read_table(frame, known=known))
    both = pa.table({"id": [7], "Station": [8], "day": [1], "x": [3.0]})
    assert read_table(both, known=known).layout.id == "Station"
    assert read_table(both, known=known, columns=Columns(id="id")).layout.id == "id"
    with pytest.raises(DataError, match="a column called 'time' was expected"):
        read_table(frame.drop_columns("day"), known=known)


@pytest.mark.parametrize("names", [["id"], ["time"], ["id", "time"]])
def test_what_a_pandas_index_is_called_is_a_column(names):
    frame = pd.DataFrame({"id": ["a", "a", "b"], "time": pd.to_datetime(["2024-01-01"] * 2 + ["2024-01-03"])})
    frame = frame.assign(x=[1.0, 2.0, 3.0])[1:]
    assert_same(read_table(frame.set_index(names)), read_table(frame))
    assert_same(read_table(frame.set_index(names, drop=False)), read_table(frame))
    assert read_table(frame.set_index(names)).layout.id == "id"


def test_levels_of_a_pandas_index_without_a_name_are_no_columns():
    frame = pd.DataFrame({"id": ["a", "b"], "time": [0, 1], "x": [1.0, 2.0]})
    assert read_table(frame.set_index(["id", pd.Index([7, 8])])).variables == ("x",)
    with pytest.raises(DataError, match="two are called 'id'"):
        read_table(frame.set_index(["id", "id"]))


def test_spaces_around_ids_and_names_of_variables_are_none_of_them(tmp_path):
    table = read_table(write_text(tmp_path, "id,time,variable,value\na ,1, x,2\n a,2,x ,3\n\tb,1,x,2\n"))
    assert (table.ids.tolist(), table.variables) == (["a", "b"], ("x",))
    assert read_table(write_text(tmp_path, "id,time,x\n 7,1,2\n7 ,2,2\n")).ids.tolist() == [7]
    with pytest.raises(DataError, match=r"row 1 \(time '1'\), column 'id': an id was expected, but the cell is empty"):
        read_table(write_text(tmp_path, "id,time,x\n  ,1,2\n"))


@pytest.mark.parametrize("backend", [pd.DataFrame, lambda columns: pl.DataFrame(columns), pa.table])
def test_uuids_are_ids_as_texts(backend):
    ids = [uuid.UUID(int=2), uuid.UUID(int=1), uuid.UUID(int=2)]
    assert read_table(backend({"id": ids, "time": [1, 1, 2], "x": [1.0, 2.0, 3.0]})).ids.tolist() == [
        *map(str, ids[:2])
    ]


def test_an_answer_has_no_two_columns_of_one_name():
    one, two = np.zeros(1), np.ones(1)
    assert list(answer_columns(("id", one), (None, one), ("mean", two))) == ["id", "mean"]
    with pytest.raises(DataError, match=r"every column of the answer .* two would be called 'mean'"):
        answer_columns(("mean", one), ("time", one), ("mean", two))


def scaler_of(values) -> Scaler:
    return Scaler.fit(read_table(pa.table({"time": np.arange(len(values)), "x": values})))


@pytest.mark.parametrize(("offset", "size"), [(1e12, 500.0), (1e9, 0.5), (1e6, 1e-4), (0.0, 1e-100), (-1e15, 10.0)])
def test_what_varies_little_about_a_large_value_varies(offset, size):
    values = offset + size * np.random.default_rng(0).normal(size=100_000)
    scaler = scaler_of(values)
    assert scaler.mean[0] == pytest.approx(np.mean(values), rel=1e-15)
    assert scaler.std[0] == pytest.approx(np.std(values), rel=1e-6)
    assert scaler.std[0] == pytest.approx(size, rel=0.02)


@pytest.mark.parametrize("value", [0.1, 1e12 / 3, -1e-300, 0.0])
def test_what_never_varies_keeps_its_unit(value):
    scaler = scaler_of(np.full(100_000, value))
    assert scaler.mean[0] == pytest.approx(value, rel=1e-15)
    assert scaler.std[0] == 1.0


def test_values_too_small_to_be_squared_are_refused():
    with pytest.raises(DataError, match="the values of variable 'x' are too small to be scaled: choose another unit"):
        scaler_of(1e-170 * np.arange(5.0))


def test_long_variables_come_in_order_of_first_appearance():
    frame = pa.table({"id": [1, 1, 1], "time": [3, 2, 1], "variable": ["z", "a", "z"], "value": [1.0, 2.0, 3.0]})
    table = read_table(frame)
    assert table.variables == ("z", "a")
    assert table.values.tolist() == [[3, 0], [0, 2], [1, 0]]


def test_published_layout_with_masks(tmp_path):
    text = "ID,Time,Value_1,Value_2,Mask_1,Mask_2,Cov\n0,2,1.5,0.0,1.0,0.0,9\n0,1,inf,7,0,1,9\n1,1,0,0,0,0,9\n"
    table = read_table(write_text(tmp_path, text))
    assert table.variables == ("Value_1", "Value_2")
    assert table.values.tolist() == [[0, 7], [1.5, 0]]
    assert table.mask.tolist() == [[False, True], [True, False]]
    notes = (
        "column 'Cov' was ignored",
        "1 row with no value was ignored",
        "1 series with no observation was ignored: 1",
    )
    assert table.notes == notes


def test_what_is_ignored_is_counted():
    frame = pa.table({"id": list("abcb"), "time": [0, 0, 0, 1], "x": [1.0, None, float("nan"), None], "y": [None] * 4})
    assert read_table(frame).notes == (
        "3 rows with no value were ignored",
        "2 series with no observation were ignored: 'b', 'c'",
        "variable 'y' has no observation",
    )
    assert read_table(frame).ids.tolist() == ["a"]


def test_a_row_index_is_ignored_and_said(tmp_path):
    frame = pd.DataFrame({"id": ["a", "b"], "time": [0, 1], "x": [1.0, 2.0]}, index=[4, 2])
    frame.to_csv(tmp_path / "t.csv")
    frame.to_parquet(tmp_path / "t.parquet")
    for source in (tmp_path / "t.csv", tmp_path / "t.parquet", pd.read_csv(tmp_path / "t.csv")):
        table = read_table(source)
        assert table.variables == ("x",)
        assert re.search("looks like a row index", table.notes[0])


@pytest.mark.parametrize(
    ("cells", "ids"),
    [
        (["007", "12"], ["007", "12"]),
        (["7", "-12"], [7, -12]),
        (["0", "a"], ["0", "a"]),
        (["NA", "null"], ["NA", "null"]),
    ],
)
def test_csv_ids_lose_nothing(cells, ids, tmp_path):
    path = write_text(tmp_path, "id,time,x\n" + "".join(f"{cell},1,2\n" for cell in cells))
    assert read_table(path).ids.tolist() == ids


def test_csv_with_spaces_empty_words_and_a_late_change_of_type(tmp_path):
    rows = "".join(f"{i // 10}, {i},{i}\n" for i in range(200_000))  # more than one of arrow's blocks, all integers
    table = read_table(write_text(tmp_path, "\ufeffid, time , x\r\n" + rows + "z, 1.5 ,NA\nz,2, 2.5\n"))
    assert table.variables == ("x",)
    assert (table.ids[-1], table.times[-1], table.values[-1].tolist()) == ("z", 2.0, [2.5])


def test_compressed_and_tab_separated_files_are_read(tmp_path):
    text = "id,time,x\na,1,true\na,2,false\n"
    table = read_table(write_text(tmp_path, gzip.compress(text.encode()), "t.csv.gz"))
    assert table.values.tolist() == [[1.0], [0.0]]
    assert_same(table, read_table(write_text(tmp_path, text.replace(",", "\t"), "T.TSV")))


def test_a_missing_line_end_is_said(tmp_path):
    table = read_table(str(write_text(tmp_path, "id,time,x\na,1,2")))
    assert table.notes == ("the last line has no line end and may be cut off",)


@pytest.mark.parametrize(
    ("text", "stamp", "zone"),
    [
        ("2024-03-01", "2024-03-01", None),
        ("2024-03-01 12:30", "2024-03-01T12:30", None),
        ("2024-03-01T12:30:00", "2024-03-01T12:30", None),
        ("2024-03-01T12:30:00.123456789", "2024-03-01T12:30:00.123456", None),
        ("2024-03-01T12:30:00Z", "2024-03-01T12:30", "UTC"),
        ("2024-03-01 12:30:00+02:00", "2024-03-01T10:30", "UTC"),
    ],
)
def test_iso_dates_are_read(text, stamp, zone, tmp_path):
    table = read_table(write_text(tmp_path, f"id,time,x\na,{text},2\n"), unit="hour")
    assert table.axis == TimeAxis("date", "hour", whole_days=len(text) == 10, timezone=zone)
    assert table.times[0] == pytest.approx(
        (np.datetime64(stamp, "us") - np.datetime64(0, "us")) / np.timedelta64(1, "h")
    )


# ----------------------------------------------------------------------------------------------------- fitted models


def test_a_table_for_a_model_has_the_model_s_channels():
    frame = pa.table({"id": ["a"], "time": [1], "z": [3.0], "x": [1.0]})
    table = read_table(frame, variables=("x", "y", "z"))
    assert (table.variables, table.values.tolist()) == (("x", "y", "z"), [[1.0, 0.0, 3.0]])
    assert table.mask.tolist() == [[True, False, True]]
    long = pa.table({"id": ["a"], "time": [1], "variable": ["z"], "value": [3.0]})
    assert read_table(long, variables=("x", "z")).mask.tolist() == [[False, True]]


def test_a_table_for_a_model_keeps_the_model_s_unit():
    frame = pa.table({"id": ["a"], "time": [dt.date(1970, 1, 2)], "x": [1.0]})
    table = read_table(frame, axis=TimeAxis("date", "hour"))
    assert (table.times.tolist(), table.axis.unit) == ([24.0], "hour")


def test_queries_are_ids_and_times():
    frame = pl.DataFrame({"ID": ["b", "a", "b"], "time": [3, 2, 3], "note": ["?", "?", "?"], "value": ["", "", ""]})
    ids, times = read_queries(frame, axis=TimeAxis(), columns=Columns(variable="absent here"))
    assert ids is not None
    assert (ids.tolist(), times.tolist()) == (["b", "a", "b"], [3.0, 2.0, 3.0])
    assert read_queries(pa.table({"time": [1.5]}), axis=TimeAxis())[0] is None


DAYS = TimeAxis("date", "day")


@pytest.mark.parametrize(
    ("values", "axis", "expected"),
    [
        (["1.5", "2"], TimeAxis(), [1.5, 2.0]),
        (["1.5", 2], TimeAxis(), [1.5, 2.0]),
        ([1, 2.5], TimeAxis(), [1.0, 2.5]),
        ("1.5", TimeAxis(), [1.5]),
        (1.5, TimeAxis(), [1.5]),
        (np.array(2), TimeAxis(), [2.0]),
        (dt.date(1970, 1, 2), DAYS, [1.0]),
        (pd.Timestamp("1970-01-02 12:00"), DAYS, [1.5]),
        (np.datetime64("1970-01-02"), DAYS, [1.0]),
        ([], TimeAxis(), []),
        (np.arange(3), TimeAxis(), [0.0, 1.0, 2.0]),
        (["1970-01-02", "1970-01-02T12:00"], DAYS, [1.0, 1.5]),
        ([dt.date(1970, 1, 2), dt.datetime(1970, 1, 2, 12)], DAYS, [1.0, 1.5]),
        ([np.datetime64("1970-01-02"), pd.Timestamp("1970-01-02 12:00")], DAYS, [1.0, 1.5]),
        (np.array(["1970-01-03"], "M8[D]"), DAYS, [2.0]),
        (pd.date_range("1970-01-02", periods=2, freq="12h"), DAYS, [1.0, 1.5]),
        (["1970-01-02"], TimeAxis("date", "hour", timezone="Europe/Berlin"), [23.0]),
        (["1970-01-02T00:00Z"], TimeAxis("date", "hour", timezone="Europe/Berlin"), [24.0]),
        ([pd.Timestamp("1970-01-02", tz="Asia/Tokyo")], TimeAxis("date", "hour", timezone="UTC"), [15.0]),
    ],
)
def test_times_of_any_kind_are_parsed(values, axis, expected):
    np.testing.assert_array_equal(parse_times(values, axis), np.array(expected, float))


@pytest.mark.parametrize(
    ("values", "axis", "message"),
    [
        (["2024-03-01"], TimeAxis(), "numbers were expected, .* not dates such as 2024-03-01"),
        ([1.5], DAYS, "dates such as 2024-03-01 were expected, .* not numbers such as 1.5"),
        (["1", "soon"], TimeAxis(), "value 2, .*a number or an ISO date .* not the text 'soon'"),
        (["03/01/2024"], DAYS, "ISO date .* not the text '03/01/2024'"),
        ([1.0, None], TimeAxis(), "value 2, .* empty"),
        ([1.0, np.inf], TimeAxis(), "value 2, .* not inf"),
        ([True], TimeAxis(), "numbers or dates were expected, not bool"),
        ([[1.0], [2.0]], TimeAxis(), "numbers or dates were expected, not list"),
        (np.ones((2, 3)), TimeAxis(), "a list of times was expected, not a table of 2 × 3"),
        (pd.DataFrame({"x": [1.0]}), TimeAxis(), "a list of times was expected, not a table of 1 × 1"),
        (["2024-03-01T00:00Z"], DAYS, "dates without a time zone were expected, .* not with UTC"),
        (["2024-03-01"], TimeAxis("date", timezone="Mars/Olympus"), "a time zone known here .* not Mars/Olympus"),
    ],
)
def test_times_of_the_wrong_kind_are_refused(values, axis, message):
    with pytest.raises(DataError, match=message) as caught:
        parse_times(values, axis)
    assert "\n" not in str(caught.value)


# ------------------------------------------------------------------------------------------------------- bad tables

HEAD = "id,time,x\n"
BAD_FILES = {
    "zero bytes": ("", "is empty"),
    "blank lines": ("\n\n", "is empty"),
    "header alone": (HEAD, "rows were expected, but the table has none"),
    "header without line end": ("id,time,x", "rows were expected, but the table has none"),
    "no time": ("id,t,x\na,1,2\n", "a column called 'time' was expected, but the columns are 'id', 't', 'x'"),
    "semicolons": ("id;time;x\na;1;2\n", "commas were expected, but semicolons seem to separate the columns"),
    "semicolons and decimal commas": ("id;time;x\na;1;2,5\n", "but semicolons seem to separate the columns"),
    "tabs": ("id\ttime\tx\na\t1\t2\n", "but tabs seem to separate the columns"),
    "two time columns": ("id,time,Time\na,1,2\n", "one time column was expected, but 'time', 'Time' could each be it"),
    "no variable": ("id,time\na,1\n", "a column for each variable was expected"),
    "no observation": (HEAD + "a,1,\nb,2,NaN\n", "at least one observation was expected"),
    "same name twice": ("id,time,x,x\na,1,2,3\n", "two are called 'x'"),
    "duplicate": (
        HEAD + "a,1,2\nb,1,2\nc,1,2\na,1.0,3\nb,1,3\n",
        r"rows 1 and 4 \(id 'a', time '1.0'\): one row for each id and time",
    ),
    "duplicate without id": ("time,x\n1,2\n1,3\n", r"rows 1 and 2 \(time '1'\): .* there is no id column"),
    "duplicate in long": (
        "id,time,variable,value\na,1,x,2\na,1,y,2\na,1,x,3\n",
        r"rows 1 and 3 \(id 'a', time '1'\): one row for each id, time and variable",
    ),
    "infinite": (HEAD + "a,1,2\na,2,-inf\n", r"row 2 \(id 'a', time '2'\), column 'x': a finite number .* not -inf"),
    "text": (HEAD + "a,1,2\na,2,low\n", r"row 2 \(id 'a', time '2'\), column 'x': a number .* not the text 'low'"),
    "decimal comma": (HEAD + 'a,1,"2,5"\n', "a number or an empty cell was expected, not the text '2,5'"),
    "missing time": (HEAD + "a,1,2\na,,2\n", r"row 2 \(id 'a'\), column 'time': .* but the cell is empty"),
    "time of words": (HEAD + "a,1,2\na,later,2\n", r"row 2 .*column 'time': a number .* not the text 'later'"),
    "infinite time": (HEAD + "a,inf,2\n", "row 1 .*column 'time': a finite number was expected, not inf"),
    "nan time": (HEAD + "a,1,2\na,nan,2\n", "row 2 .*column 'time': .* but the cell is empty"),
    "american date": (HEAD + "a,03/01/2024,2\n", "an ISO date such as 2024-03-01 .* not the text '03/01/2024'"),
    "a date that is none": (HEAD + "a,2024-02-28,2\na,2024-02-30,2\n", "row 2 .* not the text '2024-02-30'"),
    "dates and numbers": (HEAD + "a,2024-02-28,2\na,5,2\n", "row 2 .*an ISO date.* not the text '5'"),
    "some zones": (HEAD + "a,2024-02-28,2\na,2024-02-28T00:00Z,2\n", "row 2 .*time zone in every row or in none"),
    "missing id": (
        HEAD + "a,1,2\n,2,2\n",
        r"row 2 \(time '2'\), column 'id': an id was expected, but the cell is empty",
    ),
    "missing variable": ("id,time,variable,value\na,1,,2\n", "row 1 .*column 'variable': the name of a variable"),
    "cut off": (HEAD + "a,1,2\nb,2", "row 2 has 2 cells where the header has 3, the file may be cut off there: 'b,2'"),
    "short row": (HEAD + "b,2\na,1,2\n", "row 1 has 2 cells where the header has 3: 'b,2'"),
    "long row": (HEAD + "a,1,2\nb,2,3,4\na,2,2\n", "row 2 has 4 cells where the header has 3: 'b,2,3,4'"),
    "open quote": (HEAD + 'a,1,2\nb,2,"3', "the quote on line 3 is never closed"),
    "open quote before rows": (HEAD + '"a,1,2\nb,2,3\n', "the quote on line 2 is never closed"),
    "open quote in the middle": (HEAD + '"a,1,2\nb,"2",3\n', "row 1 has"),
    "not UTF-8": (HEAD.encode() + b"a,1,2\nb\xff,2,3\n", "UTF-8 text was expected, but line 3 is not"),
    "not UTF-8 in header": (b"id,time,\xff\na,1,2\n", "UTF-8 text was expected, but line 1 is not"),
    "UTF-16": ((HEAD + "a,1,2\n").encode("utf-16"), "UTF-8 text was expected, but line 1 is not"),
    "long text": (HEAD + f"a,1,{'z' * 500}\n", "not the text 'z{50,58}…$"),
    "mask of two": ("id,time,Value_1,Mask_1\na,1,2,2\n", "row 1 .*column 'Mask_1': 0 or 1 was expected, not 2.0"),
    "mask without value": (
        "id,time,Value_1,Mask_1\na,1,,1\n",
        "row 1 .*column 'Value_1': a number, where 'Mask_1' is 1",
    ),
    "value without mask": ("id,time,Value_1,Mask_1,Value_2\na,1,,1,2\n", "but not 'Value_2'"),
    "stranger among masks": ("id,time,Value_1,Mask_1,age\na,1,,1,2\n", "but not 'age'"),
}


@pytest.mark.parametrize(("content", "message"), BAD_FILES.values(), ids=BAD_FILES)
def test_bad_files_are_refused_in_one_sentence(content, message, tmp_path):
    path = write_text(tmp_path, content)
    with pytest.raises(DataError, match=message) as caught:
        read_table(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


NAN, INF = float("nan"), float("inf")
BAD_FRAMES = {
    "no rows": (pa.table({"id": pa.array([], pa.string()), "time": [], "x": []}), "has none"),
    "no columns": (pd.DataFrame(), "has none"),
    "two columns of one name": (pd.DataFrame([["a", 1, 2, 3]], columns=["id", "time", "x", "x"]), "'x', 'x'"),
    "two arrow columns of one name": (pa.table([[1], [2], [3]], names=["time", "x", "x"]), "two are called 'x'"),
    "mixed objects": (
        pd.DataFrame({"id": ["a", "a"], "time": [1, 2], "x": [1, "low"]}, dtype=object),
        r"row 2 \(id 'a', time 2\), column 'x': a number .* not the text 'low'",
    ),
    "dates with and without zone": (
        pd.DataFrame({"time": [pd.Timestamp("2024-01-01"), pd.Timestamp("2024-01-01", tz="UTC")], "x": [1, 2]}),
        "row 2 .*time zone in every row or in none",
    ),
    "lists": (pl.DataFrame({"id": ["a"], "time": [1], "x": [[1.0, 2.0]]}), "column 'x': numbers were expected, not "),
    "dates as values": (pl.DataFrame({"time": [1], "x": [dt.date(2024, 1, 1)]}), "numbers were expected, not date32"),
    "lists as ids": (pl.DataFrame({"id": [[1]], "time": [1], "x": [1]}), "texts or whole numbers were expected"),
    "nan time": (pl.DataFrame({"time": [1.0, NAN], "x": [1, 2]}), "row 2 .*column 'time': .* the cell is empty"),
    "no date": (pl.DataFrame({"id": ["a"], "time": [None], "x": [1]}), "row 1 .*column 'time': .* the cell is empty"),
    "nan id": (pd.DataFrame({"id": [1, NAN], "time": [1, 2], "x": [1, 2]}), "row 2 .*column 'id': an id was expected"),
    "infinite": (pl.DataFrame({"time": [1, 2], "x": [NAN, INF]}), r"row 2 \(time 2\), column 'x': .* not inf"),
    "durations": (pl.DataFrame({"time": [dt.timedelta(1)], "x": [1]}), "numbers or dates were expected, not duration"),
    "twice on a day": (
        pl.DataFrame({"id": [7, 7], "time": [dt.date(2024, 1, 2)] * 2, "x": [1, 2]}),
        r"rows 1 and 2 \(id 7, time 2024-01-02\): one row for each id and time was expected, not two$",
    ),
    "complex numbers": (
        pd.DataFrame({"time": [1, 2], "x": [1j, 2]}),
        "column 'x': texts, numbers or dates were expected, not complex128",
    ),
    "a dictionary": ({"id": ["a"], "time": [1], "x": [1]}, "a path or a pandas, polars or pyarrow table .* not 'dict'"),
    "a series": (pd.Series([1]), "a path or a pandas, polars or pyarrow table was expected, not 'Series'"),
    "nothing": (None, "a path or a pandas, polars or pyarrow table was expected, not 'NoneType'"),
}


@pytest.mark.parametrize(("frame", "message"), BAD_FRAMES.values(), ids=BAD_FRAMES)
def test_bad_frames_are_refused_in_one_sentence(frame, message):
    with pytest.raises(DataError, match=message) as caught:
        read_table(frame)
    assert "\n" not in str(caught.value)


NUMBERS = pa.table({"id": ["a"], "time": [1], "x": [1.0]})
DATES = pa.table({"id": ["a"], "time": [dt.date(2024, 1, 1)], "x": [1.0]})
LONG = pa.table({"id": ["a", "a"], "time": [1, 1], "variable": ["x", "w"], "value": [1.0, 2.0]})
MISFITS = {
    "dates for numbers": (DATES, {"axis": TimeAxis()}, "numbers were expected, .* not dates such as 2024-01-01"),
    "numbers for dates": (NUMBERS, {"axis": DAYS}, "dates such as .* were expected, .* not numbers such as 1"),
    "unknown column": (NUMBERS, {"variables": ("y", "z")}, "variables are 'y', 'z', but there is a column 'x'"),
    "unknown variable": (LONG, {"variables": ("x",)}, r"row 2 .*column 'variable': one of .*\('x'\) .* not 'w'"),
    "column not there": (NUMBERS, {"columns": Columns(id="who")}, "'who' was expected, but the columns are 'id', "),
    "half a long table": (NUMBERS, {"columns": Columns(variable="x")}, "a column called 'value' was expected"),
}


@pytest.mark.parametrize(("frame", "options", "message"), MISFITS.values(), ids=MISFITS)
def test_tables_that_do_not_fit_are_refused(frame, options, message):
    with pytest.raises(DataError, match=message) as caught:
        read_table(frame, **options)
    assert "\n" not in str(caught.value)


def test_files_that_are_none_are_refused(tmp_path):
    zipped = gzip.compress(b"id,time,x\n" + b"a,1,2\n" * 1000)
    pq.write_table(NUMBERS, tmp_path / "whole.parquet")
    parquet = (tmp_path / "whole.parquet").read_bytes()
    cases = {
        tmp_path: "is a folder",
        tmp_path / "absent.csv": "there is no file",
        tmp_path / f"{'long' * 100}.csv": "cannot be read: File name too long",
        write_text(tmp_path, "x", "data.xlsx"): r"\.csv, \.csv\.gz, \.tsv or \.parquet was expected",
        write_text(tmp_path, zipped[:-20], "cut.csv.gz"): "not a whole gzip file",
        write_text(tmp_path, b"id,time,x\n", "plain.csv.gz"): "not a whole gzip file",
        write_text(tmp_path, parquet[:-30], "cut.parquet"): "cannot be read, it may be cut off",
        write_text(tmp_path, b"", "none.parquet"): "cannot be read, it may be cut off",
        write_text(tmp_path, parquet[:4] + b"\xff" * 60 + parquet[64:], "damaged.parquet"): "cannot be read, it may be",
    }
    for path, message in cases.items():
        with pytest.raises(DataError, match=message) as caught:
            read_table(path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)


# ---------------------------------------------------------------------------------------------------------- writing


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(suffix, tmp_path, monkeypatch):
    path = tmp_path / f"out{suffix}"
    write_frame(NUMBERS, path)
    before = path.read_bytes()

    def fill_the_disk(fd: int) -> None:
        assert len(list(tmp_path.iterdir())) == 2
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fill_the_disk)
    with pytest.raises(DataError, match=f"{path} cannot be written: No space left on device$"):
        write_frame(DATES, path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_an_interrupted_write_leaves_nothing(tmp_path, monkeypatch):
    def interrupt(*_args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pyarrow.csv, "write_csv", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_frame(NUMBERS, tmp_path / "out.csv")
    assert list(tmp_path.iterdir()) == []


def test_damage_inside_a_parquet_file_is_noticed(tmp_path):
    path = tmp_path / "out.parquet"
    noise = np.random.default_rng(0).normal(size=99)  # which cannot be compressed, hence can be found
    write_frame(pa.table({"time": np.arange(99.0), "x": noise}), path)
    data = bytearray(path.read_bytes())
    data[data.index(noise[50].tobytes())] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match="cannot be read, it may be cut off or damaged"):
        read_table(path)


def test_writing_keeps_links_and_modes(tmp_path):
    target, link = tmp_path / "target.csv", tmp_path / "link.csv"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    write_frame(NUMBERS, link)
    assert link.is_symlink()
    assert target.read_text() == "id,time,x\na,1,1\n"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("out.txt", r"a file ending in \.csv or \.parquet was expected, not .*out\.txt"),
        ("absent/out.csv", "absent/out.csv cannot be written: No such file or directory"),
        ("folder.csv", "folder.csv cannot be written: it is a folder"),
    ],
)
def test_what_cannot_be_written_is_said(name, message, tmp_path):
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DataError, match=message):
        write_frame(NUMBERS, tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["folder.csv"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_device_stays_a_device():
    with pytest.raises(DataError, match="/dev/full cannot be written: No space left on device"):
        write_frame(NUMBERS, "/dev/full")
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_written_to(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_frame(NUMBERS, pipe)
    assert os.read(reader, 1000) == b"id,time,x\na,1,1\n"
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
