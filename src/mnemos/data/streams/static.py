"""Data that never changes."""

from __future__ import annotations

from mnemos.data.partition import Ints
from mnemos.data.stream import Flow, Setting, Stream, streams


@streams.register("static")
class Static(Stream):
    """Every client holds all its samples in every round."""

    def open(self, setting: Setting) -> Flow:
        """The flow of the assignment itself."""
        return Still(setting)


class Still(Flow):
    """The same samples in all rounds."""

    def samples(self, client: int, round: int) -> Ints:
        """All of the client's training samples."""
        return self.assignment.train(client)

    def samples_of(self, clients: Ints, round: int) -> tuple[Ints, Ints]:
        """Found at once, as there may be thousands of clients in a round."""
        return self.assignment.trains(clients)

    def counts(self, round: int) -> Ints:
        """The counts in one pass, as there may be a million clients."""
        return self._counted(*self.assignment.training())
