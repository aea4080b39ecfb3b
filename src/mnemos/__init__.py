"""Mnemos: a federated-learning laboratory and runtime whose centre is forgetting.

import mnemos

run = mnemos.run("recipe.yaml", {"local.lr": 0.05})
run.metrics          # a data frame: round, client, model, task, class, name, value
run.forgetting(100)  # the client × client matrix of that round, if it was measured
run.model()          # an ordinary nn.Module with the trained weights
"""

from mnemos.api import compare, resume, run
from mnemos.data.sources.npz import write_npz
from mnemos.experiment import Experiment
from mnemos.runs.compare import Compared, Comparison
from mnemos.runs.run import Run
from mnemos.version import __version__

__all__ = [
    "Compared",
    "Comparison",
    "Experiment",
    "Run",
    "__version__",
    "compare",
    "resume",
    "run",
    "write_npz",
]
