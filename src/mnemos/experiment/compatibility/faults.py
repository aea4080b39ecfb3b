"""What doesn't go with clients that go wrong."""

from __future__ import annotations

from mnemos.experiment.compatibility.row import Row, Table, first, names
from mnemos.experiment.experiment import Experiment


def _without_training(experiment: Experiment) -> str:
    """The first part that passes over a client's data, if some clients don't train."""
    pretence = any(not fault.trains for fault in experiment.faults)
    return first(part for part in experiment.method.parts if pretence and part.data_pass_at is not None)


def _attacks(experiment: Experiment) -> str:
    """The names of the faults whose clients are the same attackers, if they are several."""
    attacks = [fault for fault in experiment.faults if fault.attacks]
    return names(attacks) if len(attacks) > 1 else ""


def _marked(experiment: Experiment) -> str:
    """The name of the measure that looks for another mark than the one that opens the backdoor."""
    looking = [measure for measure in experiment.measures if measure.mark is not None]
    marks = [*(fault.mark for fault in experiment.faults), *(measure.mark for measure in looking)]
    return first(looking) if len({(mark.target, mark.size) for mark in marks if mark}) > 1 else ""


FAULTS: Table[Experiment] = Table(
    lambda e: bool(e.faults),
    (
        Row(
            "faults",
            _without_training,
            "{} passes over a client's data, which one that doesn't train can't pretend",
        ),
        Row("faults", _attacks, "found {}, which are the same clients; take one"),
        Row("measures.{}", _marked, "target and size differ from those of the fault backdoor"),
    ),
)
"""Faults that can't be, or that contradict each other or a measure."""
