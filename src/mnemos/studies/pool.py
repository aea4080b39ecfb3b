"""Running the cases of a study: several at a time in processes of their own, or in turn in this process."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from mnemos.common.cores import cores
from mnemos.errors import ConfigError
from mnemos.runs.directory import Status
from mnemos.runs.execute import Observer
from mnemos.runs.find import find
from mnemos.runs.interrupts import stop_on_terminate
from mnemos.runs.run import BusyError, Run
from mnemos.studies.bundles import Bundle, Bundles
from mnemos.studies.perform import check, make_folder, perform
from mnemos.studies.places import accelerators, apart
from mnemos.studies.process import WorkerProcess
from mnemos.studies.results import Ledger, Result, Results
from mnemos.studies.study import Case

_PATIENCE = 1.0
"""Seconds after which a run that another process works on is tried again."""


class StudyView:
    """What is told about the runs of a study while they go on. This one does nothing."""

    def opened(self, done: Results, left: Sequence[Case], jobs: int) -> None:
        """The study begins: `done` have a result already, and `left` will be run, `jobs` at a time."""

    def together(self, runs: int, processes: int) -> None:
        """`runs` small runs share `processes` processes, and those that are alike train as one."""

    def started(self, case: Case, run: Run, round: int) -> None:
        """A run is about to do the round after `round`."""

    def waiting(self, case: Case) -> None:
        """Another process is working on this run."""

    def warned(self, case: Case, sentence: str) -> None:
        """A choice of the experiment is known to hurt its result."""

    def preparing(self, case: Case, done: int, total: int, note: str) -> None:
        """A run's model is being pre-trained: `done` of `total` steps are done."""

    def round(self, case: Case, round: int, accuracy: float | None) -> None:
        """A round is finished and saved; `accuracy` is None if it wasn't measured."""

    def ended(self, result: Result) -> None:
        """A run has ended."""

    def closed(self) -> None:
        """All runs have ended, or the study was interrupted."""


def jobs_for(left: Sequence[Case], jobs: int | None = None) -> int:
    """How many runs go on at a time: `jobs`, but not more than are left.

    If it is None, one a device, where runs train on devices; otherwise one a core.
    """
    if jobs is not None and jobs < 1:
        raise ConfigError(f"found {jobs}; allowed: ≥ 1", "jobs")
    return max(1, min(jobs or apart(case.experiment for case in left) or cores(), len(left)))


