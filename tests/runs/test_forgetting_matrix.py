"""The matrix of a round, from metrics written by hand and from a run."""

from __future__ import annotations

import json

import pandas as pd
import pytest

import mnemos
from mnemos.errors import ConfigError, DataError
from mnemos.runs.forgetting_matrix import measured_rounds, not_measured, read_matrix
from mnemos.runs.run import Run
from mnemos.runs.store import overall

BEFORE = {2: 0.8, 5: 0.5, 9: 0.6}
AFTER = {9: {2: 0.5, 5: 0.5, 9: 1.0}, 2: {2: 0.9, 5: 0.1, 9: 0.4}, 5: {9: 0.6, 5: 0.7, 2: 0.2}}
"""Accuracies by client data, and by client model; in no order, as after a resume on another engine."""
CLASSES_BEFORE = {0: 0.6, 3: 0.2}
CLASSES_AFTER = {2: {0: 0.1, 3: 0.4}, 5: {0: 0.6, 3: 0.0}, 9: {0: 0.3, 3: 0.2}}


def lines(number, end=True):
    rows = [{"name": "before_accuracy", "client": k, "value": v} for k, v in BEFORE.items()]
    rows += [{"name": "before_accuracy", "class": c, "value": v} for c, v in CLASSES_BEFORE.items()]
    for key, table in (("client", AFTER), ("class", CLASSES_AFTER)):
        rows += [
            {"name": "after_accuracy", "model": i, key: k, "value": v}
            for i, row in table.items()
            for k, v in row.items()
        ]
    rows += [{"name": "forgetting", "client": 2, "value": 0.45}]
    if end:
        rows += [{"name": "forgetting", "value": 0.25}, {"name": "own_accuracy", "value": 2.6 / 3}]
    return [{"round": number, **row} for row in rows]


def written(path, rows):
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Run(path)


@pytest.fixture
def run(tmp_path):
    """Measured in rounds 4 and 12; of round 20, only a part has reached the file."""
    other = [{"round": 5, "name": "validation_accuracy", "value": 0.5}]
    return written(tmp_path, [*lines(4), *other, *lines(12), *lines(20, end=False)])


def values(frame):
    return {name: dict(row) for name, row in frame.iterrows()}


def near(expected):
    return {name: pytest.approx(row) for name, row in expected.items()}


def test_forgetting_by_hand(run):
    """F_ki = before − after: positive where model i lost accuracy on the data of k."""
    found = run.forgetting(4)
    assert (found.index.name, found.columns.name) == ("model", "data")
    assert (list(found.index), list(found.columns)) == ([2, 5, 9], [2, 5, 9])
    assert values(found) == near(
        {2: {2: -0.1, 5: 0.4, 9: 0.2}, 5: {2: 0.6, 5: -0.2, 9: 0.0}, 9: {2: 0.3, 5: 0.0, 9: -0.4}}
    )


def test_the_sign_of_the_earlier_paper_has_a_name_of_its_own(run):
    matrix = run.forgetting_matrix(4)
    assert matrix.gain.loc[5, 2] == pytest.approx(-0.6)
    assert matrix.forgetting.equals(-matrix.gain)


def test_means_by_hand(run):
    """F_2 = (0.6 + 0.3)/2: own models, on the diagonal, don't count."""
    matrix = run.forgetting_matrix(4)
    assert dict(matrix.before) == BEFORE
    assert values(matrix.after) == AFTER
    assert dict(matrix.of_data) == pytest.approx({2: 0.45, 5: 0.2, 9: 0.1})
    assert dict(matrix.caused) == pytest.approx({2: 0.3, 5: 0.3, 9: 0.15})
    assert matrix.mean == pytest.approx(0.25)
    assert dict(matrix.own) == {2: 0.9, 5: 0.7, 9: 1.0}


