"""Federations whose clients have different models: groups, exchanges and peers."""

import re
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from torch import nn

import mnemos
from mnemos.client.trainer import fresh_model
from mnemos.data.augment import normalise
from mnemos.data.load import load
from mnemos.data.partition import Partition, held_by
from mnemos.data.partitions.iid import Iid
from mnemos.errors import ConfigError, DivergedError
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from mnemos.federation.model_assignment import assign_models
from mnemos.federation.population import held_back, partition_samples
from mnemos.methods.server_learning import Student, codistil, divergence, server_batches
from mnemos.models.functional import Functional
from mnemos.models.mixed import CoDistillation
from mnemos.runs.execute import resume
from mnemos.vector import Layout
from support.interrupt import Stop
from support.play import play as play_all

NARROW = {"name": "mlp", "hidden": [6]}
WIDE = {"name": "mlp", "hidden": [9], "norm": "batch"}
TWO = {"name": "mixed", "of": [{"model": NARROW, "share": 2}, {"model": WIDE}]}
PEERS = {"name": "mixed", "of": [{"model": NARROW}, {"model": WIDE}], "peers": True}
EXCHANGE = {"samples": 60, "lr": 0.3, "steps": 2}
HALF = {"name": "test_mixed:Some", "clients": 6, "members": [0, 1, 2]}
LEFT_OUT = "leave-out"
BASE = {
    "partition": {"name": "iid", "clients": 6},
    "model": TWO,
    "local": {"steps": 3, "batch": 16, "lr": 0.1},
    "participation": 1.0,
    "rounds": 3,
    "evaluate": {"every": 3, "test_last": 1},
    "engine": "serial",
}


def play(count=3, /, **changes):
    """A federation after some rounds, and what they left behind."""
    return play_all(Experiment.parse({**BASE, **changes}), count)


def values(outcome, name, client=None):
    """Of no client, or by client's model."""
    found = {record.model: record.value for record in outcome.records if record.name == name}
    return found if client else found[None]


class Some(Partition):
    """What iid deals, but only some clients get theirs."""

    members: tuple[int, ...] = ()

    def assign(self, labels, owners, rng):
        dealt = Iid(clients=self.clients).split(labels, owners, rng)
        left = held_by(np.array(self.members), dealt)
        return left.order, left.offsets


# who has which model


@pytest.mark.parametrize(
    ("shares", "clients", "counts"),
    [
        ((1, 1), 6, [3, 3]),
        ((2, 1), 7, [5, 2]),  # 4.67 and 2.33
        ((1, 1, 1), 5, [2, 2, 1]),  # 1.67 each: the first ones are rounded up
        ((100, 1), 6, [5, 1]),  # nobody's share comes to nothing
        ((1, 100, 1, 1), 4, [1, 1, 1, 1]),
    ],
)
def test_shares_become_numbers_of_clients(shares, clients, counts):
    of = [{"model": NARROW, "share": share} for share in shares]
    experiment = Experiment.parse({**BASE, "model": {"name": "mixed", "of": of}})
    which = assign_models(experiment, clients).groups
    assert np.bincount(which).tolist() == counts
    assert assign_models(experiment, clients).groups.tolist() == which.tolist()


def test_who_has_which_model_depends_on_the_seed():
    drawn = {
        tuple(assign_models(Experiment.parse({**BASE, "seed": seed}), 6).groups.tolist()) for seed in range(9)
    }
    assert len(drawn) > 3


# groups


