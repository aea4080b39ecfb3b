"""Questions and answers over a grid whose nodes are made up."""

import json
import re
from collections import defaultdict
from types import SimpleNamespace

import pytest
from flwr.app import ConfigRecord, Error, Message, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError, inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity
from test_holder import experiment

from mnemos.data.sources.elsewhere import Owner
from mnemos.deployment.apps import client_app
from mnemos.deployment.conduct import Members, Wait, _gather
from mnemos.deployment.enrol import question
from mnemos.deployment.grid import GridLink, body_of, packed
from mnemos.deployment.holder import Holder
from mnemos.engines.engine import Lost
from mnemos.errors import PausedError
from support.owners import folders


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


def saying(answer=b"", **fields):
    return lambda message: Message(packed(fields, answer), reply_to=message)


def recording(name, **fields):
    """An answer with one record."""
    return lambda message: Message(RecordDict({name: ConfigRecord(fields)}), reply_to=message)


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
        11: saying(refusal="its memory is gone"),
        12: saying(refusal="a reason\nof its own"),
        13: recording("mnemos", other=b""),
        14: lambda message: Message(RecordDict(), reply_to=message),
        15: failing(2),
        16: failing(99),
        17: silent,
        18: recording("mnemos.0", body=b"without the record"),
    }
    known = {node: f"owner {node}" for node in (*nodes, 19)}
    found = asked(Grid(nodes), known, timeout=2.0)
    assert found == {
        0: b"done",
        1: Lost(1, "its memory is gone"),
        2: Lost(2, "refused"),
        3: Lost(3, "unreadable"),
        4: Lost(4, "unreadable"),
        5: Lost(5, "client failed"),
        6: Lost(6, "Flower's error 99"),
        7: Lost(7, "timeout"),
        8: Lost(8, "unreadable"),
        9: Lost(9, "not connected"),
    }


def test_what_flower_loses_on_the_way_is_sent_again():
    """Three times in all; then the client counts as lost."""
    replies = iter([failing(3), failing(4), saying(answer=b"done")])
    grid = Grid({1: lambda message: next(replies)(message), 2: failing(3)})
    found = asked(grid, {1: "a", 2: "b"})
    assert found == {0: b"done", 1: Lost(1, "Flower's error 3")}
    assert grid.sent == {1: 3, 2: 3}


def test_who_has_answered_when_the_time_is_over_is_heard():
    """However long it took to send all questions, and to fetch the others' answers."""
    now = 0.0

    class Slow(Grid):
        def push_messages(self, messages):
            nonlocal now
            now += 5.0
            return super().push_messages(messages)

    def sleep(seconds):
        nonlocal now
        now += 100.0

    nodes = {1: saying(answer=b"one"), 2: saying(answer=b"two"), 3: silent}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mnemos.deployment.grid.time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))
        found = asked(Slow(nodes), {node: f"{node}" for node in nodes}, timeout=2.0)
    assert found == {0: b"one", 1: b"two", 2: Lost(2, "timeout")}


def test_a_question_that_the_link_does_not_take_costs_its_client_alone():
    class Refusing(Grid):
        def push_messages(self, messages):
            if messages[0].metadata.dst_node_id == 1:
                raise ObjectPushError("part", 1, "session")
            return super().push_messages(messages)

    grid = Refusing({1: saying(answer=b"one"), 2: saying(answer=b"two")})
    assert asked(grid, {1: "a", 2: "b"}) == {0: Lost(0, "not sent"), 1: b"two"}


