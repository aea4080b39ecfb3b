"""Applies the faults of an experiment to its clients: to their data, their updates and the whole round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from torch import Tensor

from mnemos.client.messages import TrainRequest
from mnemos.data.dataset import Dataset
from mnemos.data.trigger import Trigger
from mnemos.faults.fault import Collusion, Fault, Pretence, Tampering
from mnemos.faults.free_riders import pretended
from mnemos.methods.exchange import State, TrainReply
from mnemos.methods.replies import TrainReplies
from mnemos.screens.sound import Asked, Form
from mnemos.vector import Layout

LAST = "last"
"""The model's change in the round before, which free riders copy and screens compare with."""

_Kind = TypeVar("_Kind", bound=Fault)


class Misconduct:
    """The clients of one model that misbehave. The caller keeps their memory, in a dictionary."""

    def __init__(
        self,
        faults: Sequence[Fault],
        seed: int,
        population: int,
        dataset: Dataset,
        layout: Layout,
        form: Form,
    ) -> None:
        """`population`: how many clients there are; `form`: that of an update."""
        self._dataset, self._layout, self._form = dataset, layout, form

        def by_client(kind: type[_Kind]) -> dict[int, _Kind]:
            found = (fault for fault in faults if isinstance(fault, kind))
            return {client: fault for fault in found for client in fault.clients(population, seed).tolist()}

        self.pretenders = by_client(Pretence)
        """The clients that don't train, and their fault."""
        self._tamperers = by_client(Tampering)
        self.colluders = by_client(Collusion)
        """The clients that agree on what they send, and their fault."""

    @property
    def changes_data(self) -> bool:
        """Whether some clients may have wrong labels, or marks on their samples."""
        return bool(self._tamperers or self.colluders)

    def label_map(self, client: int) -> Tensor | None:
        """The class that a client takes each class for; None: its labels are right."""
        fault = self._tamperers.get(client)
        return None if fault is None else fault.label_map(len(self._dataset.classes))

    def trigger(self, client: int) -> Trigger | None:
        """The mark that a client puts on some of its samples; None: it leaves them as they are."""
        fault = self.colluders.get(client)
        return None if fault is None else fault.trigger

    def pretended(self, request: TrainRequest, memory: State) -> TrainReply:
        """The update of a client that doesn't train."""
        fault = self.pretenders[request.client]
        delta = fault.pretend(request, memory[LAST], self._layout)
        return pretended(request, delta, self._dataset, self._layout)

    def tampered(self, updates: TrainReplies, memory: State) -> TrainReplies:
        """The updates that clients send after training: their own, or what their faults make of them."""
        if self._tamperers.keys().isdisjoint(updates.clients):
            return updates

        def sent(update: TrainReply) -> TrainReply:
            fault = self._tamperers.get(update.client)
            return update if fault is None else fault.tamper(update, memory, self._layout)

        return updates.each(sent)

    def colluded(
        self, round: Sequence[tuple[TrainRequest, TrainReply]], memory: State
    ) -> dict[int, TrainReply]:
        """What colluders send, by client; `round` has the requests and updates that they know."""
        # Updates with a flaw are of no use to them.
        updates = [update for request, update in round if self._form.flaw(update, Asked.by(request)) is None]
        honest = [update for update in updates if update.client not in self.colluders]
        crafted: dict[int, TrainReply] = {}
        for fault in dict.fromkeys(self.colluders.values()):
            own = [update for update in updates if self.colluders.get(update.client) is fault]
            if own:
                crafted |= {update.client: update for update in fault.collude(own, honest, memory)}
        return crafted
