"""How a contender takes its turns.

The driver writes `round` or `stop` as a line; the contender runs one round and answers with a line of JSON:
its seconds, and the loss of the global model after it. What libraries print goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from torch import nn

from contenders.task import Task


class Turns:
    """The contender's end of the line to the driver."""

    def __init__(self) -> None:
        self._answers = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)  # from here on, what is printed isn't an answer
        self._begin = 0.0
        self.seconds = 0.0

    def ready(self, note: str = "") -> None:
        """Everything is read and built; `note` says what is worth knowing, such as an engine."""
        self._answer({"ready": note})

    def cannot(self, reason: str) -> NoReturn:
        """Say why this work can't be done, and end."""
        self._answer({"cannot": reason})
        sys.exit(0)

    def wait(self) -> bool:
        """Wait for the turn, and start the clock; False if there are no more."""
        line = sys.stdin.readline().strip()
        self._begin = time.perf_counter()
        return line == "round"

    def stop_clock(self) -> None:
        """The round is over; what follows isn't part of it."""
        self.seconds = time.perf_counter() - self._begin

    def answer(self, loss: float, note: str = "") -> None:
        """Report the round that was stopped."""
        self._answer({"seconds": self.seconds, "loss": loss, "note": note})

    def __iter__(self) -> Iterator[None]:
        """One item for each turn."""
        while self.wait():
            yield

    def _answer(self, values: dict[str, object]) -> None:
        print(json.dumps(values), file=self._answers, flush=True)


def take_turns(prepare: Callable[[Task], tuple[Callable[[int], object], nn.Module]]) -> None:
    """Run a contender that is a function of the round's index, and trains a model in place."""
    turns, task = Turns(), Task.read(Path(sys.argv[1]))
    work, model = prepare(task)
    turns.ready()
    for index, _ in enumerate(turns):
        work(index)
        turns.stop_clock()
        turns.answer(task.loss(model))
