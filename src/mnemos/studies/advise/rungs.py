"""How long pilots are, and how a budget is divided between the search and the finalists."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from mnemos.errors import ConfigError
from mnemos.experiment.experiment import Experiment
from mnemos.studies.advise.halving import KEEP
from mnemos.studies.advise.pilots import check

ETA = 3
"""A whole pilot has three times the rounds of a first one."""
TRIALS = 24
"""Candidates that the budget should be enough for; the length of pilots is chosen by it."""
FINALISTS = 3
"""Finalists beside the experiment as it was given."""
COST = 1 / ETA + (1 - 1 / ETA) / KEEP
"""Rounds of the search per candidate, as a share of a whole pilot's: a half."""
SHARE = 0.5
"""Share of the budget for the search; the rest is for the finalists."""
FIRST = SHARE / ETA / COST
"""Share of the budget for the first pilots: a third."""


def rungs_for(rounds: int, seconds: float | None, budget: float, seeds: int) -> tuple[int, ...]:
    """The rounds after which pilots are judged: those of a first pilot, and `ETA` times as many.

    The last is the experiment's number of rounds, or fewer, so that the search and the finalists fit in the
    budget: budget = t · R · (`TRIALS` · `COST` + (`FINALISTS` + 1) · seeds), with `seconds` t a round.
    """
    last = rounds
    if seconds:
        whole_pilots = TRIALS * COST + (FINALISTS + 1) * seeds
        last = min(rounds, max(ETA, int(budget / (whole_pilots * seconds))))
    return (last // ETA, last) if last >= ETA else (last,)


def possible(base: Experiment, rungs: Sequence[int]) -> tuple[int, ...]:
    """The rungs that a run can have: a stream of tasks may need more rounds than the first ones give it."""
    for index in range(len(rungs)):
        with suppress(ConfigError):
            check(base.override({"rounds": rungs[index]}))
            return tuple(rungs[index:])
    return (base.rounds,)
