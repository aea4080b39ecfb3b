"""Clients that send something bad: what they send, what is recognised, and that nothing breaks."""

from dataclasses import replace

import pytest
import torch

from mnemos.client.messages import TrainRequest, reply_from_bytes
from mnemos.client.trainer import Trainer, train_message
from mnemos.errors import ConfigError
from mnemos.faults.attacks import Attack
from mnemos.federation.federation import Federation
from mnemos.methods.exchange import TrainReply
from mnemos.vector import Kind, Layout, Slot
from support.interrupt import assert_repeatable
from support.play import noting, play, small

MALFORMED = {
    "nan": "not finite",
    "inf": "not finite",
    "shape": "wrong shape",
    "huge": "too large",
    "replay": "of another round",
}


def experiment(kind, **changes):
    return small(**{"faults": [{"name": "attack", "kind": kind, "share": 0.25}], **changes})


def rejected(outcome):
    return {record.client: record.name for record in outcome.records if record.name.startswith("rejected")}


LAYOUT = Layout((Slot("w", (3,), 0, Kind.OTHER),), (Slot("b", (1,), 0, Kind.BUFFER),))
UPDATE = TrainReply(3, 5, 10, 7, 0.5, torch.tensor([1.0, -2.0, 3.0]), torch.ones(1), {"c": torch.ones(2)}, {})


def test_what_is_sent_by_hand():
    def delta(kind, **options):
        return Attack(kind=kind, **options).tamper(UPDATE, {}, LAYOUT).delta.tolist()

    assert str(delta("nan")) == "[1.0, nan, 3.0]"
    assert str(delta("inf")) == "[1.0, inf, 3.0]"
    assert delta("shape") == [1.0, -2.0]
    assert delta("scaled") == [1e6, -2e6, 3e6]
    assert delta("scaled", scale=10) == [10.0, -20.0, 30.0]
    assert delta("sign-flip") == [-1.0, 2.0, -3.0]
    assert delta("label-flip") == [1.0, -2.0, 3.0]
    assert len(delta("huge")) == 3000
    empty = Attack(kind="empty").tamper(UPDATE, {}, LAYOUT)
    assert (empty.delta.numel(), empty.buffers.numel(), empty.change) == (0, 0, {})
    assert UPDATE.delta.tolist() == [1.0, -2.0, 3.0]
    assert Attack(kind="label-flip").label_map(4).tolist() == [3, 2, 1, 0]
    assert delta("coordinate", scale=1e20) == pytest.approx([1.0, 1e20, 3.0])
    beside = Attack(kind="beside").tamper(UPDATE, {}, LAYOUT)
    assert beside.delta is UPDATE.delta
    assert beside.change["c"].tolist() == [900.0, 900.0]


@pytest.mark.parametrize(("kind", "sent"), [("means", [7, 7, 2, 3, 4]), ("variances", [0, 1, 7, 7, 4])])
def test_statistics_are_poisoned_by_name(kind, sent):
    """Two running means, two running variances and a counter, of which the kind names the first or second."""
    names = (("n.running_mean", 2), ("n.running_var", 2), ("n.num_batches_tracked", 1))
    starts = (0, 2, 4)
    layout = Layout(
        (),
        tuple(Slot(name, (size,), at, Kind.BUFFER) for (name, size), at in zip(names, starts, strict=True)),
    )
    update = replace(UPDATE, buffers=torch.arange(5.0))
    found = Attack(kind=kind, scale=7).tamper(update, {}, layout)
    assert found.buffers.tolist() == sent
    assert found.delta is update.delta
    assert update.buffers.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kind": "means"}, "faults.0: found the attack means, but the model has no running_mean"),
        ({"kind": "variances"}, "faults.0: found the attack variances, but the model has no running_var"),
        ({"kind": "beside"}, "faults.0: found the attack beside, but the method's clients upload nothing"),
    ],
)
def test_there_must_be_something_to_poison(changes, words):
    with pytest.raises(ConfigError, match=words):
        Federation(experiment("nan", faults=[{"name": "attack", **changes}]))