@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
def test_without_an_exchange_groups_are_federations_of_their_own(method):
    """Bit for bit: models, buffers, and what server and clients remember."""
    mixed, outcomes = play(method=method)
    for which, model in enumerate((NARROW, WIDE)):
        members = mixed.groups[which].clients.tolist()
        some = {"name": "test_mixed:Some", "clients": 6, "members": members}
        alone, others = play(method=method, model=model, partition=some)
        own = mixed.servers[which]
        assert own.tensors.keys() == alone.server.tensors.keys()
        for name, value in alone.server.tensors.items():
            assert torch.equal(own.tensors[name], value)
        for name, value in own.state.items():
            assert torch.equal(mixed.server.state[f"branches.{which}.{name}"], value)
        for client in members if method == "scaffold" else ():
            for name, value in alone.client_states[client].items():
                assert torch.equal(mixed.client_states[client][name], value)
        assert values(outcomes[-1], f"test_accuracy_branch_{which}") == values(others[-1], "test_accuracy")


def test_a_task_has_its_clients_model_alone():
    federation = Federation(Experiment.parse(BASE))
    with closing(federation), federation.open() as runner:
        for which, group in enumerate(federation.groups):
            tasks = list(federation.requests(1, runner, which))
            assert [task.client for task in tasks] == federation.groups[which].clients.tolist()
            for task in tasks:
                assert task.plan.model == group.plan.model
                assert len(task.model) == Layout.of(fresh_model(task.plan, federation.dataset)).size


def test_a_group_without_a_client_in_a_round_stays_as_it_is():
    federation = Federation(Experiment.parse({**BASE, "participation": 0.34}))
    number = next(n for n in range(1, 99) if len(set(federation.models.groups[federation.cohort(n)])) == 1)
    federation.round = number - 1
    (trained,) = set(federation.models.groups[federation.cohort(number)].tolist())
    before = [federation.servers[which].model.clone() for which in (0, 1)]
    with closing(federation), federation.open() as runner:
        federation.advance(runner)
    same = [torch.equal(federation.servers[which].model, before[which]) for which in (0, 1)]
    assert same == [trained != 0, trained != 1]


def test_a_group_without_a_client_in_a_round_still_learns_from_an_exchange():
    model = {**TWO, "exchange": EXCHANGE}
    federation = Federation(Experiment.parse({**BASE, "model": model, "participation": 0.34}))
    number = next(n for n in range(1, 99) if len(set(federation.models.groups[federation.cohort(n)])) == 1)
    federation.round = number - 1
    before = [federation.servers[which].model.clone() for which in (0, 1)]
    with closing(federation), federation.open() as runner:
        federation.advance(runner)
    assert not any(torch.equal(federation.servers[which].model, before[which]) for which in (0, 1))


@pytest.mark.parametrize("model", [{**TWO, "exchange": EXCHANGE}, {**PEERS, "exchange": EXCHANGE}])
def test_engines_agree(model):
    found = {}
    for engine in ("serial", "threads", "vmap"):
        found[engine] = play(2, model=model, engine=engine)[0].server.model
    assert torch.equal(found["serial"], found["threads"])
    torch.testing.assert_close(found["serial"], found["vmap"], rtol=1e-4, atol=1e-5)


def test_auto_trains_one_by_one_in_the_reference_arithmetic():
    federation = Federation(Experiment.parse({**BASE, "engine": "auto"}))
    with closing(federation), federation.open() as runner:
        assert type(runner.engine).name in ("serial", "threads")
        assert "one by one" in runner.why
        federation.advance(runner)
    assert torch.equal(federation.server.model, play(1)[0].server.model)


def test_bytes_and_ranks_are_those_of_the_groups():
    """64·6 + 6 + 6·10 + 10 = 460 parameters for four clients; 64·9 + 9 + 2·9 + 9·10 + 10 = 703 and 19 numbers
    of batch-norm for two: 4 · (4 · 460 + 2 · 722) bytes."""
    measure = {"name": "rank", "every": 1, "clients": True, "linear": True}
    federation, (outcome,) = play(1, measures=[measure])
    assert values(outcome, "bytes_up") == values(outcome, "bytes_down") == 4 * (4 * 460 + 2 * 722)
    narrow, wide = (federation.groups[which].clients.tolist() for which in (0, 1))
    layers = {(r.model, r.layer) for r in outcome.records if r.name == "rank" and r.model is not None}
    names = [f"branches.{n}.{layer}.weight" for n in (0, 1) for layer in ("body.1", "head")]
    expected = {(client, name) for client in narrow for name in names[:2]}
    assert layers == expected | {(client, name) for client in wide for name in names[2:]}
    assert {r.layer for r in outcome.records if r.name == "rank" and r.model is None} == set(names)


