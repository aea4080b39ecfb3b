"""The search: successive halving over pilots with Optuna, then the finalists with several seeds.

Every candidate has a short pilot, the best quarter a whole one. No candidate is tried twice.

Everything is kept in the folder of the runs: the trials in Optuna's SQLite file, the time used and the rungs
beside it. A search that was killed goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from mnemos.common.extras import require
from mnemos.common.files import write_atomically
from mnemos.common.plain import parse_json, whole
from mnemos.display.words import percent
from mnemos.errors import ConfigError, MnemosError
from mnemos.experiment.experiment import Experiment
from mnemos.runs.run import BusyError
from mnemos.studies.advise.budget import Budget, BudgetSpentError
from mnemos.studies.advise.draws import Draws, key
from mnemos.studies.advise.pilots import Pilot, Pilots, check, check_pilots
from mnemos.studies.advise.rungs import FINALISTS, FIRST, SHARE, possible, rungs_for
from mnemos.studies.advise.space import Space
from mnemos.studies.estimate import estimate
from mnemos.studies.perform import make_folder
from mnemos.studies.study import Changes, named

DATABASE = "search.db"


@dataclass(frozen=True)
class SearchGoal:
    """What is searched: a base experiment, changes to it, seeds of the finalists, and what counts."""

    base: Experiment
    space: Space
    seeds: tuple[int, ...]
    """The seeds of the finalists; the search itself has the base's seed."""
    forgetting: float = 0.0
    """Points of accuracy that a point of forgetting counts."""

    @property
    def key(self) -> str:
        """Twelve hexadecimal digits that are equal for equal goals."""
        text = json.dumps([self.base.hash(), self.space.key(), self.seeds, self.forgetting])
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def value(self, pilot: Pilot) -> float:
        """What the search maximises: validation accuracy − weight · forgetting; −1 if it did not converge."""
        if pilot.accuracy is None:
            return -1.0
        return pilot.accuracy - self.forgetting * (pilot.forgetting or 0.0)


@dataclass
class Candidate:
    """Changes to the base, and what its pilots have shown."""

    changes: Changes
    experiment: Experiment | None
    """None if it can't be run."""
    pilot: Pilot | None = None
    """Its furthest pilot of the search, with the base's seed."""
    seeds: dict[int, Pilot] = field(default_factory=dict)
    """As a finalist: a whole pilot for each seed that there was time for."""
    reason: str = ""
    """Why it was ruled out; empty for finalists."""


@dataclass(frozen=True)
class Found:
    """The result of a search as far as the budget went."""

    goal: SearchGoal
    rungs: tuple[int, ...]
    candidates: tuple[Candidate, ...]
    """Every candidate that was tried, each once, in the order of their trials."""
    finalists: tuple[Candidate, ...]
    """Those that were run with several seeds, the best of the search first."""
    used: float
    """Seconds that all calls have used."""
    budget: float
    spent: bool
    """Whether time ran out before everything was tried that should have been."""


