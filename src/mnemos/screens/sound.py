"""The form that every update must have before it is used; checked in every round, on every engine."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mnemos.client.messages import TrainRequest
from mnemos.methods.exchange import LARGEST_LOSS, State, TrainReply
from mnemos.methods.replies import TrainReplies
from mnemos.vector import Layout

NOT_FINITE = "not finite"
"""The reason for rejecting an update with NaN or infinite numbers, as a client that diverges sends."""

_STATISTICS = {"running_var": math.inf, "num_batches_tracked": 2.0**24}
"""Batch-norm's statistics that can't be negative, with their largest value: float counters stop at 2²⁴."""

_SMALL = 4096
"""Updates of no more numbers are checked many at once, as a call costs more than the sum of one."""


class Asked(NamedTuple):
    """What the server knows of an update before it arrives."""

    client: int
    round: int
    samples: int
    """The number of samples that the client holds."""
    steps: int
    """The number of steps that it makes if it trains to the end."""

    @classmethod
    def by(cls, request: TrainRequest) -> Asked:
        """What is known of the reply to a request."""
        samples = request.samples.shape[0]
        steps = request.plan.local.round_steps(samples)
        steps = steps if request.steps is None else min(steps, request.steps)
        return cls(request.client, request.round, samples, steps)


class Together(NamedTuple):
    """`Asked` of several clients, as lists."""

    clients: list[int]
    rounds: list[int]
    samples: list[int]
    steps: list[int]

    @property
    def each(self) -> Iterator[Asked]:
        """Of one client after the other."""
        return map(Asked, *self)


class _Kind(NamedTuple):
    """The shape, type and device that a tensor must have."""

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
    """The form that updates must have."""

    def __init__(self, delta: Tensor, buffers: Tensor, change: State) -> None:
        """From examples of an update's vectors and of what is uploaded beside them."""
        self._vectors = _Kind.of(delta), _Kind.of(buffers)
        self._change = {name: _Kind.of(example) for name, example in change.items()}
        self._kinds = (*self._vectors, *self._change.values())

    @property
    def on_cpu(self) -> bool:
        """Whether updates are on the CPU."""
        return self._vectors[0].device.type == "cpu"

    def flaw(self, update: TrainReply, asked: Asked, *, trained: bool = True) -> str | None:
        """Why an update can't be used, in a few words; None if it can.

        `trained` is False for a client that didn't train, and so has no loss to report.
        """
        return self.flaws([(update, asked, trained)])[0]

    def flaws(self, updates: Sequence[tuple[TrainReply, Asked, bool]]) -> list[str | None]:
        """`flaw` of several updates; on a device it waits once for all of them."""
        found = [self._malformed(update, asked, trained) for update, asked, trained in updates]
        formed = [index for index, flaw in enumerate(found) if flaw is None]
        finite = _all_finite([self._tensors(updates[index][0]) for index in formed])
        for index, fine in zip(formed, finite, strict=True):
            found[index] = None if fine else NOT_FINITE
        return found

    def all_sound(self, updates: TrainReplies, asked: Together) -> bool:
        """Whether it shows at once that no update has a flaw.

        Only columns, which an engine of this process makes, are looked at all at once.
        """
        if not updates.in_columns:
            return False
        found, count = updates.columns, len(asked.clients)
        tensors = [found.delta, found.buffers, *(found.change.get(name) for name in self._change)]
        return (
            found.change.keys() == self._change.keys()
            and all(
                kind.fits(tensor) and tensor.shape == (count, *kind.shape)  # type: ignore[union-attr]
                for tensor, kind in zip(tensors, self._kinds, strict=True)
            )
            and asked == Together(*map(list, (found.clients, found.rounds, found.samples, found.steps)))
            and bool((np.abs(found.losses) <= LARGEST_LOSS).all())
            and _clear(tensors)  # type: ignore[arg-type]
        )

    def _tensors(self, update: TrainReply) -> list[Tensor]:
        """All tensors of an update that has the right names."""
        return [update.delta, update.buffers, *(update.change[name] for name in self._change)]

    def _malformed(self, update: TrainReply, asked: Asked, trained: bool) -> str | None:
        """The flaw of an update that shows without reading its tensors' numbers."""
        if update.client != asked.client:
            return "of another client"
        if update.round != asked.round:
            return "of another round"
        if update.change.keys() != self._change.keys():
            return "wrong names"
        for tensor, kind in zip(self._tensors(update), self._kinds, strict=True):
            if not kind.fits(tensor):
                return "wrong type"
            if tensor.shape != kind.shape:
                return "too large" if tensor.numel() > kind.shape.numel() else "wrong shape"
        if not _plausible(update.samples, asked.samples) or not _plausible(update.steps, asked.steps):
            return "wrong counts"
        return NOT_FINITE if trained and not abs(update.loss) <= LARGEST_LOSS else None


def measurable(buffers: Tensor, layout: Layout) -> bool:
    """Whether buffers can come from batch-norm: variances and counters are in their range.

    `buffers`: those of a client, or rows of several clients.
    """
    if not layout.buffers:
        return True
    kinds = [(slot, _STATISTICS.get(slot.name.rpartition(".")[2])) for slot in layout.buffers]
    bounded = [(slot, most) for slot, most in kinds if most is not None]
    if not bounded:
        return True
    values = buffers.cpu()  # at once from a device; they are small beside a model
    parts = ((values[..., slot.start : slot.stop], most) for slot, most in bounded)
    return all(bool(((part >= 0) & (part <= most)).all()) for part, most in parts)


def _plausible(count: object, most: int) -> bool:
    """Whether a reported count is an integer from 1 to `most`."""
    return type(count) is int and 1 <= count <= most


def _all_finite(updates: Sequence[Sequence[Tensor]]) -> list[bool]:
    """Whether all numbers of each update's tensors are finite."""
    if not updates or updates[0][0].device.type == "cpu":
        if len(updates) < 2 or max(tensor.numel() for tensor in updates[0]) > _SMALL:
            return [all(map(_finite, tensors)) for tensors in updates]
        columns = [torch.stack(column) for column in zip(*updates, strict=True) if column[0].numel()]
        sums = torch.stack([column.view(len(updates), -1).sum(1).double() for column in columns]).sum(0)
        clear = sums.isfinite().tolist()
        return [fine or all(map(_finite, own)) for fine, own in zip(clear, updates, strict=True)]
    each = [torch.stack([tensor.isfinite().all() for tensor in tensors]).all() for tensors in updates]
    found: list[bool] = torch.stack(each).tolist()
    return found


def _clear(tensors: Sequence[Tensor]) -> bool:
    """Whether the tensors' numbers are all finite, as their sums are; on a device it waits once."""
    sums = [tensor.sum() for tensor in tensors if tensor.numel()]
    return not sums or bool(torch.stack(sums).isfinite().all())


def _finite(tensor: Tensor) -> bool:
    # A sum is faster, and finite only if all numbers are; but large finite numbers may overflow in it.
    return not tensor.numel() or math.isfinite(tensor.sum().item()) or bool(tensor.isfinite().all())
