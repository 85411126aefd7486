"""Pictures: what they say, whether it can be read, and that pages lose no digit."""

import json
import shutil
import subprocess
from types import SimpleNamespace
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from matplotlib.dates import num2date

from vsdn.errors import DataError
from vsdn.plots import charts
from vsdn.plots.drawing import draw, figure, keys, page
from vsdn.plots.panels import Curve, Fan, Panel, fan_panels
from vsdn.tables.table import Layout, Table, TimeAxis

BERLIN = TimeAxis("date", "day", timezone="Europe/Berlin")
ROWS, LINE = 12, 20


def make_table(ids=("p1", "p2"), variables=("hb",), times=None, sizes=1.0, axis=TimeAxis(), layout=Layout()):
    """Series with the same times, each variable of its size."""
    times = np.linspace(0.0, 10.0, ROWS) if times is None else np.asarray(times, float)
    values = np.random.default_rng(0).normal(size=(len(ids) * len(times), len(variables))) * sizes
    starts, names = len(times) * np.arange(len(ids) + 1), np.array(ids, object)
    mask = np.ones(values.shape, bool)
    return Table(names, starts, np.tile(times, len(ids)), values, mask, tuple(variables), axis, layout)


def make_panels(table, *, cut=None, notes=()):
    """Each series with a forecast of what it was on the whole."""
    span = np.ptp(table.times)
    mean, spread = table.values.mean(axis=0), table.values.std(axis=0)
    bands = np.stack([mean + level * spread for level in (-1.6, -0.7, 0.7, 1.6)], axis=-1)
    line = lambda part: np.broadcast_to(part, (LINE, *part.shape))
    fans = []
    for series, last in enumerate(table.times[table.starts[1:] - 1]):
        times = np.linspace(last if cut is None else cut, last + span / 3, LINE)
        fans.append(Fan(series, times, line(mean), line(bands)))
    return fan_panels(table, fans, cut=cut, notes=notes)


def seconds(start, *after):
    """Days since 1970 of moments so many seconds after a moment in UTC."""
    return (np.datetime64(start, "us").astype(np.int64) / 1e6 + np.array(after)) / 86400


def data_of(text):
    return json.loads(text.split("const data = ", 1)[1].split(";\n", 1)[0])


def texts(picture):
    return [text.get_text() for text in picture.legends[0].get_texts()]


# --------------------------------------------------------------------------------------------------------- pictures


@pytest.mark.parametrize("count", [1, 2, 9, 10, 30])
@pytest.mark.parametrize(
    "names", [("y",), tuple(f"a rather long name of variable {n}" for n in range(6)), ("x" * 300,)]
)
def test_legend_and_titles_are_within_the_picture_and_apart(count, names):
    table = make_table([f"station-with-a-very-long-name-that-goes-on-and-on-{n}" for n in range(count)], names)
    picture = figure(make_panels(table, cut=5.0), TimeAxis(), "time")
    assert len(texts(picture)) == 5 + len(names)
    legend = picture.legends[0].get_window_extent()
    assert legend.x0 >= 0
    assert legend.x1 <= picture.bbox.width
    assert legend.y1 <= picture.bbox.height
    for place in picture.axes[:count]:
        title, box = place.title if place.get_title() else place._left_title, place.get_window_extent()
        assert title.get_window_extent().width <= box.width + 1
        assert title.get_window_extent().y1 < legend.y0
        assert title.get_text().startswith("series station-")
    assert len({place.get_title(loc="left") for place in picture.axes[:count]}) == count  # their ends tell them apart


def test_a_legend_has_each_key_once_and_each_variable():
    panels = make_panels(make_table(variables=("hb", "na")), cut=5.0)
    assert [key.name for key in keys(panels)] == ["mean", "50 %", "90 %", "seen", "hidden", "hb", "na"]
    assert texts(figure(panels, TimeAxis(), "time")) == ["mean", "50 %", "90 %", "seen", "hidden", "hb", "na"]
    assert len({key.colour for key in keys(panels)}) == 3  # one grey and two of the variables
    assert "hidden" not in [key.name for key in keys(make_panels(make_table()))]