# runs


@pytest.mark.parametrize(
    "changes",
    [
        {"model": {**TWO, "exchange": EXCHANGE}, "method": "scaffold"},
        {"model": {**PEERS, "exchange": EXCHANGE}, "local": {**BASE["local"], "optimizer_state": "kept"}},
    ],
    ids=["groups", "peers"],
)
@pytest.mark.parametrize("damaged", [False, True])
def test_an_interrupted_run_ends_where_the_whole_one_does(tmp_path, changes, damaged):
    description = {**BASE, **changes, "participation": 0.67, "rounds": 5}
    if changes["model"].get("peers"):
        description["local"] = {**description["local"], "optimizer": {"name": "sgd", "momentum": 0.9}}
    whole = mnemos.run(description, out=tmp_path / "whole")
    observer = Stop(3)
    with pytest.raises(KeyboardInterrupt):
        mnemos.run(description, out=tmp_path / "part", observer=observer)
    if damaged:
        newest = max(observer.run.file("checkpoints").iterdir())
        newest.write_bytes(newest.read_bytes()[:-7])
    run = resume(observer.run.path)
    for name in ("metrics.jsonl", "model.safetensors", "experiment.yaml"):
        assert run.file(name).read_bytes() == whole.file(name).read_bytes(), name
    assert run.file("clients-1.bin").exists()


@pytest.mark.parametrize("model", [TWO, PEERS])
def test_a_runs_model_is_the_ensemble_whose_accuracy_was_recorded(tmp_path, model):
    run = mnemos.run({**BASE, "model": model}, out=tmp_path)
    module, dataset = run.model(), load(run.experiment.data)
    x = normalise(dataset.test.samples, torch.tensor(dataset.mean), torch.tensor(dataset.std))
    with torch.no_grad():
        hits = module(x).argmax(1) == dataset.test.labels
    assert float(hits.double().mean()) == pytest.approx(run.accuracy)
    assert len(module.branches) == (6 if model is PEERS else 2)


# exchange


def test_a_step_of_co_distillation_by_hand():
    """At the logits, ∇ T² KL(p ‖ softmax(f / T)) = T (q − p).

    f = 0 gives q = (½, ½) at any T; with p = (0.8, 0.2), it is T · (−0.3, 0.3).
    """
    teacher = torch.tensor([[0.8, 0.2]])
    for temperature in (1.0, 4.0):
        logits = torch.zeros(1, 2, requires_grad=True)
        loss = divergence(logits, teacher, temperature)
        kl = 0.8 * np.log(0.8 / 0.5) + 0.2 * np.log(0.2 / 0.5)
        assert loss.tolist() == pytest.approx([temperature**2 * kl])
        loss.sum().backward()
        assert logits.grad.tolist() == [pytest.approx([-0.3 * temperature, 0.3 * temperature])]
    assert divergence(teacher.log(), teacher, 1.0).tolist() == pytest.approx([0.0], abs=1e-7)
    assert divergence(torch.zeros(1, 2), torch.tensor([[1.0, 0.0]]), 1.0).tolist() == pytest.approx(
        [np.log(2)]
    )


class Logits(nn.Module):
    """The same logits for every sample: they are the parameters."""

    def __init__(self, classes):
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(classes))

    def forward(self, x):
        return self.logits.expand(len(x), -1)


