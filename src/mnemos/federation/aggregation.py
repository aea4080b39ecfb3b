"""How a round's updates become the server's next model: weighed, folded, with noise, or each on its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from mnemos.clocks.asynchronous import AsynchronousClock
from mnemos.measures.measure import Record
from mnemos.methods.exchange import Cohort, Fold, Server, TrainReply
from mnemos.methods.method import Method
from mnemos.methods.part import Single
from mnemos.privacy.gaussian import NoisySum
from mnemos.ranks.spectra import ranked
from mnemos.vector import Layout


class Aggregation(ABC):
    """Takes a round's updates one by one, in the cohort's order."""

    without_updates = False
    """Whether a round without any updates still moves the server."""

    @abstractmethod
    def add(self, update: TrainReply) -> None:
        """Take in one update."""

    @abstractmethod
    def result(self, round: int) -> tuple[Server, list[Record]]:
        """The server after the round, and what is recorded of the aggregation."""


class Averaging(Aggregation):
    """The weighted mean of the updates, and the server's step."""

    def __init__(self, method: Method, server: Server, layout: Layout, fold: Fold, population: int) -> None:
        """`fold`: a fresh one; `population`: how many clients have samples."""
        self._method, self._server, self._layout = method, server, layout
        self._fold, self._population = fold, population
        self._compared: list[TrainReply] = []

    def add(self, update: TrainReply) -> None:
        """Fold an update at once if its weight doesn't depend on the others'."""
        weighting = self._method.weighting
        if isinstance(weighting, Single):
            self._fold.add(update, weighting.weigh(update, self._layout))
        else:
            self._compared.append(replace(update, state={}))  # which is held elsewhere by now

    def result(self, round: int) -> tuple[Server, list[Record]]:
        """x ← server step (Σ aₖ Δₖ / Σ aₖ)."""
        records = list(self._compare(round, tuple(self._compared)))
        aggregate = self._fold.result()
        share = aggregate.clients / self._population
        return self._method.server_step(self._server, replace(aggregate, share=share)), records

    def _compare(self, round: int, updates: tuple[TrainReply, ...]) -> Iterator[Record]:
        """Weigh updates beside each other and fold them; records each client's share αₖ of every layer."""
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
            for slot in layers:
                # Divided in double precision: a plain mean's share is 1/K, and not what single makes of it.
                # By numpy, whose sum is the same on any number of threads.
                share = float(values[slot.start : slot.stop].double().numpy().mean()) / count
                yield Record(round, "weight", share, client=update.client, layer=slot.name)


class PrivateAveraging(Averaging):
    """The noisy mean of clipped updates, and the server's step."""

    without_updates = True  # noise alone will do
    _fold: NoisySum

    def result(self, round: int) -> tuple[Server, list[Record]]:
        """The same, with what the mechanism keeps for the next round."""
        server, records = super().result(round)
        server = replace(server, privacy={**server.privacy, **self._fold.state()})
        return server, [*records, Record(round, "clip", self._fold.clip)]


class Apart(Aggregation):
    """Every client's update moves its own model: row k of the models is that of client k of the peers."""

    def __init__(self, method: Method, server: Server, rows: Mapping[int, int]) -> None:
        """`rows`: where each client's model is among those in the server's vector."""
        self._method, self._server, self._rows = method, server, rows
        self._models, self._buffers = (
            vector.view(len(rows), len(vector) // len(rows)).clone()
            for vector in (server.model, server.buffers)
        )

    def add(self, update: TrainReply) -> None:
        """Move the client's model."""
        row = self._rows[update.client]
        self._models[row] += update.delta
        self._buffers[row] = self._method.buffers.next(self._buffers[row], update.buffers)

    def result(self, round: int) -> tuple[Server, list[Record]]:
        """All models one after the other."""
        return replace(self._server, model=self._models.flatten(), buffers=self._buffers.flatten()), []


class Stale(Aggregation):
    """Gives updates that were computed from an older model less weight, and then averages them."""

    def __init__(
        self,
        inner: Aggregation,
        clock: AsynchronousClock,
        server: Server,
        origins: Mapping[int, Tensor],
        staleness: Mapping[int, int],
    ) -> None:
        """`origins`: the model each client started from; `staleness`: how often the server moved since."""
        self._inner, self._clock, self._server = inner, clock, server
        self._origins, self._staleness = origins, staleness
        self._used: list[int] = []

    def add(self, update: TrainReply) -> None:
        """α s(τ) Δ, with Δ taken from where the server is by now if the clock applies models."""
        client, delta = update.client, update.delta
        if self._clock.mixes_models:
            delta = delta + (self._origins[client] - self._server.model)
        weight = self._clock.weight(self._staleness[client])
        buffers = torch.lerp(self._server.buffers, update.buffers, weight)
        self._inner.add(replace(update, delta=weight * delta, buffers=buffers))
        self._used.append(client)

    def result(self, round: int) -> tuple[Server, list[Record]]:
        """The same as of the mean, with each update's staleness on record."""
        server, records = self._inner.result(round)
        stale = (
            Record(round, "staleness", float(self._staleness[client]), client=client) for client in self._used
        )
        return server, [*records, *stale]
