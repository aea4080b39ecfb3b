"""What is told to a person who waits."""

import pytest

from mnemos.common import activity
from mnemos.common.activity import doing, step, told_to, training


@pytest.fixture
def told(monkeypatch):
    """All that is told, each step of it."""
    monkeypatch.setattr(activity, "_BETWEEN", 0)
    heard = []
    with told_to(lambda *what: heard.append(what)):
        yield heard


def test_no_one_listens():
    doing("reading digits")
    training(0, 3)
    step(1, 2)


def test_a_round(told):
    """Four clients, the second of which is at step 2 of 8: (1 + ¼) / 4 of the round is done."""
    doing("reading digits")
    training(1, 4)
    step(2, 8)
    assert told == [
        ("reading digits", None),
        ("client 2 of 4", 0.25),
        ("client 2 of 4, step 2 of 8", 0.3125),
    ]


def test_clients_at_once(told):
    """Ten clients in chunks of four, the second chunk at step 1 of 2: (4 + 2) / 10."""
    training(4, 10)
    step(1, 2, together=4)
    assert told[-1] == ("clients 5–8 of 10, step 1 of 2", 0.6)


def test_steps_outside_of_training_are_not_told(told):
    training(0, 4)
    doing("trying engines 1/3")
    step(1, 2)
    assert told[-1] == ("trying engines 1/3", None)


def test_few_steps_are_told():
    heard = []
    with told_to(lambda what, _share: heard.append(what)):
        training(0, 1)
        for done in range(100):
            step(done, 100)
    assert len(heard) < 100
    assert heard[-1] == ""  # it is over


def test_listeners_hear_of_their_own_block_alone():
    outer, inner = [], []
    with told_to(lambda what, _share: outer.append(what)):
        with told_to(lambda what, _share: inner.append(what)):
            doing("a")
        doing("b")
    assert (outer, inner) == (["b", ""], ["a", ""])
