"""How many samples a model predicts correctly, by groups of classes and by the classes it may predict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Groups:
    """Groups of classes whose samples are counted together, and views: the classes that may be predicted."""

    of: Tensor
    """The group of each class, from 0 on; −1: in no group [classes]."""
    views: tuple[Tensor, ...]
    """In each view, which classes may be predicted for a group's samples [groups or 1, classes]."""

    @classmethod
    def of_classes(cls, classes: int) -> Groups:
        """Each class as a group of its own, and one view in which all classes may be predicted."""
        return cls(torch.arange(classes), (torch.ones(1, classes, dtype=torch.bool),))

    @property
    def count(self) -> int:
        """How many groups there are."""
        return int(self.of.max()) + 1 if len(self.of) else 0


@dataclass(frozen=True)
class Counts:
    """How many samples there are, and how many of them a model predicts correctly."""

    samples: int
    """All samples, including those in no group."""
    sizes: Tensor
    """The samples of each group [groups]."""
    right: Tensor
    """The correct ones of each group, in each view [views, groups]."""

    @classmethod
    def sum(cls, parts: Sequence[Counts], groups: Groups) -> Counts:
        """The counts of several sets of samples together."""
        sizes = torch.zeros(groups.count, dtype=torch.int64)
        right = torch.zeros(len(groups.views), groups.count, dtype=torch.int64)
        return cls(
            sum(part.samples for part in parts),
            sum((part.sizes for part in parts), sizes),
            sum((part.right for part in parts), right),
        )


def count(logits: Tensor, labels: Tensor, groups: Groups) -> Counts:
    """Counts of predictions: the class of the largest logit among those that may be predicted."""
    samples, group = len(labels), groups.of[labels]
    counted = group >= 0
    labels, logits, group = labels[counted], logits[counted], group[counted]
    right = []
    for view in groups.views:
        allowed = view if len(view) == 1 else view[group]
        answers = logits.masked_fill(~allowed, -torch.inf).argmax(1)
        # Where no class may be predicted, `argmax` is 0, which must not count.
        hits = (answers == labels) & allowed.expand(len(labels), -1).gather(1, labels[:, None])[:, 0]
        right.append(torch.bincount(group[hits], minlength=groups.count))
    return Counts(samples, torch.bincount(group, minlength=groups.count), torch.stack(right))
