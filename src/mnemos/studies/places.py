"""Which devices the runs of a study train on, and how many of the runs have devices of their own."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from mnemos.common.devices import CPU
from mnemos.errors import ConfigError
from mnemos.experiment.experiment import Experiment


def accelerators(experiment: Experiment) -> frozenset[torch.device]:
    """The devices that an experiment's clients train on, without the CPU; empty if they aren't there."""
    try:
        return frozenset(experiment.engine.devices) - {CPU}
    except ConfigError:
        return frozenset()


def apart(experiments: Iterable[Experiment]) -> int:
    """How many of the experiments can run at a time without a device in common; 0: all are for the CPU."""
    taken: set[torch.device] = set()
    count = 0
    for wanted in sorted({accelerators(experiment) for experiment in experiments}, key=len):
        if wanted and not wanted & taken:
            taken |= wanted
            count += 1
    return count
