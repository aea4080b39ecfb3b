"""Simulated faults: clients that vanish, are late, pretend to train, or don't send what they have learnt."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from torch import Tensor

from mnemos.client.messages import TrainRequest
from mnemos.data.dataset import Dataset
from mnemos.data.partition import Ints
from mnemos.data.trigger import Trigger
from mnemos.engines.engine import Lost, Runner
from mnemos.experiment.experiment import Experiment
from mnemos.faults.fault import Collusion, Fault, Pretence, Tampering
from mnemos.faults.free_riders import pretended
from mnemos.federation.round import Answer, Attempt
from mnemos.methods.exchange import State, TrainReply
from mnemos.screens.sound import Asked, Form
from mnemos.vector import Layout

LAST = "last"
"""The model's change in the round before, which free riders copy and screens compare with."""

_Kind = TypeVar("_Kind", bound=Fault)
Heard = tuple[TrainRequest, Answer]
"""What a client was asked, and what came of it."""


def vanishes(experiment: Experiment, client: int, round: int, attempt: int = 0) -> bool:
    """Whether a client doesn't answer in an attempt at a round."""
    return any(fault.vanishes(client, round, experiment.seed, attempt) for fault in experiment.faults)


class Misconduct:
    """The faults of an experiment, around an engine that trains the clients without any."""

    def __init__(
        self, experiment: Experiment, dataset: Dataset, layout: Layout, form: Form, population: int
    ) -> None:
        """`form`: that of an update; `population`: how many clients there are."""
        self._experiment, self._dataset, self._layout, self._form = experiment, dataset, layout, form

        def by_client(kind: type[_Kind], clients: Callable[[_Kind], Ints]) -> dict[int, _Kind]:
            faults = (fault for fault in experiment.faults if isinstance(fault, kind))
            return {client: fault for fault in faults for client in clients(fault).tolist()}

        seed = experiment.seed
        self._pretenders = by_client(Pretence, lambda fault: fault.pretenders(population, seed))
        self._tamperers = by_client(Tampering, lambda fault: fault.tamperers(population, seed))
        self._colluders = by_client(Collusion, lambda fault: fault.colluders(population, seed))

    def label_map(self, client: int) -> Tensor | None:
        """The class that a client takes each class for; None: its labels are right."""
        fault = self._tamperers.get(client)
        return None if fault is None else fault.label_map(len(self._dataset.classes))

    def trigger(self, client: int) -> Trigger | None:
        """The mark that a client puts on some of its samples; None: it leaves them as they are."""
        fault = self._colluders.get(client)
        return None if fault is None else fault.trigger

    def around(
        self, runner: Runner, requests: Iterable[TrainRequest], attempt: Attempt, memory: State
    ) -> Iterator[Heard]:
        """What comes of the requests, in their order; bad clients add to the memory.

        Clients that vanish, are late or pretend don't reach the engine.
        """
        heard = (
            (request, self._tampered(answer, memory))
            for request, answer in self._trained(runner, requests, attempt, memory)
        )
        return iter(self._colluded(list(heard), memory)) if self._colluders else heard

    def _trained(
        self, runner: Runner, requests: Iterable[TrainRequest], attempt: Attempt, memory: State
    ) -> Iterator[Heard]:
        """Let the engine train those clients that do, and put the others' answers in between, in order."""
        waiting: deque[tuple[TrainRequest, Answer | None]] = deque()  # None: the client trains

        def training() -> Iterator[TrainRequest]:
            for request in requests:
                instead = self._instead(request, attempt, memory)
                waiting.append((request, instead))
                if instead is None:
                    yield request

        for reply in runner.run(training()):
            request, instead = waiting.popleft()
            while instead is not None:
                yield request, instead
                request, instead = waiting.popleft()
            if isinstance(reply, Lost):
                yield request, Answer(request.client, reason=reply.reason)
            else:
                yield request, Answer(request.client, reply)
        yield from ((request, instead) for request, instead in waiting if instead is not None)

    def _instead(self, request: TrainRequest, attempt: Attempt, memory: State) -> Answer | None:
        """What a client does instead of training; None: it trains."""
        client = request.client
        if vanishes(self._experiment, client, request.round, attempt.earlier):
            return Answer(client)
        if client in attempt.late:
            return Answer(client, reason=attempt.late[client])
        fault = self._pretenders.get(client)
        if fault is None:
            return None
        delta = fault.pretend(request, memory[LAST], self._layout)
        return Answer(client, pretended(request, delta, self._dataset, self._layout), trained=False)

    def _tampered(self, answer: Answer, memory: State) -> Answer:
        fault = self._tamperers.get(answer.client)
        if fault is None or answer.update is None or not answer.trained:
            return answer
        return answer._replace(update=fault.tamper(answer.update, memory, self._layout))

    def _colluded(self, heard: list[Heard], memory: State) -> list[Heard]:
        """What clients send that know the round's updates; updates with a flaw are of no use to them."""
        updates = [
            answer.update
            for request, answer in heard
            if answer.update is not None
            and answer.trained
            and self._form.flaw(answer.update, Asked.by(request), trained=True) is None
        ]
        honest = [update for update in updates if update.client not in self._colluders]
        sent: dict[int, TrainReply] = {}
        for fault in dict.fromkeys(self._colluders.values()):
            own = [update for update in updates if self._colluders.get(update.client) is fault]
            if own:
                sent |= {update.client: update for update in fault.collude(own, honest, memory)}
        return [
            (request, answer._replace(update=sent.get(answer.client, answer.update)))
            for request, answer in heard
        ]
