"""A process that runs experiments for `mnemos.studies.pool`: one after another, or several side by side.

    python -m mnemos.studies.worker HANDLE

It receives orders and sends news as JSON objects on the connection whose file descriptor is HANDLE. An order
has one or more experiments, and news say by its index in the order which of them they are about. When the
other end is closed (the study is over, interrupted, or its process was killed), the worker saves its run and
stops.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import torch

from mnemos.common.cores import cores
from mnemos.common.imports import look_in
from mnemos.common.shortage import shortage
from mnemos.engines.together import Company
from mnemos.errors import MnemosError, PausedError
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Outcome
from mnemos.runs.execute import Silent
from mnemos.runs.run import BusyError, Run
from mnemos.studies.perform import perform

_GRACE = 2.0
"""Seconds to stop in; then the process is ended. Every finished round is on disk anyway."""


class _Reporter(Silent):
    """Sends the pool messages about a run, which is the order's experiment `index`."""

    def __init__(self, connection: Connection[bytes, bytes], index: int) -> None:
        super().__init__()
        self._connection = connection
        self._index = index

    def tell(self, event: str, **facts: Any) -> None:
        """Send a message with an event and facts about it."""
        with suppress(OSError):  # the other end is closed, so the worker is about to be stopped
            self._connection.send_bytes(json.dumps({"event": event, "index": self._index, **facts}).encode())

    def started(self, run: Run, experiment: Experiment, round: int) -> None:
        """Send the run's directory and the round that it starts after."""
        super().started(run, experiment, round)
        self.tell("started", run=str(run.path), round=round)

    def warned(self, sentence: str) -> None:
        """Send the warning."""
        self.tell("warned", sentence=sentence)

    def preparing(self, done: int, total: int, note: str) -> None:
        """Send how far the pre-training is."""
        self.tell("preparing", done=done, total=total, note=note)

    def round(self, outcome: Outcome) -> None:
        """Send the round and its accuracy, if it was measured."""
        scores = outcome.test or outcome.validation
        self.tell("round", round=outcome.round, accuracy=scores.accuracy if scores else None)


def main() -> None:
    """Run experiments as ordered, until the connection is closed."""
    look_in(str(Path.cwd()))
    connection: Connection[bytes, bytes] = Connection(int(sys.argv[1]))
    orders: SimpleQueue[dict[str, Any]] = SimpleQueue()
    signal.signal(signal.SIGTERM, _interrupt)
    torch.set_num_threads(cores())
    threading.Thread(target=_listen, args=(connection, orders), daemon=True).start()
    with suppress(KeyboardInterrupt):
        while True:
            _carry_out(orders.get(), connection)
    os._exit(0)  # everything is on disk, and an orderly exit of all libraries would take a while


def _carry_out(order: dict[str, Any], connection: Connection[bytes, bytes]) -> None:
    """Run the experiments of an order: a single one in this thread, several side by side."""
    folder = Path(order["folder"])
    tasks = [
        partial(_execute, experiment, folder, _Reporter(connection, index))
        for index, experiment in enumerate(order["experiments"])
    ]
    if len(tasks) == 1:
        tasks[0]()
    else:
        Company().go(tasks)


def _execute(experiment: dict[str, Any], folder: Path, reporter: _Reporter) -> None:
    """Run an experiment, and report how it ended."""
    try:
        perform(Experiment.parse(experiment), folder, reporter)
        reporter.tell("ended")
    except BusyError:
        reporter.tell("busy")
    except PausedError:
        reporter.tell("ended")  # its status file says that it has paused
    except MnemosError as error:
        reporter.tell("failed", message=str(error))
    except KeyboardInterrupt:
        reporter.tell("interrupted")
        raise
    except Exception as error:  # the next experiment may go well
        reporter.tell("failed", message=shortage(error) or f"{type(error).__name__}: {error}")


def _listen(connection: Connection[bytes, bytes], orders: SimpleQueue[dict[str, Any]]) -> None:
    """Put orders into the queue; when the connection is closed, interrupt the main thread, then exit."""
    with suppress(EOFError, OSError):
        while True:
            orders.put(json.loads(connection.recv_bytes()))
    main_thread = threading.main_thread().ident
    assert main_thread is not None
    signal.pthread_kill(main_thread, signal.SIGTERM)  # a signal to the process might not wake it
    threading.Event().wait(_GRACE)
    os._exit(1)


def _interrupt(_signal: int, _frame: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
