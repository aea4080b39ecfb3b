"""An update is looked at before anything is made of it, and nothing about it makes the look fail."""

from dataclasses import replace

import pytest
import torch

from mnemos.methods.exchange import TrainReply
from mnemos.screens.sound import Asked, Form

FORM = Form(torch.zeros(4), torch.zeros(2), {"m.c": torch.zeros(2, 2)})
ASKED = Asked(client=3, round=5, samples=10, steps=7)
SOUND = TrainReply(3, 5, 10, 7, 0.5, torch.ones(4), torch.ones(2), {"m.c": torch.ones(2, 2)}, {})


def sent(value):
    return {"change": {"m.c": value}}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"client": 4}, "of another client"),
        ({"round": 4}, "of another round"),
        ({"round": 6}, "of another round"),
        ({"change": {}}, "wrong names"),
        ({"change": {"m.d": torch.ones(2, 2)}}, "wrong names"),
        ({"change": {"m.c": torch.ones(2, 2), "m.d": torch.ones(2)}}, "wrong names"),
        ({"delta": torch.ones(3)}, "wrong shape"),
        ({"delta": torch.ones(())}, "wrong shape"),
        ({"delta": torch.ones(0)}, "wrong shape"),
        ({"delta": torch.ones(2, 2)}, "wrong shape"),
        ({"delta": torch.ones(400)}, "too large"),
        ({"buffers": torch.ones(0)}, "wrong shape"),
        ({"buffers": torch.ones(3)}, "too large"),
        (sent(torch.ones(4)), "wrong shape"),
        (sent(torch.ones(2, 3)), "too large"),
        ({"delta": torch.ones(4).double()}, "wrong type"),
        ({"delta": torch.ones(4).int()}, "wrong type"),
        ({"delta": torch.ones(4).to_sparse()}, "wrong type"),
        ({"delta": torch.ones(4, device="meta")}, "wrong type"),
        ({"delta": torch.ones(4, requires_grad=True)}, "wrong type"),
        ({"delta": torch.nn.Parameter(torch.ones(4), requires_grad=False)}, "wrong type"),
        ({"delta": None}, "wrong type"),
        ({"delta": [1.0, 2.0, 3.0, 4.0]}, "wrong type"),
        (sent(torch.ones(2, 2, dtype=torch.complex64)), "wrong type"),
        ({"samples": 0}, "wrong counts"),
        ({"samples": -1}, "wrong counts"),
        ({"samples": 11}, "wrong counts"),
        ({"samples": 9}, None),
        ({"samples": 2.5}, "wrong counts"),
        ({"samples": float("nan")}, "wrong counts"),
        ({"steps": 0}, "wrong counts"),
        ({"steps": 8}, "wrong counts"),
        ({"steps": 10**400}, "wrong counts"),
        ({"loss": float("nan")}, "not finite"),
        ({"loss": float("inf")}, "not finite"),
        ({"loss": 1e308}, "not finite"),  # times some samples it would be infinite
        ({"loss": -1.1e30}, "not finite"),
        ({"loss": -1e30}, None),
        ({"delta": torch.tensor([1.0, float("nan"), 0.0, 0.0])}, "not finite"),
        ({"delta": torch.tensor([float("inf"), float("-inf"), 0.0, 0.0])}, "not finite"),
        ({"buffers": torch.tensor([0.0, float("inf")])}, "not finite"),
        (sent(torch.full((2, 2), float("nan"))), "not finite"),
        ({"delta": torch.full((4,), 3e38)}, None),  # the sum overflows, and nothing is wrong with it
        ({"delta": torch.ones(1).expand(4)}, None),
    ],
)
def test_flaws_by_hand(changes, reason):
    assert FORM.flaw(replace(SOUND, **changes), ASKED) == reason


def test_tensors_of_unusual_kinds():
    with pytest.warns(UserWarning, match="nested"):
        nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(2)])
    assert FORM.flaw(replace(SOUND, delta=nested), ASKED) == "wrong type"


def test_who_has_not_trained_knows_no_loss():
    pretended = replace(SOUND, loss=float("nan"))
    assert FORM.flaw(pretended, ASKED, trained=False) is None


def test_many_updates_are_checked_as_each_alone():
    """Sums of all numbers find those that aren't finite; the sum of large ones overflows, and they pass."""
    infinite, large = float("inf"), torch.full((4,), 3e38)
    several = [
        SOUND,
        replace(SOUND, delta=torch.tensor([1.0, float("nan"), 1.0, 1.0])),
        replace(SOUND, delta=large),
        replace(SOUND, delta=torch.tensor([infinite, -infinite, 0.0, 0.0])),
        replace(SOUND, **sent(torch.tensor([[1.0, infinite], [1.0, 1.0]]))),
        replace(SOUND, client=4),
        replace(SOUND, buffers=torch.tensor([1.0, -infinite])),
    ]
    found = FORM.flaws([(update, ASKED, True) for update in several])
    assert found == [FORM.flaw(update, ASKED) for update in several]
    finite = [None, "not finite", None, "not finite", "not finite", "of another client", "not finite"]
    assert found == finite
