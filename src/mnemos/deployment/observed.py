"""An observer that tells a federation's roster about the run, beside the one that shows it."""

from __future__ import annotations

from typing import Any

from mnemos.deployment.journal import Journal, Say
from mnemos.deployment.roster import Roster
from mnemos.engines.engine import Runner
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Outcome
from mnemos.federation.round import REJECTED
from mnemos.runs.directory import Status
from mnemos.runs.execute import Observer, Silent
from mnemos.runs.run import Run


class RosterObserver(Silent):
    """Tells the observer that shows a run, then the roster and the log file."""

    def __init__(self, shown: Observer, roster: Roster, journal: Journal, *, loud: bool = False) -> None:
        """With `loud`, what the log file gets is printed, too: `shown` shows nothing."""
        super().__init__()
        self._shown, self._roster = shown, roster
        self._say: Say = journal if loud else journal.note
        self._names: tuple[str, ...] = ()
        self._rounds = 0

    def started(self, run: Run, experiment: Experiment, round: int) -> None:
        """Note the run and the names of its clients."""
        super().started(run, experiment, round)
        self._names = tuple(owner.owner for owner in getattr(experiment.data, "owners", ()))
        self._rounds = experiment.rounds
        self._roster.members(self._names)
        self._roster.server(run.path, state="training", round=round, rounds=experiment.rounds)
        self._say(f"run {run.path}, from round {round + 1} of {experiment.rounds}")
        self._shown.started(run, experiment, round)

    def warned(self, sentence: str) -> None:
        """Also write the warning into the log."""
        self._say(f"warning: {sentence}")
        self._shown.warned(sentence)

    def preparing(self, done: int, total: int, note: str) -> None:
        """Tell the observer that shows the run."""
        self._shown.preparing(done, total, note)

    def doing(self, what: str, share: float | None) -> None:
        """Tell the observer that shows the run."""
        self._shown.doing(what, share)

    def engine(self, runner: Runner) -> None:
        """Tell the observer that shows the run."""
        self._shown.engine(runner)

    def round(self, outcome: Outcome) -> None:
        """Note how far the run is, and whose updates were rejected."""
        self._shown.round(outcome)
        for record in outcome.records:
            if record.client is not None and record.name.startswith(REJECTED):
                why = record.name.removeprefix(REJECTED).lstrip(": ") or "rejected"
                self._roster.rejected(self._names[record.client], why)
        scores = outcome.validation or outcome.test
        accuracy = None if scores is None else scores.accuracy
        facts: dict[str, Any] = {} if accuracy is None else {"accuracy": accuracy}
        self._roster.server(round=outcome.round, **facts)
        said = f", accuracy {100 * accuracy:.1f} %" if accuracy is not None else ""
        self._say(f"round {outcome.round}/{self._rounds} is finished: loss {outcome.loss:.4g}{said}")

    def ended(self, run: Run, status: Status) -> None:
        """Note how the run has ended."""
        self._roster.server(state=status.status, round=status.rounds)
        self._say(f"run {run.path} has ended: {status.status} after {status.rounds} rounds")
        self._shown.ended(run, status)
