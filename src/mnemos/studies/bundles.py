"""Which runs of a study share a process, where the cohorts of alike runs are trained as one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from mnemos.client.messages import Plan
from mnemos.common.devices import CPU
from mnemos.data.load import load
from mnemos.engines.auto import Auto
from mnemos.engines.vmap import Vmap, has_short_steps
from mnemos.errors import MnemosError
from mnemos.experiment.experiment import Experiment
from mnemos.studies.study import Case

MOST = 16
"""Runs in one process: more save little, and each holds its clients' samples and its server."""

Bundle = list[Case]
"""Cases that one worker runs side by side; as a rule a single one."""


@dataclass(frozen=True)
class Bundles:
    """A study's cases as they are given to workers."""

    bundles: Sequence[Bundle]
    processes: int
    """How many workers there are at a time."""

    @classmethod
    def of(cls, cases: Sequence[Case], processes: int, *, together: bool) -> Self:
        """The cases for `processes` workers; with `together`, those that suit share a worker.

        That pays if there are more of them than workers: then a worker would do them one after another.
        """
        # Cases of a kind suit or don't together; to find out makes a model.
        kinds = [same for same in _kinds(cases) if suits(same[0].experiment)] if together else []
        suited = [case for same in kinds for case in same]
        if len(suited) <= processes:
            return cls([[case] for case in cases], processes)
        chosen = {id(case) for case in suited}
        size = min(MOST, -(-len(suited) // processes))
        bundles = [suited[begin : begin + size] for begin in range(0, len(suited), size)]
        # Bundles take longest, so that they come first.
        return cls([*bundles, *([case] for case in cases if id(case) not in chosen)], processes)

    @property
    def at_once(self) -> int:
        """How many runs go on at a time."""
        return sum(sorted(map(len, self.bundles), reverse=True)[: self.processes]) or self.processes

    @property
    def together(self) -> int:
        """How many runs share processes with others."""
        return sum(len(bundle) for bundle in self.bundles if len(bundle) > 1)


def suits(experiment: Experiment) -> bool:
    """Whether a run gains from others in its process: its steps are so short that calls are most of the work.

    On a device, and with an engine that trains client by client, there is nothing to gain.
    """
    engine = experiment.engine
    if not isinstance(engine, Auto | Vmap) or engine.exact or experiment.model.mixture is not None:
        return False
    try:
        if engine.devices != (CPU,) or not experiment.local.optimizer.vectorised:
            return False
        return _short(experiment.plan, experiment)
    except MnemosError:  # the run itself will say what is wrong
        return False


def _short(plan: Plan, experiment: Experiment) -> bool:
    dataset = load(experiment.data)
    return not dataset.remote and has_short_steps(plan, dataset)


def _kinds(cases: Iterable[Case]) -> list[list[Case]]:
    """The cases by their kind: those of one differ in seed, learning rate and weight decay alone."""
    order: dict[str, list[Case]] = {}
    for case in cases:
        numbers = case.experiment.local.model_copy(update={"lr": 1.0, "weight_decay": 0.0})
        kind = case.experiment.model_copy(update={"local": numbers, "seed": 0}).hash()
        order.setdefault(kind, []).append(case)
    return [*order.values()]
