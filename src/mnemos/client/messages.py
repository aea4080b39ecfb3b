"""The messages of local training: what a client is sent, and what it sends back.

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
    """The settings that change the last bits of results; a run records them, and `resume` keeps them."""

    channels_last: bool = True
    intra_op: int = Field(1, ge=1, description="threads inside one tensor operation")
    compile: bool = False
    vmap: bool = False
    device: str = Field("cpu", description="kind of device: cpu, cuda, xpu, mps")
    deterministic: bool = Field(False, description="a GPU has used deterministic algorithms alone")
    precision: Precision = Field("float32", description="of the model's passes in training")


class Plan(Options):
    """The part of an experiment that clients need; it is the same for all clients and rounds."""

    data: Annotated[Source, sources]
    model: Annotated[Model, models]
    method: Annotated[Method, methods]
    local: Local
    privacy: Annotated[Privacy, privacies] = NoPrivacy()
    seed: int
    arithmetic: Arithmetic = Arithmetic()


@dataclass(frozen=True)
class TrainRequest:
    """Asks one client to train for one round."""

    plan: Plan
    round: int
    client: int
    model: Tensor
    buffers: Tensor
    received: State
    """What the server sends beside the model."""
    state: State
    """What the client remembers."""
    samples: Tensor
    """Indices of the client's training samples in this round."""
    held_out: Tensor
    """Indices of its validation samples: some losses count their labels."""
    met: Tensor
    """Whether each class is in a task that the client has reached [classes]; without tasks, all are True."""
    present: Tensor
    """Whether each class is in the client's present task [classes]; without tasks, all are False."""
    noise: float = 0.0
    """The standard deviation of the noise on its inputs."""
    label_map: Tensor | None = None
    """The class that the client takes each class for [classes]; None: its labels are right."""
    steps: int | None = None
    """The number of steps after which it has to stop early; None: it trains to the end."""
    seconds: float | None = None
    """The seconds that it may train, in real time, but at least one step; None: there is no limit."""
    trigger: Trigger | None = None
    """The mark that it puts on some of its samples, to plant a backdoor; None: it puts none."""

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
