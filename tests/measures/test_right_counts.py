"""Counting by groups: by hand, and what may be answered."""

import torch

from mnemos.measures.counting import Counts, Groups, count

LOGITS = torch.tensor(
    [
        # the largest of all; of classes 0 and 1; of its own group
        [5.0, 1.0, 9.0, 0.0],  # 2; 0; 0
        [2.0, 3.0, 0.0, 9.0],  # 3; 1; 1
        [9.0, 0.0, 1.0, 2.0],  # 0; 0; 2
        [0.0, 0.0, 0.0, 1.0],  # 3; none
    ]
)
LABELS = torch.tensor([0, 0, 2, 3])
EVERYTHING = torch.ones(1, 4, dtype=torch.bool)


def groups(*views):
    """Classes 0 and 1 together, 2 by itself, 3 in no group."""
    return Groups(torch.tensor([0, 0, 1, -1]), views)


def test_by_hand():
    low = torch.tensor([[True, True, False, False]])
    own = torch.tensor([[True, True, False, False], [False, False, True, False]])
    counts = count(LOGITS, LABELS, groups(EVERYTHING, low, own))
    assert counts.samples == 4
    assert counts.sizes.tolist() == [2, 1]
    # All: 2 for 0, 3 for 0, 0 for 2. Low: 0 for 0, 1 for 0, and 2 can't be answered. Own: likewise, but 2 is.
    assert counts.right.tolist() == [[0, 0], [1, 0], [1, 1]]


def test_where_nothing_may_be_answered_nothing_is_right():
    nothing = torch.zeros(1, 4, dtype=torch.bool)
    assert count(LOGITS, LABELS, groups(nothing)).right.tolist() == [[0, 0]]


def test_every_class_is_a_group():
    counts = count(LOGITS, LABELS, Groups.of_classes(4))
    assert counts.sizes.tolist() == [2, 0, 1, 1]
    assert counts.right.tolist() == [[0, 0, 0, 1]]


def test_counts_add_up():
    asked = groups(EVERYTHING)
    parts = [count(LOGITS[:1], LABELS[:1], asked), count(LOGITS[1:], LABELS[1:], asked)]
    whole, of_all = Counts.sum(parts, asked), count(LOGITS, LABELS, asked)
    assert whole.samples == of_all.samples
    assert torch.equal(whole.sizes, of_all.sizes)
    assert torch.equal(whole.right, of_all.right)
    nobody = Counts.sum([], asked)
    assert (nobody.samples, nobody.sizes.tolist(), nobody.right.tolist()) == (0, [0, 0], [[0, 0]])