def test_a_legend_tells_paths_from_their_mean_and_dashes_from_lines():
    times, line = np.arange(3.0), np.zeros(3)
    state = Curve("latent state", "#1f6fb4", times, line, (("90 %", line, line),), np.zeros((4, 3)))
    found = keys([Panel("x1", [state, Curve("diffusion", "#2e8b57", times, line, dashed=True)], [])])
    kinds = {"mean": "line", "90 %": "shade", "single paths": "path", "latent state": "colour", "diffusion": "dashes"}
    assert {key.name: key.kind for key in found} == kinds


def test_names_are_shown_as_they_are(tmp_path):
    table = make_table(["$a_", "a\nb"], ("_hidden", "$x^$"))
    panels = make_panels(table)
    draw(panels, tmp_path / "a.png", TimeAxis(), time_name="$t_")
    picture = figure(panels, TimeAxis(), "$t_")
    assert texts(picture)[-2:] == ["_hidden", "$x^$"]
    assert [place.get_title(loc="left") for place in picture.axes] == ["series $a_", "series a b"]
    assert make_panels(make_table(["series"], layout=Layout(id=None)))[0].title == "the series"


def test_clocks_are_those_of_the_time_zone():
    times = seconds("2024-03-31T00:00", *np.linspace(0, 6 * 3600, ROWS))  # at 01:00 UTC summer time begins
    picture = figure(make_panels(make_table(times=times, axis=BERLIN)), BERLIN, "taken")
    assert picture.get_supxlabel() == "taken (Europe/Berlin)"
    place = picture.axes[0]
    ticks = place.get_xticks()
    labels = place.xaxis.get_major_formatter().format_ticks(ticks)
    clocks = [moment.strftime("%H:%M") for moment in num2date(ticks, ZoneInfo("Europe/Berlin"))]
    shown = [(label, clock) for label, clock in zip(labels, clocks, strict=True) if ":" in label]
    assert len(shown) >= 3
    assert all(label == clock for label, clock in shown)
    assert "02:00" not in clocks  # the hour that spring leaves out


@pytest.mark.parametrize("axis", [TimeAxis(), TimeAxis("date"), TimeAxis("date", timezone="-03:30")])
def test_all_panels_show_the_same_times(axis):
    panels = make_panels(make_table(["a", "b", "c", "d"], axis=axis))
    panels[0].curves[0] = panels[0].curves[0]._replace(times=panels[0].curves[0].times + 100)
    places = figure(panels, axis, "time").axes[:4]
    assert len({place.get_xlim() for place in places}) == 1
    low, high = places[0].get_xlim()
    assert low < 0 < 110 < high
    labelled = [place.xaxis.get_tick_params()["labelbottom"] for place in places]
    assert labelled == [False, True, True, True]  # nothing is below the second and third


def test_a_zone_that_nobody_knows_is_refused(tmp_path):
    axis = TimeAxis("date", timezone="Middle/Earth")
    with pytest.raises(DataError, match="a time zone known here was expected, not Middle/Earth"):
        draw(make_panels(make_table(axis=axis)), tmp_path / "a.png", axis)


# ----------------------------------------------------------------------------------------------------------- panels


@pytest.mark.parametrize(
    ("sizes", "count"), [((1.0, 2.0, 4.0), 2), ((1.0, 1.0, 100.0), 6), ((0.0, 1.0, 2.0), 2), ((1e-9, 1.0, 1e9), 6)]
)
def test_variables_of_other_sizes_have_panels_of_their_own(sizes, count):
    table = make_table(variables=("a", "b", "c"), sizes=sizes)
    panels = make_panels(table)
    assert len(panels) == count
    if count == 6:
        assert [panel.title for panel in panels[:4]] == [*(f"series p1: {name}" for name in "abc"), "series p2: a"]
        assert [(len(panel.curves), len(panel.dots), panel.row) for panel in panels[2:4]] == [(1, 1, 0), (1, 1, 1)]
        assert figure(panels, TimeAxis(), "time").axes[0].get_subplotspec().get_geometry()[:2] == (2, 3)
        assert data_of(page(panels, TimeAxis(), "time"))["columns"] == 3


def test_levels_far_apart_have_panels_of_their_own():
    table = make_table(variables=("temperature", "pressure"))
    table.values[:, 1] += 1000
    assert len(make_panels(table)) == 4


