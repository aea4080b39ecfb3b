"""Carrying out the cases of a study: several at once in processes of their own, or in turn in this one."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from multiprocessing.connection import wait
from pathlib import Path

from mnemos.cores import cores
from mnemos.errors import ConfigError
from mnemos.runs.execute import Observer, stop_on_terminate
from mnemos.runs.perform import check, make_folder, perform
from mnemos.runs.process import Process
from mnemos.runs.results import Ledger, Result, Results
from mnemos.runs.run import BusyError, Run, Status, find
from mnemos.runs.study import Case

_PATIENCE = 1.0
"""Seconds after which a run that another process had is looked at again."""


class View:
    """Someone who watches many runs at once; this one looks away."""

    def opened(self, done: Results, left: Sequence[Case], jobs: int) -> None:
        """What has a result already, and what will be run, so many at once."""

    def started(self, case: Case, run: Run, round: int) -> None:
        """A run is about to do the round after `round`."""

    def waiting(self, case: Case) -> None:
        """Another process is working on this run."""

    def warned(self, case: Case, sentence: str) -> None:
        """Something about the experiment is known to hurt."""

    def preparing(self, case: Case, done: int, total: int, note: str) -> None:
        """What a run's model starts from is being trained."""

    def round(self, case: Case, round: int, accuracy: float | None) -> None:
        """A round is finished and saved; with the accuracy, if it was measured."""

    def ended(self, result: Result) -> None:
        """A run is over."""

    def closed(self) -> None:
        """All are over, or the study was interrupted."""


def jobs_for(left: int, jobs: int | None = None) -> int:
    """How many runs go on at once: as asked for, or one a core; and no more than are left."""
    if jobs is not None and jobs < 1:
        raise ConfigError(f"found {jobs}; allowed: ≥ 1", "jobs")
    return max(1, min(jobs or cores(), left))


def cores_each(jobs: int) -> int:
    """The cores a run has when so many go on at once."""
    return max(1, cores() // jobs)


def carry_out(
    cases: Sequence[Case],
    folder: Path,
    *,
    jobs: int | None = None,
    view: View | None = None,
    name: str | None = None,
    after: Callable[[Result], None] | None = None,
) -> Results:
    """Run what has no result yet, several at once in processes of their own; the results in the cases' order.

    Each experiment is run once, under however many variants it appears. A run that fails or does not converge
    is marked, and the rest goes on; the next call tries failed ones again. With a name, the study is recorded
    in the folder under it. `after` is called with each result that this call has brought.
    """
    view = view or View()
    ledger = Ledger(cases, folder, name)
    jobs = jobs_for(len(ledger.left), jobs)
    check(ledger.left, folder)
    make_folder(folder)
    view.opened(ledger.results(), ledger.left, jobs)
    try:
        with stop_on_terminate():
            _Pool(folder, jobs, view, ledger, after).run()
    finally:
        view.closed()  # first: an error that follows is for a terminal that is itself again
        ledger.write()
    return ledger.results()


def in_turn(
    cases: Sequence[Case], folder: Path, observer: Callable[[Case], Observer], *, name: str | None = None
) -> Results:
    """Run what has no result yet, one after the other in this process; a failure is raised at once."""
    ledger = Ledger(cases, folder, name)
    check(ledger.left, folder)
    try:
        for case in ledger.left:
            ledger.enter(Result.of(case, perform(case.experiment, folder, observer(case))))
    finally:
        ledger.write()
    return ledger.results()


class _Pool:
    """A few workers, and the cases they share."""

    def __init__(
        self, folder: Path, jobs: int, view: View, ledger: Ledger, after: Callable[[Result], None] | None
    ) -> None:
        self._given = folder
        self._folder = folder.absolute()
        self._jobs = jobs
        self._cores = cores_each(jobs)
        self._view = view
        self._ledger = ledger
        self._after = after
        self._left = deque(ledger.left)
        self._elsewhere: deque[tuple[float, Case]] = deque()
        """Cases that other processes are working on, and when to look at them again."""
        self._met: list[Case] = []
        """Those of them that the view knows of."""
        self._idle: list[Process] = []
        self._busy: dict[Process, Case] = {}

    def run(self) -> None:
        """Until nothing is left."""
        try:
            while True:
                self._give_out()
                if not self._busy and not self._elsewhere:
                    return
                spoken = wait([process.connection for process in self._busy], self._pause())
                for process in [process for process in self._busy if process.connection in spoken]:
                    self._listen(process)
        finally:
            processes = [*self._idle, *self._busy]
            for process in processes:
                process.release()  # all at once: each takes a moment to stop
            for process in processes:
                process.end()

    def _give_out(self) -> None:
        """Work for everyone."""
        while len(self._busy) < self._jobs and (case := self._next()) is not None:
            process = self._idle.pop() if self._idle else Process(self._cores)
            self._busy[process] = case
            process.order(case.experiment, self._folder)

    def _next(self) -> Case | None:
        if self._left:
            return self._left.popleft()
        if self._elsewhere and self._pause() == 0:
            return self._elsewhere.popleft()[1]
        return None

    def _pause(self) -> float | None:
        """Seconds until there is something to do even if nobody says anything."""
        return max(0.0, self._elsewhere[0][0] - time.monotonic()) if self._elsewhere else None

    def _listen(self, process: Process) -> None:
        case = self._busy[process]
        match process.news():
            case {"event": "started", "run": str(path), "round": int(number)}:
                run = Run(self._given / Path(path).name)
                self._ledger.begin(case, run)
                self._view.started(case, run, number)
            case {"event": "warned", "sentence": str(sentence)}:
                self._view.warned(case, sentence)
            case {"event": "preparing", "done": int(done), "total": int(total), "note": str(note)}:
                self._view.preparing(case, done, total, note)
            case {"event": "round", "round": int(number), "accuracy": accuracy}:
                self._view.round(case, number, accuracy)
            case {"event": "busy"}:
                self._free(process)
                self._wait_for(case)
            case {"event": "ended"}:
                self._free(process)
                self._end(case)
            case {"event": "failed", "message": str(message)}:
                self._free(process)
                self._end(case, "failed", message)
            case {"event": "interrupted"}:  # by someone else than this pool
                del self._busy[process]
                process.end()
                self._end(case, "interrupted", "its process was told to stop")
            case _:
                del self._busy[process]
                message = process.end()
                self._mark(case, message)
                self._end(case, "failed", message)

    def _free(self, process: Process) -> None:
        del self._busy[process]
        self._idle.append(process)

    def _wait_for(self, case: Case) -> None:
        if case not in self._met:
            self._met.append(case)
            self._view.waiting(case)
        self._elsewhere.append((time.monotonic() + _PATIENCE, case))

    def _mark(self, case: Case, message: str) -> None:
        """Write down the failure of a run whose process could not."""
        run = find(case.experiment, self._given)
        if run is not None and not run.ended:
            with suppress(BusyError), run.lock():
                run.write_json("status.json", asdict(Status("failed", run.saved_rounds, message=message)))

    def _end(self, case: Case, status: str = "", message: str = "") -> None:
        run = find(case.experiment, self._given)
        if run is not None and (run.ended or not status):
            result = Result.of(case, run)
        elif status:
            result = Result(case, run, status, message)
        else:
            result = Result(case, None, "failed", "its directory was removed")
        self._ledger.enter(result)
        self._view.ended(result)
        if self._after:
            self._after(result)
