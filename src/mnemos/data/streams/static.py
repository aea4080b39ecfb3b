"""Data that never changes."""

from __future__ import annotations

from mnemos.data.partition import Ints
from mnemos.data.stream import Flow, Setting, Stream, streams


@streams.register("static")
class Static(Stream):
    """Every client keeps all its samples for ever."""

    def open(self, setting: Setting) -> Flow:
        """The assignment as it is."""
        return Still(setting)


class Still(Flow):
    """The same in all rounds."""

    def samples(self, client: int, round: int) -> Ints:
        """All of the client's training samples."""
        return self.assignment.train(client)

    def counts(self, round: int) -> Ints:
        """In one pass: there may be a million clients."""
        return self._counted(*self.assignment.training())
