"""FedSpace as a whole: its limits, its parts one by one, and what it combines with."""

import pytest
import torch

from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from mnemos.objectives.tce import TaskCrossEntropy
from support import quadratic
from support.play import play
from support.quadratic import near


def experiment(method, **changes):
    settings = {
        "model": {"name": "mlp", "hidden": [12]},
        "partition": {"name": "label-dirichlet", "clients": 6, "alpha": 1.0, "validation": 0},
        "stream": {"name": "tasks", "tasks": 5},
        "method": method,
        "local": {"epochs": 1, "batch": 16, "lr": 0.05},
        "participation": 0.5,
        "rounds": 10,
        "engine": "serial",
        "evaluate": {"every": 100, "test_last": 0},
    }
    return Experiment.parse({**settings, **changes})


def trained(method, **changes):
    return play(experiment(method, **changes))[0]


PLAIN = {"name": "fedavg", "loss": "task-ce", "head": {"rotations": True, "temperature": 0.1}}
NOTHING = {
    "name": "fedspace",
    "prototype_weight": 0.0,
    "representation_weight": 0.0,
    "server": {"name": "mix", "rho": 1.0},
    "buffers": {"name": "mix", "rho": 1.0},
}


@pytest.mark.parametrize(
    "model", [{"name": "mlp", "hidden": [12]}, {"name": "cnn", "width": 0.1, "norm": "batch"}]
)
def test_without_its_parts_it_is_fedavg(model):
    """ρ = 1 and λ = 0, bit for bit, in a federation whose clients follow their tasks."""
    ours, plain = trained(NOTHING, model=model), trained(PLAIN, model=model)
    assert torch.equal(ours.server.model, plain.server.model)
    assert torch.equal(ours.server.buffers, plain.server.buffers)


@pytest.mark.parametrize(
    "part",
    [
        {"prototype_weight": 0.5},
        {"representation_weight": 0.5},
        {"server": {"name": "mix", "rho": 0.5}},
        {"prototype_weight": 0.5, "aggregate": False},
        {"loss": "wsm"},
        {"head": {"rotations": False, "temperature": 0.1}},
    ],
    ids=str,
)
def test_each_part_does_something_alone(part):
    plain, ours = trained(PLAIN), trained({**NOTHING, **part})
    sizes = {len(plain.server.model), len(ours.server.model)}
    assert len(sizes) == 2 or not torch.allclose(ours.server.model, plain.server.model, atol=1e-6)


def test_mixing_by_hand():
    """Two clients at a = 0 and 4 with h = 1 and η = ½, one step each, ρ = ½.

    From w the clients go to w/2 and w/2 + 2: their mean is w/2 + 1, and the server goes half the way there:
    w ← ¾ w + ½. From 0: ½, 7/8, 37/32.
    """
    played = quadratic.play(
        {"name": "fedavg", "server": {"name": "mix", "rho": 0.5}},
        {"steps": 1, "lr": 0.5},
        h=(1.0, 1.0),
        a=((0.0,), (4.0,)),
        rounds=3,
    )
    assert played.models == near([1 / 2, 7 / 8, 37 / 32])


def test_the_loss_of_tasks_leaves_out_what_is_yet_to_come():
    """Of four classes the first two are met: log(e¹ + e²) − 1 for the label 0, whatever the others say."""
    logits, met = torch.tensor([[1.0, 2.0, 50.0, 50.0]]), torch.tensor([1.0, 1.0, 0.0, 0.0])
    found = TaskCrossEntropy()(logits, torch.tensor([0]), met)
    assert float(found) == pytest.approx(float(torch.tensor([1.0, 2.0]).logsumexp(0)) - 1)


def test_what_clients_know_of_their_tasks():
    """A client's loss counts the classes of the tasks it has reached, and its batches are of the last one."""
    federation = Federation(experiment("fedspace"))
    with federation.open() as runner:
        for number in range(1, 11):
            for task in federation.requests(number, runner):
                flow, labels = federation.flow, federation.dataset.train.labels[task.samples]
                reached = flow.reached(task.client, number).tolist()
                classes = {c for one in reached for c in flow.tasks[one].tolist()}
                assert set(task.met.nonzero().flatten().tolist()) == classes
                assert set(labels.tolist()) <= set(flow.tasks[reached[-1]].tolist())
            federation.advance(runner)
    federation.close()


@pytest.mark.parametrize(
    "method",
    [
        {"name": "fedspace", "loss": "wsm"},
        {"name": "fedspace", "correction": "scaffold"},
        {"name": "fedspace", "weighting": {"name": "effective-rank", "linear": True, "noisy": True}},
        {"name": "fedspace", "terms": [{"name": "proximal", "mu": 0.1}]},
        {"name": "pass", "distillation": 0.1},
    ],
    ids=str,
)
def test_it_combines_on_every_engine(method):
    serial = trained(method, rounds=5)
    for engine, rtol, atol in (("threads", 0, 0), ("vmap", 1e-3, 1e-4)):
        other = trained(method, rounds=5, engine=engine)
        torch.testing.assert_close(other.server.model, serial.server.model, rtol=rtol, atol=atol)
        for name, value in serial.server.tensors.items():
            torch.testing.assert_close(other.server.tensors[name], value, rtol=rtol, atol=atol)


def test_prototypes_are_counted_as_traffic():
    """Beside the model: 10 × 12 numbers of prototypes, 10 of classes, a radius and a number of samples."""
    counted = {}
    for name, method in (("plain", PLAIN), ("ours", "fedspace")):
        federation = Federation(experiment(method))
        with federation.open() as runner:
            records = federation.advance(runner).records
        counted[name] = {r.name: r.value for r in records if r.name.startswith("bytes")}
        federation.close()
    up = counted["ours"]["bytes_up"] - counted["plain"]["bytes_up"]
    down = counted["ours"]["bytes_down"] - counted["plain"]["bytes_down"]
    assert up == 3 * 4 * (10 * 12 + 10 + 2)
    assert down == 3 * 4 * (10 * 12 + 10 + 1)
