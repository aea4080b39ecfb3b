"""The goal that a study asks: its base, its space and its seeds."""

from __future__ import annotations

from mnemos.experiment.experiment import load_experiment
from mnemos.studies.advise.search import SearchGoal
from mnemos.studies.advise.space import space_of
from mnemos.studies.study import Study

_SEEDS = 3


def goal_of(study: Study, forgetting: float = 0.0) -> SearchGoal:
    """The goal of a study; `forgetting` is the weight of forgetting beside accuracy.

    The search has the base's seed. The finalists have the study's seeds, or, if it gives none, the three that
    follow the base's.
    """
    base = load_experiment(study.base)
    following = tuple(range(base.seed + 1, base.seed + 1 + _SEEDS))
    seeds = study.seeds if "seeds" in study.model_fields_set else following
    return SearchGoal(base, space_of(study), seeds, forgetting)