def test_an_exchange_of_three_by_hand():
    """Ten classes, of which the models give 0 the probabilities 0.1, 0.3 and 0.5, and the rest equally.

    With η = 2 and one step, f₀ moves by 2 (p − q): by 2 · (0.4 − 0.1) for the first, 2 · (0.3 − 0.3) for the
    second and 2 · (0.2 − 0.5) for the third; all from what was said before anyone listened.
    """
    experiment = Experiment.parse({**BASE, "model": "test_mixed:Logits"})
    options = CoDistillation(samples=4, lr=2.0, steps=1)
    inputs = [torch.zeros(3, 1, 8, 8), torch.zeros(1, 1, 8, 8)]
    functional = Functional(fresh_model(experiment.plan, load(experiment.data)))
    certain = [
        torch.full((10,), (1 - p) / 9).index_fill(0, torch.tensor([0]), p).log() for p in (0.1, 0.3, 0.5)
    ]
    models = [Student(functional, logits, torch.zeros(0)) for logits in certain]
    learnt = codistil(models, inputs, options, in_batches=False)
    moved = [after - before for after, before in zip(learnt, certain, strict=True)]
    assert [float(one[0]) for one in moved] == pytest.approx([0.6, 0.0, -0.6], abs=1e-6)
    for one in moved:  # what is given to the first class is taken from the others
        assert one[1:].tolist() == pytest.approx([-float(one[0]) / 9] * 9, abs=1e-6)
    assert codistil(models[:1], inputs, options, in_batches=False)[0] is models[0].model


def test_an_exchange_brings_models_together_and_leaves_labels_alone():
    model = {**TWO, "exchange": {**EXCHANGE, "every": 2}}
    federation, _ = play(2, model=model)
    samples = torch.from_numpy(held_back(federation.experiment, 1438)[1])
    labels = federation.dataset.train.labels
    assert not np.isin(samples.numpy(), federation.assignment.order).any()
    assert len(samples) == 60

    # the last round again, without its exchange
    plain, _ = play(2, model={**TWO, "exchange": {**EXCHANGE, "every": 3}})
    ((x, *_),) = server_batches(federation.dataset, samples.numpy())

    def disagreement(of):
        said = []
        for which, group in enumerate(of.groups):
            functional, part = Functional(fresh_model(group.plan, of.dataset)), of.servers[which]
            with functional.training(False):
                said.append(functional.call(part.model, part.buffers, x).softmax(-1))
        return float((said[0] - said[1]).abs().mean())

    assert disagreement(federation) < 0.9 * disagreement(plain)

    # other labels of the shared samples change nothing
    other = labels.clone()
    other[samples] = (other[samples] + 1) % 10
    kept = labels.clone()
    labels.copy_(other)
    try:
        again, _ = play(2, model=model)
    finally:
        labels.copy_(kept)
    assert torch.equal(again.server.model, federation.server.model)


def test_shared_samples_are_apart_from_those_of_the_meta_step():
    experiment = Experiment.parse(
        {
            **BASE,
            "model": {**TWO, "exchange": EXCHANGE},
            "method": {"name": "fedavg", "meta": {"samples": 50}},
        }
    )
    dataset = load(experiment.data)
    assert len(np.unique(partition_samples(experiment, dataset).order)) <= len(dataset.train) - 110


# peers


def test_peers_without_an_exchange_train_alone():
    """Bit for bit as the only client of a federation, whose mean is the client's own model."""
    federation, outcomes = play(2, model=PEERS, rounds=2)
    accuracies = values(outcomes[-1], "test_accuracy", client=True)
    assert accuracies.keys() == {None, *range(6)}
    for client in (0, 5):
        which = int(federation.models.groups[client])
        some = {"name": "test_mixed:Some", "clients": 6, "members": [client]}
        method = {"name": "fedavg", "weighting": "uniform"}
        alone, others = play(2, model=(NARROW, WIDE)[which], partition=some, method=method, rounds=2)
        own = federation.groups[which].start(federation.servers[which], client)
        assert torch.equal(own[0], alone.server.model)
        assert torch.equal(own[1], alone.server.buffers)
        assert accuracies[client] == values(others[-1], "test_accuracy")
    assert values(outcomes[-1], "bytes_up") == values(outcomes[-1], "bytes_down") == 0


