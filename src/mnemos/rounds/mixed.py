"""Which client has which model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mnemos import rng
from mnemos.data.partition import Assignment, Floats, Ints
from mnemos.errors import ConfigError
from mnemos.experiment import Experiment
from mnemos.faults.fault import Pretence, Tampering
from mnemos.measures.task_forgetting import TaskForgetting
from mnemos.methods.buffers import KeepServerBuffers
from mnemos.methods.fedavg import Mean, Replace, Samples, Uniform
from mnemos.models.mixed import CoDistillation, Mixed, Share
from mnemos.models.model import Model
from mnemos.starts.start import Random
from mnemos.vector import Layout


@dataclass(frozen=True)
class Cast:
    """The models of a federation, and who has which."""

    models: tuple[Model, ...]
    which: NDArray[np.int16]
    """The place among the models of each client's."""
    mixed: bool = False
    """Whether they are several, or everybody's own."""
    peers: bool = False
    """Whether every client keeps a model of its own."""

    @cached_property
    def branches(self) -> list[int]:
        """The place among the models of each branch's; peers have one each, by model and then by number."""
        return np.sort(self.which).tolist() if self.peers else list(range(len(self.models)))

    @property
    def model(self) -> Model:
        """All that the federation learns, as one model."""
        if len(self.branches) == 1:
            return self.models[0]
        return Mixed(of=tuple(Share(model=self.models[which]) for which in self.branches))

    def members(self, which: int) -> Ints:
        """The clients that have a model."""
        return np.flatnonzero(self.which == which)

    def field(self, which: int) -> str:
        """Where in the experiment a model is described."""
        return f"model.of.{which}.model" if self.mixed else "model"


def cast(experiment: Experiment, clients: int) -> Cast:
    """Who has which model: a matter of the number of clients, the shares and the seed alone."""
    model = experiment.model
    if not isinstance(model, Mixed):
        return Cast((model,), np.zeros(clients, np.int16))
    least = max(len(model.of), 2)
    if clients < least:
        what = "peers" if len(model.of) == 1 else f"{len(model.of)} models"
        raise ConfigError(f"found {what} and {clients} client(s); allowed: at least {least} clients", "model")
    counts = _apportioned(np.array([one.share for one in model.of]), clients)
    which = np.repeat(np.arange(len(counts)), counts).astype(np.int16)
    rng.numpy_generator(experiment.seed, "models").shuffle(which)
    return Cast(tuple(one.model for one in model.of), which, True, model.peers)


def exchange_of(experiment: Experiment) -> CoDistillation | None:
    """How models learn from each other, if they do."""
    return experiment.model.exchange if isinstance(experiment.model, Mixed) else None


def check_mixed(experiment: Experiment) -> None:
    """Refuse what needs one model for all clients or, of peers, a server."""
    if not isinstance(experiment.model, Mixed):
        return
    if not isinstance(experiment.start, Random):
        raise ConfigError("an encoder is one model's, and mixed models are several", "start")
    for asked, field in (
        (bool(experiment.evaluate.forgetting), "evaluate.forgetting"),
        (any(isinstance(one, TaskForgetting) for one in experiment.measures), "measures.task-forgetting"),
    ):
        if asked:
            raise ConfigError(
                "forgetting compares clients that were sent the same model, and with mixed models they "
                "aren't",
                field,
            )
    if experiment.model.peers:
        _check_peers(experiment)


def check_members(sizes: Ints, field: str, *, peers: bool) -> Iterator[str]:
    """Refuse a model that nobody could train; of peers, say how many can't."""
    idle = int(np.count_nonzero(sizes == 0))
    if idle == len(sizes):
        raise ConfigError(f"none of the {idle} client(s) that have it holds a training sample", field)
    if idle and peers:
        yield (
            f"{field}: {idle} of the {len(sizes)} peers that have it hold no training sample; their "
            "untrained models have a say in the ensemble"
        )


def _check_peers(experiment: Experiment) -> None:
    method = experiment.method
    nothing = Layout((), ())
    for wrong, found, field in (
        (bool(method.server_state(nothing)), type(method).name, "method"),
        (not isinstance(method.server, Replace), type(method.server).name, "method.server"),
        (
            not isinstance(method.weighting, Samples | Uniform),
            type(method.weighting).name,
            "method.weighting",
        ),
        (type(method.rule) is not Mean, type(method.rule).name, "method.rule"),
        (method.meta is not None, "a meta step", "method.meta"),
        (type(method.buffers) is KeepServerBuffers, type(method.buffers).name, "method.buffers"),
        (bool(experiment.screens), "screens", "screens"),
        *((isinstance(one, Pretence | Tampering), type(one).name, "faults") for one in experiment.faults),
    ):
        if wrong:
            raise ConfigError(f"found {found}; it takes a server, and peers have none", field)


def _apportioned(shares: Floats, clients: int) -> Ints:
    """How many clients each share comes to: one at least, and what is left over to the largest remainders."""
    exact = shares / shares.sum() * clients
    counts: Ints = np.maximum(np.floor(exact + 1e-9).astype(np.int64), 1)
    while counts.sum() != clients:
        missing = exact - counts
        if counts.sum() < clients:
            counts[missing.argmax()] += 1
        else:  # those that have one for less than one's worth take it from whoever has most above its share
            counts[np.where(counts > 1, missing, np.inf).argmin()] -= 1
    return counts


def held_by(clients: Ints, assignment: Assignment) -> Assignment:
    """What some clients hold, while all others hold nothing."""
    there = np.zeros(assignment.clients, bool)
    there[clients] = True
    sizes = np.where(there, assignment.sizes, 0)
    order = assignment.order[np.repeat(there, assignment.sizes)]
    return replace(assignment, order=order, offsets=np.concatenate([[0], np.cumsum(sizes)]))
