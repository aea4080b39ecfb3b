"""All tables about an experiment, in the order in which they are looked at."""

from __future__ import annotations

from mnemos.experiment.compatibility.asynchronous import ASYNCHRONOUS
from mnemos.experiment.compatibility.faults import FAULTS
from mnemos.experiment.compatibility.learners import CENTRALISED, GRADIENTS, MIXED, PEERS
from mnemos.experiment.compatibility.owners import LOCAL, REMOTE
from mnemos.experiment.compatibility.private import PRIVATE
from mnemos.experiment.compatibility.row import Row, Table, refuse
from mnemos.experiment.experiment import Experiment

IMPORTED: Table[Experiment] = Table(
    lambda e: bool(e.not_imported),
    (
        Row(
            "",
            lambda e: ", ".join(e.not_imported),
            "its code was only looked at, and not imported ({}); Run.load imports it",
        ),
    ),
)
"""Code of the experiment that Mnemos has only read the name of."""

TABLES = (IMPORTED, ASYNCHRONOUS, LOCAL, REMOTE, PRIVATE, CENTRALISED, MIXED, PEERS, GRADIENTS, FAULTS)


def check_experiment(experiment: Experiment) -> None:
    """Refuse, with a `ConfigError`, what can't be, whatever the data are."""
    refuse(TABLES, experiment)
    experiment.privacy.key(experiment.seed)  # a secret that is missing shows now
    _ = experiment.engine.devices  # and so does a device
