"""A process that carries out one experiment after another for `mnemos.runs.pool`.

    python -m mnemos.runs.worker HANDLE

Orders and news are JSON objects on the connection whose handle is given. When the other end is closed (the
study is over, interrupted, or its process was killed) the worker stops, with its run saved.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import torch

from mnemos.cores import cores
from mnemos.errors import MnemosError, PausedError
from mnemos.experiment import Experiment
from mnemos.federation import Outcome
from mnemos.runs.execute import Silent
from mnemos.runs.perform import perform
from mnemos.runs.run import BusyError, Run

_GRACE = 2.0
"""Seconds to stop in; after that the worker just ends. Every finished round is on disk anyway."""


class _Reporter(Silent):
    """Tells the pool how a run goes."""

    def __init__(self, connection: Connection[bytes, bytes]) -> None:
        super().__init__()
        self._connection = connection

    def tell(self, event: str, **facts: Any) -> None:
        """Send news; when nobody listens any more, the worker is about to be stopped."""
        with suppress(OSError):
            self._connection.send_bytes(json.dumps({"event": event, **facts}).encode())

    def started(self, run: Run, experiment: Experiment, round: int) -> None:
        """The run has a directory."""
        super().started(run, experiment, round)
        self.tell("started", run=str(run.path), round=round)

    def warned(self, sentence: str) -> None:
        """Pass it on."""
        self.tell("warned", sentence=sentence)

    def preparing(self, done: int, total: int, note: str) -> None:
        """Pass it on."""
        self.tell("preparing", done=done, total=total, note=note)

    def round(self, outcome: Outcome) -> None:
        """How far it has come."""
        scores = outcome.test or outcome.validation
        self.tell("round", round=outcome.round, accuracy=scores.accuracy if scores else None)


def main() -> None:
    """Take orders until there are no more."""
    connection: Connection[bytes, bytes] = Connection(int(sys.argv[1]))
    orders: SimpleQueue[dict[str, Any]] = SimpleQueue()
    signal.signal(signal.SIGTERM, _interrupt)
    torch.set_num_threads(cores())
    threading.Thread(target=_listen, args=(connection, orders), daemon=True).start()
    with suppress(KeyboardInterrupt):
        while True:
            _carry_out(orders.get(), _Reporter(connection))
    os._exit(0)  # all is on disk, and taking everything down takes its time


def _carry_out(order: dict[str, Any], reporter: _Reporter) -> None:
    """One experiment, whatever comes of it."""
    try:
        perform(Experiment.parse(order["experiment"]), Path(order["folder"]), reporter)
        reporter.tell("ended")
    except BusyError:
        reporter.tell("busy")
    except PausedError:
        reporter.tell("ended")  # for now: its state says so
    except MnemosError as error:
        reporter.tell("failed", message=str(error))
    except KeyboardInterrupt:
        reporter.tell("interrupted")
        raise
    except Exception as error:  # of this experiment alone: the next one may do better
        reporter.tell("failed", message=f"{type(error).__name__}: {error}")


def _listen(connection: Connection[bytes, bytes], orders: SimpleQueue[dict[str, Any]]) -> None:
    with suppress(EOFError, OSError):
        while True:
            orders.put(json.loads(connection.recv_bytes()))
    main_thread = threading.main_thread().ident
    assert main_thread is not None
    signal.pthread_kill(main_thread, signal.SIGTERM)  # to it alone: a signal to the process may not wake it
    threading.Event().wait(_GRACE)
    os._exit(1)


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
