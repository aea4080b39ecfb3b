"""Questions and answers over a grid whose nodes are made up."""

import json
from collections import defaultdict

import pytest
from flwr.app import ConfigRecord, Error, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from test_holder import experiment

from mnemos.data.sources.elsewhere import Owner
from mnemos.engines.engine import Lost
from mnemos.errors import PausedError
from mnemos.federate.apps import client_app
from mnemos.federate.conduct import Wait, _gather
from mnemos.federate.enrol import question
from mnemos.federate.grid import GridLink
from mnemos.federate.holder import Holder
from owners import folders


@pytest.fixture(autouse=True)
def _identity(monkeypatch):
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


class Grid:
    """Nodes that answer by a function of the message: a message, or None for silence."""

    def __init__(self, nodes):
        self.nodes, self.answers, self.sent = nodes, {}, defaultdict(int)

    def get_node_ids(self):
        return list(self.nodes)

    def push_messages(self, messages):
        for message in messages:
            node, number = message.metadata.dst_node_id, f"{len(self.answers)}"
            message.metadata.__dict__["_message_id"] = number
            self.sent[node] += 1
            self.answers[number] = self.nodes[node](message)
            yield number

    def pull_messages(self, numbers):
        found = [number for number in numbers if self.answers[number] is not None]
        return [self.answers[number] for number in found]


def saying(**record):
    return lambda message: Message(RecordDict({"mnemos": ConfigRecord(record)}), reply_to=message)


def failing(code):
    return lambda message: Message(Error(code, "so"), reply_to=message)


def silent(message):
    return None


def asked(grid, known, timeout=60.0):
    link = GridLink(grid, known)
    link.clients = tuple(known.values())
    return dict(link.ask("train", dict.fromkeys(range(len(known)), b"do"), timeout))


def test_answers_and_the_reasons_for_none():
    nodes = {
        10: saying(answer=b"done"),
        11: saying(refusal="it is gone\nfor good"),
        12: saying(answer="text"),
        13: saying(other=b""),
        14: lambda message: Message(RecordDict(), reply_to=message),
        15: failing(2),
        16: failing(99),
        17: silent,
    }
    known = {node: f"owner {node}" for node in (*nodes, 18)}
    found = asked(Grid(nodes), known, timeout=2.0)
    assert found == {
        0: b"done",
        1: Lost(1, "it is gone for good"),
        2: Lost(2, "unreadable"),
        3: Lost(3, "unreadable"),
        4: Lost(4, "unreadable"),
        5: Lost(5, "client failed"),
        6: Lost(6, "Flower's error 99"),
        7: Lost(7, "timeout"),
        8: Lost(8, "not connected"),
    }


def test_what_flower_loses_on_the_way_is_sent_again():
    """Three times in all; then the client counts as lost."""
    replies = iter([failing(3), failing(4), saying(answer=b"done")])
    grid = Grid({1: lambda message: next(replies)(message), 2: failing(3)})
    found = asked(grid, {1: "a", 2: "b"})
    assert found == {0: b"done", 1: Lost(1, "Flower's error 3")}
    assert grid.sent == {1: 3, 2: 3}


def test_strangers_get_no_questions():
    """A node that has a key of its own, but none that the federation knows."""
    grid = Grid({1: saying(answer=b"done"), 666: saying(answer=b"evil")})
    assert asked(grid, {1: "a"}) == {0: b"done"}
    assert grid.sent == {1: 1}


def test_a_node_that_is_any_program_harms_nobody_else():
    """Its answer may be one that Flower itself can't read, or to a question that nobody has asked."""

    def breaking(message):
        raise KeyError("no such object")

    def forged(message):
        reply = saying(answer=b"mine")(message)
        reply.metadata.__dict__["_reply_to_message_id"] = "another"
        return reply

    class Late(Grid):
        def pull_messages(self, numbers):
            return [self.answers[number]() for number in numbers]

        def push_messages(self, messages):
            for message in messages:
                number = next(iter(super().push_messages([message])))
                answer = self.answers[number]
                self.answers[number] = answer if callable(answer) else lambda answer=answer: answer
                yield number

    nodes = {
        1: lambda message: lambda: breaking(message),
        2: saying(answer=b"done"),
        3: forged,
        4: saying(refusal="\x1b[2Jgone\x07"),
    }
    found = asked(Late(nodes), {node: f"{node}" for node in nodes})
    assert found == {0: Lost(0, "unreadable"), 1: b"done", 2: b"mine", 3: Lost(3, "[2Jgone")}


def test_without_keys_nodes_say_who_they_are_and_the_newest_of_a_name_counts():
    def called(name):
        return saying(answer=json.dumps({"owner": name}).encode())

    grid = Grid({3: called("a"), 2: called("b"), 4: saying(answer=b"[]"), 5: called("\x1b[2J")})
    link = GridLink(grid)
    assert link.present() == {"a": 3, "b": 2}
    grid.nodes = {1: called("a"), **grid.nodes}  # Flower lists nodes in no order
    assert link.present() == {"a": 1, "b": 2}
    assert grid.sent == {1: 1, 2: 1, 3: 1, 4: 2, 5: 2}  # who has said nothing is asked again


def test_owners_are_waited_for_and_those_who_can_not_take_part_are_told_of(tmp_path):
    (path,) = folders(tmp_path, (60,))
    refused = []
    app = client_app(lambda _: Holder(str(path), tmp_path / "memory", "a"))
    broken = client_app(
        lambda _: Holder(str(tmp_path / "gone.npz"), tmp_path / "memory", "b"), refused.append
    )
    nodes = {1: lambda message: app(message, None), 2: lambda message: broken(message, None)}
    link, said = GridLink(Grid(nodes), {1: "a", 2: "b"}), []
    body = question(experiment([path]))
    assert _gather(link, body, Wait(1, 5.0), said.append)["a"].train > 30
    with pytest.raises(PausedError, match=r"1 of 2 owners have come within 0 s \(a\)"):
        _gather(link, body, Wait(2, 0.0), said.append)
    assert said[0].startswith("a has joined: 5")
    assert any(line.startswith("b can't take part:") and "gone.npz" in line for line in said)
    assert refused[0].startswith("refused: ")
    assert "gone.npz" in refused[0]


def test_a_run_goes_on_with_the_owners_that_it_has_begun_with(tmp_path):
    """Not with somebody who is new, nor with one whose data is another by now."""
    holders = [Holder(str(path), tmp_path / path.stem, path.stem) for path in folders(tmp_path)]
    apps = [client_app(lambda _, holder=holder: holder) for holder in holders]
    nodes = {node: lambda message, app=app: app(message, None) for node, app in enumerate(apps)}
    link, said = GridLink(Grid(nodes), dict(enumerate("abc"))), []
    body = question(experiment([]))
    sizes = {
        name: (one.train, one.test) for name, one in _gather(link, body, Wait(3, 5.0), said.append).items()
    }
    members = [
        Owner(owner="a", train=sizes["a"][0], test=sizes["a"][1]),
        Owner(owner="b", train=sizes["b"][0] - 1, test=sizes["b"][1]),
    ]
    del said[:]
    assert _gather(link, body, Wait(1, 5.0), said.append, members).keys() == {"a"}
    assert any(line.startswith("b can't take part: it has") for line in said)
    assert "c can't take part: the run has begun without" in said
