"""What a search tries next: candidates that Optuna draws, each of which is tried once."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mnemos.common.extras import require
from mnemos.studies.advise.halving import Halving
from mnemos.studies.advise.space import Space
from mnemos.studies.study import Changes

MOST = 40
"""Candidates that are tried at the most, if the user gives no number of trials."""
_DRAWS = 3
"""Draws for each candidate at the most: in a range of whole numbers there may be nothing left to draw."""


class Draws:
    """The trials of a search, in Optuna's storage. Each is told its end once, by whichever call."""

    def __init__(self, space: Space, seed: int, database: Path, name: str, fewest: int) -> None:
        """`name` is the search's in the database; `fewest` candidates go on from a rung at the least."""
        self._optuna = optuna = require("optuna", "optuna", "tune")
        self._space, self._seed = space, seed
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        storage = optuna.storages.RDBStorage(
            f"sqlite:///{database.absolute()}", engine_kwargs={"connect_args": {"timeout": 60}}
        )
        self._study = optuna.create_study(
            storage=storage,
            study_name=name,
            load_if_exists=True,
            direction="maximize",
            pruner=Halving(fewest),
            sampler=optuna.samplers.RandomSampler(),
        )
        self._ended: set[int] = set()
        self.most = min(space.most or MOST, space.size)
        """How many candidates there are to try."""
        if not self._study.trials:
            for changes in space.first:
                self._study.enqueue_trial(space.params(changes))

    def earlier(self) -> Iterator[tuple[Any, tuple[int, ...], str]]:
        """(a trial, the rungs that it has reported, why it was ruled out) of each of earlier calls.

        Those that were killed may not even be drawn; those of repeated candidates are left out.
        """
        states = self._optuna.trial.TrialState
        for frozen in self._study.get_trials(deepcopy=False):
            if frozen.state.is_finished():
                self._ended.add(frozen.number)
            if frozen.state not in (states.WAITING, states.FAIL):
                trial = self._optuna.trial.Trial(self._study, frozen._trial_id)
                yield trial, tuple(sorted(frozen.intermediate_values)), frozen.user_attrs.get("reason", "")

    def next(self) -> Any | None:
        """A new trial; None if nothing is left to draw."""
        waiting = self._optuna.trial.TrialState.WAITING
        trials = self._study.get_trials(deepcopy=False)
        done = sum(frozen.state != waiting for frozen in trials)
        # Of a finite space nothing is drawn twice; what is tried first may be in it again.
        limit = min(_DRAWS * self.most, self._space.size + len(self._space.first))
        return self._study.ask() if done < limit else None

    def drawn(self, trial: Any) -> Changes:
        """What a trial stands for."""
        samplers = self._optuna.samplers
        finite = self._space.size < math.inf
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", self._optuna.exceptions.ExperimentalWarning)
            # A generator for each trial: then a search that was killed draws what it would have drawn.
            kind = samplers.BruteForceSampler if finite else samplers.RandomSampler
            self._study.sampler = kind(seed=self._seed + trial.number)
        changes = self._space.draw(trial)
        self._study.sampler = samplers.RandomSampler()  # the other one ends a study when nothing is left
        return changes

    def values(self, rung: int) -> dict[int, float]:
        """What trials have reported on a rung, by their numbers."""
        return {
            frozen.number: frozen.intermediate_values[rung]
            for frozen in self._study.get_trials(deepcopy=False)
            if rung in frozen.intermediate_values
        }

    def ended(self, trial: Any) -> bool:
        """Whether a trial was told its end."""
        return trial.number in self._ended

    def repeated(self, trial: Any) -> None:
        """End the trial of a candidate that was tried before. It fails, and so has no say in who goes on."""
        self._tell(trial, state=self._optuna.trial.TrialState.FAIL)

    def stopped(self, trial: Any, reason: str = "") -> None:
        """End the trial of a candidate that doesn't go on."""
        if reason and not self.ended(trial):
            trial.set_user_attr("reason", reason)
        self._tell(trial, state=self._optuna.trial.TrialState.PRUNED)

    def completed(self, trial: Any, value: float) -> None:
        """End the trial of a candidate that has done the last rung."""
        self._tell(trial, values=value)

    def _tell(self, trial: Any, **end: Any) -> None:
        if not self.ended(trial):
            self._study.tell(trial, **end)
            self._ended.add(trial.number)


def key(changes: Changes) -> str:
    """A text that is equal for equal changes."""
    return json.dumps(changes, sort_keys=True)
