"""The counts a loss receives in a federation: which labels, and of which round."""

import numpy as np
import pytest
import torch

from mnemos.client.messages import TrainRequest
from mnemos.client.reply import view
from mnemos.data.stream import Flow, Stream
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from mnemos.objectives.objective import LabelAware, objectives
from mnemos.objectives.wsm import ReweightedSoftmax
from support.play import play

LABEL_AWARE = [kind.name for kind in objectives if issubclass(kind, LabelAware)]


@pytest.mark.parametrize(
    ("loss", "counts"),
    [
        ("ce", [1, 2, 0, 0]),
        *((name, [1, 2, 0, 0]) for name in LABEL_AWARE if name != "task-ce"),
        *((name, [1, 1, 0, 1]) for name in ("task-ce", {"name": "wsm", "counting": "tasks"})),
        *(({"name": name, "counting": "train"}, [1, 2, 0, 0]) for name in LABEL_AWARE),
        *(({"name": name, "counting": "all"}, [2, 2, 1, 0]) for name in LABEL_AWARE),
    ],
    ids=str,
)
def test_validation_labels_count_if_asked_for(loss, counts):
    """Labels (0, 0, 1, 1, 2, 3); the client trains on samples 0, 2, 3, and holds out 1 and 4.

    Its tasks so far are of classes 0, 1 and 3.
    """
    plan = Experiment.parse({"method": {"name": "fedavg", "loss": loss}}).plan
    none, samples, held_out = torch.zeros(0), torch.tensor([0, 2, 3]), torch.tensor([1, 4])
    met = torch.tensor([True, True, False, True])
    task = TrainRequest(plan, 1, 0, none, none, {}, {}, samples, held_out, met, met)
    seen = view(TrainRequest.from_bytes(task.to_bytes()), torch.tensor([0, 0, 1, 1, 2, 3]), 4).counts
    assert seen.dtype == torch.float32
    assert seen.tolist() == counts


class TakeOver(Stream):
    """In every round, a client has what its right-hand neighbour had in the round before."""

    def open(self, setting):
        return Taken(setting)


class Taken(Flow):
    def samples(self, client: int, round: int):
        return self.assignment.train((client + round - 1) % self.assignment.clients)


@pytest.fixture
def changing(tiny):
    """Three clients, all in every round, whose data changes: an experiment for `wsm`."""
    return {
        **tiny,
        "partition": {"name": "dirichlet", "clients": 3, "alpha": 0.2},
        "model": "logistic",
        "method": {"name": "fedavg", "loss": "wsm"},
        "participation": 1,
        "local": {"steps": 1},
        "stream": TakeOver(),
    }


@pytest.mark.parametrize("counting", ["train", "all"])
def test_the_loss_is_given_the_counts_of_the_round(changing, monkeypatch, counting):
    """Training labels are those of the round's samples; held-out ones are the client's own in all rounds."""
    given, original = [], ReweightedSoftmax.__call__

    def spy(objective, logits, labels, counts):
        given.append(counts.tolist())
        return original(objective, logits, labels, counts)

    monkeypatch.setattr(ReweightedSoftmax, "__call__", spy)
    changing["method"]["loss"] = {"name": "wsm", "counting": counting}
    federation, _ = play(Experiment.parse(changing), 2)
    labels, held = federation.dataset.train.labels.numpy(), federation.assignment.held_out
    expected = [
        np.bincount(labels[federation.assignment.train((client + round - 1) % 3)], minlength=10)
        + (np.bincount(labels[held(client)], minlength=10) if counting == "all" else 0)
        for round in (1, 2)
        for client in federation.cohort(round)
    ]
    assert given == [counts.tolist() for counts in expected]
    assert len(set(map(tuple, given[:3]))) == 3  # neighbours differ, so old counts would be noticed


@pytest.mark.parametrize("engine", ["serial", "vmap"])
def test_only_classes_of_the_round_are_trained(changing, engine):
    """wsm moves the biases of the classes a client holds in the round, and not a bit of the others."""
    federation = Federation(Experiment.parse({**changing, "engine": engine}))
    labels, held = federation.dataset.train.labels, {}
    with federation.open() as runner:
        for round in (1, 2):
            for update in runner.run(federation.requests(round, runner)):
                own = federation.assignment.train((update.client + round - 1) % 3)
                held[round, update.client] = labels[torch.from_numpy(own)].unique().tolist()
                moved = federation.layout.views(update.delta)["head.bias"].nonzero().flatten().tolist()
                assert moved == held[round, update.client]
    federation.close()
    assert all(1 < len(classes) < 10 for classes in held.values())
    assert all(held[1, client] != held[2, client] for client in range(3))
