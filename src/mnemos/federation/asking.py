"""Asking clients to train: an engine trains those that do, and simulated faults act around it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from mnemos.client.messages import TrainRequest
from mnemos.engines.engine import Lost, Runner
from mnemos.faults.misconduct import Misconduct
from mnemos.federation.round import Answer, Attempt
from mnemos.methods.exchange import State

Answers = Iterator[tuple[TrainRequest, Answer]]
"""Each request with what came of it, in the order of the requests."""


def ask(
    runner: Runner, requests: Iterable[TrainRequest], attempt: Attempt, bad: Misconduct, memory: State
) -> Answers:
    """What comes of requests; `memory`: what bad clients remember, to which they add."""
    answers = _trained(runner, requests, attempt, bad, memory)
    if not bad.colluders:
        yield from answers
        return
    together = list(answers)
    sent = bad.colluded(
        [(request, answer.update) for request, answer in together if answer.update and answer.trained], memory
    )
    for request, answer in together:
        yield request, answer._replace(update=sent.get(answer.client, answer.update))


def _trained(
    runner: Runner, requests: Iterable[TrainRequest], attempt: Attempt, bad: Misconduct, memory: State
) -> Answers:
    """Let the engine train those clients that do, and put the others' answers in between, in order."""
    waiting: deque[tuple[TrainRequest, Answer | None]] = deque()  # None: the client trains

    def training() -> Iterator[TrainRequest]:
        for request in requests:
            instead = _instead(request, attempt, bad, memory)
            waiting.append((request, instead))
            if instead is None:
                yield request

    for reply in runner.run(training()):
        request, instead = waiting.popleft()
        while instead is not None:
            yield request, instead
            request, instead = waiting.popleft()
        client = request.client
        if isinstance(reply, Lost):
            yield request, Answer(client, reason=reply.reason)
        else:
            yield request, Answer(client, bad.tampered(reply, client, memory))
    yield from ((request, instead) for request, instead in waiting if instead is not None)


def _instead(request: TrainRequest, attempt: Attempt, bad: Misconduct, memory: State) -> Answer | None:
    """What comes of asking a client that vanishes, is late or only pretends; None: it trains."""
    client = request.client
    if bad.vanishes(client, request.round, attempt.earlier):
        return Answer(client)
    if client in attempt.late:
        return Answer(client, reason=attempt.late[client])
    update = bad.pretended(request, memory)
    return None if update is None else Answer(client, update, trained=False)
