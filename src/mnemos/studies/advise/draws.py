"""What a search tries next: candidates that Optuna draws, each of which counts once."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mnemos.common.extras import require
from mnemos.studies.advise.space import Space
from mnemos.studies.study import Changes

REPEATS = 3
"""After this many draws in a row of candidates that were tried before, one that wasn't is drawn at random."""
_MOST = 400
"""Draws at the most, repeats included: in a range of whole numbers there may be nothing left to draw."""
_RANDOM = 8
"""Trials before the sampler learns from what they have shown."""


class Draws:
    """The trials of a search, in Optuna's storage."""

    def __init__(self, space: Space, seed: int, database: Path, name: str, rungs: tuple[int, int]) -> None:
        """`name` is the search's in the database; `rungs` are the first rung and the reduction factor."""
        self._optuna = optuna = require("optuna", "optuna", "tune")
        self._space, self._seed = space, seed
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        storage = optuna.storages.RDBStorage(
            f"sqlite:///{database.absolute()}", engine_kwargs={"connect_args": {"timeout": 60}}
        )
        first, factor = rungs
        pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=first, reduction_factor=factor)
        self.study = optuna.create_study(
            storage=storage, study_name=name, load_if_exists=True, direction="maximize", pruner=pruner
        )
        if not self.study.trials:
            for changes in space.first:
                self.study.enqueue_trial(space.params(changes))

    def finished(self) -> Iterator[tuple[Changes, int]]:
        """(the changes, the last rung that was judged, or 0) of each trial of earlier calls."""
        for frozen in self.study.get_trials(deepcopy=False):
            if frozen.state.is_finished() and frozen.params:
                # A fixed trial has every parameter that the space asks for, and draws none.
                fixed = self._optuna.trial.FixedTrial(frozen.params)
                yield self._space.draw(fixed), max(frozen.intermediate_values, default=0)

    def unfinished(self) -> Iterator[tuple[Any, int]]:
        """(a trial, the rung that it has reported last, or 0) of each that a killed call has left."""
        running = (self._optuna.trial.TrialState.RUNNING,)
        for frozen in self.study.get_trials(deepcopy=False, states=running):
            known = self._optuna.trial.Trial(self.study, frozen._trial_id)
            yield known, max(frozen.intermediate_values, default=0)

    def next(self, tried: Collection[str]) -> Any | None:
        """The next trial; None if nothing is left. `tried` are the keys of what was tried before."""
        trials = self.study.get_trials(deepcopy=False)
        if len(trials) >= _MOST:
            return None
        # A generator for each trial: then a search that was killed draws what it would have drawn.
        seed = self._seed + len(trials)
        self.study.sampler = self._optuna.samplers.TPESampler(seed=seed, n_startup_trials=_RANDOM)
        failed = self._optuna.trial.TrialState.FAIL
        last = trials[-REPEATS:]
        if len(last) == REPEATS and all(frozen.state == failed for frozen in last):
            left = [params for changes, params in self._space.choices() if key(changes) not in tried]
            if left:
                chosen = left[np.random.default_rng(seed).integers(len(left))]
                self.study.enqueue_trial(chosen, skip_if_exists=True)
            elif self._space.size < math.inf:
                return None
        return self.study.ask()

    def repeated(self, trial: Any) -> None:
        """End the trial of a candidate that was tried before.

        It fails, and so has no say. If a candidate counted again each time that it is drawn, the best would
        take all places of those that go on, and the sampler would learn nothing new from it.
        """
        self.study.tell(trial, state=self._optuna.trial.TrialState.FAIL)

    def stopped(self, trial: Any) -> None:
        """End the trial of a candidate that doesn't go on."""
        self.study.tell(trial, state=self._optuna.trial.TrialState.PRUNED)

    def completed(self, trial: Any, value: float) -> None:
        """End the trial of a candidate that has done the last rung."""
        self.study.tell(trial, value)


def key(changes: Changes) -> str:
    """A text that is equal for equal changes."""
    return json.dumps(changes, sort_keys=True)
