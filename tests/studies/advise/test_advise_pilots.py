"""Pilots: the same run directories, continued; judged on validation data alone; counted against a budget."""

import time

import pytest
import torch
from safetensors.torch import load_file
from tiny_federation import BASE

from mnemos.data.dataset import Dataset
from mnemos.data.sources.digits import Digits
from mnemos.errors import ConfigError
from mnemos.experiment.experiment import load_experiment
from mnemos.runs.execute import start
from mnemos.runs.store import overall_values
from mnemos.studies.advise.budget import Budget, BudgetSpentError, parse_budget
from mnemos.studies.advise.pilots import Pilots, check_pilots, continuable, pilot_of

RUNGS = (1, 3, 9)


class OtherTest(Digits):
    """The digits, with the labels of the test data permuted."""

    def load(self) -> Dataset:
        whole = super().load()
        whole.test.labels.copy_((whole.test.labels + 1) % 10)
        return whole


@pytest.fixture
def pilots(tmp_path):
    return Pilots(tmp_path, RUNGS, Budget(600, tmp_path / "time.json"))


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("20m", 1200), ("2h", 7200), ("1h30m", 5400), ("1.5m", 90)]
)
def test_a_budget_is_read(text, seconds):
    assert parse_budget(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "20", "-5m", "0s", "5 minutes", "1m1h"])
def test_a_budget_that_cannot_be_read(text):
    with pytest.raises(ConfigError, match=r"budget: found .* expected a time such as 90s, 20m, 2h"):
        parse_budget(text)


def test_the_time_of_all_calls_is_counted(tmp_path, monkeypatch):
    """3 s, and in the next call 4 s of a budget of 7: at 6.5 s it goes on, at 7 s it ends."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    first = Budget(7, tmp_path / "time.json")
    now[0] += 3
    first.save()
    now[0] += 1000  # between the calls
    again = Budget(7, tmp_path / "time.json")
    assert again.used == 3
    now[0] += 3.5
    again.tick()
    assert again.left == pytest.approx(0.5)
    now[0] += 0.5
    with pytest.raises(BudgetSpentError):
        again.tick()


def test_a_call_counts_from_its_beginning(tmp_path, monkeypatch):
    """A call that has read its data for 5 s has 2 s of 7 left."""
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    budget = Budget(7, tmp_path / "time.json", began=95.0)
    assert (budget.used, budget.left) == (5.0, 2.0)


def test_a_damaged_file_of_the_time_counts_as_none(tmp_path):
    (tmp_path / "time.json").write_text('{"seconds": "x"')
    assert Budget(7, tmp_path / "time.json").used < 5


def test_a_pilot_is_continued_and_ends_like_a_whole_run(pilots, tmp_path):
    experiment = load_experiment(BASE)
    found = [pilots.reach(experiment, rung) for rung in RUNGS]
    assert len({pilot.run.path for pilot in found}) == 1
    assert len(list(tmp_path.glob("digits-*"))) == 1
    whole = start(pilot_of(experiment, RUNGS, 9), tmp_path / "whole")
    names = ("model.safetensors",)
    for name in names:
        ours, theirs = (load_file(run.file(name)) for run in (found[-1].run, whole))
        assert all(torch.equal(ours[key], theirs[key]) for key in theirs)
    values = overall_values(whole.records, "validation_accuracy")
    assert found[-1].accuracy == pytest.approx((values[8] + values[9]) / 2), "the last sixth of nine rounds"
    assert found[1].accuracy == values[3]


def test_what_is_there_is_not_run_again(pilots):
    experiment = load_experiment(BASE)
    first = pilots.reach(experiment, 3)
    stamp = first.run.stamp("metrics.jsonl", "timing.jsonl")
    again = pilots.reach(experiment, 3)
    earlier = pilots.reach(experiment, 1)
    assert again == first
    assert earlier.rounds == 1
    assert earlier.seconds < first.seconds
    assert first.run.stamp("metrics.jsonl", "timing.jsonl") == stamp


def test_a_schedule_over_all_rounds_is_not_continued(pilots, tmp_path):
    experiment = load_experiment(BASE, {"local.schedule": "cosine"})
    assert continuable(load_experiment(BASE))
    assert not continuable(experiment)
    for rung in (1, 3):
        pilots.reach(experiment, rung)
    assert len(list(tmp_path.glob("digits-*"))) == 2


def test_test_data_is_not_touched(pilots, tmp_path):
    """Other test labels change nothing, and nothing about the test data is recorded."""
    other = Pilots(tmp_path / "other", RUNGS, Budget(600, tmp_path / "time2.json"))
    one = pilots.reach(load_experiment(BASE), 3)
    two = other.reach(load_experiment(BASE, {"data": f"{__name__}:OtherTest"}), 3)
    assert (one.accuracy, one.forgetting) == (two.accuracy, two.forgetting)
    for pilot in (one, two):
        assert not {row["name"] for row in pilot.run.records} & {"test_accuracy", "test_loss"}
        assert "validation_accuracy" in {row["name"] for row in pilot.run.records}


def test_a_pilot_that_does_not_converge_has_no_accuracy(pilots):
    pilot = pilots.reach(load_experiment(BASE, {"local.lr": 1e30}), 3)
    assert pilot.accuracy is None
    assert pilot.message


def test_a_spent_budget_interrupts_a_run_that_goes_on_later(tmp_path):
    experiment, spent = load_experiment(BASE), Budget(1e-9, tmp_path / "time.json")
    with pytest.raises(BudgetSpentError):
        Pilots(tmp_path, RUNGS, spent).reach(experiment, 1)
    spent.seconds = 600
    pilots = Pilots(tmp_path, RUNGS, spent)
    pilots.reach(experiment, 1)
    spent.seconds = 1e-9
    assert pilots.reach(experiment, 1).accuracy is not None, "what is there costs nothing"
    with pytest.raises(BudgetSpentError):
        pilots.reach(experiment, 3)
    spent.seconds = 600
    assert pilots.reach(experiment, 3).rounds == 3


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"partition.validation": 0}, "partition.validation: found 0; pilots are judged on validation data"),
        ({"partition.clients": 1000}, "leaves no client a validation sample"),
        ({"privacy": {"name": "gaussian", "noise": 1.0, "clip": 1.0}}, "every pilot would spend ε"),
    ],
)
def test_what_pilots_cannot_be_made_of(changes, sentence):
    with pytest.raises(ConfigError, match=sentence):
        check_pilots(load_experiment(BASE, changes))
