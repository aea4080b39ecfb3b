"""Successive halving whose rungs are complete before a candidate is ruled out.

Optuna's own pruner lets candidates go on as they come, so that the early ones go on whatever they are worth.
"""

from __future__ import annotations

import math
from typing import Any

KEEP = 4
"""A quarter of the candidates goes on to the next rung."""


class Halving:
    """A pruner for Optuna, asked about a rung once all candidates have reported values there."""

    def __init__(self, fewest: int) -> None:
        """`fewest` candidates go on at the least."""
        self._fewest = fewest

    def prune(self, study: Any, trial: Any) -> bool:
        """Whether a trial isn't among the best of the rung that it has reported last.

        Of equal values, that of the earlier trial is the better one.
        """
        rung = trial.last_step
        values = {
            other.number: other.intermediate_values[rung]
            for other in study.get_trials(deepcopy=False)
            if rung in other.intermediate_values
        }
        best = sorted(values, key=lambda trial_number: (-values[trial_number], trial_number))
        return trial.number not in best[: max(self._fewest, math.ceil(len(best) / KEEP))]
