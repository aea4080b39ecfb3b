"""Scaling rules, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from mnemos.data.partitions.dirichlet import Dirichlet
from mnemos.errors import ConfigError
from mnemos.experiment.experiment import Experiment, load_experiment
from mnemos.studies.reproduce.catalogue import find_recipe
from mnemos.studies.reproduce.scale import FirstClients, differences, scaled_round, shrink


def experiment(**changes: object) -> Experiment:
    base = {
        "data": "cifar10",
        "partition": {"clients": 100},
        "model": {"name": "resnet18", "norm": "group"},
        "participation": 0.1,
        "rounds": 4000,
        "evaluate": {"every": 50, "test_last": 100, "patience": 200, "forgetting": [1, 1200, 2800, 4000]},
    }
    return load_experiment({**base, **changes})


def test_at_full_scale_nothing_changes() -> None:
    full = experiment()
    assert shrink(full, 1.0) is full


def test_a_tenth_by_hand() -> None:
    small = shrink(experiment(), 0.1)
    assert small.rounds == 400
    assert (small.evaluate.every, small.evaluate.test_last, small.evaluate.patience) == (5, 10, 200)
    assert small.evaluate.forgetting == (1, 120, 280, 400)
    assert small.model.width == 0.3162  # √0.1
    assert small.partition == experiment().partition
    assert small.participation == 0.1
    assert differences([(experiment(), small)]) == [
        "evaluate.every: 50 → 5",
        "evaluate.forgetting: 1, 1200, 2800, 4000 → 1, 120, 280, 400",
        "evaluate.test_last: 100 → 10",
        "model.width: 1.0 → 0.3162",
        "rounds: 4000 → 400",
    ]


def test_the_smallest_by_hand() -> None:
    """At least 2 rounds, 4 clients, a cohort of 2, an eighth of the width; each round once."""
    small = shrink(experiment(), 1e-4)
    assert small.rounds == 2
    assert (small.evaluate.every, small.evaluate.test_last) == (1, 1)
    assert small.evaluate.forgetting == (1,)
    assert small.model.width == 0.125
    assert (small.partition.clients, small.partition.population, small.participation) == (4, 100, 0.5)


@pytest.mark.parametrize(
    ("scale", "participation", "clients", "cohort"),
    [
        (0.1, 0.02, 100, 2),
        (0.05, 0.1, 50, 5),  # 10 · 0.05 of 100 clients, and a tenth of them
        (0.05, 0.02, 50, 2),  # 1 would be too few
        (0.05, 0.01, 50, 1),  # the paper has no more
        (0.001, 0.6, 4, 2),
    ],
)
def test_clients_and_cohorts_below_a_tenth(
    scale: float, participation: float, clients: int, cohort: int
) -> None:
    small = shrink(experiment(participation=participation), scale)
    assert small.partition.clients == clients
    assert int(small.participation * clients + 1e-9) == cohort


def test_a_few_clients_stay_as_they_are() -> None:
    few = shrink(experiment(partition={"clients": 4}, participation=0.5), 0.01)
    assert type(few.partition) is Dirichlet
    assert (few.partition.clients, few.participation) == (4, 0.5)


def test_clients_keep_their_samples() -> None:
    labels = np.arange(1000) % 10
    few = FirstClients(clients=7, population=100, alpha=0.1)
    order, offsets = few.assign(labels, None, np.random.default_rng(3))
    everyone, ends = Dirichlet(clients=100, alpha=0.1).assign(labels, None, np.random.default_rng(3))
    assert offsets.tolist() == ends[:8].tolist()
    assert order.tolist() == everyone[: ends[7]].tolist()


def test_lenet_keeps_its_width() -> None:
    assert shrink(experiment(model="lenet"), 0.01).model.width == 1.0


def test_a_scaled_experiment_can_be_read_back() -> None:
    """Its partition is named by import path in the run's directory."""
    small = shrink(experiment(), 0.01)
    assert load_experiment(small.model_dump(mode="json")) == small


def test_rounds_are_rounded_to_the_nearest() -> None:
    assert [scaled_round(number, 0.25) for number in (1, 2, 5, 6)] == [1, 1, 1, 2]


def test_a_schedule_takes_the_same_course() -> None:
    """It falls ten times in 250 rounds, and so it does in 50."""
    falls = {"name": "step", "size": 25, "gamma": 0.5}
    small = shrink(experiment(rounds=250, local={"schedule": falls}), 0.2)
    assert (small.rounds, small.local.schedule.size, small.local.schedule.gamma) == (50, 5, 0.5)
    cosine = {"name": "cosine", "length": 100}
    assert shrink(experiment(local={"schedule": cosine}), 0.2).local.schedule.length == 20
    assert shrink(experiment(local={"schedule": "cosine"}), 0.2).local.schedule.length is None


def test_forgetting_every_so_many_rounds() -> None:
    assert shrink(experiment(evaluate={"forgetting": 400}), 0.1).evaluate.forgetting == 40
    assert shrink(experiment(evaluate={"forgetting": 0, "test_last": 0}), 0.1).evaluate.test_last == 0


@pytest.mark.parametrize("scale", [0.0, -1.0, 1.5, float("nan")])
def test_scales_that_make_no_sense(scale: float) -> None:
    with pytest.raises(ConfigError, match=r"scale: found .*; allowed: > 0 and ≤ 1"):
        shrink(experiment(), scale)


@pytest.mark.parametrize("name", ["wsm/figure-4", "tce/figure-2", "thesis/table-3.2", "feder/table-4.2"])
def test_recipes_at_every_scale(name: str) -> None:
    _, recipe = find_recipe(name)
    for scale in (0.5, 0.1, 0.03, 0.001):
        assert all(cell.experiment.rounds >= 2 for cell in recipe.of(scale))
