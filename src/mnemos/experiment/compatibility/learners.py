"""What doesn't go with several models, with models of the clients' own, or with no clients."""

from __future__ import annotations

from mnemos.experiment.compatibility.asked import forgetting_asked
from mnemos.experiment.compatibility.row import Row, Table, first, named
from mnemos.experiment.experiment import Experiment

CENTRALISED: Table[Experiment] = Table(
    lambda e: not e.method.federated,
    (
        Row("clock", lambda e: named(e.method, e.clock.timed), "it times clients, and {} has none"),
        Row("faults", lambda e: named(e.method, bool(e.faults)), "they are clients', and {} has none"),
    ),
)
"""A method without clients."""


_DIFFER = "forgetting compares clients that were sent the same model, and with mixed models they aren't"

MIXED: Table[Experiment] = Table(
    lambda e: not e.model.shared,
    (
        Row("start", lambda e: e.start.pretrained, "an encoder is one model's, and mixed models are several"),
        Row("evaluate.forgetting", forgetting_asked, _DIFFER),
        Row("measures.{}", lambda e: first(measure for measure in e.measures if measure.in_step), _DIFFER),
    ),
)
"""Several models: what needs one that all clients share."""


_NO_SERVER = "found {}; it takes a server, and peers have none"

PEERS: Table[Experiment] = Table(
    lambda e: e.model.serverless,
    (
        Row(
            "method.rule",
            lambda e: named(e.method.rule, not e.method.rule.declares("is_mean")),
            _NO_SERVER,
        ),
        Row("method", lambda e: named(e.method, e.method.keeps_at_server), _NO_SERVER),
        Row("method.server", lambda e: named(e.method.server, e.method.server.moves != 1), _NO_SERVER),
        Row(
            "method.weighting",
            lambda e: named(e.method.weighting, not e.method.weighting.plain),
            _NO_SERVER,
        ),
        Row("method.meta", lambda e: "a meta step" if e.method.meta is not None else "", _NO_SERVER),
        Row("method.buffers", lambda e: named(e.method.buffers, e.method.buffers.stays), _NO_SERVER),
        Row("screens", lambda e: "screens" if e.screens else "", _NO_SERVER),
        Row("faults", lambda e: first(fault for fault in e.faults if fault.falsifies), _NO_SERVER),
    ),
)
"""Models of the clients' own: what takes a server."""