def cores_each(jobs: int) -> int:
    """The number of cores that each run has when `jobs` runs go on at a time."""
    return max(1, cores() // jobs)


def carry_out(
    cases: Sequence[Case],
    folder: Path,
    *,
    jobs: int | None = None,
    view: StudyView | None = None,
    name: str | None = None,
    after: Callable[[Result], None] | None = None,
) -> Results:
    """Run the cases that have no result yet, `jobs` at a time in processes of their own.

    If `jobs` is None, runs of small models that are alike share processes and are trained together. Returns
    the results in the cases' order. Each experiment is run once, even if several variants have it. A run that
    fails or does not converge is marked, and the others go on; the next call tries failed runs again. With a
    `name`, the study is recorded in the folder under it. `after` is called with each new result.
    """
    view = view or StudyView()
    ledger = Ledger(cases, folder, name)
    processes = jobs_for(ledger.left, jobs)
    check(ledger.left, folder)
    make_folder(folder)
    work = Bundles.of(ledger.left, processes, together=jobs is None)
    view.opened(ledger.results(), ledger.left, work.at_once)
    if work.together:
        view.together(work.together, processes)
    with _recorded(ledger):
        try:
            with stop_on_terminate():
                _Pool(folder, work, view, ledger, after).run()
        finally:
            view.closed()  # before an error is printed, which a live table would garble
    return ledger.results()


def in_turn(
    cases: Sequence[Case], folder: Path, observer: Callable[[Case], Observer], *, name: str | None = None
) -> Results:
    """Run the cases that have no result yet, one after another in this process; a failure is raised at once.

    `observer` makes the observer of a case's run. Returns the results in the cases' order.
    """
    ledger = Ledger(cases, folder, name)
    check(ledger.left, folder)
    with _recorded(ledger):
        for case in ledger.left:
            ledger.enter(Result.of(case, perform(case.experiment, folder, observer(case))))
    return ledger.results()


@contextmanager
def _recorded(ledger: Ledger) -> Iterator[None]:
    """Around a study: record its runs at the end, also after an error, which is then raised again."""
    try:
        yield
    except BaseException:
        with suppress(ConfigError):
            ledger.write()
        raise
    ledger.write()


class _Pool:
    """Worker processes, and the cases that they run."""

    def __init__(
        self,
        folder: Path,
        work: Bundles,
        view: StudyView,
        ledger: Ledger,
        after: Callable[[Result], None] | None,
    ) -> None:
        self._given = folder
        self._folder = folder.absolute()
        self._jobs = jobs = work.processes
        self._cores = cores_each(jobs)
        self._view = view
        self._ledger = ledger
        self._after = after
        self._left = deque(work.bundles)
        """What is given to a worker at once: single cases, or several that it runs side by side."""
        # With more runs at a time than that, they have to share devices, and are asked to.
        self._apart = jobs <= apart(case.experiment for case in ledger.left)
        self._elsewhere: deque[tuple[float, Case]] = deque()
        """Cases that processes outside the pool work on, and when to try them again."""
        self._met: list[Case] = []
        """Those of them that the view was told about."""
        self._idle: list[WorkerProcess] = []
        self._busy: dict[WorkerProcess, dict[int, Case]] = {}
        """The cases that each worker is at, by their indices in its order."""

    def run(self) -> None:
        """Run cases until none is left."""
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
                process.release()  # first all of them, because each takes a moment to stop
            for process in processes:
                process.end()

    def _give_out(self) -> None:
        """Give cases to workers until all workers are busy or no case is left."""
        while len(self._busy) < self._jobs and (bundle := self._next()):
            process = self._idle.pop() if self._idle else WorkerProcess(self._cores)
            self._busy[process] = dict(enumerate(bundle))
            process.order([case.experiment for case in bundle], self._folder)

    def _next(self) -> Bundle:
        """What a worker is to do next; empty if there is nothing for now."""
        for index, bundle in enumerate(self._left):
            if not (self._apart and any(map(self._clashes, bundle))):
                del self._left[index]
                return bundle
        if self._elsewhere and self._pause() == 0:
            return [self._elsewhere.popleft()[1]]
        return []

    def _clashes(self, case: Case) -> bool:
        """Whether a device that the case's run trains on is in use by another run."""
        wanted = accelerators(case.experiment)
        busy = (other for cases in self._busy.values() for other in cases.values())
        return any(wanted & accelerators(other.experiment) for other in busy)

    def _pause(self) -> float | None:
        """Seconds until a case that another process works on is tried again; None if there is none."""
        return max(0.0, self._elsewhere[0][0] - time.monotonic()) if self._elsewhere else None

    def _listen(self, process: WorkerProcess) -> None:
        """Receive a message of a worker, and act on it."""
        news, cases = process.news(), self._busy[process]
        if news is None:
            self._lose(process)
        elif news["event"] == "interrupted":  # by a signal that this pool didn't send
            del self._busy[process]
            process.end()
            for case in cases.values():
                self._end(case, "interrupted", "its process was told to stop")
        else:
            self._hear(process, cases[news["index"]], news)

    def _hear(self, process: WorkerProcess, case: Case, news: Mapping[str, Any]) -> None:
        """Act on what a worker says about a case."""
        match news:
            case {"event": "started", "run": str(path), "round": int(round)}:
                run = Run(self._given / Path(path).name)
                self._ledger.begin(case, run)
                self._view.started(case, run, round)
            case {"event": "warned", "sentence": str(sentence)}:
                self._view.warned(case, sentence)
            case {"event": "preparing", "done": int(done), "total": int(total), "note": str(note)}:
                self._view.preparing(case, done, total, note)
            case {"event": "round", "round": int(round), "accuracy": accuracy}:
                self._view.round(case, round, accuracy)
            case {"event": "busy", "index": int(index)}:
                self._free(process, index)
                self._wait_for(case)
            case {"event": "ended", "index": int(index)}:
                self._free(process, index)
                self._end(case)
            case {"event": "failed", "index": int(index), "message": str(message)}:
                self._free(process, index)
                self._end(case, "failed", message)

    def _lose(self, process: WorkerProcess) -> None:
        """A worker is gone: its case has failed. Of several, each goes on by itself, to show which it was."""
        cases = list(self._busy.pop(process).values())
        message = process.end()
        if len(cases) > 1:
            self._left.extend([case] for case in cases)
            return
        self._mark(cases[0], message)
        self._end(cases[0], "failed", message)

    def _free(self, process: WorkerProcess, index: int) -> None:
        """A worker is done with a case, and idle if it was the last of its order."""
        del self._busy[process][index]
        if not self._busy[process]:
            del self._busy[process]
            self._idle.append(process)

    def _wait_for(self, case: Case) -> None:
        if case not in self._met:
            self._met.append(case)
            self._view.waiting(case)
        self._elsewhere.append((time.monotonic() + _PATIENCE, case))

    def _mark(self, case: Case, message: str) -> None:
        """Record in a run's directory that it failed, because its process is gone."""
        run = find(case.experiment, self._given)
        if run is not None and not run.ended:
            with suppress(BusyError, OSError), run.lock():
                status = Status("failed", run.saved_rounds, None, message, *run.failed_attempts)
                run.write_json("status.json", asdict(status))

    def _end(self, case: Case, status: str = "", message: str = "") -> None:
        """Enter a case's result: how its run ended, or `status` and `message` if the run doesn't say."""
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
