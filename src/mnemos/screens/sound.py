"""What an update must be before anything is made of it; looked at in every round, on every engine."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from mnemos.client import ration
from mnemos.message import Task
from mnemos.methods.exchange import LARGEST_LOSS, State, Update
from mnemos.vector import Layout

NOT_FINITE = "not finite"
"""What is said of an update with NaN or infinite numbers: a client that diverges sends such."""


_STATISTICS = {"running_var": math.inf, "num_batches_tracked": 2.0**24}
"""Those of batch-norm's that can't be below 0, and how large they get: counters, as floats, stop there."""


class Asked(NamedTuple):
    """What a server knows of an update before it has come."""

    client: int
    round: int
    samples: int
    """How many the client holds."""
    steps: int
    """How many it makes if it trains to the end."""

    @classmethod
    def by(cls, task: Task) -> Asked:
        """Of the answer to a task."""
        return cls(task.client, task.round, len(task.samples), ration(task, batch_norm=False).total)


class _Kind(NamedTuple):
    """What a tensor looks like."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, example: Tensor) -> _Kind:
        return cls(example.shape, example.dtype, example.device)

    def fits(self, found: object) -> bool:
        """Whether it is a plain tensor of this type: not sparse, nested, quantised, or part of a graph."""
        return (
            type(found) is Tensor
            and found.dtype == self.dtype
            and found.device == self.device
            and found.layout is torch.strided
            and not found.is_nested
            and not found.requires_grad
        )


class Form:
    """What an update looks like, by examples of what is in it."""

    def __init__(self, delta: Tensor, buffers: Tensor, change: State) -> None:
        self._vectors = _Kind.of(delta), _Kind.of(buffers)
        self._change = {name: _Kind.of(example) for name, example in change.items()}

    def flaw(self, update: Update, asked: Asked, *, trained: bool = True) -> str | None:
        """Why an update can't be used, in few words; None: it can. Who hasn't trained knows no loss."""
        if update.client != asked.client:
            return "of another client"
        if update.round != asked.round:
            return "of another round"
        if update.change.keys() != self._change.keys():
            return "wrong names"
        kinds = (*self._vectors, *self._change.values())
        found = [update.delta, update.buffers, *(update.change[name] for name in self._change)]
        for tensor, kind in zip(found, kinds, strict=True):
            if not kind.fits(tensor):
                return "wrong type"
            if tensor.shape != kind.shape:
                return "too large" if tensor.numel() > kind.shape.numel() else "wrong shape"
        if not _plausible(update.samples, asked.samples) or not _plausible(update.steps, asked.steps):
            return "wrong counts"
        if (trained and not abs(update.loss) <= LARGEST_LOSS) or not all(map(_finite, found)):
            return NOT_FINITE
        return None


def measurable(buffers: Tensor, layout: Layout) -> bool:
    """Whether batch-norm can have found these: variances and counters in their range."""
    for name, values in layout.buffer_views(buffers).items():
        most = _STATISTICS.get(name.rpartition(".")[2])
        if most is not None and not bool(((values >= 0) & (values <= most)).all()):
            return False
    return True


def _plausible(count: object, most: int) -> bool:
    """Whether somebody can have so many."""
    return type(count) is int and 1 <= count <= most


def _finite(tensor: Tensor) -> bool:
    # A sum is had in a fraction of the time, and finite only if all are; large numbers may overflow in it.
    return not tensor.numel() or math.isfinite(tensor.sum().item()) or bool(tensor.isfinite().all())
