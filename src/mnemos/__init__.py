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
    from mnemos.api import (
        advise,
        branch,
        compare,
        describe_federation,
        play_round,
        resume,
        run,
        sweep,
        tune,
        why,
    )
    from mnemos.data.sources.npz import write_npz
    from mnemos.experiment.experiment import Experiment
    from mnemos.lookup.find import describe, parts
    from mnemos.lookup.info import FieldInfo, PartInfo, Parts
    from mnemos.report.write import Report, write_report
    from mnemos.runs.branch import Branching
    from mnemos.runs.run import Run
    from mnemos.runs.trained.load import load
    from mnemos.runs.trained.model import Predictions, TrainedModel
    from mnemos.runs.why.answer import Answer
    from mnemos.runs.why.ask import Question
    from mnemos.studies.advise.advice import Advice
    from mnemos.studies.advise.description import FederationDescription
    from mnemos.studies.results import Results
    from mnemos.studies.study import Study

__all__ = [
    "Advice",
    "Answer",
    "Branching",
    "Experiment",
    "FederationDescription",
    "FieldInfo",
    "PartInfo",
    "Parts",
    "Predictions",
    "Question",
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
    "describe_federation",
    "load",
    "parts",
    "play_round",
    "resume",
    "run",
    "sweep",
    "tune",
    "why",
    "write_npz",
    "write_report",
]

_HOMES = {
    "Advice": "mnemos.studies.advise.advice",
    "Answer": "mnemos.runs.why.answer",
    "Branching": "mnemos.runs.branch",
    "FederationDescription": "mnemos.studies.advise.description",
    "Experiment": "mnemos.experiment.experiment",
    "FieldInfo": "mnemos.lookup.info",
    "PartInfo": "mnemos.lookup.info",
    "Parts": "mnemos.lookup.info",
    "Predictions": "mnemos.runs.trained.model",
    "Question": "mnemos.runs.why.ask",
    "Report": "mnemos.report.write",
    "Results": "mnemos.studies.results",
    "Run": "mnemos.runs.run",
    "Study": "mnemos.studies.study",
    "TrainedModel": "mnemos.runs.trained.model",
    "advise": "mnemos.api",
    "branch": "mnemos.api",
    "compare": "mnemos.api",
    "describe": "mnemos.lookup.find",
    "describe_federation": "mnemos.api",
    "load": "mnemos.runs.trained.load",
    "parts": "mnemos.lookup.find",
    "play_round": "mnemos.api",
    "resume": "mnemos.api",
    "run": "mnemos.api",
    "sweep": "mnemos.api",
    "tune": "mnemos.api",
    "why": "mnemos.api",
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
