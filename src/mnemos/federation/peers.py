"""Peers: clients that keep a model each, without a server."""

from __future__ import annotations

from functools import cached_property, partial

from torch import Tensor

from mnemos.data.dataset import Split
from mnemos.data.partition import Ints
from mnemos.federation.aggregation import Aggregation, Apart
from mnemos.federation.groups import Group
from mnemos.federation.round import GroupResult
from mnemos.federation.watching import Watching
from mnemos.measures.measure import Scores
from mnemos.methods.exchange import Server, TrainReply
from mnemos.vector import Layout


class Peers(Group):
    """Clients with the same kind of model, each with one of its own: there is no server.

    The vector that a server would hold is all their models one after the other.
    """

    @property
    def _guarded(self) -> bool:
        """No: an update changes no model but its client's."""
        return False

    @cached_property
    def _rows(self) -> dict[int, int]:
        """Where each client's model is."""
        return {client: row for row, client in enumerate(self.members.clients.tolist())}

    def first(self) -> Server:
        """All start from the same model."""
        model, buffers = (vector.repeat(len(self._rows)) for vector in self._first)
        return Server(model, buffers, {})

    def start(self, server: Server, client: int) -> tuple[Tensor, Tensor]:
        """The client's own model."""
        row = self._rows[client]
        return self._matrix(server.model)[row], self._matrix(server.buffers)[row]

    def aggregation(self, round: int, server: Server, invited: int) -> Aggregation:
        """Each update moves its client's model."""
        return Apart(self.method, server, self._rows)

    def models(self, result: GroupResult) -> list[tuple[Tensor, Tensor]]:
        """Those of the round's clients."""
        return [self.start(result.server, client) for client in result.trained]

    def with_models(self, result: GroupResult, models: list[Tensor]) -> Server:
        """The other clients' models stay as they are."""
        after = self._matrix(result.server.model).clone()
        for client, model in zip(result.trained, models, strict=True):
            after[self._rows[client]] = model
        return result.server.moved(after.flatten(), {})

    def scores(self, server: Server, split: Split, indices: Tensor | None) -> list[tuple[int | None, Scores]]:
        """Scores of every client's model."""
        return [
            (client, self.evaluator(*self.start(server, client), split, indices)) for client in self._rows
        ]

    def watching(self, round: int, clients: Ints, server: Server) -> Watching:
        """Clients start from different models."""
        return self.watching_apart(round, clients, partial(self.start, server))

    def bytes_sent(self, update: TrainReply) -> int:
        """Models aren't sent."""
        return 0

    def bytes_received(self, server: Server) -> int:
        """Models aren't sent."""
        return 0

    def _client_layout(self, client: int) -> Layout:
        return self.layout.under(f"branches.{self.members.branch + self._rows[client]}")

    def _matrix(self, vector: Tensor) -> Tensor:
        """The models, or buffers, of all clients as rows."""
        count = len(self._rows)
        return vector.view(count, len(vector) // count)
