"""Which samples a client holds in a round, as a pure function of (assignment, client, round)."""

from __future__ import annotations

from abc import abstractmethod

from mnemos.data.partition import Assignment, Ints
from mnemos.registry import Part, Registry


class Stream(Part):
    """How a client's data changes over time."""

    @abstractmethod
    def samples(self, assignment: Assignment, client: int, round: int) -> Ints:
        """Indices of the client's training samples in a round."""


streams: Registry[Stream] = Registry("stream", Stream, "mnemos.data.streams")


@streams.register("static")
class Static(Stream):
    """Every client keeps all its samples for ever."""

    def samples(self, assignment: Assignment, client: int, round: int) -> Ints:
        """All of the client's training samples."""
        return assignment.train(client)