def test_what_is_left_out_is_said_once(monkeypatch):
    def fans(shown, visible, series, times, method):
        line = np.zeros((times.shape[1], 1))
        return [Fan(number, each, line, np.zeros((*line.shape, 4))) for number, each in zip(series, times, strict=True)]

    monkeypatch.setattr(charts, "_fans", fans)
    table = make_table(["early", "until", "late", "later"])
    table.times[:] += np.repeat([0.0, 2.0, 6.0, 20.0], ROWS)
    shown = charts.Shown(None, None, SimpleNamespace(forecast=None), table, np.arange(4), 8, 0)
    panels = charts.forecast(shown, until=12.0)
    assert [panel.title for panel in panels] == ["series early"]
    notes = ("Not drawn, because the forecast ends before they do: series 'until', 'late', 'later'.",)
    assert panels[0].notes == notes
    panels = charts.forecast(shown, until=12.0, cut=8.0)
    assert len(panels) == 3
    unseen = "Not drawn, because nothing was seen of them before the forecast begins: series 'later'."
    said = figure(panels, TimeAxis(), "time").get_supxlabel()
    assert said == f"time\n{unseen}"
    assert data_of(page(panels, TimeAxis(), "time"))["notes"] == [unseen]
    assert charts.forecast(shown, until=99.0)[0].notes == ()


def test_more_variables_than_colours_are_said():
    panels = make_panels(make_table(variables=tuple("abcdefgh")))
    assert panels[0].notes == ("The first 6 of 8 variables are drawn.",)


# ------------------------------------------------------------------------------------------------------------ pages


def test_a_page_keeps_every_digit():
    times = seconds("2024-03-31T00:00", *range(ROWS))
    table = make_table(times=times, axis=BERLIN)
    table.values[:] += 1e9
    panel = data_of(page(make_panels(table), BERLIN, "time"))["panels"][0]
    assert panel["dots"][0]["times"] == [1711843200000 + 1000 * n for n in range(ROWS)]
    assert panel["dots"][0]["values"] == table.values[:ROWS, 0].tolist()
    table = make_table(times=1711843200.125 + np.arange(ROWS))
    panel = data_of(page(make_panels(table), TimeAxis(), "time"))["panels"][0]
    assert panel["dots"][0]["times"] == table.times[:ROWS].tolist()


def test_no_name_ends_or_begins_a_script():
    text = page(make_panels(make_table(["</script>", "<!--<script>"])), TimeAxis(), "time")
    assert text.count("</script>") == text.count("<script>") == 1
    assert "<!--" not in text
    assert data_of(text)["panels"][0]["title"] == "series </script>"


BROWSER = """
const pen = (written) => new Proxy({ measureText: (text) => ({ width: 6 * text.length }) }, {
  get: (own, name) => own[name] ?? ((...given) => name === "fillText" && written.push(given)) });
const make = () => ({
  style: { setProperty() {} }, children: [], checked: true, written: [], clientWidth: 560, clientHeight: 240,
  append(...all) { this.children.push(...all); },
  addEventListener() {},
  get firstChild() { return make(); },
  querySelector(name) { return this[name] ??= make(); },
  getContext() { return pen(this.written); },
});
const parts = {}, find = (name) => parts[name] ??= make();
globalThis.window = { devicePixelRatio: 1 };
globalThis.document = { querySelector: find, getElementById: find, createElement: make };
globalThis.addEventListener = () => {};
const script = require("fs").readFileSync(0, "utf8").split("<script>")[1].split("</script>")[0];
const ask = new Function(script + "; return (code) => eval(code);")();
const said = process.argv.slice(1).map((code) => ask(code) ?? null);
const written = ask("views").map((view) => view.canvas.written);
console.log(JSON.stringify({ said, written, foot: parts.footer.textContent }));
"""


