"""What can't be trained, once experiment, data and model come together."""

from __future__ import annotations

import torch

from mnemos.data.dataset import Dataset
from mnemos.data.stream import Flow
from mnemos.errors import ConfigError, naming
from mnemos.experiment.compatibility.row import Row, Table, always, first, named, refuse, those
from mnemos.experiment.compatibility.setup import Setup
from mnemos.experiment.experiment import Experiment
from mnemos.measures.measure import Occasions
from mnemos.methods.part import buffer_policies
from mnemos.models.checks import check_features, check_model
from mnemos.vector import Layout

MEMBERS: Table[Setup] = Table(
    always,
    (
        Row(
            "{0}",
            lambda s: (s.field, str(s.idle)) if s.idle == len(s.members) else None,
            "none of the {1} client(s) that have it holds a training sample",
        ),
    ),
)
"""A model that no client could train."""


def _beside(setup: Setup) -> tuple[str, str] | None:
    """The first part with which clients send something beside the model, and the name of that."""
    for part in setup.experiment.method.parts:
        if sent := part.sends(setup.layout):
            return part.name, min(sent)
    return None


def _statistics(setup: Setup) -> tuple[str, str] | None:
    """The policy by which clients send buffers, and the first of these."""
    policy, buffers = setup.experiment.method.buffers, setup.layout.buffers
    return (policy.name, buffers[0].name) if policy.sent and setup.layout.buffer_size else None


UPLOADS: Table[Setup] = Table(
    lambda s: s.experiment.privacy.private,
    (
        Row(
            "method",
            _beside,
            "found {}, with which a client also sends {}; noise on updates doesn't cover that",
        ),
        Row(
            "method.buffers",
            _statistics,
            "found {}: clients would send '{}' and other statistics of their data as they are; allowed with "
            "privacy: {allowed}, or a model without",
            those(buffer_policies, lambda policy: not policy.sent),
        ),
    ),
)
"""Privacy: what clients would send beside an update of bounded length."""


SAMPLES: Table[Setup] = Table(
    always,
    (
        Row(
            "local.augment",
            lambda s: (
                (s.dataset.name, _others(s.dataset)) if s.local.augment and not _images(s.dataset) else None
            ),
            "{} has no images but {}",
        ),
        Row(
            "method",
            lambda s: _texts(s, first(part for part in s.experiment.method.parts if part.changes_samples)),
            "found {}, which changes the numbers of samples a little, and {} has texts",
        ),
        Row(
            "partition.name",
            lambda s: _texts(s, named(s.experiment.partition, s.flow.assignment.noise is not None)),
            "found {}, which adds noise to the numbers of samples, and {} has texts",
        ),
        Row(
            "evaluate.forgetting",
            lambda s: bool(s.experiment.evaluate.forgetting) and not len(s.held.union_held_out()),
            "forgetting is measured on validation data, and no client holds any; raise partition.validation",
        ),
    ),
)
"""Samples that aren't there."""


def _images(dataset: Dataset) -> bool:
    """Whether samples are images: channels, height and width."""
    return len(dataset.shape) == 3


def _others(dataset: Dataset) -> str:
    """What samples are that aren't images."""
    return "texts" if dataset.vocabulary is not None else f"vectors of {dataset.shape}"


def _texts(setup: Setup, part: str) -> tuple[str, str] | None:
    """The name of a part that can't work with texts, and of the data; None if there is none, or no texts."""
    return (part, setup.dataset.name) if part and setup.dataset.vocabulary is not None else None


def _one_to_learn_from(setup: Setup) -> bool:
    """Whether the server's correction of the model has one sample."""
    meta = setup.experiment.method.meta
    return meta is not None and meta.samples == 1


def _one_to_exchange(setup: Setup) -> bool:
    """Whether models learn from each other's statistics of one sample."""
    experiment = setup.experiment
    return experiment.model.exchange_samples == 1 and experiment.method.buffers.in_batches


def _one_sample(setup: Setup) -> tuple[str, ...] | None:
    """The first client that has one sample, and how many have; where one isn't filled up to a batch."""
    lonely = setup.lonely
    if not len(lonely) or setup.local.fill:
        return None
    task = "" if setup.loads.shape[1] == 1 else " of a task"
    return str(lonely[0]), task, str(len(lonely)), setup.field


BATCH_NORM: Table[Setup] = Table(
    lambda s: s.batch_norm,
    (
        Row(
            "local.batch",
            lambda s: s.local.batch == 1,
            "found 1, but batch-norm needs at least 2 samples a batch",
        ),
        Row("method.meta.samples", _one_to_learn_from, "found 1, but batch-norm needs at least 2"),
        Row("model.exchange.samples", _one_to_exchange, "found 1, but batch-norm needs at least 2"),
        Row(
            "partition",
            _one_sample,
            "client {0} has one training sample{1} ({2} clients have), but batch-norm needs at least 2; take "
            "fewer clients, local.fill=true or another {3}.norm",
        ),
    ),
)
"""Batch-norm: batches of one sample, which have no variance."""


def check(setup: Setup) -> None:
    """Refuse, with a `ConfigError`, a model that its clients can't train as the experiment says."""
    with naming(setup.field):
        check_model(setup.module, setup.dataset.shape)
    refuse((MEMBERS, UPLOADS), setup)
    _ask_parts(setup)
    refuse((SAMPLES, BATCH_NORM), setup)


def _ask_parts(setup: Setup) -> None:
    """Let parts refuse what they can't work with themselves."""
    experiment, local, layout = setup.experiment, setup.local, setup.layout
    method, shape, classes = experiment.method, setup.dataset.shape, len(setup.dataset.classes)
    method.head.check(shape)
    method.check(layout, local, classes)
    with naming("local.optimizer"):
        local.optimizer.check(layout, kept=local.keeps, decay=local.weight_decay)
    # The first steps of the last round have its highest rate.
    if not local.lr * local.schedule.factor(experiment.rounds, 0, local.epochs):
        raise ConfigError(
            f"the rate is 0 before the last round, {experiment.rounds}; a floor or another length avoids it",
            "local.schedule",
        )
    if method.wants_features:
        with naming("method.terms"):
            check_features(setup.module, shape)
    if len(shape) == 3:  # where there are no images, a row says so
        with naming("local.augment"):
            for part in local.augment:
                part.draw(1, shape, torch.Generator())
    for position, fault in enumerate(experiment.faults):
        with naming(f"faults.{position}"):
            fault.check_population(setup.held.clients)
            fault.check(layout, method.sends(layout), classes)


def check_measures(experiment: Experiment, dataset: Dataset, flow: Flow, layout: Layout) -> None:
    """Refuse measures that would have nothing to measure."""
    when, rounds = experiment.evaluate, range(1, experiment.rounds + 1)
    held_out = len(flow.assignment.union_held_out())
    validations = sum(when.validates(round, experiment.rounds) for round in rounds) if held_out else 0
    tests = sum(when.tests(round, experiment.rounds) for round in rounds) if len(dataset.test) else 0
    for measure in experiment.measures:
        with naming(f"measures.{measure.name}"):
            measure.check(Occasions(flow, validations, tests, len(dataset.test), layout))


def check_company(experiment: Experiment, cohort: int) -> None:
    """Refuse rounds that take more updates than they have clients."""
    fewest = experiment.min_clients
    if fewest > cohort:
        raise ConfigError(
            f"found {fewest}, and a round has {cohort} clients (participation); allowed: 1 to {cohort}",
            "min_clients",
        )
