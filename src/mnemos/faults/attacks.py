"""Clients that send malformed or harmful updates on purpose."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from mnemos.client.messages import reply_from_bytes, reply_to_bytes
from mnemos.common.devices import send
from mnemos.data.partition import Ints
from mnemos.errors import ConfigError
from mnemos.faults.fault import ATTACKERS, MEMORY, Tampering, faults, some
from mnemos.methods.exchange import State, TrainReply
from mnemos.vector import Layout

_COPIES = 1000
"""The size of a huge update, in sizes of the model."""

Kind = Literal[
    "nan",
    "inf",
    "shape",
    "empty",
    "huge",
    "scaled",
    "sign-flip",
    "label-flip",
    "replay",
    "stale",
    "coordinate",
    "means",
    "variances",
    "beside",
]
_SCALES = {
    "scaled": 1e6,
    "sign-flip": 1.0,
    "coordinate": 1e30,
    "means": 900.0,
    "variances": 900.0,
    "beside": 900.0,
}
"""The default of `scale`, by kind."""
_STATISTICS = {"means": "running_mean", "variances": "running_var"}
"""The statistics that these kinds poison."""


@faults.register("attack")
class Attack(Tampering):
    """Some clients train correctly, and send a malformed or harmful update.

    Malformed:

    - `nan`, `inf`: one number of the update is NaN or infinite;
    - `shape`: its last number is missing;
    - `empty`: all vectors are empty;
    - `huge`: it is a thousand times as large as the model;
    - `replay`: the first update that the client sent, with its old round.

    Well-formed, with the default of `scale`:

    - `scaled`: scale · Δ, 10⁶;
    - `sign-flip`: −scale · Δ, 1;
    - `label-flip`: Δ, learnt from labels in the opposite order, c ↦ C − 1 − c;
    - `stale`: the first update that the client sent, with the present round;
    - `coordinate`: Δ with one number, in the middle, replaced by scale, 10³⁰;
    - `means`, `variances`: Δ, with all of batch-norm's running means, or variances, set to scale, 900;
    - `beside`: Δ, and everything that is uploaded beside the model times scale, 900.
    """

    share: float = Field(0.1, gt=0, le=1, description="share of the clients, at least one")
    kind: Kind = "sign-flip"
    """What the clients send instead of their update."""
    scale: float | None = Field(
        None, gt=0, description="how large the bad numbers are; null: what the kind says"
    )

    def clients(self, population: int, seed: int) -> Ints:
        """A share of the clients, drawn once for the run."""
        return some(self.share, population, seed, ATTACKERS)

    def check(self, layout: Layout, beside: State, classes: int) -> None:
        """Refuse to poison statistics or uploads that the experiment doesn't have."""
        missing = None
        if self.kind in _STATISTICS and not list(_slices(layout, _STATISTICS[self.kind])):
            missing = f"the model has no {_STATISTICS[self.kind]}"
        elif self.kind == "beside" and not beside:
            missing = "the method's clients upload nothing beside the model"
        if missing is not None:
            raise ConfigError(f"found the attack {self.kind}, but {missing}")

    def label_map(self, classes: int) -> Tensor | None:
        """For `label-flip`, the classes in the opposite order."""
        return torch.arange(classes).flip(0) if self.kind == "label-flip" else None

    def tamper(self, update: TrainReply, memory: State, layout: Layout) -> TrainReply:
        """The update that is sent, by kind."""
        delta = update.delta
        scale = self.scale or _SCALES.get(self.kind, 1.0)
        match self.kind:
            case "nan" | "inf":
                return replace(update, delta=_spoilt(delta, float(self.kind)))
            case "shape":
                return replace(update, delta=delta[:-1])
            case "empty":
                return replace(update, delta=delta[:0], buffers=update.buffers[:0], change={})
            case "huge":  # one number, expanded: it takes no memory
                return replace(update, delta=delta[:1].expand(_COPIES * len(delta)))
            case "scaled":
                return replace(update, delta=scale * delta)
            case "sign-flip":
                return replace(update, delta=-scale * delta)
            case "coordinate":
                return replace(update, delta=_spoilt(delta, scale))
            case "means" | "variances":
                buffers = update.buffers.clone()
                for where in _slices(layout, _STATISTICS[self.kind]):
                    buffers[where] = scale
                return replace(update, buffers=buffers)
            case "beside":
                return replace(update, change={name: scale * sent for name, sent in update.change.items()})
            case "replay" | "stale":
                return self._again(update, memory)
            case "label-flip":
                return update  # the harm is in what it has learnt: `label_map`

    def _again(self, update: TrainReply, memory: State) -> TrainReply:
        """The first update that the client sent, which is remembered as a message."""
        name = f"{MEMORY}attack.{update.client}"
        if name not in memory:
            message = reply_to_bytes(replace(update, state={}))
            memory[name] = torch.frombuffer(bytearray(message), dtype=torch.uint8)
            return update
        first = reply_from_bytes(memory[name].numpy().tobytes())
        delta, buffers, change = send((first.delta, first.buffers, first.change), update.delta.device)
        first = replace(first, delta=delta, buffers=buffers, change=change, state=update.state)
        return replace(first, round=update.round) if self.kind == "stale" else first


def _spoilt(delta: Tensor, value: float) -> Tensor:
    """An update whose middle number has another value."""
    spoilt = delta.clone()
    spoilt[len(delta) // 2] = value
    return spoilt


def _slices(layout: Layout, leaf: str) -> Iterator[slice]:
    """The slices of the buffer vector that hold statistics of this name."""
    for slot in layout.buffers:
        if slot.name.rpartition(".")[2] == leaf:
            yield slice(slot.start, slot.stop)