def test_only_the_peers_of_a_round_change_and_send_predictions():
    """Three of six clients, 60 samples, 10 classes: each sends 2,400 bytes to two others."""
    one = {"name": "mixed", "of": [{"model": NARROW}], "peers": True, "exchange": EXCHANGE}
    experiment = Experiment.parse({**BASE, "model": one, "participation": 0.5})
    federation = Federation(experiment)
    before = federation.server.model.view(6, -1).clone()
    with closing(federation), federation.open() as runner:
        outcome = federation.advance(runner)
    after = federation.server.model.view(6, -1)
    changed = [k for k in range(6) if not torch.equal(before[k], after[k])]
    assert changed == federation.cohort(1).tolist()
    assert len({tuple(after[k, :50].tolist()) for k in changed}) == 3  # everyone has a model of its own
    assert values(outcome, "bytes_up") == values(outcome, "bytes_down") == 3 * 2 * 2400


def test_one_who_vanishes_takes_no_part_in_the_exchange():
    model = {**PEERS, "exchange": EXCHANGE}
    federation = Federation(
        Experiment.parse({**BASE, "model": model, "faults": [{"name": "drop-outs", "rate": 0.5}]})
    )
    before = [federation.groups[w].first().model.view(3, -1).clone() for w in (0, 1)]
    with closing(federation), federation.open() as runner:
        outcome = federation.advance(runner)
    gone = {record.client for record in outcome.records if record.name == "dropped"}
    assert 0 < len(gone) < 6
    for which in (0, 1):
        rows = federation.servers[which].model.view(3, -1)
        for place, client in enumerate(federation.groups[which].clients.tolist()):
            assert torch.equal(rows[place], before[which][place]) == (client in gone)


def test_layers_of_a_peers_model_have_one_name():
    """The one they have in the ensemble: peers are its branches, by model and then by number."""
    watching = {"name": "condition-number", "clients": True, "every": 1, "linear": True}
    federation, (outcome,) = play(1, model=PEERS, measures=[watching])
    seen = {(r.model, r.layer) for r in outcome.records if r.model is not None and r.layer}
    order = [k for which in (0, 1) for k in federation.groups[which].clients.tolist()]
    assert {client for client, _ in seen} == set(order)
    assert {layer.split(".")[1] for _, layer in seen} == {str(place) for place in range(6)}
    assert all(layer.startswith(f"branches.{order.index(client)}.") for client, layer in seen)
    assert {layer for _, layer in seen} <= {slot.name for slot in federation.layout.parameters}


def test_an_exchange_that_explodes_is_not_blamed_on_local_training():
    model = {**TWO, "exchange": {"samples": 60, "lr": 1e38, "steps": 3}}
    with pytest.raises(DivergedError, match=r"after the exchange; a smaller model\.exchange\.lr may help"):
        play(1, model=model)


def test_peers_without_data_are_told_of():
    model = {"name": "mixed", "of": [{"model": NARROW}], "peers": True}
    federation = Federation(Experiment.parse({**BASE, "model": model, "partition": HALF}))
    assert federation.warnings == (
        "model.of.0.model: 3 of the 6 peers that have it hold no training sample; their untrained models "
        "have a say in the ensemble",
    )


