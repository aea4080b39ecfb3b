"""The messages of a round: what a client needs and sends back, to train and to evaluate a model.

All are plain tensors and a few numbers, and all have a byte form (safetensors with a JSON header): nothing is
ever unpickled.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from mnemos.data.dataset import Source, sources
from mnemos.errors import DataError
from mnemos.local import Local
from mnemos.methods.exchange import State, Update
from mnemos.methods.method import Method, methods
from mnemos.models.model import Model, models
from mnemos.privacy.privacy import NoPrivacy, Privacy, privacies
from mnemos.registry import Options


class Arithmetic(Options):
    """What changes the last bits of a result; kept in a run's record and on resume."""

    channels_last: bool = True
    intra_op: int = Field(1, ge=1, description="threads inside one tensor operation")
    compile: bool = False
    vmap: bool = False


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
class Task:
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
    relabel: Tensor | None = None
    """Which class the client takes each class for [classes], if it is one that doesn't know its labels."""

    def to_bytes(self) -> bytes:
        """The task as one buffer."""
        tensors = {
            "model": self.model,
            "buffers": self.buffers,
            "samples": self.samples,
            "held_out": self.held_out,
            "met": self.met,
            "present": self.present,
        }
        if self.relabel is not None:
            tensors["relabel"] = self.relabel
        header = {
            "plan": self.plan.model_dump(mode="json"),
            "round": self.round,
            "client": self.client,
            "noise": self.noise,
        }
        return pack(tensors, {"received": self.received, "state": self.state}, header)

    @classmethod
    def from_bytes(cls, data: bytes) -> Task:
        """The task in a buffer."""
        header, tensors, states = unpack(data, "received", "state")
        try:
            return cls(
                Plan.parse(header["plan"]),
                int(header["round"]),
                int(header["client"]),
                tensors["model"],
                tensors["buffers"],
                states["received"],
                states["state"],
                tensors["samples"],
                tensors["held_out"],
                tensors["met"],
                tensors["present"],
                float(header["noise"]),
                tensors.get("relabel"),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"message: not a task ({error!r})") from None


def update_to_bytes(update: Update) -> bytes:
    """An update as one buffer."""
    header = {
        "client": update.client,
        "round": update.round,
        "samples": update.samples,
        "steps": update.steps,
        "loss": update.loss,
    }
    tensors = {"delta": update.delta, "buffers": update.buffers}
    return pack(tensors, {"change": update.change, "state": update.state}, header)


def update_from_bytes(data: bytes) -> Update:
    """The update in a buffer."""
    header, tensors, states = unpack(data, "change", "state")
    try:
        return Update(
            int(header["client"]),
            int(header["round"]),
            int(header["samples"]),
            int(header["steps"]),
            float(header["loss"]),
            tensors["delta"],
            tensors["buffers"],
            states["change"],
            states["state"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"message: not an update ({error!r})") from None


@dataclass(frozen=True)
class Exam:
    """A model that a client is to evaluate on some of its samples."""

    plan: Plan
    model: Tensor
    buffers: Tensor
    part: Literal["train", "test"]
    samples: Tensor
    """Indices of them, in the part."""

    def to_bytes(self) -> bytes:
        """The exam as one buffer."""
        tensors = {"model": self.model, "buffers": self.buffers, "samples": self.samples}
        return pack(tensors, {}, {"plan": self.plan.model_dump(mode="json"), "part": self.part})

    @classmethod
    def from_bytes(cls, data: bytes) -> Exam:
        """The exam in a buffer."""
        header, tensors, _ = unpack(data)
        try:
            part: Literal["train", "test"] = "test" if header["part"] == "test" else "train"
            return cls(
                Plan.parse(header["plan"]), tensors["model"], tensors["buffers"], part, tensors["samples"]
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"message: not an exam ({error!r})") from None


@dataclass(frozen=True)
class Tally:
    """How a model did on a client's samples: all that is said of them."""

    samples: int
    hits: int
    loss: float
    """Summed over the samples."""

    def to_bytes(self) -> bytes:
        """The tally as one buffer."""
        return pack({}, {}, {"samples": self.samples, "hits": self.hits, "loss": self.loss})

    @classmethod
    def from_bytes(cls, data: bytes) -> Tally:
        """The tally in a buffer, if it can be one."""
        header, _, _ = unpack(data)
        try:
            tally = cls(int(header["samples"]), int(header["hits"]), float(header["loss"]))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise DataError(f"message: not a tally ({error!r})") from None
        if not (0 <= tally.hits <= tally.samples and math.isfinite(tally.loss)):
            raise DataError(f"message: {tally.hits} of {tally.samples} right with a loss of {tally.loss}")
        return tally


def pack(tensors: Mapping[str, Tensor], states: Mapping[str, State], header: Mapping[str, Any]) -> bytes:
    """Tensors, groups of named tensors and a JSON header as one safetensors buffer."""
    flat = dict(tensors)
    for group, state in states.items():
        flat.update({f"{group}/{name}": tensor for name, tensor in state.items()})
    # Rows of a cohort's matrix share memory; safetensors wants each tensor on its own.
    flat = {
        name: tensor.detach().clone(memory_format=torch.contiguous_format) for name, tensor in flat.items()
    }
    return save(flat, {"mnemos": json.dumps(header, sort_keys=True)})


def unpack(data: bytes, *groups: str) -> tuple[dict[str, Any], dict[str, Tensor], dict[str, State]]:
    """(header, tensors, groups) of a buffer made by `pack`; the groups named are there even if empty."""
    try:
        flat = load(data)
        length = int.from_bytes(data[:8], "little")
        header = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["mnemos"])
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"message: can't be read ({error!r})") from None
    states: dict[str, State] = {group: {} for group in groups}
    tensors: dict[str, Tensor] = {}
    for name, tensor in flat.items():
        group, slash, rest = name.partition("/")
        if slash:
            states.setdefault(group, {})[rest] = tensor
        else:
            tensors[name] = tensor
    return header, tensors, states
