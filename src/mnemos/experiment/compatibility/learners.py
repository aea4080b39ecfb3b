"""What doesn't go with several models, models of the clients' own, clients that send none, or no clients."""

from __future__ import annotations

from mnemos.experiment.compatibility.asked import forgetting_asked
from mnemos.experiment.compatibility.row import Row, Table, first, named, names
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
        Row(
            "measures.{}",
            lambda e: first(measure for measure in e.measures if measure.one_server),
            "it follows the one model of a server, and mixed models are several",
        ),
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


def _sender(experiment: Experiment, wrong: bool) -> str:
    """The name of the correction with which clients send something else than a change of their model."""
    return named(experiment.method.correction, wrong)


def _watching(experiment: Experiment) -> tuple[str, str] | None:
    """The first measure that looks at clients' models, and the correction with which they send none."""
    found = first(measure for measure in experiment.measures if measure.watches)
    return (found, _sender(experiment, True)) if found else None


def _taken(experiment: Experiment) -> tuple[str, str] | None:
    """The parts that take what clients send for their model, and the correction with which it isn't."""
    found = names(part for part in experiment.method.parts if part.takes_models)
    return (found, _sender(experiment, True)) if found else None


GRADIENTS: Table[Experiment] = Table(
    lambda e: not e.method.correction.sends_change,
    (
        Row(
            "evaluate.forgetting",
            lambda e: _sender(e, forgetting_asked(e)),
            "found some, which is measured on clients' models, and with correction {} clients send none; "
            "allowed: 0",
        ),
        Row(
            "measures.{0}",
            _watching,
            "found a measure of clients' models, and with correction {1} clients send none; allowed: "
            "measures of the global model",
        ),
        Row(
            "method",
            _taken,
            "found {0}, made for clients that send a change of their model, and with correction {1} they "
            "send none; allowed: parts that take any vector",
        ),
    ),
)
"""Clients that send a gradient, or anything else that isn't a change of their model."""
