"""The figures that runs and results offer in Python."""

import io

import pytest
from matplotlib.image import imread

import mnemos
from mnemos.errors import ConfigError
from support.play import SMALL

FORGETFUL = {**SMALL, "rounds": 2, "evaluate": {"every": 1, "forgetting": [1, 2]}}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    study = {"base": FORGETFUL, "variants": {"ce": {}, "wsm": {"method.loss": "wsm"}}, "seeds": [0, 1]}
    return mnemos.compare(study, out=tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def run(results):
    return results.runs["ce"][0]


def texts(figure):
    return [text.get_text() for text in figure.texts]


def test_a_curve_of_a_run_has_the_numbers_of_its_table(run):
    (line,) = run.plot().axes[0].lines
    assert line.get_label() == run.path.name
    assert line.get_xdata().tolist() == [1, 2]
    assert line.get_ydata().tolist() == run.table()["validation_accuracy"].tolist()
    (other,) = run.plot("forgetting").axes[0].lines
    assert other.get_ydata().tolist() == run.table()["forgetting"].tolist()


def test_a_curve_of_each_variant(results):
    axes = results.plot("test_accuracy").axes[0]
    assert [line.get_label() for line in axes.lines] == ["ce", "wsm"]
    assert axes.get_ylabel() == "test accuracy\nmean ± std of 2 seeds"


def test_without_validation_data_the_curve_is_of_the_test(tmp_path):
    few = {**SMALL, "rounds": 1, "partition": {"name": "iid", "clients": 4, "validation": 0.0}}
    assert mnemos.run(few, out=tmp_path).plot().axes[0].get_ylabel() == "test accuracy"


def test_a_number_that_was_not_measured(run):
    with pytest.raises(ConfigError, match=r"name: found 'speed', which was not measured; allowed: .*loss"):
        run.plot("speed")


def test_heat_maps_of_a_run(run):
    assert texts(run.plot_forgetting()) == [f"{run.path.name}, round 2"]
    both = run.plot_forgetting(1, 2)
    assert texts(both) == [f"{run.path.name}, round 1", f"{run.path.name}, round 2"]
    titles = [axes.get_title(loc="left") for axes in run.plot_forgetting(classes=True).axes]
    assert "accuracy lost on each class" in titles


def test_heat_maps_of_variants_are_side_by_side(results):
    assert texts(results.plot_forgetting()) == ["ce, round 2", "wsm, round 2"]


def test_rounds_without_forgetting(run, tmp_path):
    with pytest.raises(ConfigError, match="rounds: forgetting was not measured in round 7; measured: 1, 2"):
        run.plot_forgetting(7)
    forgetless = mnemos.run({**SMALL, "rounds": 1}, out=tmp_path)
    with pytest.raises(ConfigError, match=r"evaluate\.forgetting=10 measures it in every tenth round"):
        forgetless.plot_forgetting()


def test_the_partition_of_a_run(run):
    figure = run.plot_partition(clients=3)
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["0", "3", "7"]


def test_a_figure_is_shown_by_notebooks_and_saved(run, tmp_path):
    figure = run.plot()
    assert imread(io.BytesIO(figure._repr_png_())).shape[:2] == (420, 700)
    path = figure.save(tmp_path / "new" / "curve.pdf")
    assert path.read_bytes().startswith(b"%PDF")
