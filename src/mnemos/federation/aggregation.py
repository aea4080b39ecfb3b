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
from mnemos.privacy.gaussian import NoisySum
from mnemos.ranks.spectra import ranked
from mnemos.vector import Layout

_MOST, _TOGETHER = 256, 2**24
"""How many updates are folded together, and how many bytes they may have."""


class Aggregation(Protocol):
    """Takes a round's updates one by one, in the cohort's order, and makes the next server of them."""

    def add(self, update: TrainReply) -> None:
        """Take in one update."""

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
        self._waiting: list[tuple[TrainReply, float]] = []
        """Updates that are folded together, with their weights."""
        alike = isinstance(fold, WeightedMean) and type(fold).add is WeightedMean.add
        self._at_once = max(1, min(_MOST, _TOGETHER // (4 * layout.size))) if together and alike else 1

    def add(self, update: TrainReply) -> None:
        """Fold an update at once, or keep it for `result` if its weight depends on the others'."""
        weighting = self._method.weighting
        if isinstance(weighting, Single):
            weight = weighting.weigh(update, self._layout)
            own = weight.parameters
            if self._at_once > 1 and isinstance(own, float) and own is weight.buffers:
                self._waiting.append((update, own))
                if len(self._waiting) == self._at_once:
                    self._fold_waiting()
            else:
                self._fold.add(update, weight)
        else:
            self._compared.append(replace(update, state={}))  # its sender's memory isn't needed here

    def result(self, round: int) -> tuple[Server, list[Record]]:
        """x ← server step (Σ aₖ Δₖ / Σ aₖ)."""
        self._fold_waiting()
        records = list(self._compare(round, tuple(self._compared)))
        aggregate, fold = self._fold.result(), self._fold
        share = aggregate.clients / self._population
        server = self._method.server_step(self._server, replace(aggregate, share=share))
        if isinstance(fold, NoisySum):
            server = replace(server, privacy={**server.privacy, **fold.state()})
            records.append(Record(round, "clip", fold.clip))
        return server, records

    def _fold_waiting(self) -> None:
        """Fold the updates that wait."""
        if self._waiting and isinstance(self._fold, WeightedMean):
            updates, weights = zip(*self._waiting, strict=True)
            with intra_op(1):  # sums must not depend on the number of threads
                self._fold.add_together(updates, weights)
            self._waiting = []

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