class Search:
    """One search in a folder."""

    def __init__(
        self,
        goal: SearchGoal,
        folder: Path,
        budget: float,
        say: Callable[[str], None] | None = None,
        began: float | None = None,
    ) -> None:
        """`budget` is in seconds, over all calls; `say` is told in a sentence what each pilot has shown.

        `began` is when this call began, by `time.monotonic`; None: now.
        """
        began = time.monotonic() if began is None else began
        require("optuna", "optuna", "tune")
        check_pilots(goal.base)
        make_folder(folder)
        self.goal, self._folder, self._say = goal, folder, say or (lambda _: None)
        self._budget = Budget(budget, folder / f"{goal.key}.time.json", began)
        self.rungs = self._rungs(folder / f"{goal.key}.rungs.json")
        self._pilots = Pilots(folder, self.rungs, self._budget)
        self._candidates: dict[str, Candidate] = {}
        self._trials: dict[str, Any] = {}
        """The trial of each candidate, by the same keys."""

    def run(self) -> Found:
        """Search until everything was tried, the number of trials is reached or the time is used."""
        spent, finalists = False, []
        try:
            self._search()
            finalists = self._choose()
            self._finals(finalists)
        except BudgetSpentError:
            spent = True
            finalists = finalists or [found for found in self._choose() if found.pilot]
        finally:
            self._budget.save()
        return Found(
            self.goal,
            self.rungs,
            tuple(self._candidates.values()),
            tuple(finalists),
            self._budget.used,
            self._budget.seconds,
            spent,
        )

    # --- the length of pilots ---

    def _rungs(self, path: Path) -> tuple[int, ...]:
        """The rungs, which an earlier call has chosen, or which the budget allows."""
        with suppress(OSError, ValueError, TypeError, KeyError):
            return tuple(whole(rounds) for rounds in parse_json(path.read_text())["rungs"])
        base = self.goal.base
        seconds = estimate(base, self._folder)
        each = None if seconds is None else seconds / base.rounds
        found = possible(base, rungs_for(base.rounds, each, self._budget.seconds, len(self.goal.seeds)))
        write_atomically(path, json.dumps({"rungs": found}).encode())
        return found

    # --- successive halving ---

    def _search(self) -> None:
        goal = self.goal
        draws = Draws(goal.space, goal.base.seed, self._folder / DATABASE, goal.key, FINALISTS)
        for trial, reported, reason in draws.earlier():
            candidate = self._begin(draws, trial)
            if candidate is not None and candidate.experiment is not None:
                candidate.reason = reason
                for rung in reported:  # its run's directory says what it has shown
                    self._reach(draws, trial, candidate, rung, known=True)
        complete = self._first(draws)
        for rung, following in pairwise(self.rungs):
            self._halve(draws, rung, following, complete)

    def _first(self, draws: Draws) -> bool:
        """Try candidates on the first rung. Returns whether all were tried that should be."""
        for name, trial in self._trials.items():
            candidate = self._candidates[name]
            if candidate.pilot is None and not draws.ended(trial):  # of a call that was killed
                self._reach(draws, trial, candidate, self.rungs[0])
        while len(self._candidates) < draws.most:
            if self._candidates and self._budget.used > FIRST * self._budget.seconds:
                return False
            trial = draws.next()
            if trial is None:
                break
            drawn = self._begin(draws, trial)
            if drawn is not None and drawn.experiment is not None:
                self._reach(draws, trial, drawn, self.rungs[0])
        return True

    def _begin(self, draws: Draws, trial: Any) -> Candidate | None:
        """The candidate that a trial stands for; None if it was tried before."""
        changes = draws.drawn(trial)
        name = key(changes)
        if name in self._trials:
            draws.repeated(trial)
            return None
        self._trials[name] = trial
        candidate = self._candidates[name] = self._candidate(changes)
        if candidate.experiment is None:
            draws.stopped(trial)
        return candidate

    def _halve(self, draws: Draws, rung: int, following: int, complete: bool) -> None:
        """Let the best of a rung go on to the following one, the best first.

        The others are ruled out for good only if the rung is `complete`; with more time, more may be tried.
        """
        values, further = draws.values(rung), draws.values(following)
        on = [
            (trial, self._candidates[name])
            for name, trial in self._trials.items()
            if trial.number in values and trial.number not in further and not draws.ended(trial)
        ]
        on.sort(key=lambda pair: (-values[pair[0].number], pair[0].number))
        for trial, candidate in on:
            if trial.should_prune():
                if complete:
                    draws.stopped(trial)
            elif further and self._budget.used > SHARE * self._budget.seconds:
                return
            else:
                self._reach(draws, trial, candidate, following)
                further[trial.number] = values[trial.number]

    def _reach(
        self, draws: Draws, trial: Any, candidate: Candidate, rung: int, *, known: bool = False
    ) -> None:
        """Run a candidate to a rung, unless it is there already, and report what it shows if not `known`."""
        assert candidate.experiment is not None
        try:
            pilot = self._pilots.reach(candidate.experiment, rung)
        except BusyError:
            raise
        except MnemosError as error:  # such as a run that pauses; others may go well
            candidate.reason = str(error)
            draws.stopped(trial, candidate.reason)
            return
        candidate.pilot = pilot
        if not known:
            trial.report(self.goal.value(pilot), rung)
            self._say(f"{name_of(candidate.changes)}: {_so_far(pilot)}")
        if pilot.accuracy is None:
            draws.stopped(trial)
        elif rung == self.rungs[-1]:
            draws.completed(trial, self.goal.value(pilot))

    def _candidate(self, changes: Changes) -> Candidate:
        try:
            experiment = self.goal.base.override(changes)
            check(experiment)
            return Candidate(changes, experiment)
        except ConfigError as error:
            return Candidate(changes, None, reason=str(error))

    # --- the finalists ---

    def _choose(self) -> list[Candidate]:
        """The candidates that went furthest, best first, and the experiment as it was given."""
        ranked = self.ranked()
        chosen = ranked[:FINALISTS]
        given = [
            found
            for found in ranked
            if found.experiment is not None and found.experiment.same_as(self.goal.base)
        ]
        chosen += [found for found in given if found not in chosen]
        for found in self._candidates.values():
            found.reason = "" if found in chosen else found.reason or self._reason(found, chosen)
        return chosen

    def ranked(self) -> list[Candidate]:
        """The candidates that converged: those that went further first, and of these the better first."""
        value = self.goal.value
        tried = [
            found for found in self._candidates.values() if found.pilot and found.pilot.accuracy is not None
        ]
        return sorted(
            tried, key=lambda found: (-found.pilot.rounds, -value(found.pilot)) if found.pilot else (0, 0)
        )

    def _reason(self, found: Candidate, chosen: Sequence[Candidate]) -> str:
        pilot = found.pilot
        if pilot is None:
            return "not run: the time was used"
        if pilot.accuracy is None:
            return f"did not converge ({pilot.message})"
        better = next((other.pilot for other in chosen if other.pilot), None)
        return _so_far(pilot) + (f"; the best of the search had {_so_far(better)}" if better else "")

    def _finals(self, finalists: Sequence[Candidate]) -> None:
        """Run the finalists with one seed after another, so that those that are done are pairs."""
        for seed in self.goal.seeds:
            for found in finalists:
                assert found.experiment is not None
                seeded = found.experiment.model_copy(update={"seed": seed})
                found.seeds[seed] = self._pilots.reach(seeded, self.rungs[-1])
            self._say(f"finalists: seed {seed} is done")


def _so_far(pilot: Pilot) -> str:
    return f"{percent(pilot.accuracy)} after {pilot.rounds} rounds"


def name_of(changes: Changes) -> str:
    """A candidate in words, such as `fedavg, wsm, lr=0.05`."""
    return next(iter(named([changes])))
