"""What doesn't go with data that stays with its owners."""

from __future__ import annotations

from mnemos.engines.engine import engines
from mnemos.experiment.compatibility.asked import no_clients, several_models
from mnemos.experiment.compatibility.row import Row, Table, first, named, those
from mnemos.experiment.experiment import Experiment
from mnemos.methods.part import server_steps, terms


def _partial() -> str:
    """The names of the registered parts that are made for clients that stop early."""
    found = [("server step", kind) for kind in server_steps] + [("term", kind) for kind in terms]
    return " or ".join(f"the {kind} {part.name}" for kind, part in found if part.partial)


LOCAL: Table[Experiment] = Table(
    lambda e: not e.data.stays_with_owners,
    (
        Row(
            "engine",
            lambda e: named(e.engine, e.engine.remote),
            "found {}, which is for data that stays with its owners: see 'mnemos federate serve'",
        ),
    ),
)
"""Data that is here."""

REMOTE: Table[Experiment] = Table(
    lambda e: e.data.stays_with_owners,
    (
        Row(
            "engine.deadline",
            lambda e: (
                (f"{e.engine.train_seconds:g}", e.method.name)
                if e.engine.train_seconds is not None and not e.method.partial
                else None
            ),
            "found {}, and {}'s clients have to be through; allowed with {allowed}",
            _partial,
        ),
        Row(
            "engine",
            lambda e: named(e.engine, not e.engine.remote),
            "found {}, and the data is with its owners; allowed: {allowed}",
            those(engines, lambda engine: engine.remote),
        ),
        Row(
            "partition",
            lambda e: not e.partition.keeps_owners,
            "each owner is a client: it takes natural, with all of them",
        ),
        Row("model", several_models, "found {}; owners share one model"),
        Row(
            "clock",
            lambda e: e.clock.asynchronous,
            "found an asynchronous one, which is a simulation's; a federation goes round by round",
        ),
        Row(
            "clock",
            lambda e: e.clock.leaves_out,
            "found a deadline or over-selection in simulated time; a federation's are those of engine",
        ),
        Row(
            "clock",
            lambda e: named(e.clock, e.clock.own_protocol),
            "found {}, which changes how a round proceeds; owners are asked once a round, and remember that",
        ),
        Row(
            "checkpoints.keep",
            lambda e: str(e.checkpoints.keep or ""),
            "found {}; owners keep what they remember for the newest checkpoints alone; allowed: 0",
        ),
        Row("faults", lambda e: bool(e.faults), "found some, which are a simulation's"),
        Row(
            "stream",
            lambda e: named(e.stream, e.stream.simulated),
            "found {}, which is a simulation's: real data changes by itself",
        ),
        Row("method", no_clients, "found {}, which takes everybody's samples"),
        Row(
            "method.meta", lambda e: e.method.meta is not None, "the server of a federation holds no samples"
        ),
        Row(
            "measures",
            lambda e: first(measure for measure in e.measures if not measure.remote),
            "found {}, which needs single labels or answers; these stay with the owners",
        ),
    ),
)
"""Data that stays with its owners: what only a simulation can do."""
