"""Measures that look on while a round's clients come back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mnemos.federation.round import Start
from mnemos.measures.measure import Record, Watch
from mnemos.methods.exchange import TrainReply
from mnemos.methods.method import Method


class Watching:
    """The measures that look on while a round's clients come back."""

    def __init__(self, method: Method, start: Start, watches: Mapping[int, list[Watch]]) -> None:
        """`watches`: those that look at each client's model."""
        self._method, self._start, self._watches = method, start, watches

    def see(self, update: TrainReply) -> None:
        """Show a client's model after its local training."""
        model, buffers = self._start(update.client)
        for watch in self._watches[update.client]:
            after = update.buffers if self._method.buffers.sent else buffers
            watch.see(update.client, model + update.delta, after)

    def records(self) -> Iterator[Record]:
        """What was measured, once all clients are back."""
        different = {id(watch): watch for several in self._watches.values() for watch in several}
        for watch in different.values():
            yield from watch.records()
