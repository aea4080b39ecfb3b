"""The messages of a client's training: what a client needs and what it sends back.

All are plain tensors and a few numbers, and all have a byte form (`packing`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from mnemos.client.packing import pack, read, reason, unpack, vector, whole_or_none
from mnemos.common.plain import number, whole
from mnemos.common.registry import Options
from mnemos.data.dataset import Source, sources
from mnemos.data.trigger import Trigger
from mnemos.errors import DataError
from mnemos.methods.exchange import State, TrainReply
from mnemos.methods.method import Method, methods
from mnemos.models.model import Model, models
from mnemos.optim.local import Local, Precision
from mnemos.privacy.privacy import NoPrivacy, Privacy, privacies


class Arithmetic(Options):
    """What changes the last bits of a result; kept in a run's record and on resume."""

    channels_last: bool = True
    intra_op: int = Field(1, ge=1, description="threads inside one tensor operation")
    compile: bool = False
    vmap: bool = False
    device: str = Field("cpu", description="kind of device: cpu, cuda, xpu, mps")
    deterministic: bool = Field(False, description="a GPU has used deterministic algorithms alone")
    precision: Precision = Field("float32", description="of the model's passes in training")


class Plan(Options):
    """The part of an experiment a client needs: the same for all clients and rounds."""

    data: Annotated[Source, sources]
    model: Annotated[Model, models]
    method: Annotated[Method, methods]
    local: Local
    privacy: Annotated[Privacy, privacies] = NoPrivacy()
    seed: int
    arithmetic: Arithmetic = Arithmetic()


@dataclass(frozen=True)
class TrainRequest:
    """One client's work in one round."""

    plan: Plan
    round: int
    client: int
    model: Tensor
    buffers: Tensor
    received: State
    state: State
    samples: Tensor
    """Indices of the client's training samples in this round."""
    held_out: Tensor
    """Indices of its validation samples: some losses count their labels."""
    met: Tensor
    """Which classes belong to tasks that it has reached so far [classes]: all of them without tasks."""
    present: Tensor
    """Which classes belong to the task that it is in [classes]: none without tasks."""
    noise: float = 0.0
    label_map: Tensor | None = None
    """Which class the client takes each class for [classes], if it is one that doesn't know its labels."""
    steps: int | None = None
    """After how many steps it has to stop, if it can't be through in time."""
    seconds: float | None = None
    """For how long it may train, if real time counts; it makes one step at least."""
    trigger: Trigger | None = None
    """The mark that it puts on some of its samples, if it is one that plants a backdoor."""

    def to_bytes(self) -> bytes:
        """The request as one buffer."""
        tensors = {
            "model": self.model,
            "buffers": self.buffers,
            "samples": self.samples,
            "held_out": self.held_out,
            "met": self.met,
            "present": self.present,
        }
        if self.label_map is not None:
            tensors["label_map"] = self.label_map
        header = {
            "plan": self.plan.model_dump(mode="json"),
            "round": self.round,
            "client": self.client,
            "noise": self.noise,
            "steps": self.steps,
            "seconds": self.seconds,
            "trigger": None if self.trigger is None else self.trigger.model_dump(mode="json"),
        }
        return pack(tensors, {"received": self.received, "state": self.state}, header)

    @classmethod
    def from_bytes(cls, data: bytes) -> TrainRequest:
        """The request in a buffer."""
        header, tensors, states = unpack(data, "received", "state")
        try:
            return cls(
                Plan.parse(header["plan"]),
                read(header, "round", whole),
                read(header, "client", whole),
                vector(tensors, "model"),
                vector(tensors, "buffers"),
                states["received"],
                states["state"],
                vector(tensors, "samples", torch.int64),
                vector(tensors, "held_out", torch.int64),
                vector(tensors, "met", torch.bool),
                vector(tensors, "present", torch.bool),
                read(header, "noise", number),
                vector(tensors, "label_map", torch.int64) if "label_map" in tensors else None,
                read(header, "steps", _limit),
                read(header, "seconds", _time),
                read(header, "trigger", _trigger),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"message: not a train request ({reason(error)})") from None


def reply_to_bytes(reply: TrainReply) -> bytes:
    """A reply as one buffer."""
    numbers, tensors, states = reply.parts()
    return pack(tensors, states, numbers)


def reply_from_bytes(data: bytes) -> TrainReply:
    """The reply in a buffer."""
    header, tensors, states = unpack(data, "change", "state")
    try:
        return TrainReply(
            read(header, "client", whole),
            read(header, "round", whole),
            read(header, "samples", whole),
            read(header, "steps", whole),
            read(header, "loss", number),
            vector(tensors, "delta"),
            vector(tensors, "buffers"),
            states["change"],
            states["state"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"message: not a train reply ({reason(error)})") from None


def _limit(value: Any) -> int | None:
    if value == 0:
        raise ValueError("found 0, and one at least is expected")
    return whole_or_none(value)


def _time(value: Any) -> float | None:
    seconds = None if value is None else number(value)
    if seconds is not None and not seconds > 0:
        raise ValueError(f"found {seconds}, and more than 0 is expected")
    return seconds


def _trigger(value: Any) -> Trigger | None:
    return None if value is None else Trigger.parse(value)
