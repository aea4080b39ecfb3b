"""Pilots: runs of candidates that stop at some round, are judged on validation data, and may go on later.

A pilot is an ordinary run directory. Where a run can be made longer, the next rung continues it; where the
number of rounds changes what happens in them (a paced stream, a schedule over all rounds), each rung is a run
of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from mnemos.errors import ConfigError, DivergedError
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation, Outcome
from mnemos.runs.execute import Silent, resume
from mnemos.runs.run import Run
from mnemos.runs.store import overall_values, read_seconds
from mnemos.runs.trust import remember_own
from mnemos.studies.advise.budget import Budget
from mnemos.studies.perform import perform

LAST = 6
"""A pilot is judged by its last sixth of rounds, because accuracy goes up and down under label skew."""


@dataclass(frozen=True)
class Pilot:
    """What a pilot has shown up to a round."""

    run: Run
    rounds: int
    accuracy: float | None
    """Mean validation accuracy of the last rounds up to that one; None if the run did not converge."""
    forgetting: float | None
    """Mean of the forgetting F that was measured up to that round; None if it wasn't."""
    seconds: float
    """Seconds of these rounds."""
    bytes: float
    """Bytes sent and received by all clients in a round, on average."""
    message: str = ""
    """Why it did not converge."""


class _Ticking(Silent):
    """Counts the time of a run against a budget, round by round."""

    def __init__(self, budget: Budget) -> None:
        super().__init__()
        self._budget = budget

    def round(self, outcome: Outcome) -> None:
        """Note the time used; ends the run if the budget is spent."""
        self._budget.tick()


class Pilots:
    """The pilots of one search, in one folder."""

    def __init__(self, folder: Path, rungs: Sequence[int], budget: Budget) -> None:
        """`rungs` are the numbers of rounds after which pilots are judged, the smallest first."""
        self.folder, self.rungs, self._budget = folder, tuple(rungs), budget

    def reach(self, candidate: Experiment, rounds: int) -> Pilot:
        """Run a candidate for this many rounds, which are a rung's, from as far as it has been run.

        Raises a `BudgetSpentError` when there is no time left; the run is saved and goes on later.
        """
        first = pilot_of(candidate, self.rungs, self.rungs[0] if continuable(candidate) else rounds)
        observer = _Ticking(self._budget)
        remember_own(first)  # the user names this code, so the run that is continued may use it
        run = self._known(first)
        if run is None:
            self._budget.tick()
            run = perform(first, self.folder, observer)
        if run.status.status != "diverged" and (run.saved_rounds < rounds or not run.ended):
            self._budget.tick()
            with suppress(DivergedError):  # its status says so
                run = resume(run.path, max(rounds, run.experiment.rounds), observer)
        return measured(run, rounds)

    def _known(self, first: Experiment) -> Run | None:
        """The run that began as this experiment, even if it has gone on for more rounds since."""
        for path in sorted(self.folder.glob(f"*-{first.hash()}*")):
            run = Run(path)
            if not run.file("experiment.yaml").is_file() or run.parent is not None:
                continue
            if run.experiment.model_copy(update={"rounds": first.rounds}).same_as(first):
                return run
        return None


def pilot_of(candidate: Experiment, rungs: Sequence[int], rounds: int) -> Experiment:
    """The experiment of a candidate's pilot: evaluated on validation data alone, so often that the last sixth
    of the rounds up to each rung has an evaluation, and that of a whole pilot about three."""
    evaluate = {
        "every": max(1, rungs[0] // LAST),
        "test_last": 0,
        "test_every": 0,
        "forgetting": list(rungs),
        "patience": candidate.evaluate.patience,
    }
    return candidate.override({"rounds": rounds, "evaluate": evaluate, "measures": []})


def continuable(experiment: Experiment) -> bool:
    """Whether a run of it that is made longer is the run that would have been that long from the start."""
    schedule = experiment.local.schedule
    paced = experiment.stream.paced or experiment.privacy.paced
    return not paced and schedule.within(1) == schedule.within(2)


def measured(run: Run, rounds: int) -> Pilot:
    """What a run has shown up to a round."""
    records = list(run.records)

    def values(name: str) -> list[float]:
        return [float(value) for round, value in overall_values(records, name).items() if round <= rounds]

    status = run.status
    diverged = status.status == "diverged" and status.rounds <= rounds
    validated = overall_values(records, "validation_accuracy")
    accuracy, forgetting = judged(validated, rounds), values("forgetting")
    sent = [*values("bytes_up"), *values("bytes_down")]
    seconds = read_seconds(run.file("timing.jsonl"))
    done = min(rounds, run.saved_rounds)
    return Pilot(
        run,
        rounds,
        None if diverged else accuracy,
        sum(forgetting) / len(forgetting) if forgetting else None,
        sum(took for round, took in seconds.items() if round <= rounds),
        sum(sent) / max(1, done),
        status.message if diverged else "",
    )


def judged(values: Mapping[int, float], rounds: int) -> float | None:
    """The mean of the values of the last sixth of some rounds; None if there are none up to the last of them.

    `values` are by round. A round r is in the last sixth of R if R − r < R / 6.
    """
    last = [float(value) for round, value in values.items() if 0 <= LAST * (rounds - round) < rounds]
    return sum(last) / len(last) if last else None


def check(candidate: Experiment) -> None:
    """Refuse, with a `ConfigError`, a candidate that can't be run; nothing is trained."""
    with closing(Federation(candidate)) as federation:
        federation.check_start()


def check_pilots(base: Experiment) -> None:
    """Refuse an experiment of which there can be no pilots."""
    if base.engine.remote:
        raise ConfigError("found an engine whose data is with its owners; pilots are simulated", "engine")
    if type(base.privacy).name != "none":
        raise ConfigError(
            f"found {type(base.privacy).name}; every pilot would spend ε of its own, which isn't counted; "
            "allowed: none",
            "privacy",
        )
    if not base.partition.validation:
        raise ConfigError(
            "found 0; pilots are judged on validation data, so it must be > 0", "partition.validation"
        )
    with closing(Federation(base)) as federation:
        if not len(federation.assignment.union_held_out()):
            raise ConfigError(
                f"found {base.partition.validation:g}, which leaves no client a validation sample; pilots "
                "are judged on these, so raise it or take fewer clients",
                "partition.validation",
            )
