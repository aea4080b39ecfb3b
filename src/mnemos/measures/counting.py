"""How often a model is right, by groups of classes and by what it may answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Groups:
    """Classes whose samples are counted together, and views of what a model may answer to them."""

    of: Tensor
    """Each class's group, from 0 on; −1: its samples are in none [classes]."""
    views: tuple[Tensor, ...]
    """In each view the classes that may be answered to a group's samples [groups, or 1 for all; classes]."""

    @classmethod
    def of_classes(cls, classes: int) -> Groups:
        """Each class a group of its own; all may be answered."""
        return cls(torch.arange(classes), (torch.ones(1, classes, dtype=torch.bool),))

    @property
    def count(self) -> int:
        """How many groups there are."""
        return int(self.of.max()) + 1 if len(self.of) else 0


@dataclass(frozen=True)
class Counts:
    """Of how many samples a model is right."""

    samples: int
    """Those in no group, too."""
    sizes: Tensor
    """Each group's samples [groups]."""
    right: Tensor
    """Those it is right of, in each view [views, groups]."""

    @classmethod
    def sum(cls, parts: Sequence[Counts], groups: Groups) -> Counts:
        """Of all parts together."""
        sizes = torch.zeros(groups.count, dtype=torch.int64)
        right = torch.zeros(len(groups.views), groups.count, dtype=torch.int64)
        return cls(
            sum(part.samples for part in parts),
            sum((part.sizes for part in parts), sizes),
            sum((part.right for part in parts), right),
        )


def count(logits: Tensor, labels: Tensor, groups: Groups) -> Counts:
    """The answer is the class of the largest logit among those that may be answered."""
    samples, group = len(labels), groups.of[labels]
    counted = group >= 0
    labels, logits, group = labels[counted], logits[counted], group[counted]
    right = []
    for view in groups.views:
        allowed = view if len(view) == 1 else view[group]
        answers = logits.masked_fill(~allowed, -torch.inf).argmax(1)
        # Where nothing may be answered, the first class would be.
        hits = (answers == labels) & allowed.expand(len(labels), -1).gather(1, labels[:, None])[:, 0]
        right.append(torch.bincount(group[hits], minlength=groups.count))
    return Counts(samples, torch.bincount(group, minlength=groups.count), torch.stack(right))
