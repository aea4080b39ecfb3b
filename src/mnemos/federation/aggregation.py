"""Makes the server's next model from a round's updates: weigh, fold, step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

from torch import Tensor

from mnemos.client.trainer import intra_op
from mnemos.measures.measure import Record
from mnemos.methods.exchange import Cohort, Fold, Server, TrainReply
from mnemos.methods.fold import WeightedMean
from mnemos.methods.method import Method
from mnemos.methods.part import Single
from mnemos.methods.replies import TrainReplies
from mnemos.privacy.gaussian import NoisySum
from mnemos.ranks.spectra import ranked
from mnemos.vector import Layout

_MOST, _TOGETHER = 1024, 2**24
"""How many updates are folded together, and how many bytes they may have."""


class Aggregation(Protocol):
    """Takes a round's updates in the cohort's order, and makes the next server of them."""

    def add(self, updates: TrainReplies) -> None:
        """Take in some updates."""

    def result(self, round: int) -> tuple[Server, list[Record]]:
        """The server after the round, and what is recorded of the aggregation."""


class Averaging:
    """The weighted mean of the updates (or what the rule has in its place), and the server's step."""

    def __init__(
        self,
        method: Method,
        server: Server,
        layout: Layout,
        fold: Fold,
        population: int,
        *,
        together: bool = False,
    ) -> None:
        """`fold`: a fresh one, which may add noise; `population`: the number of clients with samples.

        `together`: many updates may be folded at once, by which the last bits differ.
        """
        self._method, self._server, self._layout = method, server, layout
        self._fold, self._population = fold, population
        self._compared: list[TrainReply] = []
        self._waiting: list[TrainReplies] = []
        """Updates that are folded together."""
        alike = isinstance(fold, WeightedMean) and type(fold).add is WeightedMean.add
        self._at_once = max(1, min(_MOST, _TOGETHER // (4 * layout.size))) if together and alike else 1

    def add(self, updates: TrainReplies) -> None:
        """Fold updates at once, or keep them for `result` if their weights depend on the others'."""
        weighting = self._method.weighting
        if not isinstance(weighting, Single):
            # Their senders' memory isn't needed here.
            self._compared += [replace(update, state={}) for update in updates]
        elif self._at_once > 1:
            while updates:  # as many at a time, however they come
                room = self._at_once - sum(map(len, self._waiting))
                self._waiting.append(updates[:room])
                updates = updates[room:]
                if len(self._waiting[-1]) == room:
                    self._fold_waiting(weighting)
        else:
            for update in updates:
                self._fold.add(update, weighting.weigh(update, self._layout))

    def result(self, round: int) -> tuple[Server, list[Record]]:
        """x ← server step (Σ aₖ Δₖ / Σ aₖ)."""
        if isinstance(self._method.weighting, Single):
            self._fold_waiting(self._method.weighting)
        records = list(self._compare(round, tuple(self._compared)))
        aggregate, fold = self._fold.result(), self._fold
        share = aggregate.clients / self._population
        server = self._method.server_step(self._server, replace(aggregate, share=share))
        if isinstance(fold, NoisySum):
            server = replace(server, privacy={**server.privacy, **fold.state()})
            records.append(Record(round, "clip", fold.clip))
        return server, records

    def _fold_waiting(self, weighting: Single) -> None:
        """Fold the updates that wait: as a product, if each client has one weight for everything."""
        if not self._waiting or not isinstance(self._fold, WeightedMean):
            return
        updates, self._waiting = TrainReplies.joined(self._waiting), []
        numbers = weighting.numbers(updates)
        if numbers is None:
            weights = [weighting.weigh(update, self._layout) for update in updates]
            single = [own.parameters for own in weights if own.parameters is own.buffers]
            numbers = [number for number in single if isinstance(number, float)]
            if len(numbers) < len(updates):
                for update, weight in zip(updates, weights, strict=True):
                    self._fold.add(update, weight)
                return
        with intra_op(1):  # sums must not depend on the number of threads
            self._fold.add_together(updates, numbers)

    def _compare(self, round: int, updates: tuple[TrainReply, ...]) -> Iterator[Record]:
        """Weigh updates by comparing them, and fold them; yields each client's share αₖ of every layer."""
        if not updates:
            return
        layers = ranked(self._layout, linear=True)
        cohort = Cohort(self._server.model, self._server.buffers, updates, self._layout)
        weights = self._method.weighting.weigh_cohort(cohort)
        for update, weight in zip(updates, weights, strict=True):
            self._fold.add(update, weight)
            values, count = weight.parameters, len(updates)
            if not isinstance(values, Tensor):
                yield Record(round, "weight", values / count, client=update.client)
                continue
            values = values.cpu()
            for slot in layers:
                # In double precision, so that the share in a plain mean is 1/K to the last digit on record.
                # By numpy, whose sum is the same on any number of threads.
                share = float(values[slot.start : slot.stop].double().numpy().mean()) / count
                yield Record(round, "weight", share, client=update.client, layer=slot.name)
