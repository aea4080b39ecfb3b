"""The kinds of parts: what each is for, where it is set, and where its registry is. Imports no registry."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mnemos.common.registry import Registry


@dataclass(frozen=True)
class Kind:
    """A kind of parts."""

    name: str
    """The plural, by which `mnemos list` knows it: that of the registry, and of the group of its plug-ins."""
    one: str
    """One such part, as sentences call it."""
    line: str
    """The question that it answers."""
    use: str
    """How a command line chooses the part `NAME`, after `mnemos run`."""
    registry: str
    """The import path of its registry."""

    def load(self) -> Registry[Any]:
        """The registry, imported."""
        module, _, name = self.registry.partition(":")
        found: Registry[Any] = getattr(import_module(module), name)
        return found


KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            "methods",
            "method",
            "How clients train, and how the server makes one model of theirs.",
            "--method NAME",
            "mnemos.methods.method:methods",
        ),
        Kind(
            "losses",
            "loss",
            "What a client minimises on a batch.",
            "--loss NAME",
            "mnemos.objectives.objective:objectives",
        ),
        Kind(
            "data",
            "data source",
            "The samples: known data sets, and how your own files are read.",
            "--data NAME",
            "mnemos.data.dataset:sources",
        ),
        Kind(
            "partitions",
            "partition",
            "Which samples each client holds.",
            "partition=NAME",
            "mnemos.data.partition:partitions",
        ),
        Kind(
            "streams",
            "stream",
            "Which of its samples a client has in a round.",
            "stream=NAME",
            "mnemos.data.stream:streams",
        ),
        Kind("models", "model", "The network that is trained.", "--model NAME", "mnemos.models.model:models"),
        Kind(
            "starts",
            "start",
            "Where the model's first weights come from.",
            "start=NAME",
            "mnemos.starts.start:starts",
        ),
        Kind(
            "terms",
            "term",
            "What is added to a client's loss.",
            "'method.terms=[NAME]'",
            "mnemos.methods.part:terms",
        ),
        Kind(
            "corrections",
            "correction",
            "How a client's gradient or step is changed.",
            "method.correction=NAME",
            "mnemos.methods.part:corrections",
        ),
        Kind(
            "weightings",
            "weighting",
            "How much each client's update counts.",
            "method.weighting=NAME",
            "mnemos.methods.part:weightings",
        ),
        Kind(
            "rules",
            "rule",
            "How the updates become one: their mean, or a robust rule.",
            "method.rule=NAME",
            "mnemos.methods.part:rules",
        ),
        Kind(
            "mixings",
            "mixing",
            "What a robust rule does with the updates first.",
            "method.rule=median method.rule.before=NAME",
            "mnemos.methods.rules.mixing:mixings",
        ),
        Kind(
            "server-steps",
            "server step",
            "How the aggregate becomes the next model.",
            "method.server=NAME",
            "mnemos.methods.part:server_steps",
        ),
        Kind(
            "buffers",
            "buffer policy",
            "What is done with batch norm's statistics.",
            "method.buffers=NAME",
            "mnemos.methods.part:buffer_policies",
        ),
        Kind(
            "optimizers",
            "optimizer",
            "The optimiser of a client.",
            "local.optimizer=NAME",
            "mnemos.optim.optimizer:optimizers",
        ),
        Kind(
            "schedules",
            "schedule",
            "How the learning rate changes over the rounds.",
            "local.schedule=NAME",
            "mnemos.optim.schedule:schedules",
        ),
        Kind(
            "augmentations",
            "augmentation",
            "How training images are changed at random.",
            "'local.augment=[NAME]'",
            "mnemos.data.augment:augmentations",
        ),
        Kind(
            "selections",
            "selection",
            "How the clients of a round are drawn.",
            "selection=NAME",
            "mnemos.selection:selections",
        ),
        Kind(
            "clocks",
            "clock",
            "Synchronous rounds, or clients that train at their own pace.",
            "clock=NAME",
            "mnemos.clocks.clock:clocks",
        ),
        Kind(
            "staleness",
            "staleness weight",
            "How much a late update counts.",
            "clock=fedbuff clock.staleness=NAME",
            "mnemos.clocks.staleness:staleness",
        ),
        Kind(
            "faults",
            "fault",
            "Clients that fail, cheat or attack.",
            "'faults=[NAME]'",
            "mnemos.faults.fault:faults",
        ),
        Kind(
            "screens",
            "screen",
            "Checks that compare the updates of a round.",
            "'screens=[NAME]'",
            "mnemos.screens.screen:screens",
        ),
        Kind(
            "privacy",
            "privacy",
            "Differential privacy of the clients.",
            "privacy=NAME",
            "mnemos.privacy.privacy:privacies",
        ),
        Kind(
            "measures",
            "measure",
            "What is measured besides accuracy and loss.",
            "'measures=[NAME]'",
            "mnemos.measures.measure:measures",
        ),
        Kind(
            "engines",
            "engine",
            "How a round's clients are trained on this machine or a cluster.",
            "--engine NAME",
            "mnemos.engines.engine:engines",
        ),
        Kind(
            "sinks",
            "sink",
            "Where results are sent besides the run's own files.",
            "--track NAME",
            "mnemos.track.sink:sinks",
        ),
    )
}
"""All kinds by name; where a name belongs to parts of several kinds, the first of these is meant."""


def kind_of(word: str) -> Kind | None:
    """The kind of a word such as `losses`, `loss` or `server steps`; None if there is none."""
    plain = word.lower().replace("_", "-").replace(" ", "-").replace("optimis", "optimiz")
    plain = {"data-sources": "data", "sources": "data", "servers": "server-steps"}.get(plain, plain)
    for kind in KINDS.values():
        if plain in (kind.name, kind.one.replace(" ", "-")):
            return kind
    return None
