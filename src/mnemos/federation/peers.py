"""Peers: clients that each keep their own model, without a server."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from torch import Tensor

from mnemos.data.dataset import Split
from mnemos.federation.aggregation import Aggregation
from mnemos.federation.groups import Group
from mnemos.federation.round import GroupResult
from mnemos.measures.measure import Record, Scores
from mnemos.methods.exchange import Broadcast, Server, TrainReply
from mnemos.methods.replies import Columns, TrainReplies
from mnemos.vector import Layout


class Peers(Group):
    """Clients with the same kind of model, each with its own.

    There is no server; in its place, `Server.model` has all clients' models laid end to end.
    """

    _guarded = False  # an update changes no model but its client's
    _apart = True
    alike = False  # each starts from its own model

    @cached_property
    def rows(self) -> dict[int, int]:
        """The row of each client's model in `matrix`."""
        return {client: row for row, client in enumerate(self.clients.tolist())}

    def matrix(self, vector: Tensor) -> Tensor:
        """The vector of all clients' models, or buffers, as a matrix with one row per client."""
        return vector.view(len(self.rows), len(vector) // len(self.rows))

    def first(self) -> Server:
        """The same model for all clients."""
        model, buffers = (vector.repeat(len(self.rows)) for vector in self._first)
        return Server(model, buffers, {})

    def start(self, source: Broadcast | Server, client: int) -> tuple[Tensor, Tensor]:
        """The client's own model."""
        row = self.rows[client]
        return self.matrix(source.model)[row], self.matrix(source.buffers)[row]

    def aggregation(self, round: int, server: Server, invited: int, *, together: bool) -> Aggregation:
        """Each update moves its client's model."""
        return _OwnModels(self, server)

    def models(self, result: GroupResult) -> list[tuple[Tensor, Tensor]]:
        """The models of the clients that trained in the round."""
        return [self.start(result.server, client) for client in result.trained]

    def with_models(self, result: GroupResult, models: list[Tensor]) -> Server:
        """The other clients' models stay as they are."""
        after = self.matrix(result.server.model).clone()
        for client, model in zip(result.trained, models, strict=True):
            after[self.rows[client]] = model
        return result.server.moved(after.flatten(), {})

    def scores(self, server: Server, split: Split, indices: Tensor | None) -> list[tuple[int | None, Scores]]:
        """Scores of every client's model."""
        return [(client, self.evaluator(*self.start(server, client), split, indices)) for client in self.rows]

    def bytes_up(self, update: TrainReply | Columns) -> int:
        """Models aren't sent."""
        return 0

    def bytes_down(self, server: Server) -> int:
        """Models aren't sent."""
        return 0

    def _client_layout(self, client: int) -> Layout:
        return self.layout.under(f"branches.{self._branch + self.rows[client]}")


class _OwnModels:
    """Every client's update moves its own model."""

    def __init__(self, peers: Peers, server: Server) -> None:
        self._peers, self._server = peers, server
        self._models, self._buffers = (
            peers.matrix(vector).clone() for vector in (server.model, server.buffers)
        )

    def add(self, updates: TrainReplies) -> None:
        """Move the clients' models."""
        for update in updates:
            row = self._peers.rows[update.client]
            self._models[row] += update.delta
            self._buffers[row] = self._peers.method.buffers.next(self._buffers[row], update.buffers)

    def result(self, round: int) -> tuple[Server, list[Record]]:
        """All models, laid end to end."""
        return replace(self._server, model=self._models.flatten(), buffers=self._buffers.flatten()), []