def test_poisoned_statistics_move_a_mean_and_no_median():
    """Two of eight clients say 900: the mean of the running means is 225 and a little, the median within the
    honest ones'; so it is with one enormous number of the update."""

    def after(kind, rule):
        changes = {"model": {"name": "mlp", "hidden": [8], "norm": "batch"}, "screens": []}
        changes["guard"] = {"enabled": False}
        method = {"name": "fedavg", "weighting": "uniform", "rule": rule}
        return play(experiment(kind, method=method, **changes), 1)[0].server

    layout = Federation(experiment("means", model={"name": "mlp", "hidden": [8], "norm": "batch"})).layout
    (slot,) = (slot for slot in layout.buffers if slot.name.endswith("running_mean"))
    where = slice(slot.start, slot.stop)
    assert after("means", "mean").buffers[where].min() > 220
    assert after("means", "median").buffers[where].abs().max() < 5
    assert after("coordinate", "mean").model.abs().max() > 1e29
    assert after("coordinate", "median").model.abs().max() < 5


def test_uploads_beside_the_model_are_poisoned():
    """SCAFFOLD's control variates: 900 times what the same client sends when it is honest."""
    sent, honest = [], []
    method = {"name": "scaffold", "correction": {"name": "scaffold", "option": "I"}}
    for faults, found in (([{"name": "attack", "kind": "beside", "share": 0.25}], sent), ([], honest)):
        play(
            experiment("beside", method=method, faults=faults),
            1,
            checks=(lambda update, layout, found=found: found.append(update),),
        )
    bad = set(Attack(share=0.25).clients(8, 0).tolist())
    for one, other in zip(sent, honest, strict=True):
        factor = 900 if one.client in bad else 1
        torch.testing.assert_close(one.change["scaffold.c"], factor * other.change["scaffold.c"])
        assert torch.equal(one.delta, other.delta)


@pytest.mark.parametrize(("kind", "round"), [("replay", 5), ("stale", 9)])
def test_a_replay_is_the_first_message_once_more(kind, round):
    memory = {}
    attack = Attack(kind=kind)
    assert attack.tamper(UPDATE, memory, LAYOUT) is UPDATE
    later = replace(UPDATE, round=9, delta=torch.zeros(3), loss=0.1, state={"s": torch.ones(1)})
    sent = attack.tamper(later, memory, LAYOUT)
    assert sent.round == round
    assert sent.delta.tolist() == UPDATE.delta.tolist()
    assert sent.change["c"].tolist() == [1.0, 1.0]
    assert sent.state == later.state  # what it remembers for itself is its own affair
    other = replace(later, client=4)
    assert attack.tamper(other, memory, LAYOUT) is other


@pytest.mark.parametrize("kind", [*MALFORMED, "empty"])
def test_what_is_malformed_is_recognised_and_changes_nothing(kind):
    """The model is that of a federation in which those clients vanish, bit for bit."""
    reached = []
    federation, outcomes = play(experiment(kind), checks=(noting(reached),))
    bad = set(Attack(kind=kind, share=0.25).clients(8, 0).tolist())
    first = {} if kind == "replay" else dict.fromkeys(bad, f"rejected: {MALFORMED.get(kind, 'wrong shape')}")
    later = dict.fromkeys(bad, f"rejected: {MALFORMED.get(kind, 'wrong shape')}")
    assert [rejected(outcome) for outcome in outcomes] == [first, later, later]
    if kind == "replay":
        return
    assert bad.isdisjoint(update.client for update in reached)
    gone, _ = play(
        experiment(kind, faults=[]),
        checks=(lambda update, layout: "gone" if update.client in bad else None,),
    )
    assert torch.equal(federation.server.model, gone.server.model)


@pytest.mark.parametrize("kind", ["scaled", "sign-flip", "label-flip", "stale"])
def test_what_is_well_formed_counts(kind):
    updates = []
    federation, outcomes = play(experiment(kind, guard={"enabled": False}), checks=(noting(updates),))
    honest, _ = play(experiment(kind, faults=[]))
    assert [rejected(outcome) for outcome in outcomes] == [{}, {}, {}]
    assert not torch.equal(federation.server.model, honest.server.model)
    bad = set(Attack(share=0.25).clients(8, 0).tolist())
    if kind == "stale":
        sent = {(update.client, update.round): update.delta for update in updates}
        assert all(torch.equal(sent[who, 1], sent[who, 3]) for who in bad)
        assert not any(torch.equal(sent[who, 1], sent[who, 3]) for who in set(range(8)) - bad)


