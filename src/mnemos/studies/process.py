"""A worker's process, as the pool uses it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

from mnemos.common.cores import VARIABLE
from mnemos.experiment.experiment import Experiment

_GRACE = 10.0
"""Seconds that a worker has to end after its connection was closed; it takes two or three."""

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class WorkerProcess:
    """A process that runs `mnemos.studies.worker` with `cores` cores.

    `multiprocessing` isn't used, because it would import the user's script in the process and send pickles.
    """

    def __init__(self, cores: int) -> None:
        self.connection, theirs = Pipe()
        # What libraries print must not appear in the view. If the process crashes, its last line says why.
        self._said = tempfile.TemporaryFile()  # noqa: SIM115
        # The command has no shell and no word that comes from outside.
        self._process = subprocess.Popen(  # nosec B603
            # -P: a file in the current folder must not be imported instead of a library.
            [sys.executable, "-P", "-m", "mnemos.studies.worker", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=self._said,
            stderr=self._said,
            pass_fds=[theirs.fileno()],
            env={
                **os.environ,
                **dict.fromkeys((VARIABLE, *_THREADS), str(cores)),
                "PYTHONPATH": os.pathsep.join(sys.path),  # so that a user's own parts are found
            },
            process_group=0,  # Ctrl-C goes to the pool alone, which then ends its workers
        )
        theirs.close()

    def order(self, experiments: Sequence[Experiment], folder: Path) -> None:
        """Tell the worker to run experiments side by side, with their run directories in `folder`."""
        given = [experiment.model_dump(mode="json") for experiment in experiments]
        with suppress(OSError):  # if the process is gone, `news` returns None
            self.connection.send_bytes(json.dumps({"experiments": given, "folder": str(folder)}).encode())

    def news(self) -> dict[str, Any] | None:
        """Receive the worker's next message; None if the process is gone."""
        try:
            news: dict[str, Any] = json.loads(self.connection.recv_bytes())
        except (EOFError, OSError):
            return None
        return news

    def release(self) -> None:
        """Tell the worker to save its run and stop."""
        self.connection.close()

    def end(self) -> str:
        """Wait until the worker has stopped, and return a sentence that says how it ended."""
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
