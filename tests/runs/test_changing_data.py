"""Runs whose clients' data changes: on disk, interrupted, pooled, estimated, and with what can't be."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest
import torch

import mnemos
from mnemos.client.messages import TrainRequest
from mnemos.data.load import load
from mnemos.errors import ConfigError
from mnemos.experiment.experiment import Experiment
from mnemos.federation.assembly import flow_of
from mnemos.federation.federation import Federation
from mnemos.runs.execute import resume
from mnemos.studies.estimate import Amount, estimate
from support.interrupt import Stop


@pytest.fixture
def tasks(tiny):
    """Twelve clients, five tasks of two digits each, in ten rounds."""
    return {
        **tiny,
        "partition": {"name": "power-law", "clients": 12},
        "stream": {"name": "tasks", "tasks": 5},
        "rounds": 10,
    }


def contents(run):
    return [run.file(name).read_bytes() for name in ("metrics.jsonl", "model.safetensors", "experiment.yaml")]


@pytest.mark.parametrize("stream", [{"name": "tasks", "tasks": 5}, {"name": "drift", "points": 3}], ids=str)
def test_an_interruption_leaves_no_trace(tasks, tmp_path, stream):
    tasks["stream"] = stream
    whole = mnemos.run(tasks, out=tmp_path / "whole")
    observer = Stop(6)
    with pytest.raises(KeyboardInterrupt):
        mnemos.run(tasks, out=tmp_path / "part", observer=observer)
    assert contents(resume(observer.run.path)) == contents(whole)
    with pytest.raises(
        ConfigError, match=r"^rounds: found 20; the stream \w+ is laid out over the run's 10$"
    ):
        resume(observer.run.path, rounds=20)


def test_a_task_tells_the_client_what_it_has_met(tasks):
    """Classes of the tasks it has reached, on both sides of a message; its samples are of the last one."""
    with closing(Federation(Experiment.parse(tasks))) as federation, federation.open() as runner:
        labels, flow, seen = federation.dataset.train.labels, federation.flow, 0
        for number in range(1, 11):
            for task in federation.requests(number, runner):
                met = TrainRequest.from_bytes(task.to_bytes()).met
                assert met.dtype == torch.bool
                assert met.tolist() == flow.met(task.client, number).tolist()
                now = flow.tasks[flow.task(task.client, number)].tolist()
                assert set(labels[task.samples].tolist()) <= set(now)
                assert met[now].all()
                seen += 1
        assert seen > 30


def test_the_flow_of_an_experiment_is_that_of_its_federation(tasks):
    experiment = Experiment.parse(tasks)
    with closing(Federation(experiment)) as federation:
        flow = flow_of(experiment, load(experiment.data))
        assert (flow.timeline() == federation.flow.timeline()).all()
        assert flow.cohort(7).tolist() == federation.cohort(7).tolist()


def test_one_learner_meets_the_tasks_one_after_the_other(tasks):
    """Its round's work is that of a cohort with a task's samples each, not with all of a client's."""
    tasks |= {"method": "centralised", "local": {"batch": 8}}
    with closing(Federation(Experiment.parse(tasks))) as federation, federation.open() as runner:
        assert federation.flow.assignment.clients == 1
        table = federation.flow.timeline()
        assert sorted(np.unique(table).tolist()) == [0, 1, 2, 3, 4]
        assert np.count_nonzero(np.diff(table[0])) == 4
        federation.advance(runner)
        clients = flow_of(Experiment.parse({**tasks, "method": "fedavg"}), federation.dataset).loads()
        steps = np.ceil(clients[clients > 0] / 8).mean() * 4
        assert federation.plan.local.steps == round(steps)


def test_a_round_that_nobody_can_train_in_changes_nothing(tiny):
    """Two clients with a digit each, and five tasks of two digits: nobody has anything for most of them."""
    changes = {
        **tiny,
        "partition": {"name": "labels", "clients": 2, "per_client": 1},
        "stream": {"name": "aligned", "tasks": 5},
        "rounds": 10,
        "participation": 1.0,
    }
    with closing(Federation(Experiment.parse(changes))) as federation, federation.open() as runner:
        idle = [number for number in range(1, 11) if not len(federation.cohort(number))]
        assert len(idle) in (6, 8)
        for number in range(1, 11):
            before = federation.server.model.clone()
            outcome = federation.advance(runner)
            assert torch.equal(before, federation.server.model) == (number in idle)
            assert np.isnan(outcome.loss) == (number in idle)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"stream": {"name": "tasks", "tasks": 11}}, r"^stream.tasks: found 11; the data set has 10 classes"),
        ({"rounds": 4}, r"^stream.tasks: found 5; there are 4 rounds"),
        ({"stream": {"name": "aligned", "tasks": 5, "first": 7}}, r"^stream.first: found 7; .* leave 1 to 6"),
        ({"stream": {"name": "tasks", "speed": 1}}, r"^stream.speed: unknown"),
        ({"stream": "taks"}, r"^stream: there is no stream 'taks'; did you mean 'tasks'"),
    ],
    ids=str,
)
def test_wrong_numbers_are_told_before_any_work(tasks, tmp_path, changes, sentence):
    with pytest.raises(ConfigError, match=sentence):
        mnemos.run({**tasks, **changes}, out=tmp_path / "runs")
    assert not list(tmp_path.glob("runs/*"))


def test_batch_norm_needs_two_samples_of_every_task(tasks):
    tasks |= {
        "partition": {"name": "power-law", "clients": 100},
        "model": {"name": "mlp", "hidden": [8], "norm": "batch"},
    }
    with pytest.raises(ConfigError, match=r"^partition: client \d+ has one training sample of a task \(\d+ "):
        Federation(Experiment.parse(tasks))
    Federation(Experiment.parse({**tasks, "local": {"fill": True}})).close()


def test_an_estimate_counts_a_tasks_steps_not_all(tasks):
    tasks |= {"local": {"batch": 8}}
    with closing(Federation(Experiment.parse(tasks))) as federation:
        loads = federation.flow.loads()
        assert loads.shape == (12, 5)
        assert Amount.of(federation).steps == pytest.approx(np.ceil(loads[loads > 0] / 8).mean())
    # What is measured has fewer rounds than there are tasks here.
    assert (estimate(Experiment.parse(tasks).override({"stream.tasks": 10, "rounds": 40})) or 0) > 0
