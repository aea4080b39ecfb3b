"""Asking clients to train: an engine trains those that do, and simulated faults act around it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from mnemos.client.messages import TrainRequest
from mnemos.engines.engine import Lost
from mnemos.faults.misconduct import Misconduct
from mnemos.federation.round import Answer, Attempt
from mnemos.methods.exchange import State, TrainReply

Train = Callable[[Iterable[TrainRequest]], Iterator[TrainReply | Lost]]
"""Trains clients, as `Runner.run` does."""
Answers = Iterator[tuple[TrainRequest, Answer]]
"""Each request with what came of it, in the order of the requests."""


def ask(
    train: Train, requests: Iterable[TrainRequest], attempt: Attempt, bad: Misconduct, memory: State
) -> Answers:
    """What comes of requests; `memory`: what bad clients remember, to which they add."""
    answers = _trained(train, requests, attempt, bad, memory)
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
    train: Train, requests: Iterable[TrainRequest], attempt: Attempt, bad: Misconduct, memory: State
) -> Answers:
    """Let the engine train those clients that do, and put the others' answers in between, in order."""
    waiting: deque[tuple[TrainRequest, Answer | None]] = deque()  # None: the client trains

    def training() -> Iterator[TrainRequest]:
        for request in requests:
            client, instead = request.client, None
            if client in attempt.absent:
                instead = Answer(client, reason=attempt.absent[client])
            elif (update := bad.pretended(request, memory)) is not None:
                instead = Answer(client, update, trained=False)
            waiting.append((request, instead))
            if instead is None:
                yield request

    for reply in train(training()):
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
