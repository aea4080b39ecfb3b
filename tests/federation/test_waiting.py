"""Deadlines, over-selection and partial work, in simulated time worked out by hand."""

import pytest
import torch

from mnemos.client.messages import TrainRequest
from mnemos.client.trainer import Trainer
from mnemos.client.workload import rates, workload
from mnemos.errors import ConfigError, PausedError
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from support.interrupt import assert_repeatable
from support.play import play as play_all

TIMES = {0: 1.0, 1: 2.0, 2: 3.0, 3: 5.0, 4: 8.0, 5: 30.0}
"""Of a step; with four steps a round these clients take 4, 8, 12, 20, 32 and 120."""


def experiment(clock=None, **changes):
    return Experiment.parse(
        {
            "partition": {"name": "iid", "clients": 6},
            "model": {"name": "mlp", "hidden": [8]},
            "participation": 1.0,
            "local": {"steps": 4, "batch": 16, "lr": 0.1},
            "clock": {"name": "synchronous", "speeds": {"times": TIMES}, **(clock or {})},
            "rounds": 2,
            "engine": "serial",
            **changes,
        }
    )


def play(description, rounds=1):
    return play_all(description, rounds)


def named(outcome, name):
    return [record.client for record in outcome.records if record.name == name and record.client is not None]


def times(outcomes):
    return [record.value for outcome in outcomes for record in outcome.records if record.name == "time"]


def test_who_is_not_back_by_the_deadline_is_dropped():
    """Deadline 20: clients 4 and 5 are late, and the server waits for them to the last."""
    federation, outcomes = play(experiment({"deadline": 20.0}), 2)
    assert named(outcomes[0], "dropped: deadline") == [4, 5]
    assert named(outcomes[0], "train_loss") == [0, 1, 2, 3]
    assert times(outcomes) == [20.0, 40.0]
    (sent,) = [record.value for record in outcomes[0].records if record.name == "bytes_up"]
    assert sent == 4 * federation.layout.size * 4


def test_nobody_waits_longer_than_it_takes():
    _, outcomes = play(experiment({"deadline": 500.0}))
    assert named(outcomes[0], "dropped: deadline") == []
    assert times(outcomes) == [120.0]


def test_the_first_so_many_are_taken():
    """Two thirds of six clients and a half more are asked: of all six, the four fastest are waited for."""
    clock = {"over_selection": 0.5}
    federation, outcomes = play(experiment(clock, participation=0.67))
    assert federation.population.cohort_size == 4
    assert named(outcomes[0], "dropped: enough others") == [4, 5]
    assert times(outcomes) == [20.0]
    (down,) = [record.value for record in outcomes[0].records if record.name == "bytes_down"]
    assert down == 6 * 4 * federation.layout.size


def test_who_vanishes_is_replaced_by_the_next():
    """Of six that are asked for four, those that vanish are no part of the first four."""
    drops = [{"name": "drop-outs", "rate": 0.3}]
    clock = {"over_selection": 0.5}
    _, outcomes = play(experiment(clock, participation=0.67, faults=drops, seed=3))
    gone = named(outcomes[0], "dropped")
    assert gone
    left = [client for client in range(6) if client not in gone]
    assert named(outcomes[0], "train_loss") == left[:4]
    assert named(outcomes[0], "dropped: enough others") == left[4:]


def test_a_deadline_comes_first_and_ends_a_round_that_has_too_few():
    """Three of four that it takes are there by 15: the server waits to the end."""
    clock = {"over_selection": 0.5, "deadline": 15.0}
    _, outcomes = play(experiment(clock, participation=0.67))
    assert named(outcomes[0], "dropped: deadline") == [3, 4, 5]
    assert named(outcomes[0], "dropped: enough others") == []
    assert times(outcomes) == [15.0]


def test_a_deadline_that_nobody_keeps_pauses_the_run():
    with pytest.raises(PausedError, match="18 dropped: deadline"):
        play(experiment({"deadline": 1.0}))


@pytest.mark.parametrize("engine", ["serial", "threads", "vmap"])
def test_partial_work_counts_with_methods_that_allow_it(engine):
    """By 20, clients 4 (8 a step) and 5 (30 a step) have done 2 of 4 steps, and none."""
    steps = {}
    federation = Federation(
        experiment({"deadline": 20.0}, method="fednova", engine=engine),
        checks=(lambda update, layout: steps.__setitem__(update.client, update.steps),),
    )
    with federation.open() as runner:
        outcome = federation.advance(runner)
    federation.close()
    assert steps == {0: 4, 1: 4, 2: 4, 3: 4, 4: 2}
    assert named(outcome, "dropped: deadline") == [5]
    assert times([outcome]) == [20.0]


@pytest.mark.parametrize(
    ("method", "clock"),
    [("fedavg", {}), ("scaffold", {}), ("fedprox", {"partial": False}), ("fednova", {"partial": False})],
)
def test_others_drop_who_is_not_through(method, clock):
    _, outcomes = play(experiment({"deadline": 20.0, **clock}, method=method))
    assert named(outcomes[0], "dropped: deadline") == [4, 5]


def test_what_was_done_is_the_beginning_of_the_whole():
    """Two of four steps are those that a client of two steps makes: same batches, same update, same bits."""
    federation = Federation(experiment({"deadline": 20.0}, method="fedprox"))
    two = Federation(experiment(method="fedprox", local={"steps": 2, "batch": 16, "lr": 0.1}))
    with federation.open() as runner, two.open() as other:
        attempt = next(federation.retries.attempts(1))
        assert attempt.steps == {4: 2}
        tasks = federation.requests(1, runner, steps=attempt.steps)
        cut = next(task for task in tasks if task.client == 4)
        short = next(task for task in two.requests(1, other) if task.client == 4)
        update = Trainer(runner.plan, federation.dataset)(TrainRequest.from_bytes(cut.to_bytes()))
        expected = Trainer(other.plan, two.dataset)(short)
    federation.close()
    two.close()
    assert update.steps == expected.steps == 2
    assert torch.equal(update.delta, expected.delta)


def test_rates_are_those_of_the_whole_round():
    """Halved after each local epoch: the second round, of three epochs of two steps, begins at 1/8."""
    local = {
        "epochs": 3,
        "batch": 150,
        "lr": 1.0,
        "schedule": {"name": "step", "size": 1, "gamma": 0.5, "over": "epochs"},
    }
    federation = Federation(experiment(local=local))
    with federation.open() as runner:
        task = next(federation.requests(2, runner, steps={0: 3}))
    federation.close()
    assert rates(task, workload(task, batch_norm=False)) == ((2, 1 / 8), (1, 1 / 16))


@pytest.mark.parametrize("method", ["fednova", "fedprox"])
def test_engines_and_a_resume_agree(method, tmp_path):
    clock = {"deadline": 20.0, "over_selection": 0.5, "speeds": {"spread": 0.8, "jitter": 0.5}}
    description = experiment(clock, participation=0.67, method=method, rounds=4)
    assert_repeatable(description, tmp_path)


def test_an_ordinary_synchronous_clock_is_as_it_was():
    timed, plain = experiment(), experiment().override({"clock": "rounds"})
    (one, _), (two, _) = play(timed, 2), play(plain, 2)
    assert torch.equal(one.server.model, two.server.model)


@pytest.mark.parametrize(
    ("clock", "words"),
    [
        ({"deadline": 0}, "clock.deadline: found 0"),
        ({"over_selection": -0.1}, "clock.over_selection: found -0.1"),
    ],
)
def test_wrong_clocks_are_one_sentence(clock, words):
    with pytest.raises(ConfigError, match=words):
        experiment(clock)
