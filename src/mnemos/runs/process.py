"""A worker's process, as the pool sees it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

from mnemos.cores import VARIABLE
from mnemos.experiment import Experiment

_GRACE = 10.0
"""Seconds a worker has to end once nobody listens to it; it takes two or three."""

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class Process:
    """A process of `mnemos.runs.worker` with a number of cores of its own.

    Not one of `multiprocessing`: that would import the user's script in it, and send pickles.
    """

    def __init__(self, cores: int) -> None:
        self.connection, theirs = Pipe()
        # What libraries print there would spoil the view; if the process breaks down, it says why.
        self._said = tempfile.TemporaryFile()  # noqa: SIM115
        # No shell, and no word that comes from outside.
        self._process = subprocess.Popen(  # nosec B603
            [sys.executable, "-m", "mnemos.runs.worker", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=self._said,
            stderr=self._said,
            pass_fds=[theirs.fileno()],
            env={
                **os.environ,
                **dict.fromkeys((VARIABLE, *_THREADS), str(cores)),
                "PYTHONPATH": os.pathsep.join(sys.path),  # a user's own parts are found there, too
            },
            process_group=0,  # Ctrl-C is for the pool, which then lets go of its workers
        )
        theirs.close()

    def order(self, experiment: Experiment, folder: Path) -> None:
        """Have an experiment carried out."""
        order = {"experiment": experiment.model_dump(mode="json"), "folder": str(folder)}
        with suppress(OSError):  # if the process is gone, that shows when it is listened to
            self.connection.send_bytes(json.dumps(order).encode())

    def news(self) -> dict[str, Any] | None:
        """What has happened; None if the process is gone."""
        try:
            news: dict[str, Any] = json.loads(self.connection.recv_bytes())
        except (EOFError, OSError):
            return None
        return news

    def release(self) -> None:
        """Have it stop, with its run saved."""
        self.connection.close()

    def end(self) -> str:
        """Wait until it has stopped; says how it ended."""
        self.release()
        try:
            code = self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        with self._said as file:
            file.seek(0)
            said = file.read().decode(errors="replace").split("\n")
        if code < 0:
            reason = ", as happens when memory runs out" if code == -signal.SIGKILL else ""
            return f"its process was ended by {signal.Signals(-code).name}{reason}"
        last = next((line for line in reversed(said) if line.strip()), "")
        return f"its process ended with code {code}" + (f": {last.strip()}" if last else "")