def test_classes_by_hand(run):
    """A class is nobody's own, even if it has a client's number: all models count."""
    matrix = run.forgetting_matrix(4, classes=True)
    assert (matrix.forgetting.index.name, matrix.forgetting.columns.name) == ("model", "class")
    assert values(matrix.forgetting) == near({2: {0: 0.5, 3: -0.2}, 5: {0: 0.0, 3: 0.2}, 9: {0: 0.3, 3: 0.0}})
    assert dict(matrix.of_data) == pytest.approx({0: 0.8 / 3, 3: 0.0})
    assert dict(matrix.caused) == pytest.approx({2: 0.15, 5: 0.1, 9: 0.15})
    assert matrix.own.empty
    assert not matrix.is_own.any(axis=None)


def test_a_model_without_data_of_its_own(tmp_path):
    """Without the data of client 9, its model still counts: F_5 = (0.4 + 0)/2."""
    matrix = written(tmp_path, [row for row in lines(1) if row.get("client") != 9]).forgetting_matrix(1)
    assert matrix.after.shape == (3, 2)
    assert dict(matrix.of_data) == pytest.approx({2: 0.45, 5: 0.2})
    assert matrix.caused[9] == pytest.approx((0.3 + 0.0) / 2)
    assert dict(matrix.own) == {2: 0.9, 5: 0.7}


def test_a_cohort_of_one(tmp_path):
    rows = [row for row in lines(1) if row.get("client", 2) == 2 and row.get("model", 2) == 2]
    run = written(tmp_path, [row for row in rows if row["name"] != "forgetting"])
    assert measured_rounds(run.metrics) == [1]
    matrix = run.forgetting_matrix(1)
    assert values(matrix.forgetting) == near({2: {2: -0.1}})
    assert matrix.of_data.isna().all()
    assert pd.isna(matrix.mean)
    assert dict(matrix.own) == {2: 0.9}


def test_rounds_that_were_measured(run):
    assert measured_rounds(run.metrics) == [4, 12]


@pytest.mark.parametrize("number", [5, 20, 0])
def test_a_round_that_was_not(run, number):
    with pytest.raises(ConfigError) as error:
        run.forgetting(number)
    sentence = f"forgetting was not measured in round {number}; measured: 4, 12"
    assert str(error.value) == f"{run.path}: {sentence}"


def test_many_rounds_are_not_all_listed():
    assert not_measured(7, range(10, 310, 10)).endswith("measured: 10, 20, 30, 40, 50, 60, …, 280, 290, 300")


def test_a_run_without_forgetting_says_how_to_have_it(tmp_path):
    with pytest.raises(ConfigError, match=r"not measured; evaluate\.forgetting=10 measures it"):
        Run(tmp_path).forgetting(1)


def test_damage_shows(tmp_path):
    rows = lines(4)
    with pytest.raises(DataError, match="round 4 is damaged: some of it is there twice"):
        written(tmp_path, [*rows, {**rows[6], "value": 0.3}]).forgetting(4)
    for lost in (0, 6):  # a row of before, one of after
        with pytest.raises(DataError, match="round 4 is damaged: some of it is missing"):
            written(tmp_path, rows[:lost] + rows[lost + 1 :]).forgetting(4)
    with pytest.raises(DataError, match="some of it is missing"):
        written(tmp_path, rows[-1:]).forgetting(4)


def test_it_agrees_with_what_the_run_recorded(tiny, tmp_path):
    tiny["evaluate"]["forgetting"] = [2]
    metrics = mnemos.run(tiny, out=tmp_path).metrics
    matrix = read_matrix(metrics, 2)
    recorded = metrics[metrics["name"] == "forgetting"].dropna(subset="client")
    assert dict(matrix.of_data) == pytest.approx(
        dict(zip(recorded["client"], recorded["value"], strict=True))
    )
    recorded = metrics[metrics["name"] == "forgetting_caused"]
    assert dict(matrix.caused) == pytest.approx(dict(zip(recorded["model"], recorded["value"], strict=True)))
    assert matrix.mean == pytest.approx(overall(metrics, "forgetting")["value"].item())
    assert matrix.own.mean() == pytest.approx(overall(metrics, "own_accuracy")["value"].item())
