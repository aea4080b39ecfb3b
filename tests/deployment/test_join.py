"""An owner's side, with nodes that are made up."""

from types import SimpleNamespace

import pytest

from mnemos.deployment import join
from mnemos.deployment.holder import Holder
from mnemos.errors import MnemosError


class Node:
    """One that a server lets in, or not."""

    def __init__(self, log, let_in):
        self.log, self.running = log, True
        log.write_text("SuperNode ID: 7" if let_in else "[code: 600] unknown key.")

    def end(self):
        self.running = False


def test_who_was_let_in_at_last_waits_for_its_server_as_long_as_it_takes(tmp_path, monkeypatch):
    """A client that was killed is refused for a minute; the time that it tries is over once it is in."""
    now, said = 0.0, []
    nodes = iter([False, False, True, *[False] * 4])

    def supernode(*_):
        return Node(tmp_path / "supernode.log", next(nodes))

    def answer_forever(door, app, going, say):
        """Refused nodes end within half a minute; the other one goes on for an hour, and then ends."""
        nonlocal now
        if "code" in (tmp_path / "supernode.log").read_text():
            now += 30.0
            return
        for _ in range(60):
            assert going()
            now += 60.0

    def sleep(seconds):
        nonlocal now
        now += seconds

    monkeypatch.setattr(join, "supernode", supernode)
    monkeypatch.setattr(join, "answer_forever", answer_forever)
    monkeypatch.setattr(join, "time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    with pytest.raises(MnemosError, match="far:1 doesn't let a in: unknown key"):
        join.take_part("far:1", Holder("a.npz", tmp_path, "a"), tmp_path, None, said.append)
    trying = "far:1 doesn't let a in: unknown key; trying for 75 s"
    assert [line[: len(trying)] for line in said] == [
        trying,
        "a takes part with a.npz at far:1; Ctrl-C ends it",
        "the connection to far:1 is lost; trying again",
        trying,
    ]


def test_who_is_not_let_in_gives_up_while_its_server_is_away(tmp_path, monkeypatch):
    """The node itself would go on for ever."""
    now = 0.0
    monkeypatch.setattr(join, "supernode", lambda *_: Node(tmp_path / "supernode.log", False))

    def answer_forever(door, app, going, say):
        nonlocal now
        first = now == 0.0
        while going() and not first:
            now += 1.0
        now += first

    monkeypatch.setattr(join, "answer_forever", answer_forever)
    monkeypatch.setattr(join, "time", SimpleNamespace(monotonic=lambda: now, sleep=lambda _: None))
    with pytest.raises(MnemosError, match="doesn't let a in"):
        join.take_part("far:1", Holder("a.npz", tmp_path, "a"), tmp_path, None, lambda _: None)
    assert now == 1.0 + 75.0


def test_the_reason_is_the_last_that_was_given(tmp_path, monkeypatch):
    """A node that is ended because its time is over may not have said anything yet."""
    now, said = 0.0, iter([" [code: 600] unknown key.", "", ""])

    def supernode(*_):
        node = Node(tmp_path / "supernode.log", False)
        node.log.write_text(next(said))
        return node

    def answer_forever(*_):
        nonlocal now
        now += 50.0

    monkeypatch.setattr(join, "supernode", supernode)
    monkeypatch.setattr(join, "answer_forever", answer_forever)
    monkeypatch.setattr(join, "time", SimpleNamespace(monotonic=lambda: now, sleep=lambda _: None))
    with pytest.raises(MnemosError, match=r"far:1 doesn't let a in: unknown key$"):
        join.take_part("far:1", Holder("a.npz", tmp_path, "a"), tmp_path, None, lambda _: None)
