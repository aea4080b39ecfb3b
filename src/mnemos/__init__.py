"""Mnemos: a federated-learning laboratory and runtime whose centre is forgetting.

import mnemos

run = mnemos.run("recipe.yaml", {"local.lr": 0.05})
run.metrics          # a data frame: round, client, model, task, class, layer, name, value
run.forgetting(100)  # the client × client matrix of that round, if it was measured
run.model()          # an ordinary nn.Module with the trained weights
"""

from mnemos.api import compare, resume, run, sweep
from mnemos.data.sources.npz import write_npz
from mnemos.experiment import Experiment
from mnemos.report.write import Report, write_report
from mnemos.runs.results import Results
from mnemos.runs.run import Run
from mnemos.runs.study import Study
from mnemos.version import __version__

__all__ = [
    "Experiment",
    "Report",
    "Results",
    "Run",
    "Study",
    "__version__",
    "compare",
    "resume",
    "run",
    "sweep",
    "write_npz",
    "write_report",
]
