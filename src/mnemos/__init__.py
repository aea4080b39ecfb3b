"""Mnemos: a federated-learning laboratory and runtime whose centre is forgetting.

import mnemos

run = mnemos.run("recipe.yaml", {"local.lr": 0.05})
run.metrics          # a data frame: round, client, model, task, class, layer, name, value
run.forgetting(100)  # the client × client matrix of that round, if it was measured
run.predict("x.png") # its class, with probabilities
run.model()          # an ordinary nn.Module with the trained weights
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mnemos.version import __version__

if TYPE_CHECKING:
    from mnemos.api import advise, branch, compare, describe, play_round, resume, run, sweep, tune
    from mnemos.data.sources.npz import write_npz
    from mnemos.experiment.experiment import Experiment
    from mnemos.report.write import Report, write_report
    from mnemos.runs.branch import Branching
    from mnemos.runs.run import Run
    from mnemos.runs.trained.load import load
    from mnemos.runs.trained.model import Predictions, TrainedModel
    from mnemos.studies.advise.advice import Advice
    from mnemos.studies.advise.description import FederationDescription
    from mnemos.studies.results import Results
    from mnemos.studies.study import Study

__all__ = [
    "Advice",
    "Branching",
    "Experiment",
    "FederationDescription",
    "Predictions",
    "Report",
    "Results",
    "Run",
    "Study",
    "TrainedModel",
    "__version__",
    "advise",
    "branch",
    "compare",
    "describe",
    "load",
    "play_round",
    "resume",
    "run",
    "sweep",
    "tune",
    "write_npz",
    "write_report",
]

_HOMES = {
    "Advice": "mnemos.studies.advise.advice",
    "Branching": "mnemos.runs.branch",
    "FederationDescription": "mnemos.studies.advise.description",
    "Experiment": "mnemos.experiment.experiment",
    "Predictions": "mnemos.runs.trained.model",
    "Report": "mnemos.report.write",
    "Results": "mnemos.studies.results",
    "Run": "mnemos.runs.run",
    "Study": "mnemos.studies.study",
    "TrainedModel": "mnemos.runs.trained.model",
    "advise": "mnemos.api",
    "branch": "mnemos.api",
    "compare": "mnemos.api",
    "describe": "mnemos.api",
    "load": "mnemos.runs.trained.load",
    "play_round": "mnemos.api",
    "resume": "mnemos.api",
    "run": "mnemos.api",
    "sweep": "mnemos.api",
    "tune": "mnemos.api",
    "write_npz": "mnemos.data.sources.npz",
    "write_report": "mnemos.report.write",
}


def __getattr__(name: str) -> Any:
    """What is above, imported when it is asked for: `mnemos --help` needn't wait for PyTorch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'mnemos' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
