"""Clients that send something bad on purpose."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from mnemos.data.partition import Ints
from mnemos.faults.fault import MEMORY, Tampering, faults, some
from mnemos.message import update_from_bytes, update_to_bytes
from mnemos.methods.exchange import State, Update

_COPIES = 1000
"""How many times the model's size a huge update has."""

Kind = Literal["nan", "inf", "shape", "empty", "huge", "scaled", "sign-flip", "label-flip", "replay", "stale"]


@faults.register("attack")
class Attack(Tampering):
    """Some clients train as they should, and send something bad.

    Malformed:

    - `nan`, `inf`: one number of the update is that;
    - `shape`: its last number is missing;
    - `empty`: there is nothing in it;
    - `huge`: it is a thousand times as large as the model;
    - `replay`: the first update that the client has sent, once more as it was.

    Well-formed:

    - `scaled`: scale · Δ, by 10⁶ unless `scale` says otherwise;
    - `sign-flip`: −scale · Δ, by 1;
    - `label-flip`: Δ, learnt from labels in the opposite order, c ↦ C − 1 − c;
    - `stale`: the first update that the client has sent, passed off as one of the present round.
    """

    share: float = Field(0.1, gt=0, le=1, description="share of the clients, at least one")
    kind: Kind = "sign-flip"
    scale: float | None = Field(
        None, gt=0, description="by which Δ is multiplied; null: 10⁶ of `scaled`, 1 of `sign-flip`"
    )

    def tamperers(self, population: int, seed: int) -> Ints:
        """Drawn once."""
        return some(self.share, population, seed, "attack")

    def relabel(self, classes: int) -> Tensor | None:
        """The opposite order."""
        return torch.arange(classes).flip(0) if self.kind == "label-flip" else None

    def tamper(self, update: Update, memory: State) -> Update:
        """By kind."""
        delta = update.delta
        match self.kind:
            case "nan" | "inf":
                spoilt = delta.clone()
                spoilt[len(delta) // 2] = float(self.kind)
                return replace(update, delta=spoilt)
            case "shape":
                return replace(update, delta=delta[:-1])
            case "empty":
                return replace(update, delta=delta[:0], buffers=update.buffers[:0], change={})
            case "huge":  # one number that looks like many takes no memory
                return replace(update, delta=delta[:1].expand(_COPIES * len(delta)))
            case "scaled":
                return replace(update, delta=(self.scale or 1e6) * delta)
            case "sign-flip":
                return replace(update, delta=-(self.scale or 1.0) * delta)
            case "replay" | "stale":
                return self._again(update, memory)
            case "label-flip":
                return update  # it has learnt something bad, and is honest about it

    def _again(self, update: Update, memory: State) -> Update:
        """What was sent the first time; it is remembered as the message that it was."""
        name = f"{MEMORY}attack.{update.client}"
        if name not in memory:
            message = update_to_bytes(replace(update, state={}))
            memory[name] = torch.frombuffer(bytearray(message), dtype=torch.uint8)
            return update
        first = update_from_bytes(memory[name].numpy().tobytes())
        first = replace(first, state=update.state)
        return replace(first, round=update.round) if self.kind == "stale" else first