@pytest.fixture
def browse():
    """A function that runs a page and some questions to it, and gives what was written into its panels and below."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is missing: it runs the page")

    def run(text, *questions):
        done = subprocess.run(
            [node, "-e", BROWSER, *questions], input=text, capture_output=True, text=True, encoding="utf-8"
        )
        assert done.returncode == 0, done.stderr
        return SimpleNamespace(**json.loads(done.stdout))

    return run


def test_large_numbers_have_labels_that_differ_and_room_for_them(browse):
    table = make_table(times=1.7e9 + np.linspace(0, 10, ROWS))
    table.values[:] += 1e9
    told = browse(page(make_panels(table), TimeAxis(), "time"))
    labels = [label for label, *_ in told.written[0]]
    assert len(set(labels)) == len(labels) > 5
    assert {len(label) for label in labels} <= {9, 10, 12}  # all of an axis have as many digits after the point
    upward = [(label, right) for label, right, _ in told.written[0] if not label.startswith("17")]
    assert all(right - 6 * len(label) >= 0 for label, right in upward)


@pytest.mark.parametrize(
    ("values", "step", "labels"),
    [
        ("[-0.5, 0, 0.5]", 0.5, ["-0.5", "0.0", "0.5"]),
        ("[1000000000.25, 1000000000.5]", 0.25, ["1000000000.3", "1000000000.5"]),
        ("[0, 2e12, 1e13]", 2e12, ["0", "2e12", "1.0e13"]),
        ("[2e-12, 4e-12]", 2e-12, ["2e-12", "4e-12"]),
    ],
)
def test_labels_have_the_digits_of_a_step(values, step, labels, browse):
    told = browse(page(make_panels(make_table()), TimeAxis(), "time"), f"sayNumbers({values}, {step})")
    assert told.said == [labels]


CLOCKS = [
    ("2024-03-01T00:00:00Z", "2024-03-01T00:00:07Z", ["01:00:00", "01:00:02", "01:00:04", "01:00:06"], "2024-03-01"),
    ("2024-10-27T00:10Z", "2024-10-27T01:20Z", ["02:15", "02:30", "02:45", "02:00", "02:15"], "2024-10-27"),
    ("2024-03-30T11:00Z", "2024-03-31T11:00Z", ["12:00", "18:00", "00:00", "06:00", "12:00"], "2024-03-30"),
    ("2024-02-20T00:00Z", "2024-03-20T00:00Z", ["Feb 22", "Mar 1", "Mar 8", "Mar 15"], "2024"),
    ("2023-12-01T00:00Z", "2024-04-20T00:00Z", ["Jan", "Feb", "Mar", "Apr"], "2024"),
    ("2019-12-31T12:00Z", "2024-06-01T00:00Z", ["2020", "2021", "2022", "2023", "2024"], ""),
    ("1890-01-01T00:00Z", "2024-06-01T00:00Z", ["1900", "1950", "2000"], ""),
]


@pytest.mark.parametrize(("low", "high", "labels", "below"), CLOCKS)
def test_dates_are_marked_at_whole_units_of_clock_and_calendar(low, high, labels, below, browse):
    ask = f"dateTicks(Date.parse('{low}'), Date.parse('{high}'), 5)"
    told = browse(page(make_panels(make_table(axis=BERLIN)), BERLIN, "taken"), ask)
    assert told.foot == "taken (Europe/Berlin)"
    assert told.said[0]["labels"] == labels
    assert told.said[0]["below"][0] == below
    assert np.all(np.diff(told.said[0]["at"]) > 0)


@pytest.mark.parametrize(
    ("zone", "clock", "foot"),
    [
        (None, "2024-06-01 12:00", "time"),
        ("-03:30", "2024-06-01 08:30", "time (-03:30)"),
        ("Europe/Berlin", "2024-06-01 14:00", "time (Europe/Berlin)"),
        ("Middle/Earth", "2024-06-01 12:00", "time (UTC)"),
    ],
)
def test_a_page_says_where_its_clocks_are(zone, clock, foot, browse):
    axis = TimeAxis("date", timezone=zone)
    told = browse(
        page(make_panels(make_table(axis=axis)), axis, "time"), "sayTime(Date.parse('2024-06-01T12:00Z'), 6e4)"
    )
    assert (told.said, told.foot) == ([clock], foot)


def test_a_page_is_not_zoomed_out_of_sight(browse):
    axis = TimeAxis("date")
    zoom = "views[0].show([-1e18, 1e18]); views[0].show([5, 5 + 1e-9]); views[0].draw(); views[0].now.x"
    told = browse(page(make_panels(make_table(axis=axis)), axis, "time"), zoom, "views[0].fit(); views[0].now.x")
    assert told.said[0] == told.said[1]
