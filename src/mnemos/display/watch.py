"""Observers that show a run to a person: as lines, or as a progress bar."""

from __future__ import annotations

import math
import time

import typer
from rich.progress import TaskID

from mnemos.display import terminal
from mnemos.display.bars import bars
from mnemos.display.rounds import describe, left_out_of, loss_of, scores_of, summary
from mnemos.engines.engine import Runner
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Outcome
from mnemos.runs.directory import Status
from mnemos.runs.execute import Observer, Silent
from mnemos.runs.run import Run

_PATIENCE = 5.0
"""Seconds without a line, after which lines also say what is being done."""
_LONG_ROUND = 1.0
"""Seconds after which a bar says how far the round is: in shorter rounds that could not be read."""


def watch(quiet: bool = False, label: str = "") -> Observer:
    """The observer of a run that suits the output: silent, a progress bar on a terminal, or lines.

    A notebook gets lines: they stay when it is saved, and need no widgets.
    """
    if quiet:
        return Silent()
    bar = terminal.errors.is_terminal and not terminal.errors.is_jupyter
    return RunBar(label) if bar else RunLines(label)


class RunLines(Silent):
    """Prints a line on standard error at each evaluation of a run, and when a round takes long."""

    def __init__(self, label: str = "") -> None:
        super().__init__()
        self._prefix = f"{label}: " if label else ""
        self._rounds = 0
        self._round = 0
        self._begin = 0.0
        self._first = 0
        self._tenths = 0
        self._said = time.monotonic()

    def started(self, run: Run, experiment: Experiment, round: int) -> None:
        """Print the run's directory and the round it starts from."""
        super().started(run, experiment, round)
        self._rounds, self._first, self._round = experiment.rounds, round, round
        self._begin = time.monotonic()
        left = (
            f"from round {round + 1} of {experiment.rounds}" if round < experiment.rounds else "already done"
        )
        self.say(f"{self._prefix}{run.path} ({left})")

    def warned(self, sentence: str) -> None:
        """Print a warning about the experiment."""
        self.say(f"{self._prefix}warning: {sentence}")

    def preparing(self, done: int, total: int, note: str) -> None:
        """Print how far the pre-training of the model is, at every tenth of it."""
        if not done or done == total or done * 10 // total > self._tenths:
            self._tenths = done * 10 // total
            self.say(f"{self._prefix}pre-training: {f'step {done}/{total}, ' if done else ''}{note}")

    def doing(self, what: str, share: float | None) -> None:
        """Print what is being done, if no line was printed for some seconds."""
        if what and time.monotonic() - self._said > _PATIENCE:
            where = "" if share is None else f"round {self._round + 1}/{self._rounds}, "
            self.say(f"{self._prefix}{where}{what}")

    def engine(self, runner: Runner) -> None:
        """Print which engine was chosen, and why."""
        self._begin += runner.choosing  # which no later round takes
        self.say(f"{self._prefix}engine {describe(runner)}")

    def round(self, outcome: Outcome) -> None:
        """Print the round's loss and accuracies, if it was evaluated, was the last, or trained no client."""
        self._round = outcome.round
        if outcome.validation or outcome.round == self._rounds or math.isnan(outcome.loss):
            left = (time.monotonic() - self._begin) / (outcome.round - self._first)
            left *= self._rounds - outcome.round
            self.say(
                f"{self._prefix}round {outcome.round}/{self._rounds}, {summary(outcome)}, {left:.0f} s left"
            )

    def say(self, line: str) -> None:
        """One line on standard error."""
        self._said = time.monotonic()
        typer.echo(line, err=True)


class RunBar(RunLines):
    """Shows a run as a progress bar: what is being done, the round, its loss, accuracy and time left."""

    def __init__(self, label: str = "") -> None:
        super().__init__(label)
        self._label = label
        self._loss: list[str] = []
        self._scores: list[str] = []
        self._left_out: list[str] = []
        self._doing = ""
        self._begun = 0.0
        """When the round before this one ended; 0 in the first, whose length no one knows."""
        self._task: TaskID | None = None
        self._preparation: TaskID | None = None
        self._progress = bars()

    def started(self, run: Run, experiment: Experiment, round: int) -> None:
        """Show the bar, below the run's directory."""
        super().started(run, experiment, round)
        self._clear()
        self._task = self._progress.add_task(
            self._label, total=experiment.rounds, completed=round, notes=self._notes
        )
        self._progress.start()

    def preparing(self, done: int, total: int, note: str) -> None:
        """Show the pre-training as a bar of its own until it is done."""
        if self._preparation is None:
            self._preparation = self._progress.add_task("pre-training", notes=[])
        self._progress.update(
            self._preparation, completed=done, total=total, notes=[note], visible=done < total
        )

    def doing(self, what: str, share: float | None) -> None:
        """Show what is being done; the bar moves with the share of the round that is done, if it is long."""
        if share is not None and time.monotonic() - self._begun < _LONG_ROUND:
            what, share = "", None
            if not self._doing:
                return
        self._doing = what
        if self.run is None:  # the run has no directory yet, and no bar
            if not what:
                self._clear()
                self._progress.stop()
                return
            if self._task is None:
                self._task = self._progress.add_task(self._label, total=None, notes=self._notes)
                self._progress.start()
        if self._task is None:
            return
        done = None if share is None or self.run is None else self._round + 0.99 * share
        self._progress.update(self._task, notes=self._notes, completed=done)

    def round(self, outcome: Outcome) -> None:
        """Move the bar. The loss is this round's; the accuracies are the newest."""
        self._begun, self._doing = time.monotonic(), ""
        self._round, self._loss, self._left_out = outcome.round, [loss_of(outcome)], left_out_of(outcome)
        self._scores = scores_of(outcome) or self._scores
        assert self._task is not None
        self._progress.update(self._task, completed=outcome.round, notes=self._notes)

    def ended(self, run: Run, status: Status) -> None:
        """Leave the bar as it is."""
        self._doing = ""
        if self._task is not None:
            self._progress.update(self._task, completed=self._round, notes=self._notes)
            self._progress.stop_task(self._task)
        self._progress.stop()

    def say(self, line: str) -> None:
        """One line above the bar."""
        self._progress.console.print(line, markup=False, highlight=False, soft_wrap=True)

    @property
    def _notes(self) -> list[str]:
        """What is beside the bar, the most important first."""
        return [*filter(None, [self._doing]), *self._loss, *self._scores, *self._left_out]

    def _clear(self) -> None:
        """Remove what was shown before the run had a directory."""
        if self._task is not None:
            self._progress.remove_task(self._task)
            self._task = None
