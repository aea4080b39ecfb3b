"""Replies one by one and as columns are the same replies."""

import pytest
import torch

from mnemos.faults.delivery import _neighbours
from mnemos.methods.exchange import TrainReply
from mnemos.methods.replies import Columns, TrainReplies


def reply(client):
    delta = torch.tensor([client, 10.0 + client])
    return TrainReply(client, 3, 5 + client, 2, 0.5 * client, delta, torch.zeros(0), {"c": -delta}, {})


def numbers(replies):
    return [
        (
            own.client,
            own.round,
            own.samples,
            own.steps,
            own.loss,
            own.delta.tolist(),
            own.change["c"].tolist(),
        )
        for own in replies
    ]


SINGLE = [reply(client) for client in (4, 7, 1)]


@pytest.mark.parametrize("held", [SINGLE, Columns.of(SINGLE)], ids=["single", "columns"])
def test_replies_are_the_same_however_they_are_held(held):
    replies = TrainReplies(held)
    assert (len(replies), list(replies.clients)) == (3, [4, 7, 1])
    assert numbers(replies) == numbers(SINGLE)
    assert numbers(replies[1:]) == numbers(SINGLE[1:])
    assert numbers(replies.picked([2, 0])) == numbers([SINGLE[2], SINGLE[0]])
    assert numbers(TrainReplies.joined([replies[:1], replies[1:]])) == numbers(SINGLE)
    assert [own.loss for own in replies.with_losses([1.0, 2.0, 3.0])] == [1.0, 2.0, 3.0]
    assert replies.columns.delta.tolist() == [[4, 14], [7, 17], [1, 11]]


def test_stretches_of_places_end_where_one_is_missing():
    assert list(_neighbours([0, 1, 2])) == [(0, 3)]
    assert list(_neighbours([1, 2, 5, 7, 8])) == [(0, 2), (2, 3), (3, 5)]
