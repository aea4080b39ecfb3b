"""Compiled engines, tried in a process of its own beside a run: `python -m mnemos.engines.beside FOLDER`.

Compiling takes a minute or two, and a run doesn't wait for it. The process has the lowest priority,
times the engine in use and the compiled ones under the same conditions, and leaves its finding where the next
run of the same kind looks for it. It ends with the run.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from mnemos.client.messages import TrainRequest
from mnemos.common.cores import cores
from mnemos.common.plain import parse_json
from mnemos.data.folder import remember
from mnemos.data.load import load
from mnemos.engines.engine import Engine, Work, engines
from mnemos.engines.serial import Serial
from mnemos.engines.threads import Threads
from mnemos.engines.trials import time_steps
from mnemos.errors import MnemosError

MEMORY = "engines.json"
"""The file of the cache folder that says which engine is the fastest for which work."""
_LOWEST = 19
_WORK, _REQUESTS = "work.json", "request-*"


class Beside:
    """A process that tries compiled engines."""

    def __init__(self, key: str, engine: Engine, requests: Sequence[TrainRequest], steps: int) -> None:
        """`engine`: the one in use; `requests`: to be timed; `steps`: that all clients make in the run.

        A client's part that can't be sent to another process can't be tried: then nothing is.
        """
        self._folder = Path(tempfile.mkdtemp(prefix="mnemos-beside-"))
        self._process: subprocess.Popen[bytes] | None = None
        work = {"key": key, "engine": engine.dump(), "steps": steps}
        try:
            (self._folder / _WORK).write_text(json.dumps(work))
            for index, request in enumerate(requests):
                (self._folder / _REQUESTS.replace("*", str(index))).write_bytes(request.to_bytes())
            # This program with a folder of its own: no shell, nothing from outside.
            self._process = subprocess.Popen(  # nosec B603
                [sys.executable, "-m", "mnemos.engines.beside", str(self._folder)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is the run's
            )
        except (OSError, MnemosError, ValueError):
            self.close()

    def wait(self, seconds: float) -> int | None:
        """Wait until it is done: its exit code, or None if it was never started."""
        return None if self._process is None else self._process.wait(seconds)

    def close(self) -> None:
        """End the process, if it is still at work, and remove its files."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


def find(folder: Path) -> Engine:
    """Time the engine in use and compiled ones, and remember the one that would finish a run first."""
    work = parse_json((folder / _WORK).read_bytes())
    requests = [TrainRequest.from_bytes(path.read_bytes()) for path in sorted(folder.glob(_REQUESTS))]
    plan, used = requests[0].plan, engines.parse(work["engine"])
    device = getattr(used, "device", "cpu")
    candidates: list[Engine] = [used, Serial(compile=True, intra_op=cores(), device=device)]
    if device == "cpu":
        candidates.insert(1, Threads(compile=True))
    dataset, amount = load(plan.data), Work(len(requests), 1)
    trials = []
    for engine in candidates:
        # A machine may have no compiler.
        with suppress(MnemosError, RuntimeError), engine.open(plan, dataset, amount) as runner:
            trials.append((time_steps(runner, requests), engine))
    _, best = min(trials, key=lambda trial: trial[0].seconds(work["steps"]))
    remember(MEMORY, work["key"], best.dump())
    return best


if __name__ == "__main__":
    os.nice(_LOWEST)
    find(Path(sys.argv[1]))