def test_a_screen_by_norm_recognises_what_is_scaled():
    _, outcomes = play(experiment("scaled", screens=["norms"]))
    bad = Attack(share=0.25).clients(8, 0).tolist()
    assert [rejected(outcome) for outcome in outcomes] == [dict.fromkeys(bad, "rejected: norm")] * 3


@pytest.mark.parametrize("kind", ["label-flip", "replay", "stale", "scaled", "beside"])
def test_attacks_are_the_same_on_every_engine_and_after_a_resume(kind, tmp_path):
    description = experiment(kind, rounds=4, method="scaffold", participation=0.5)
    assert_repeatable(description, tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"partition": {"name": "label-dirichlet", "clients": 8, "alpha": 0.5}, "local": {"batch": 16}},
        {"method": "precision"},
        {"method": {"name": "fedavg", "loss": "wsm"}},
    ],
)
def test_flipped_labels_are_learnt_alike_by_all_trainers(changes):
    """One by one, as one batched computation, and from a message; beside clients who know their labels."""
    serial, batched = (
        play(experiment("label-flip", engine=engine, **changes), 1)[0] for engine in ("serial", "vmap")
    )
    torch.testing.assert_close(serial.server.model, batched.server.model, rtol=1e-4, atol=1e-6)
    federation = Federation(experiment("label-flip", **changes))
    with federation.open() as runner:
        tasks = list(federation.requests(1, runner))
        trainer = Trainer(runner.plan, federation.dataset)
    federation.close()
    bad = set(Attack(share=0.25).clients(8, 0).tolist())
    assert {task.client for task in tasks if task.label_map is not None} == bad
    for task in tasks:
        again = TrainRequest.from_bytes(task.to_bytes())
        assert (again.label_map is None) == (task.client not in bad)
    task = next(task for task in tasks if task.client in bad)
    update = trainer(task)
    assert torch.equal(reply_from_bytes(train_message(task.to_bytes())).delta, update.delta)
    assert not torch.equal(trainer(replace(task, label_map=None)).delta, update.delta)


def test_flipped_labels_are_those_of_a_data_set_that_has_them():
    """The same update as from the same samples with the labels turned round."""
    federation = Federation(experiment("label-flip"))
    with federation.open() as runner:
        task = next(task for task in federation.requests(1, runner) if task.label_map is not None)
        expected = Trainer(runner.plan, federation.dataset)(task)
        data = federation.dataset
        flipped = replace(data, train=replace(data.train, labels=9 - data.train.labels))
        found = Trainer(runner.plan, flipped)(replace(task, label_map=None))
    federation.close()
    assert torch.equal(found.delta, expected.delta)
    assert found.loss == expected.loss


@pytest.mark.parametrize("kind", ["nan", "replay", "stale", "sign-flip", "label-flip"])
def test_asynchronous_federations_are_attacked_alike(kind):
    clock = {"name": "fedbuff", "buffer": 8}
    (_, plain), (_, buffered) = (play(experiment(kind, **changes)) for changes in ({}, {"clock": clock}))
    assert [rejected(outcome) for outcome in plain] == [rejected(outcome) for outcome in buffered]
    assert plain[-1].loss == buffered[-1].loss


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kind": "sign"}, "faults.0.kind: found 'sign'"),
        ({"share": 0}, "faults.0.share: found 0"),
    ],
)
def test_wrong_attacks_are_one_sentence(changes, words):
    with pytest.raises(ConfigError, match=words):
        experiment("nan", faults=[{"name": "attack", **changes}])


def test_peers_have_nobody_to_send_to():
    of = [{"model": {"name": "mlp", "hidden": [8]}}]
    with pytest.raises(ConfigError, match="faults: found attack; it takes a server"):
        Federation(experiment("nan", model={"name": "mixed", "of": of, "peers": True}))
