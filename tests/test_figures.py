"""Pictures of scores: what a reader can tell from their axes."""

import pytest
from matplotlib.figure import Figure

from vsdn.reproduction import figures
from vsdn.reproduction.figures import lay_scale
from vsdn.reproduction.jobs import make_jobs
from vsdn.reproduction.plans import read_plan
from vsdn.reproduction.tables import Finished


@pytest.fixture
def place():
    return Figure().subplots()


def lay(place, *means):
    place.plot(means, range(len(means)), "o")
    lay_scale(place, [(mean, float(height)) for height, mean in enumerate(means)])
    place.figure.canvas.draw()
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


def test_a_picture_says_what_it_is_of_and_in_which_unit(tmp_path, monkeypatch):
    """The data set, the task, what whiskers are, and that NLL and MSE are of frames where the plan has them so."""
    plan = read_plan("mocap")
    job = next(job for job in make_jobs(plan) if job.row == "gru-ode-vae")
    scores = {"nll": 1.0, "mse": 2.0, "crps": 3.0, "num_values": 4, "num_rows": 2}
    drawn = []
    monkeypatch.setattr(figures, "_save", lambda picture, _: drawn.append(picture))
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
