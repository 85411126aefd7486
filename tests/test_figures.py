"""Pictures of results: what a reader can tell from their axes."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from vsdn.reproduction import figures
from vsdn.reproduction.curves import CurveOf
from vsdn.reproduction.figures import Dot, lay_scale
from vsdn.reproduction.jobs import make_jobs
from vsdn.reproduction.plans import read_plan
from vsdn.reproduction.tables import Finished


@pytest.fixture
def place():
    return Figure().subplots()


@pytest.fixture
def drawn(monkeypatch):
    """The pictures that are drawn, which no file is made of."""
    pictures = []
    monkeypatch.setattr(figures, "_save", lambda picture, _: pictures.append(picture))
    return pictures


def lay(place, *means, stds=None):
    """What is named at the edge."""
    stds = stds or [0.0] * len(means)
    place.errorbar(means, range(len(means)), xerr=stds, fmt="o")
    dots = [Dot(mean, std, float(height)) for height, (mean, std) in enumerate(zip(means, stds, strict=True))]
    away = lay_scale(place, dots)
    place.figure.canvas.draw()
    assert len(away) == len(place.texts)
    return [text.get_text() for text in place.texts]


def test_one_score_far_out_is_named_and_does_not_squeeze_the_others(place):
    assert lay(place, -110.0, -100.0, -90.0, -80.0, 2739.7) == ["2,740 →"]
    low, high = place.get_xlim()
    assert low < -110 and -80 < high < 0  # noqa: PT018


def test_the_same_on_the_other_side(place):
    assert lay(place, 1.0, 1.1, 1.2, 1.3, -500.0) == ["← -500"]
    assert place.get_xlim()[0] > 0


def test_a_small_score_far_out_keeps_its_digits(place):
    assert lay(place, 0.040, 0.041, 0.042, 0.043, 0.1772) == ["0.177 →"]


def test_scores_with_huge_deviations_do_not_squeeze_the_others(place):
    """They lie within six times the middle half, but so wide that nothing else could be told apart."""
    means, stds = (-150.0, -148.0, -115.0, -50.0, -2.0, 0.0, 50.0, 85.0, 570.0, 675.0), [10.0] * 8 + [606.0, 1706.0]
    assert lay(place, *means, stds=stds) == ["570 ± 606 →", "675 ± 1,706 →"]
    low, high = place.get_xlim()
    assert low < -150
    assert 85 < high < 120


def test_a_score_within_the_axis_is_drawn_though_its_deviation_is_huge(place):
    means, stds = (0.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 10.0, 10.5), [0.1] * 8 + [90.0]
    assert lay(place, *means, stds=stds) == []
    assert 10.5 < place.get_xlim()[1] < 11


def test_deviations_that_are_wide_throughout_are_shown(place):
    means, stds = (0.50, 0.51, 0.52, 0.53, 0.54, 0.80, 1.00), [0.2, 0.2, 0.21, 0.2, 0.22, 0.3, 0.2]
    assert lay(place, *means, stds=stds) == []
    assert place.get_xlim()[1] > 1.1


def test_what_is_named_at_the_edge_is_not_drawn_also(tmp_path, drawn):
    plan = read_plan("mocap")
    jobs = {job.row: job for job in make_jobs(plan) if (job.preset, job.repeat) == ("tuned", 0)}
    score = lambda nll: {"nll": nll, "mse": 2.0, "crps": 3.0, "num_values": 2, "num_rows": 2}
    nlls = dict(zip(jobs, [-1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 900.0], strict=False))
    runs = [Finished(jobs[row], {"scores": {"interpolation": score(nll)}}) for row, nll in nlls.items()]
    unprinted = plan.model_copy(update={"rows": tuple(row.model_copy(update={"paper": {}}) for row in plan.rows)})
    figures.draw_scores(unprinted, runs, "interpolation", tmp_path)
    place = drawn[0].axes[0]
    assert [text.get_text() for text in place.texts] == ["900 →"]
    assert [len(each.lines[0].get_xdata()) for each in place.containers] == [7]


def test_bounds_say_what_they_are_of_and_where_they_begin(tmp_path, drawn):
    """The plan's title, its rows' names, every epoch but what is far below: that is named at the edge."""
    plan = read_plan("ablation")
    bounds = lambda number: -np.array([0.4, 1.1, 1.2, 1.3, 1.35, 1.38, 1.39, 1.4]) - 0.001 * number
    curves = [
        CurveOf(row.name, "tuned", 10, {"loss": bounds(n).tolist(), "valid_loss": bounds(n).tolist()})
        for n, row in enumerate(plan.rows)
    ]
    curves[0].losses["valid_loss"][0], curves[1].losses["valid_loss"][0] = 40.0, 1234.5
    figures.draw_curves(plan, curves, tmp_path)
    [picture] = drawn
    assert picture.get_suptitle() == plan.title
    names = ["VSDN-F (VAE)", "VSDN-F (IWAE)", "VSDN-S (VAE)", "VSDN-S (IWAE)"]
    assert [place.get_title() for place in picture.axes] == [*names, *[""] * 4]
    assert [text.get_text() for text in picture.legends[0].get_texts()] == ["1 path", "2 paths", "5 paths", "10 paths"]
    above, below = picture.axes[0], picture.axes[4]
    assert [[text.get_text() for text in place.texts] for place in picture.axes] == [*[[]] * 4, ["← -1,234"], *[[]] * 3]
    for place in (above, below):
        assert 0.0 < place.get_ylim()[0] < 0.4  # the first epochs of all others are there


def test_a_picture_says_what_it_is_of_and_in_which_unit(tmp_path, drawn):
    """The data set, the task, what whiskers are, and that NLL and MSE are of frames where the plan has them so."""
    plan = read_plan("mocap")
    job = next(job for job in make_jobs(plan) if job.row == "gru-ode-vae")
    scores = {"nll": 1.0, "mse": 2.0, "crps": 3.0, "num_values": 4, "num_rows": 2}
    figures.draw_scores(plan, [Finished(job, {"scores": {"prediction": scores}})], "prediction", tmp_path)
    [picture] = drawn
    assert picture.get_suptitle() == f"{plan.title}\n{plan.tasks['prediction'].title}"
    assert [place.get_xlabel() for place in picture.axes] == ["NLL a frame (nats)", "MSE a frame", "CRPS a value"]
    assert picture.legends[0].get_title().get_text() == "mean, and standard deviation over folds; less is better"


def test_scores_far_apart_are_drawn_by_their_logarithms_with_numbers_that_can_be_read(place):
    assert lay(place, 0.031, 0.05, 0.4) == []
    assert place.get_xscale() == "log"
    inside = [label.get_text() for label in place.get_xticklabels() if 0.03 < label.get_position()[0] < 0.45]
    assert inside == ["0.05", "0.1", "0.2"]
    assert not any(label.get_text() for label in place.get_xticklabels(minor=True))


@pytest.mark.parametrize("means", [(1.0, 2.0, 3.0), (-5.0, 40.0, 3.0), (-1.0, -1.0, -1.0, 5.0, -1.0), (1.0,), ()])
def test_scores_that_lie_together_are_left_as_they_are(place, means):
    assert lay(place, *means) == []
    assert place.get_xscale() == "linear"
