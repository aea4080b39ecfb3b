"""The driver's end of the line to a contender: its process, its turns, its memory."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

HERE = Path(__file__).parent


class ContenderError(Exception):
    """A contender can't do the work; says why."""


class Contender:
    """A contender at a work, in a process of its own."""

    def __init__(self, name: str, python: str, folder: Path, scratch: Path, patience: float) -> None:
        self.name, self._patience, self._log = name, patience, scratch / f"{name}.log"
        self._begin = time.perf_counter()
        self.first = 0.0
        """Seconds from the start of the process to the end of its first round."""
        self.note = ""
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [python, "-m", f"contenders.{name}", str(folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=scratch,
                env=environment(scratch),
                text=True,
                bufsize=1,
            )
        self._ready = False

    def round(self) -> tuple[float, float]:
        """One round: its seconds, and the loss after it."""
        if not self._ready:
            self._answer()
            self._ready = True
        with suppress(BrokenPipeError):
            _pipe(self._process.stdin).write("round\n")
        answer = self._answer()
        self.first = self.first or time.perf_counter() - self._begin
        self.note = answer["note"]
        return answer["seconds"], answer["loss"]

    def peak(self) -> float:
        """Megabytes: the peaks of the process and of those it started, added up."""
        return sum(map(_peak, descendants(self._process.pid)))

    def close(self) -> None:
        """Ask the contender to end, and end what is left of it."""
        started = {process: _birth(process) for process in descendants(self._process.pid)}
        with suppress(BrokenPipeError):
            _pipe(self._process.stdin).write("stop\n")
        with suppress(BrokenPipeError):
            _pipe(self._process.stdin).close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        _end(started)
        self._process.wait()
        _pipe(self._process.stdout).close()

    def _answer(self) -> dict[str, Any]:
        lines = _pipe(self._process.stdout)
        there, _, _ = select.select([lines], [], [], self._patience)
        if not there:
            raise ContenderError(f"no answer within {self._patience:.0f} s")
        line = lines.readline()
        if not line:
            raise ContenderError(last_line(self._log))
        answer: dict[str, Any] = json.loads(line)
        if "cannot" in answer:
            raise ContenderError(answer["cannot"])
        return answer


class Watch:
    """Looks at the memory of a process until it ends.

    (What the system reports of a child that has ended includes the memory of its parent when it was forked.)
    """

    def __init__(self, process: int) -> None:
        self._process, self._peak = process, 0.0
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def peak(self) -> float:
        """Megabytes, once the process has ended."""
        self._thread.join()
        return self._peak

    def _look(self) -> None:
        while found := _peak(self._process):
            self._peak = found
            time.sleep(0.02)


def environment(scratch: Path) -> dict[str, str]:
    """The variables of a contender's process; what it remembers is kept in a folder of its own."""
    path = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH", "")]))
    return {
        **os.environ,
        "PYTHONPATH": path,
        "MNEMOS_CACHE": str(scratch / "cache"),
        "FLWR_HOME": str(scratch / "flower"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
    }


def descendants(process: int) -> list[int]:
    """A process and all that it has started, directly or not."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, IndexError):
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found = [process]
    for parent in found:
        found += children.get(parent, [])
    return found


def _peak(process: int) -> float:
    with suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
    return 0.0


def _end(processes: dict[int, str]) -> None:
    """End processes, given with when they began: a number may by now be another process's."""
    for process, birth in processes.items():
        if birth and _birth(process) == birth:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


def _birth(process: int) -> str:
    """When a process began, in the system's ticks; empty if there is none."""
    with suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[19]
    return ""


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def last_line(log: Path) -> str:
    """The last line of a log, which says why a process ended."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:200] if lines else "ended without a word"
