"""The messages of an evaluation: a model and samples there, how many it got right back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from mnemos.client.messages import Plan
from mnemos.client.packing import pack, read, reason, unpack, vector, whole_or_none
from mnemos.common.plain import number, whole
from mnemos.errors import DataError
from mnemos.measures.counting import Counts, Groups
from mnemos.methods.exchange import LARGEST_LOSS, State

_CLIENTS_MODEL = ContextVar("_CLIENTS_MODEL", default=False)


@contextmanager
def evaluating_a_client() -> Iterator[None]:
    """Around the evaluation of a client's model: owners are told that it isn't the server's."""
    token = _CLIENTS_MODEL.set(True)
    try:
        yield
    finally:
        _CLIENTS_MODEL.reset(token)


def is_a_clients_model() -> bool:
    """Whether the model that is being evaluated is a client's."""
    return _CLIENTS_MODEL.get()


@dataclass(frozen=True)
class EvaluateRequest:
    """Asks a client to evaluate a model on some of its samples."""

    plan: Plan
    model: Tensor
    buffers: Tensor
    part: Literal["train", "test"]
    samples: Tensor
    """Indices of them, in the part."""
    groups: Groups | None = None
    """The groups of classes by which right answers are counted; None: only all together."""
    known: Tensor | None = None
    """Indices of training samples by whose labels the client corrects the answers; None: no correction."""
    clients_model: bool = False
    """Whether it is a client's model after local training, and not the server's."""

    def to_bytes(self) -> bytes:
        """The request as one buffer."""
        tensors = {"model": self.model, "buffers": self.buffers, "samples": self.samples}
        if self.known is not None:
            tensors["known"] = self.known
        views: State = {}
        if self.groups is not None:
            tensors["groups"] = self.groups.of
            views = {str(index): view for index, view in enumerate(self.groups.views)}
        header = {
            "plan": self.plan.model_dump(mode="json"),
            "part": self.part,
            "clients_model": self.clients_model,
        }
        return pack(tensors, {"views": views}, header)

    @classmethod
    def from_bytes(cls, data: bytes) -> EvaluateRequest:
        """The request in a buffer."""
        header, tensors, states = unpack(data, "views")
        try:
            part: Literal["train", "test"] = "test" if header["part"] == "test" else "train"
            return cls(
                Plan.parse(header["plan"]),
                vector(tensors, "model"),
                vector(tensors, "buffers"),
                part,
                vector(tensors, "samples", torch.int64),
                _groups(tensors, states["views"]) if "groups" in tensors else None,
                vector(tensors, "known", torch.int64) if "known" in tensors else None,
                header["clients_model"] is True,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"message: not an evaluate request ({reason(error)})") from None


@dataclass(frozen=True)
class EvaluateReply:
    """How a model did on a client's samples; nothing else about them leaves the client."""

    samples: int
    hits: int
    loss: float
    """Summed over the samples."""
    counts: Counts | None = None
    """Right answers by group, if asked for."""
    corrected: int | None = None
    """How many corrected answers are right, if asked for."""

    def to_bytes(self) -> bytes:
        """The reply as one buffer."""
        counts = self.counts
        tensors = {} if counts is None else {"sizes": counts.sizes, "right": counts.right}
        header = {"samples": self.samples, "hits": self.hits, "loss": self.loss, "corrected": self.corrected}
        return pack(tensors, {}, header)

    @classmethod
    def from_bytes(cls, data: bytes) -> EvaluateReply:
        """The reply in a buffer, if it can be one."""
        header, tensors, _ = unpack(data)
        try:
            samples = read(header, "samples", whole)
            counts = _counts(tensors, samples) if tensors else None
            hits, loss = read(header, "hits", whole), read(header, "loss", number)
            reply = cls(samples, hits, loss, counts, read(header, "corrected", whole_or_none))
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"message: not an evaluate reply ({reason(error)})") from None
        if not (max(reply.hits, reply.corrected or 0) <= reply.samples and abs(reply.loss) <= LARGEST_LOSS):
            raise DataError(f"message: {reply.hits} of {reply.samples} right with a loss of {reply.loss}")
        return reply


def _groups(tensors: Mapping[str, Tensor], views: State) -> Groups:
    groups = Groups(
        vector(tensors, "groups", torch.int64), tuple(views[name] for name in sorted(views, key=int))
    )
    classes = len(groups.of)
    if not (classes and int(groups.of.min()) >= -1 and int(groups.of.max()) < classes and groups.views):
        raise ValueError("groups: a number from -1 on for each class is expected, and a view")
    for view in groups.views:
        if view.dtype != torch.bool or view.shape not in {(1, classes), (groups.count, classes)}:
            raise ValueError(
                f"views: found {view.dtype} {list(view.shape)}, "
                f"and {groups.count} or 1 by {classes} of {torch.bool} is expected"
            )
    return groups


def _counts(tensors: Mapping[str, Tensor], samples: int) -> Counts:
    sizes, right = vector(tensors, "sizes", torch.int64), tensors["right"]
    if right.dtype != torch.int64 or right.ndim != 2 or right.shape[1] != len(sizes):
        raise ValueError(
            f"right: found {right.dtype} {list(right.shape)}, and {len(sizes)} a row is expected"
        )
    if bool((right < 0).any() or (right > sizes).any()) or _sum(sizes) > samples:
        raise ValueError(f"right: found more than the {samples} samples that there are, or less than none")
    return Counts(samples, sizes, right)


def _sum(sizes: Tensor) -> int:
    return sum(sizes.tolist())  # of any size, without an overflow
