"""What doesn't go with clients that train at their own pace."""

from __future__ import annotations

from mnemos.experiment.compatibility.asked import forgetting_asked, several_models
from mnemos.experiment.compatibility.row import Row, Table, first, named, names
from mnemos.experiment.experiment import Experiment

_SAME = "clients that are sent the same model; under an asynchronous clock they aren't"

ASYNCHRONOUS: Table[Experiment] = Table(
    lambda e: e.clock.asynchronous,
    (
        Row(
            "model", several_models, "found {}; an asynchronous clock is for one model that all clients share"
        ),
        Row(
            "stream.{0}",
            lambda e: e.stream.follows_cohorts,
            "found {1}, which depends on the cohorts of synchronous rounds; allowed with this clock: {2}",
        ),
        Row(
            "method.weighting",
            lambda e: named(e.method.weighting, not e.method.weighting.one_by_one),
            f"found {{}}, which needs {_SAME}",
        ),
        Row(
            "method",
            lambda e: names(part for part in e.method.parts if part.in_step),
            f"found {{}}, made for {_SAME}",
        ),
        Row(
            "clock.applies",
            lambda e: named(e.method.server, e.clock.mixes_models and e.method.server.has_own_mean),
            "found model, which the server step {} can't average; allowed: change",
        ),
        Row(
            "clock.applies",
            lambda e: named(
                e.method.correction, e.clock.mixes_models and not e.method.correction.sends_change
            ),
            "found model, but with correction {} clients send none; allowed: change",
        ),
        Row(
            "selection",
            lambda e: named(e.selection, not e.selection.fixed_size),
            "found {}, which doesn't say how many it draws; a place that is free takes one client",
        ),
        Row(
            "screens",
            lambda e: names(screen for screen in e.screens if screen.in_step),
            f"found {{}}, made for {_SAME}",
        ),
        Row(
            "faults",
            lambda e: any(fault.in_step and not fault.trains for fault in e.faults),
            f"found free riders, who pass for {_SAME}",
        ),
        Row(
            "faults",
            lambda e: any(fault.in_step for fault in e.faults),
            f"found clients that know the updates of a round, of {_SAME}",
        ),
        Row("evaluate.forgetting", forgetting_asked, f"found a measure which needs {_SAME}"),
        Row(
            "measures.{}",
            lambda e: first(measure for measure in e.measures if measure.in_step),
            f"found a measure which needs {_SAME}",
        ),
        Row(
            "min_clients",
            lambda e: str(e.min_clients) if e.min_clients > 1 else "",
            "found {}; an asynchronous server doesn't repeat rounds; allowed with this clock: 1",
        ),
    ),
)
"""Clients that train at their own pace: what takes clients that are sent the same model at the same time."""
