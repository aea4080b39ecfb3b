"""Free riders are found by their updates, and honest clients are left alone."""

from contextlib import closing

import pytest
import torch
from torch import nn

from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from mnemos.methods.exchange import Cohort, TrainReply
from mnemos.screens.free_riders import FreeRiderScreen
from mnemos.vector import Layout
from support.play import each_round

LAYOUT = Layout.of(nn.Sequential(nn.Conv2d(8, 16, 3), nn.Flatten(), nn.Linear(16, 10)))


def structured(generator):
    """An update as training makes it: in each layer a few directions stand out."""
    views = {
        slot.name: torch.randn(slot.shape[0], 2, generator=generator)
        @ torch.randn(2, slot.size // slot.shape[0], generator=generator)
        if len(slot.shape) > 1
        else torch.randn(slot.shape, generator=generator)
        for slot in LAYOUT.parameters
    }
    vector = torch.cat([view.reshape(-1) for view in views.values()])
    return vector + 0.1 * torch.randn(len(vector), generator=generator)


def judge(deltas, last=None):
    updates = tuple(
        TrainReply(k, 1, 1, 1, 0.0, delta, torch.zeros(0), {}, {}) for k, delta in enumerate(deltas)
    )
    last = torch.zeros(LAYOUT.size) if last is None else last
    return FreeRiderScreen().judge(
        Cohort(torch.zeros(LAYOUT.size), torch.zeros(0), updates, LAYOUT), last, {}
    )


@pytest.fixture
def cohort():
    generator = torch.Generator().manual_seed(0)
    return [structured(generator) for _ in range(6)], structured(generator), generator


def test_honest_clients_are_left_alone(cohort):
    honest, last, _ = cohort
    assert judge(honest, last) == {}
    assert judge([delta + 0.3 * last for delta in honest], last) == {}


@pytest.mark.parametrize("scale", [-1.0, 0.0, 0.5, 1.0, 30.0])
def test_a_multiple_of_the_last_change_is_nothing_of_ones_own(cohort, scale):
    honest, last, _ = cohort
    found = judge([*honest, scale * last], last)
    assert found == {6: "free rider, nothing of its own"}


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("mixed", [0.0, 1.0])
def test_noise_alone_or_over_a_replay_is_noise(cohort, scale, mixed):
    honest, last, generator = cohort
    noise = scale * torch.randn(LAYOUT.size, generator=generator)
    found = judge([*honest, mixed * last + noise], last)
    assert found == {6: "free rider, nothing but noise"}


def test_an_update_that_is_not_finite_hides_nobody(cohort):
    honest, last, _ = cohort
    broken = honest[0].clone()
    broken[3] = torch.nan
    assert judge([*honest, last, broken], last) == {6: "free rider, nothing of its own"}


def test_where_nobody_moves_nobody_is_accused():
    assert judge([torch.zeros(LAYOUT.size)] * 4) == {}


def test_a_model_without_layers_of_rank_is_judged_by_length():
    layout = Layout.of(nn.BatchNorm1d(6))
    moving = torch.randn(4, layout.size, generator=torch.Generator().manual_seed(0))
    deltas = [*moving, torch.zeros(layout.size)]
    updates = tuple(
        TrainReply(k, 1, 1, 1, 0.0, delta, torch.zeros(0), {}, {}) for k, delta in enumerate(deltas)
    )
    cohort = Cohort(layout.zeros(), torch.zeros(0), updates, layout)
    found = FreeRiderScreen().judge(cohort, layout.zeros(), {})
    assert found == {4: "free rider, nothing of its own"}


def test_two_clients_have_nobody_to_compare_with(cohort):
    honest, last, _ = cohort
    assert judge([honest[0], torch.zeros(LAYOUT.size)], last) == {}


def test_too_few_to_compare_are_warned_about():
    few = {"partition": {"clients": 2}, "participation": 1.0, "screens": ["free-riders"]}
    with closing(Federation(Experiment.parse(few))) as federation:
        assert "free-riders compares 3 updates at least, and a round has 2" in federation.warnings[0]


@pytest.mark.parametrize("kind", ["unchanged", "noise", "replay"])
def test_in_a_federation_they_are_put_aside_from_the_first_round_on(kind):
    """Fifteen rounds of digits with skewed labels, one of ten clients riding free."""
    federation = Federation(
        Experiment.parse(
            {
                "partition": {"name": "dirichlet", "clients": 10, "alpha": 0.5},
                "participation": 1.0,
                "local": {"epochs": 2, "batch": 16},
                "rounds": 15,
                "faults": [{"name": "free-riders", "kind": kind}],
                "screens": ["free-riders"],
                "evaluate": {"test_last": 0},
                "engine": "serial",
            }
        )
    )
    riders = set(federation.experiment.faults[0].clients(10, 0).tolist())
    accused = [
        {record.client for record in outcome.records if record.name.startswith("rejected: free rider")}
        for outcome in each_round(federation)
    ]
    assert accused == 15 * [riders]
