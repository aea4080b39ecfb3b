"""What is shown about many runs at once: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import typer
from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from mnemos.display.terminal import errors
from mnemos.display.words import duration, percent, plural
from mnemos.runs.run import Run
from mnemos.studies.pool import StudyView
from mnemos.studies.results import Result, Results
from mnemos.studies.study import Case


def overview(quiet: bool = False) -> StudyView:
    """The view of a study that suits the output: silent, a live table on a terminal, or lines.

    A notebook gets lines, as `watch` explains.
    """
    if quiet:
        return StudyView()
    return StudyScreen() if errors.is_terminal and not errors.is_jupyter else StudyLines()


@dataclass
class _Progress:
    """How far a run of this study has come."""

    rounds: int
    """Rounds that it had to do when it started or was resumed."""
    at: int = 0
    """The last round that it has finished."""
    done: int = 0
    """Rounds that it has done since it started or was resumed."""
    accuracy: float | None = None
    note: str = ""
    """How far its pre-training is, before the first round."""


class StudyLines(StudyView):
    """Prints a line on standard error when a run begins and when it ends."""

    def __init__(self) -> None:
        self._ended: Counter[str] = Counter()
        self._total = 0
        self._runs: dict[str, _Progress] = {}
        self._running: list[Case] = []
        self._begin: float | None = None
        self._warned: set[str] = set()

    def opened(self, done: Results, left: Sequence[Case], jobs: int) -> None:
        """Print how many runs there are, and how many of them are done."""
        self._ended.update(result.status for result in done)
        self._total = len(done) + len(left)
        self._runs = {str(case): _Progress(case.experiment.rounds) for case in left}
        already = f", {len(done)} of them done already" if done else ""
        at_once = f", {jobs} at once" if left else ""
        self.say(f"{plural(self._total, 'run')}{already}{at_once}")

    def together(self, runs: int, processes: int) -> None:
        """Print how many runs share processes."""
        where = "one process" if processes == 1 else f"{processes} processes"
        self.say(f"{runs} of the runs are small: they share {where}, and those that are alike train as one")

    def started(self, case: Case, run: Run, round: int) -> None:
        """Print the run's directory and the round it starts from."""
        total = case.experiment.rounds
        self._runs[str(case)] = _Progress(total - round, round)
        self._running.append(case)
        if self._begin is None:
            self._begin = time.monotonic()
        self.announce(f"{case}: {run.path} (from round {min(round + 1, total)} of {total})")

    def waiting(self, case: Case) -> None:
        """Print that the run waits for another process."""
        self.say(f"{case}: another process is working on it; waiting")

    def warned(self, case: Case, sentence: str) -> None:
        """Print a warning about the experiment; the same sentence is printed once."""
        if sentence not in self._warned:
            self._warned.add(sentence)
            self.say(f"{case}: warning: {sentence}")

    def preparing(self, case: Case, done: int, total: int, note: str) -> None:
        """Print that the run pre-trains its model, when it begins to."""
        run = self._runs[str(case)]
        if not run.note:
            self.announce(f"{case}: pre-training, {note}")
        run.note = f"pre-training {done}/{total}, {note}"

    def round(self, case: Case, round: int, accuracy: float | None) -> None:
        """Remember how far the run has come."""
        run = self._runs[str(case)]
        run.at, run.done, run.note = round, run.done + 1, ""
        run.accuracy = run.accuracy if accuracy is None else accuracy

    def ended(self, result: Result) -> None:
        """Print how the run ended, and how many are left."""
        case = result.case
        self._ended[result.status] += 1
        self._running = [other for other in self._running if other != case]
        self._runs[str(case)].rounds = self._runs[str(case)].done  # it won't do the rest
        how = {"finished": percent(result.run.accuracy if result.run else None), "diverged": "NC"}
        sentence = how.get(result.status, f"{result.status} ({result.message})")
        if result.status in how:
            self.announce(f"{case}: {sentence}; {self.state}")
        else:
            self.say(f"{case}: {sentence}; {self.state}")

    @property
    def state(self) -> str:
        """`5 of 12 done, 1 NC, 1 failed, 40 s left`."""
        failed = sum(self._ended[status] for status in ("failed", "interrupted", "paused"))
        parts = [f"{self._ended['finished'] + self._ended['diverged']} of {self._total} done"]
        parts += [f"{self._ended['diverged']} NC"] if self._ended["diverged"] else []
        parts += [f"{failed} failed"] if failed else []
        left = self.seconds_left
        parts += [f"{duration(left)} left"] if left is not None else []
        return ", ".join(parts)

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the study is done if rounds take as long as those so far; None before the first."""
        done = sum(run.done for run in self._runs.values())
        if self._begin is None or not done:
            return None
        all_rounds = sum(run.rounds for run in self._runs.values())
        return (time.monotonic() - self._begin) * (all_rounds - done) / done

    def announce(self, line: str) -> None:
        """Print a line about what a live table shows anyway."""
        self.say(line)

    def say(self, line: str) -> None:
        """Print a line on standard error."""
        typer.echo(line, err=True)


class StudyScreen(StudyLines):
    """Shows on a terminal, as a live table, which runs are done, running, failed and left."""

    def __init__(self) -> None:
        super().__init__()
        self._live = Live(console=errors, get_renderable=self._draw, transient=True)

    def opened(self, done: Results, left: Sequence[Case], jobs: int) -> None:
        """Show the table if there is anything to do."""
        super().opened(done, left, jobs)
        if left:
            self._live.start()

    def closed(self) -> None:
        """Remove the table."""
        self._live.stop()

    def announce(self, line: str) -> None:
        """Print nothing: the table shows it."""

    def say(self, line: str) -> None:
        """Print a line above the table."""
        errors.print(line, markup=False, highlight=False)

    def _draw(self) -> Group:
        rounds = sum(run.rounds for run in self._runs.values())
        done = sum(run.done for run in self._runs.values())
        overall = Table.grid(padding=(0, 1))
        overall.add_row(ProgressBar(max(rounds, 1), done, width=30), Text(self.state))
        running = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
        for case in self._running:
            run = self._runs[str(case)]
            where = run.note or f"round {run.at}/{case.experiment.rounds}"
            running.add_row(Text(str(case)), where, percent(run.accuracy))
        return Group(overall, running)
