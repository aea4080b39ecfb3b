"""A contest: one round of each contender in turn, as often as asked; ratios are taken within a turn."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from contenders.task import Task
from environments import InstallError, interpreter
from processes import Contender, ContenderError, Watch, environment, last_line
from works import Work, write

IMPORT = "import torch"
"""The name under which a process that only imports PyTorch is listed."""


@dataclass
class Entry:
    """What was found out about a contender at a work."""

    seconds: list[float] = field(default_factory=list)
    """Of its rounds; the first, which warms up, is left out."""
    loss: float | None = None
    """After its first round."""
    first: float | None = None
    """Seconds from the start of the process to the end of the first round."""
    peak: float | None = None
    """Megabytes."""
    note: str = ""
    reason: str = ""
    """Why it can't do the work, or isn't listed among those that trained."""

    def ratios(self, reference: Entry) -> list[float]:
        """Its time over the reference's, in each turn."""
        return [own / other for own, other in zip(self.seconds, reference.seconds, strict=False)]


@dataclass
class Contest:
    """A work, and what its contenders needed."""

    work: Work
    entries: dict[str, Entry]
    initial: float
    """The loss before training."""

    def check(self) -> None:
        """Note who didn't train: whose loss isn't as far down as the plain loop's, within the tolerance."""
        plain = self.entries.get("plain")
        if plain is None or plain.loss is None:
            return
        way = self.initial - plain.loss
        for entry in self.entries.values():
            if entry.loss is not None and abs(entry.loss - plain.loss) > self.work.tolerance * way:
                entry.reason = f"loss {entry.loss:.3f} where the plain loop has {plain.loss:.3f}"


def hold(
    work: Work, names: list[str], repeats: int, environments: Path, scratch: Path, patience: float
) -> Contest:
    """Write a work to the disk, and let contenders take turns at it."""
    folder = scratch / "work"
    write(work, folder)
    entries = {name: Entry() for name in names}
    pythons = {}
    for name, entry in entries.items():
        try:
            pythons[name] = interpreter(name, environments)
        except InstallError as error:
            entry.reason = f"not installed: {error}"
    if work.cold:
        _cold(entries, pythons, repeats, scratch, patience)
    else:
        _warm(entries, pythons, repeats, scratch, patience)
    task = Task.read(folder)
    contest = Contest(work, entries, task.loss(task.model()))
    contest.check()
    return contest


def _warm(
    entries: dict[str, Entry], pythons: dict[str, str], repeats: int, scratch: Path, patience: float
) -> None:
    """Rounds of processes that go on; started one after the other, so that none disturbs another."""
    running: dict[str, Contender] = {}
    try:
        for name, python in pythons.items():
            running[name] = Contender(name, python, scratch / "work", scratch, patience)
            _turn(running, entries, name, warming=True)
        for _ in range(repeats):
            for name in list(running):
                _turn(running, entries, name)
        for name, contender in running.items():
            entries[name].peak = contender.peak()
            entries[name].note = contender.note
    finally:
        for contender in running.values():
            contender.close()


def _turn(running: dict[str, Contender], entries: dict[str, Entry], name: str, warming: bool = False) -> None:
    contender, entry = running[name], entries[name]
    try:
        seconds, loss = contender.round()
    except ContenderError as error:
        entry.reason = str(error)
        entry.seconds.clear()
        del running[name]
        contender.close()
        return
    if warming:
        entry.loss, entry.first = loss, contender.first
    else:
        entry.seconds.append(seconds)
    print(f"  {name}: {seconds:.3f} s, loss {loss:.3f}", file=sys.stderr, flush=True)


def _cold(
    entries: dict[str, Entry], pythons: dict[str, str], repeats: int, scratch: Path, patience: float
) -> None:
    """Processes that are started in each turn, and counted from there."""
    run = ["-m", "mnemos", "run", "--data", "digits", "--rounds", "1"]
    commands = {"mnemos": run, IMPORT: ["-c", "import torch"]}
    entries[IMPORT] = Entry()
    for repeat in range(repeats):
        for name, entry in entries.items():
            if entry.reason:
                continue
            try:
                if name in commands:
                    out = ["--out", f"run-{repeat}"] if name == "mnemos" else []
                    _command([*commands[name], *out], entry, scratch)
                else:
                    _started(Contender(name, pythons[name], scratch / "work", scratch, patience), entry)
            except ContenderError as error:
                entry.reason = str(error)
                continue
            print(f"  {name}: {entry.seconds[-1]:.2f} s", file=sys.stderr, flush=True)


def _started(contender: Contender, entry: Entry) -> None:
    """Have a contender that was just started run one round."""
    try:
        _, entry.loss = contender.round()
        entry.seconds.append(contender.first)
        entry.peak = contender.peak()
    finally:
        contender.close()


def _command(words: list[str], entry: Entry, scratch: Path) -> None:
    """Run Python to its end."""
    log = scratch / "command.log"
    begin = time.perf_counter()
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *words], cwd=scratch, env=environment(scratch), stdout=output, stderr=output
        )
        watch = Watch(process.pid)
        process.wait()
    seconds = time.perf_counter() - begin
    if process.returncode:
        raise ContenderError(last_line(log))
    entry.seconds.append(seconds)
    entry.peak = watch.peak()


def middle(values: list[float]) -> tuple[float, float, float]:
    """Median, lower and upper quartile."""
    if len(values) < 2:
        return values[0], values[0], values[0]
    lower, median, upper = statistics.quantiles(values, n=4, method="inclusive")
    return median, lower, upper
