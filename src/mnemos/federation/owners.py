"""Owners of data: clients of a real federation, whose samples and memory stay with them."""

from __future__ import annotations

import torch
from torch import Tensor

from mnemos.engines.flower import OLDEST, ROUND
from mnemos.federation.groups import Group
from mnemos.federation.round import RoundContext
from mnemos.methods.exchange import State


class RemoteGroup(Group):
    """Owners of data: a client's state stays with the client, and the server knows the round it is from."""

    alike = False

    def _example(self, model: Tensor, buffers: Tensor) -> State:
        return {ROUND: torch.zeros(())}

    def _remembered(self, state: State, buffers: Tensor) -> State:
        return state

    def sent_state(self, state: State, ctx: RoundContext) -> State:
        """The round that a client's state is from, and the oldest that it may be asked for."""
        if ROUND not in state:
            return {}  # before its first round, a client makes its state itself
        return {**state, OLDEST: torch.tensor(float(ctx.client_states.oldest))}
