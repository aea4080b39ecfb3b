"""What several tables ask of an experiment."""

from __future__ import annotations

from mnemos.experiment.compatibility.row import named
from mnemos.experiment.experiment import Experiment


def several_models(experiment: Experiment) -> str:
    """The model's name, if clients don't share one."""
    return named(experiment.model, not experiment.model.shared)


def no_clients(experiment: Experiment) -> str:
    """The method's name, if it isn't clients that learn."""
    return named(experiment.method, not experiment.method.federated)


def forgetting_asked(experiment: Experiment) -> bool:
    """Whether the forgetting of clients is measured."""
    return bool(experiment.evaluate.forgetting)
