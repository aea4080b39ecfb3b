"""Compiled engines, tried in a process of its own beside a run: `python -m mnemos.engines.beside FOLDER`.

Compiling takes a minute or two, and a run doesn't wait for it. The process has the lowest priority, times the
engine in use and the compiled ones under the same conditions, and leaves its finding where the next run of
the same kind looks for it. It ends with the run.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from mnemos.client.messages import TrainRequest
from mnemos.common.cores import cores
from mnemos.common.files import try_lock
from mnemos.common.parent import end_with_parent
from mnemos.common.plain import parse_json
from mnemos.data.folder import cache_folder
from mnemos.data.load import load
from mnemos.engines.engine import Engine, Work, engines
from mnemos.engines.known import compiled_tried, remember_fastest
from mnemos.engines.serial import Serial
from mnemos.engines.threads import Threads
from mnemos.engines.trials import time_steps
from mnemos.errors import MnemosError

_LOCK = "engines.lock"
_LOWEST = 19
_WORK, _REQUESTS = "work.json", "request-*"


class Beside:
    """A process that tries compiled engines. If it can't be started, nothing is tried."""

    def __init__(
        self, key: str, engine: Engine, requests: Sequence[TrainRequest], clients: int, steps: int
    ) -> None:
        """`engine`: the one in use; `requests`: those to be timed; `clients`, `steps`: of the whole run."""
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._folder = Path(tempfile.mkdtemp(prefix="mnemos-beside-"))
            work = {"key": key, "engine": engine.dump(), "clients": clients, "steps": steps}
            (self._folder / _WORK).write_text(json.dumps(work))
            for index, request in enumerate(requests):
                (self._folder / _REQUESTS.replace("*", str(index))).write_bytes(request.to_bytes())
            self._process = self._start(self._folder)
        except Exception:  # a run doesn't fail for want of what it doesn't need
            self.close()
        except BaseException:
            self.close()
            raise

    def _start(self, folder: Path) -> subprocess.Popen[bytes]:
        nice = shutil.which("nice")  # from its first import on
        first = [nice, "-n", str(_LOWEST)] if nice else []
        # This program with a folder of its own: no shell, nothing from outside.
        return subprocess.Popen(  # nosec B603
            # -P: a file in the current folder must not be imported instead of a library.
            [*first, sys.executable, "-P", "-m", "mnemos.engines.beside", str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(sys.path),
            },  # so that a user's own parts are found
            process_group=0,  # Ctrl-C is the run's; and the compiler ends with the process
        )

    def close(self) -> None:
        """End the process, if it is still at work, and remove its files."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def find(folder: Path) -> Engine | None:
    """Time the engine in use and compiled ones, and remember the one that would finish a run first.

    Returns None if another process is at it. The folder is removed as soon as it is read.
    """
    work = parse_json((folder / _WORK).read_bytes())
    requests = [TrainRequest.from_bytes(path.read_bytes()) for path in sorted(folder.glob(_REQUESTS))]
    shutil.rmtree(folder, ignore_errors=True)
    with (cache_folder() / _LOCK).open("w") as lock:
        if not try_lock(lock.fileno(), fcntl.LOCK_EX):
            return None
        plan, used = requests[0].plan, engines.parse(work["engine"])
        dataset, amount = load(plan.data), Work(len(requests), 1)
        trials = []
        for engine in (used, Threads(compile=True), Serial(compile=True, intra_op=cores(), device="cpu")):
            try:
                with engine.open(plan, dataset, amount) as runner:
                    trials.append(time_steps(engine, runner, requests))
            except (MnemosError, RuntimeError):  # a model that can't be compiled
                if engine is used:  # without it there is nothing to compare with
                    raise
        best = min(trials, key=lambda trial: trial.seconds(work["clients"], work["steps"])).engine
        remember_fastest(work["key"], best)
        compiled_tried(work["key"])
        return best


if __name__ == "__main__":
    end_with_parent()
    find(Path(sys.argv[1]))
