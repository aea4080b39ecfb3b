"""What doesn't go with a promise about clients' data."""

from __future__ import annotations

from mnemos.clocks.clock import Clock, clocks
from mnemos.experiment.compatibility.asked import forgetting_asked, no_clients, several_models
from mnemos.experiment.compatibility.row import Row, Table, first, named, those
from mnemos.experiment.experiment import Experiment
from mnemos.methods.part import rules, weightings
from mnemos.selection import selections

_SENT = "would be sent each other's models, which have no noise; allowed with privacy in a federation: none"

PRIVATE: Table[Experiment] = Table(
    lambda e: e.privacy.private,
    (
        Row("method", no_clients, "found {}, which has no clients whose data could be private"),
        Row("model", several_models, "found {}; privacy is for one model that all clients share"),
        Row(
            "clock",
            lambda e: named(e.clock, e.clock.asynchronous),
            "found {}, under which a client's update counts by when it arrives; allowed with privacy: "
            "{allowed}",
            those(clocks, lambda clock: not clock.asynchronous and clock.protocol is Clock.protocol),
        ),
        Row(
            "clock",
            lambda e: named(e.clock, e.clock.own_protocol),
            "found {}, which changes how a round proceeds, and ε knows only of the usual one; allowed with "
            "privacy: {allowed}",
            those(clocks, lambda clock: not clock.asynchronous and clock.protocol is Clock.protocol),
        ),
        Row(
            "{}.over_selection",
            lambda e: ("engine" if e.engine.remote else "clock") if e.over_selection > 0 else "",
            "found some: one client's speed would decide whether another one counts; allowed with privacy: 0",
        ),
        Row(
            "method.weighting",
            lambda e: named(e.method.weighting, not e.method.weighting.declares("equal")),
            "found {}, by which a client's data decide how much it counts; allowed with privacy: {allowed}",
            those(weightings, lambda weighting: weighting.declares("equal")),
        ),
        Row(
            "method.rule",
            lambda e: named(e.method.rule, not e.method.rule.declares("is_mean")),
            "found {}, which depends on how clients differ, and noise is scaled for a sum; allowed with "
            "privacy: {allowed}",
            those(rules, lambda rule: rule.declares("is_mean")),
        ),
        Row(
            "method.server",
            lambda e: named(e.method.server, e.method.server.has_own_mean),
            "found {}, which has a mean of its own; noise is scaled for a plain one",
        ),
        Row(
            "screens",
            lambda e: bool(e.screens),
            "found some, which compare clients: whom they put aside tells of the others' data",
        ),
        Row(
            "privacy.secret",
            lambda e: e.data.stays_with_owners and not e.privacy.keyed,
            "found false: noise and cohorts would be drawn with the seed that all owners are sent; allowed "
            "in a federation: true",
        ),
        Row(
            "evaluate.forgetting",
            lambda e: e.data.stays_with_owners and forgetting_asked(e),
            f"found some, for which owners {_SENT}",
        ),
        Row(
            "measures",
            lambda e: e.data.stays_with_owners and first(m for m in e.measures if m.watches),
            f"found {{}}, for which owners {_SENT}",
        ),
        Row(
            "selection",
            lambda e: named(e.selection, not e.selection.declares("private")),
            "found {}, for whose cohorts no bound on ε is known; allowed with privacy: {allowed}",
            those(selections, lambda selection: selection.declares("private")),
        ),
    ),
)
"""Privacy: what lets a client change the sum by more than its bounded update, and noise that is known."""