# what is refused


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"partition": {"clients": 1}}, r"model: found 2 models and 1 client\(s\); allowed: at least 2"),
        ({"method": "centralised"}, "model: found 2 models and 1 client"),
        ({"evaluate": {"forgetting": 1}}, "evaluate.forgetting: forgetting compares clients"),
        (
            {"model": {**TWO, "exchange": {"samples": 5000}}},
            "model.exchange.samples: found 5000; there are 1438",
        ),
        (
            {"model": {**TWO, "of": [{"model": NARROW}, {"model": "lenet"}]}},
            r"model.of\.1\.model: it takes images",
        ),
        (
            {"model": PEERS, "method": "scaffold"},
            "method: found scaffold; it takes a server, and peers have none",
        ),
        (
            {"model": PEERS, "method": {"name": "fedavg", "terms": ["prototypes"]}},
            "method: found fedavg; it takes a server, and peers have none",
        ),
        ({"model": PEERS, "method": {"name": "fedavg", "server": "gma"}}, "method.server: found gma"),
        (
            {"model": PEERS, "method": {"name": "fedavg", "weighting": "label-owners"}},
            "method.weighting: found",
        ),
        ({"model": PEERS, "method": {"name": "fedavg", "meta": {"samples": 9}}}, "method.meta: found"),
        ({"model": PEERS, "method": {"name": "fedavg", "buffers": "server"}}, "method.buffers: found server"),
        ({"model": PEERS, "screens": ["free-riders"]}, "screens: found"),
        (
            {"model": {**TWO, "of": [{"model": NARROW}, {"model": "test_mixed:Mute"}]}},
            r"model\.of\.1\.model: it has no parameters to train",
        ),
        (
            {"model": {**TWO, "of": [{"model": NARROW}, {"model": "test_mixed:Terse"}]}},
            r"model\.of\.1\.model: for 2 samples and 10 classes it gives \(2, 1\)",
        ),
        (
            {"model": {**TWO, "of": [{"model": NARROW}, {"model": WIDE, "share": 1e-3}]}, "partition": HALF},
            r"model\.of\.1\.model: none of the 1 client\(s\) that have it holds a training sample",
        ),
        (
            {"model": {**TWO, "exchange": {"samples": 1}}, "method": {"name": "fedavg", "buffers": LEFT_OUT}},
            r"model\.exchange\.samples: found 1, but batch-norm needs at least 2",
        ),
        (
            {"method": {"name": "fedavg", "meta": {"samples": 1}}},
            r"method\.meta\.samples: found 1, but batch-norm needs at least 2",
        ),
        ({"model": PEERS, "faults": ["free-riders"]}, "faults: found free-riders"),
        (
            {
                "engine": "vmap",
                "model": {**TWO, "of": [{"model": NARROW}, {"model": "test_mixed:Forgetful"}]},
            },
            "engine: vmap",
        ),
    ],
)
def test_what_cannot_work_is_said_before_any_training(changes, words):
    experiment = Experiment.parse({**BASE, **changes})
    with pytest.raises(ConfigError, match=words):
        Federation(experiment).open()


class Mute(nn.Module):
    """A model without parameters."""

    def __init__(self, classes):
        super().__init__()
        self.classes = classes

    def forward(self, x):
        return x.flatten(1)[:, : self.classes]


class Terse(nn.Module):
    """A model with one output, which broadcasting would let pass beside others."""

    def __init__(self, classes):
        super().__init__()
        self.layer = nn.Linear(64, 1)

    def forward(self, x):
        return self.layer(x.flatten(1))


class Forgetful(nn.Module):
    """A model with dropout, which vmap can't run."""

    def __init__(self, classes):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(64, classes))

    def forward(self, x):
        return self.layers(x)


def test_dropout_is_off_in_an_exchange():
    """A model with dropout says the same thing every time, and so learns the same."""
    of = [{"model": NARROW}, {"model": "test_mixed:Forgetful"}]
    model = {"name": "mixed", "of": of, "exchange": EXCHANGE}
    assert torch.equal(play(1, model=model)[0].server.model, play(1, model=model)[0].server.model)


def test_experiments_in_the_guide_are_valid():
    guide = Path(__file__).parents[2] / "docs/guides/mixed.md"
    blocks = re.findall(r"```yaml\n(.*?)```", guide.read_text(), re.DOTALL)
    found = [Experiment.parse(yaml.safe_load(block)).model for block in blocks]
    assert [(len(model.of), model.exchange is not None, model.peers) for model in found] == [
        (2, False, False),
        (2, True, False),
        (1, True, True),
    ]