@pytest.mark.parametrize("size", [0, 1, 4_000_000, 4_000_001, 9_000_000])
def test_what_is_said_is_cut_into_parts(size):
    """Of zeros, so that parts are alike: Flower knows them by their content."""
    content = packed({"run": "it"}, bytes(size))
    assert len(content.config_records) == 1 + max(1, -(-size // 4_000_000))
    message = Message(content, dst_node_id=1, message_type="train")
    parts = {number: part.deflate() for number, part in get_all_nested_objects(message).items()}
    again = inflate_object_from_contents(message.object_id, parts)
    assert body_of(again.content) == bytes(size)


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
        5: recording("mnemos", body="text"),
    }
    found = asked(Late(nodes), {node: f"{node}" for node in nodes})
    assert found == {
        0: Lost(0, "unreadable"),
        1: b"done",
        2: b"mine",
        3: Lost(3, "refused"),
        4: Lost(4, "unreadable"),
    }


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
    assert _gather(link, body, Wait(1, 5.0), said.append, None)["a"].train > 30
    with pytest.raises(PausedError, match=r"1 of 2 owners have joined within 0 s \(a\)"):
        _gather(link, body, Wait(2, 0.0), said.append, None)
    assert said[1].startswith("a has joined: 5")
    assert said[0] == said[2] == "b can't take part: its data can't be used"  # names of files stay there
    assert refused[0].startswith("refused: ")
    assert "gone.npz" in refused[0]


def described_as(shape, train=50, kind="uint8", **changes):
    values = {"shape": shape, "kind": kind, "classes": ["0", "1"], "train": train, "test": 5}
    values |= {"mean": [100.0] * shape[0], "variance": [90.0] * shape[0], **changes}
    return saying(answer=json.dumps(values).encode())


def test_who_does_not_fit_the_others_is_put_aside():
    """Not even numbers that can't be, from which everybody's scale would be made, end the server."""
    nodes = {
        1: described_as([1, 8, 8]),
        2: described_as([3, 8, 8]),
        3: described_as([1, 8, 8], mean=[1e30]),
        4: described_as([1, 8, 8], variance=[1e10]),
        5: described_as([1, 8, 8], classes=["0", "7"]),
        6: described_as([1, 8, 8]),
    }
    link, said = GridLink(Grid(nodes), {node: f"{node}" for node in nodes}), []
    body = question(experiment([]))
    found = _gather(link, body, Wait(2, 5.0), said.append, ("0", "1"))
    assert found.keys() == {"1", "6"}
    wrong = sorted(line for line in said if "has joined" not in line)
    assert [line[0] for line in wrong] == ["2", "3", "4", "5"]
    assert "2 has samples of shape [3, 8, 8] (uint8), and 1 of shape [1, 8, 8]" in wrong[0]
    assert "bytes can't have" in wrong[1]
    assert "5 holds the class '7', which is none of data.classes" in wrong[3]


def test_one_who_comes_first_with_other_data_does_not_keep_the_others_out(monkeypatch):
    """The form of most counts; what is wrong is repeated if there are too few in the end."""
    monkeypatch.setattr("mnemos.deployment.conduct._LOOK", 0.0)
    nodes = {1: described_as([1, 9, 9])}
    grid = Grid(nodes)
    said = []

    def say(line):
        said.append(line)
        grid.nodes = {**nodes, 2: described_as([1, 8, 8]), 3: described_as([1, 8, 8])}

    link = GridLink(grid, {1: "a", 2: "b", 3: "c"})
    body = question(experiment([]))
    assert _gather(link, body, Wait(2, 60.0), say, None).keys() == {"b", "c"}
    misfit = "a has samples of shape [1, 9, 9] (uint8), and b of shape [1, 8, 8] (uint8); all need the same"
    assert said == [
        "a has joined: 55 samples",
        "b has joined: 55 samples",
        "c has joined: 55 samples",
        misfit,
    ]
    words = f"2 of 3 owners have joined within 0 s (b, c); {misfit}; they can join"
    with pytest.raises(PausedError, match=re.escape(words)):
        _gather(link, body, Wait(3, 0.0), say, None)


def test_a_run_goes_on_with_enough_of_its_owners_when_the_others_do_not_come(tmp_path):
    nodes = {1: described_as([1, 8, 8]), 2: silent, 3: described_as([1, 8, 8])}
    known = {1: "a", 3: "c"}
    link, said = GridLink(Grid(nodes), known), []
    owners = {name: Owner(owner=name, train=50, test=5) for name in "abc"}
    body = question(experiment([]))
    found = _gather(link, body, Wait(3, 0.0), said.append, None, Members(owners, 2))
    assert found.keys() == {"a", "c"}
    assert said[-1] == "continuing without b, who may join later"
    with pytest.raises(PausedError, match=r"2 of 3 owners have joined within 0 s \(a, c\)"):
        _gather(link, body, Wait(3, 0.0), said.append, None, Members(owners, 3))


def test_somebody_whose_data_is_mended_is_asked_again(monkeypatch):
    monkeypatch.setattr("mnemos.deployment.conduct._MENDED", 0.0)
    monkeypatch.setattr("mnemos.deployment.conduct._LOOK", 0.0)
    answers = iter([saying(refusal="its data can't be used")] * 3 + [described_as([1, 8, 8])])
    link, said = GridLink(Grid({1: lambda message: next(answers)(message)}), {1: "a"}), []
    assert _gather(link, question(experiment([])), Wait(1, 60.0), said.append, None).keys() == {"a"}
    assert said == ["a can't take part: its data can't be used", "a has joined: 55 samples"]


def test_a_run_goes_on_with_the_owners_that_it_has_begun_with(tmp_path):
    """Not with somebody who is new, nor with one whose data is another by now."""
    holders = [Holder(str(path), tmp_path / path.stem, path.stem) for path in folders(tmp_path)]
    apps = [client_app(lambda _, holder=holder: holder) for holder in holders]
    nodes = {node: lambda message, app=app: app(message, None) for node, app in enumerate(apps)}
    link, said = GridLink(Grid(nodes), dict(enumerate("abc"))), []
    body = question(experiment([]))
    sizes = {
        name: (one.train, one.test)
        for name, one in _gather(link, body, Wait(3, 5.0), said.append, None).items()
    }
    owners = {
        "a": Owner(owner="a", train=sizes["a"][0], test=sizes["a"][1]),
        "b": Owner(owner="b", train=sizes["b"][0] - 1, test=sizes["b"][1]),
    }
    del said[:]
    assert _gather(link, body, Wait(1, 5.0), said.append, None, Members(owners, 1)).keys() == {"a"}
    assert any(line.startswith("b can't take part: it has") for line in said)
    assert "c can't take part: the run has begun without" in said
