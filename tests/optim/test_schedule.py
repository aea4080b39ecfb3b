"""Schedules: factors worked out by hand, and the rate of every step of a client."""

import math

import pytest
import torch

from mnemos.client.messages import TrainRequest
from mnemos.client.workload import LocalWorkload, rates, step_rates
from mnemos.errors import ConfigError
from mnemos.experiment.experiment import Experiment, load_experiment
from mnemos.federation.federation import Federation
from mnemos.optim.schedule import schedules

E = 3
"""Epochs a round."""


def course(schedule, rounds):
    """The factors of all epochs of all rounds, one after the other."""
    part = schedules.parse(schedule).within(rounds)
    return [part.factor(round, epoch, E) for round in range(1, rounds + 1) for epoch in range(E)]


def test_constant():
    assert course("constant", 2) == [1.0] * 6


def test_steps_over_rounds_and_epochs():
    """Over rounds, γ after every second round; over epochs, after every fourth epoch of the nine."""
    over_rounds = course({"name": "step", "size": 2, "gamma": 0.1}, 5)
    assert over_rounds == pytest.approx([1] * 6 + [0.1] * 6 + [0.01] * 3)
    over_epochs = course({"name": "step", "size": 4, "gamma": 0.5, "over": "epochs"}, 3)
    assert over_epochs == [1.0] * 4 + [0.5] * 4 + [0.25]


def test_steps_agree_with_torch():
    weight = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1.0)
    reference = torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.3)
    for factor in course({"name": "step", "size": 4, "gamma": 0.3, "over": "epochs"}, 5):
        assert factor == pytest.approx(reference.get_last_lr()[0])
        optimizer.step()
        reference.step()


def test_cosine_by_hand():
    """Four rounds, T = 4: cos 0 = 1, cos 45° = 1/√2, cos 90° = 0, cos 135° = −1/√2."""
    root = math.sqrt(0.5)
    quarters = [1, (1 + root) / 2, 0.5, (1 - root) / 2]
    assert course("cosine", 4)[::E] == pytest.approx(quarters)
    floored = course({"name": "cosine", "floor": 0.2}, 4)[::E]
    assert floored == pytest.approx([0.2 + 0.8 * quarter for quarter in quarters])
    shorter = course({"name": "cosine", "floor": 0.2, "length": 2}, 4)[::E]
    assert shorter == pytest.approx([1, 0.6, 0.2, 0.2])


def test_cosine_over_epochs():
    """Two rounds of three epochs are T = 6 epochs of 30° each."""
    factors = course({"name": "cosine", "over": "epochs"}, 2)
    assert factors == pytest.approx([(1 + math.cos(math.radians(30 * t))) / 2 for t in range(6)])


def test_a_plan_needs_no_experiment():
    """The length that isn't given is the experiment's rounds, in the plan that a client gets."""
    experiment = load_experiment({"rounds": 7, "local": {"schedule": "cosine"}})
    assert experiment.local.schedule.length is None
    assert experiment.plan.local.schedule.length == 7
    fixed = experiment.override({"local.schedule.length": 3})
    assert fixed.plan.local.schedule.length == 3


def paced(samples, round=1, **local):
    """The rates of a client's steps, and after which of them an epoch ends."""
    plan = load_experiment({"local": {"lr": 1.0, "batch": 2, **local}}).plan
    nothing = torch.zeros(0)
    task = TrainRequest(plan, round, 0, nothing, nothing, {}, {}, torch.arange(samples), *[nothing] * 3)
    settings = plan.local
    todo = LocalWorkload(
        task.samples, settings.batch, settings.epochs, settings.steps, 0.0, drop_single=False
    )
    return rates(task, todo), todo.ends


HALVES = {"name": "step", "size": 1, "gamma": 0.5, "over": "epochs"}


def test_rates_of_a_clients_steps():
    """Five samples in batches of two are three steps an epoch."""
    assert paced(5, epochs=2, schedule=HALVES) == (((3, 1.0), (3, 0.5)), [3, 6])
    assert paced(5, round=3, epochs=2, schedule=HALVES) == (((3, 1 / 16), (3, 1 / 32)), [3, 6])
    # Alike rates are one stretch.
    assert paced(5, epochs=4) == (((12, 1.0),), [3, 6, 9, 12])
    assert step_rates(((2, 0.5), (1, 0.25))) == [0.5, 0.5, 0.25]


def test_rates_where_steps_are_given():
    """A pass that is begun and not finished is no epoch; a round that is too short for a pass is one."""
    assert paced(5, steps=8, schedule=HALVES) == (((3, 1.0), (5, 0.5)), [3, 6])
    assert paced(5, steps=2, schedule=HALVES) == (((2, 1.0),), [2])
    assert paced(5, steps=2, round=2, schedule=HALVES) == (((2, 0.5),), [2])


def test_a_rate_of_zero_is_refused():
    local = {"schedule": {"name": "cosine", "length": 3}}
    Federation(Experiment.parse({"rounds": 3, "local": local})).close()
    with pytest.raises(ConfigError, match=r"local\.schedule: the rate is 0 before the last round, 4"):
        Federation(Experiment.parse({"rounds": 4, "local": local}))


def test_rounds_of_too_few_steps_are_said():
    local = {"steps": 1, "batch": 8, "schedule": HALVES}
    federation = Federation(Experiment.parse({"partition": {"clients": 10}, "local": local}))
    assert any(sentence.startswith("local.steps=1 is less than a pass") for sentence in federation.warnings)
    federation.close()
