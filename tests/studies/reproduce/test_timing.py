"""Estimates of the list: one timing for each kind, and steps counted by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from mnemos.experiment.experiment import Experiment
from mnemos.studies.reproduce import timing
from mnemos.studies.reproduce.catalogue import find_recipe
from mnemos.studies.reproduce.cell import RecipeCell
from mnemos.studies.reproduce.timing import Timing


def cells(name: str, scale: float = 1.0) -> dict[str, RecipeCell]:
    return {cell.name: cell for cell in find_recipe(name)[1].of(scale)}


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[Experiment]:
    """The experiments that were timed; each is said to take 3,000 s, so one for each of its steps."""
    asked: list[Experiment] = []

    def estimate(experiment: Experiment, folder: Path, *, cores: int) -> float:
        asked.append(experiment)
        return 3_000.0  # 100 rounds × 10 clients × 3 epochs of one batch (9 of the 10 samples)

    monkeypatch.setattr(timing, "estimate", estimate)
    return asked


def test_steps_by_hand(timed: list[Experiment], papers_data: Path, tmp_path: Path) -> None:
    known = Timing(tmp_path)
    table = cells("wsm/table-5")
    # 4,000 rounds × 10 or 2 clients × 3 steps.
    assert known.seconds(table["lr 0.01, FedAvg/CIFAR-10"].experiment, 1) == pytest.approx(120_000)
    assert known.seconds(table["lr 0.07, FedAvg + WSM/CIFAR-100"].experiment, 1) == pytest.approx(24_000)
    # 4,000 rounds × 10 clients × 70 steps, with a ResNet; batch norm and group norm are alike.
    ablation = cells("wsm/figure-6")
    assert known.seconds(ablation["FedAvg/70 iterations"].experiment, 1) == pytest.approx(2_800_000)
    assert known.seconds(ablation["FedAvg + WSM/70 iterations"].experiment, 1) == pytest.approx(2_800_000)
    # Two rounds of two clients, who keep their ten samples.
    small = cells("wsm/table-5", 0.0002)["lr 0.01, FedAvg/CIFAR-10"].experiment
    assert known.seconds(small, 1) == pytest.approx(2 * 2 * 3)
    assert [type(experiment.model).name for experiment in timed] == ["lenet", "resnet18"]


def test_steps_of_clients_with_all_data_and_of_one_learner(
    timed: list[Experiment], papers_data: Path, tmp_path: Path
) -> None:
    """980 of 1,000 samples to train on are 8 batches of 128, a quarter of them 2; in 250 rounds."""
    known, table = Timing(tmp_path), cells("feder/table-4.2")
    rounds = {
        "Adam, FedAvg/all data each": 4 * 8,
        "Adam, FedAvg/a quarter each": 4 * 2,
        "AdamP, FedER/all data each": 4 * 8,
        "RMSGD, Non-Fed Baseline/all data each": 8,
    }
    for name, steps in rounds.items():
        assert known.seconds(table[name].experiment, 1) == pytest.approx(250 * steps)
    assert [type(experiment.local.optimizer).name for experiment in timed] == ["sgd"]


def test_without_data_nothing_is_timed(timed: list[Experiment], tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("MNEMOS_DATA", str(tmp_path))
    assert Timing(tmp_path).seconds(cells("wsm/table-3")["FedAvg/CIFAR-10"].experiment, 1) is None
    assert not timed


def test_a_real_timing(papers_data: Path, tmp_path: Path) -> None:
    experiment = cells("wsm/table-5", 0.001)["lr 0.01, FedAvg/CIFAR-10"].experiment
    seconds = Timing(tmp_path).seconds(experiment, 1)
    assert seconds is not None
    assert seconds > 0
