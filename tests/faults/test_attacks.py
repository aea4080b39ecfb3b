"""Clients that send something bad: what they send, what is recognised, and that nothing breaks."""

from dataclasses import replace

import pytest
import torch

from interrupt import assert_repeatable
from mnemos.client import Trainer, train_message
from mnemos.errors import ConfigError
from mnemos.experiment import Experiment
from mnemos.faults.attacks import Attack
from mnemos.federation import Federation
from mnemos.message import Task, update_from_bytes
from mnemos.methods.exchange import Update

MALFORMED = {
    "nan": "not finite",
    "inf": "not finite",
    "shape": "wrong shape",
    "huge": "too large",
    "replay": "of another round",
}


def experiment(kind, **changes):
    return Experiment.parse(
        {
            "partition": {"name": "iid", "clients": 8},
            "model": {"name": "mlp", "hidden": [8]},
            "participation": 1.0,
            "local": {"steps": 2, "batch": 16, "lr": 0.1},
            "rounds": 3,
            "engine": "serial",
            "faults": [{"name": "attack", "kind": kind, "share": 0.25}],
            **changes,
        }
    )


def play(description, rounds=None, **options):
    federation = Federation(description, **options)
    with federation.open() as runner:
        outcomes = [federation.advance(runner) for _ in range(rounds or description.rounds)]
    federation.close()
    return federation, outcomes


def rejected(outcome):
    return {record.client: record.name for record in outcome.records if record.name.startswith("rejected")}


UPDATE = Update(3, 5, 10, 7, 0.5, torch.tensor([1.0, -2.0, 3.0]), torch.ones(1), {"c": torch.ones(2)}, {})


def test_what_is_sent_by_hand():
    def delta(kind, **options):
        return Attack(kind=kind, **options).tamper(UPDATE, {}).delta.tolist()

    assert str(delta("nan")) == "[1.0, nan, 3.0]"
    assert str(delta("inf")) == "[1.0, inf, 3.0]"
    assert delta("shape") == [1.0, -2.0]
    assert delta("scaled") == [1e6, -2e6, 3e6]
    assert delta("scaled", scale=10) == [10.0, -20.0, 30.0]
    assert delta("sign-flip") == [-1.0, 2.0, -3.0]
    assert delta("label-flip") == [1.0, -2.0, 3.0]
    assert len(delta("huge")) == 3000
    empty = Attack(kind="empty").tamper(UPDATE, {})
    assert (empty.delta.numel(), empty.buffers.numel(), empty.change) == (0, 0, {})
    assert UPDATE.delta.tolist() == [1.0, -2.0, 3.0]
    assert Attack(kind="label-flip").relabel(4).tolist() == [3, 2, 1, 0]


@pytest.mark.parametrize(("kind", "round"), [("replay", 5), ("stale", 9)])
def test_a_replay_is_the_first_message_once_more(kind, round):
    memory = {}
    attack = Attack(kind=kind)
    assert attack.tamper(UPDATE, memory) is UPDATE
    later = replace(UPDATE, round=9, delta=torch.zeros(3), loss=0.1, state={"s": torch.ones(1)})
    sent = attack.tamper(later, memory)
    assert sent.round == round
    assert sent.delta.tolist() == UPDATE.delta.tolist()
    assert sent.change["c"].tolist() == [1.0, 1.0]
    assert sent.state == later.state  # what it remembers for itself is its own affair
    other = replace(later, client=4)
    assert attack.tamper(other, memory) is other


@pytest.mark.parametrize("kind", [*MALFORMED, "empty"])
def test_what_is_malformed_is_recognised_and_changes_nothing(kind):
    """The model is that of a federation in which those clients vanish, bit for bit."""
    reached = []
    federation, outcomes = play(experiment(kind), checks=(lambda update, layout: reached.append(update),))
    bad = set(Attack(kind=kind, share=0.25).tamperers(8, 0).tolist())
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
    federation, outcomes = play(experiment(kind), checks=(lambda update, layout: updates.append(update),))
    honest, _ = play(experiment(kind, faults=[]))
    assert [rejected(outcome) for outcome in outcomes] == [{}, {}, {}]
    assert not torch.equal(federation.server.model, honest.server.model)
    bad = set(Attack(share=0.25).tamperers(8, 0).tolist())
    if kind == "stale":
        sent = {(update.client, update.round): update.delta for update in updates}
        assert all(torch.equal(sent[who, 1], sent[who, 3]) for who in bad)
        assert not any(torch.equal(sent[who, 1], sent[who, 3]) for who in set(range(8)) - bad)


def test_a_screen_by_norm_recognises_what_is_scaled():
    _, outcomes = play(experiment("scaled", screens=["norms"]))
    bad = Attack(share=0.25).tamperers(8, 0).tolist()
    assert [rejected(outcome) for outcome in outcomes] == [dict.fromkeys(bad, "rejected: norm")] * 3


@pytest.mark.parametrize("kind", ["label-flip", "replay", "stale", "scaled"])
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
        tasks = list(federation._tasks(1, runner))
        trainer = Trainer(runner.plan, federation.dataset)
    federation.close()
    bad = set(Attack(share=0.25).tamperers(8, 0).tolist())
    assert {task.client for task in tasks if task.relabel is not None} == bad
    for task in tasks:
        again = Task.from_bytes(task.to_bytes())
        assert (again.relabel is None) == (task.client not in bad)
    task = next(task for task in tasks if task.client in bad)
    update = trainer(task)
    assert torch.equal(update_from_bytes(train_message(task.to_bytes())).delta, update.delta)
    assert not torch.equal(trainer(replace(task, relabel=None)).delta, update.delta)


def test_flipped_labels_are_those_of_a_data_set_that_has_them():
    """The same update as from the same samples with the labels turned round."""
    federation = Federation(experiment("label-flip"))
    with federation.open() as runner:
        task = next(task for task in federation._tasks(1, runner) if task.relabel is not None)
        expected = Trainer(runner.plan, federation.dataset)(task)
        data = federation.dataset
        flipped = replace(data, train=replace(data.train, labels=9 - data.train.labels))
        found = Trainer(runner.plan, flipped)(replace(task, relabel=None))
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
