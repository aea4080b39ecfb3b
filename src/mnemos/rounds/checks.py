"""What is wrong, or known to hurt, about an experiment; said before any training."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

from mnemos.client import has_batch_norm
from mnemos.clocks.asynchronous import Asynchronous
from mnemos.data.dataset import Dataset
from mnemos.data.partition import Assignment, Ints, label_skew
from mnemos.data.stream import Flow
from mnemos.errors import ConfigError
from mnemos.experiment import Experiment
from mnemos.faults.fault import Pretence
from mnemos.local import Local
from mnemos.measures.measure import Occasions
from mnemos.methods.buffers import AverageBuffers, KeepServerBuffers
from mnemos.methods.fedavg import Replace
from mnemos.methods.fedspace import Mix, MixBuffers
from mnemos.models.buffers import changed_buffers
from mnemos.models.dropout import draws_globally
from mnemos.models.features import features_and_logits
from mnemos.objectives.ce import CrossEntropy
from mnemos.registry import Part
from mnemos.rounds.mixed import exchange_of
from mnemos.vector import Layout


def check_model(module: nn.Module, shape: tuple[int, ...]) -> None:
    """Refuse a model that can't be trained, or not repeatably."""
    layout = Layout.of(module)
    if layout.size == 0:
        raise ConfigError("it has no parameters to train")
    try:
        draws = draws_globally(module, shape)
        changed = changed_buffers(module.train(), shape)
    except Exception as error:
        raise ConfigError(
            f"its forward pass fails in training mode ({type(error).__name__}: {error})"
        ) from error
    if draws:
        raise ConfigError(
            "its forward pass draws from the global random generator, so no result could be repeated; "
            "use nn.Dropout layers instead of functional dropout"
        )
    outside = set(changed) - {slot.name for slot in layout.buffers}
    if outside:
        raise ConfigError(
            f"training changes its buffer '{min(outside)}', which clients would share; "
            "register it as a persistent floating-point buffer"
        )


def check(
    experiment: Experiment,
    local: Local,
    dataset: Dataset,
    assignment: Assignment,
    loads: Ints,
    module: nn.Module,
    field: str = "model",
) -> None:
    """Contradictions that only show when experiment, data and model (of this field) come together."""
    layout = Layout.of(module)
    experiment.method.head.check(dataset.shape)
    experiment.method.check(layout, local, len(dataset.classes))
    _check_optimizer(experiment.rounds, local, layout)
    if experiment.method.wants_features:
        try:
            features_and_logits(module, torch.zeros(2, *dataset.shape))
        except ConfigError as error:
            raise error.under("method.terms") from None
    if local.augment and len(dataset.shape) != 3:
        raise ConfigError(f"{dataset.name} has no images but vectors of {dataset.shape}", "local.augment")
    for part in local.augment:
        try:
            part.draw(1, dataset.shape, torch.Generator())  # type: ignore[arg-type]
        except ConfigError as error:
            raise error.under("local.augment") from None
    surveying = [type(part).name for part in experiment.method.parts if part.surveys is not None]
    if surveying and any(isinstance(fault, Pretence) for fault in experiment.faults):
        raise ConfigError(
            f"{surveying[0]} passes over a client's data, which one that doesn't train can't pretend",
            "faults",
        )
    if experiment.evaluate.forgetting and not len(assignment.union_held_out()):
        raise ConfigError(
            "forgetting is measured on validation data, and no client holds any; raise partition.validation",
            "evaluate.forgetting",
        )
    if has_batch_norm(module):
        if local.batch == 1:
            raise ConfigError("found 1, but batch-norm needs at least 2 samples a batch", "local.batch")
        meta, exchange = experiment.method.meta, exchange_of(experiment)
        if meta is not None and meta.samples == 1:
            raise ConfigError("found 1, but batch-norm needs at least 2", "method.meta.samples")
        if exchange is not None and exchange.samples == 1 and experiment.method.buffers.in_batches:
            raise ConfigError("found 1, but batch-norm needs at least 2", "model.exchange.samples")
        lonely = np.flatnonzero((loads == 1).any(axis=1))
        if len(lonely) and not local.fill:
            task = "" if loads.shape[1] == 1 else " of a task"
            raise ConfigError(
                f"client {lonely[0]} has one training sample{task} ({len(lonely)} clients have), but "
                "batch-norm needs at least 2; take fewer clients, local.fill=true or "
                f"another {field}.norm",
                "partition",
            )


def check_measures(experiment: Experiment, dataset: Dataset, flow: Flow, layout: Layout) -> None:
    """Refuse measures that would have nothing to measure."""
    when, rounds = experiment.evaluate, range(1, experiment.rounds + 1)
    held_out = len(flow.assignment.union_held_out())
    validations = sum(when.validates(number, experiment.rounds) for number in rounds) if held_out else 0
    tests = sum(when.tests(number, experiment.rounds) for number in rounds) if len(dataset.test) else 0
    for measure in experiment.measures:
        try:
            measure.check(Occasions(flow, validations, tests, len(dataset.test), layout))
        except ConfigError as error:
            raise error.under(f"measures.{type(measure).name}") from None


def check_company(experiment: Experiment, cohort: int) -> None:
    """Refuse rounds that take more clients than they have."""
    fewest = experiment.min_clients
    if isinstance(experiment.clock, Asynchronous) and fewest > 1:
        raise ConfigError(
            f"found {fewest}; an asynchronous server doesn't repeat rounds; allowed with this clock: 1",
            "min_clients",
        )
    if fewest > cohort:
        raise ConfigError(
            f"found {fewest}, and a round has {cohort} clients (participation); allowed: 1 to {cohort}",
            "min_clients",
        )


def comparing(experiment: Experiment, updates: float, field: str = "model") -> Iterator[str]:
    """Screens and rules that have too few updates to compare: so many in a round, of the model of a field."""
    has = f"a round has {updates:.3g}" + (f" of {field}, on average" if field != "model" else "")
    for screen in experiment.screens:
        if updates < screen.fewest:
            then = (
                f"it goes by earlier rounds, too, and believes the first {screen.fewest - 1}"
                if screen.remembers
                else "nobody will be put aside"
            )
            yield (
                f"screens: {type(screen).name} compares {screen.fewest} updates at least, and {has}: {then}"
            )
    rule = experiment.method.rule
    if updates < rule.fewest:
        yield (
            f"method.rule: {type(rule).name} takes {rule.fewest} updates at least to tell a bad one from the "
            f"others, and {has}: a bad one counts like any other"
        )


def _check_optimizer(rounds: int, local: Local, layout: Layout) -> None:
    try:
        local.optimizer.check(layout, kept=local.keeps, decay=local.weight_decay)
    except ConfigError as error:
        raise error.under("local.optimizer") from None
    # The first steps of the last round have its highest rate.
    if not local.lr * local.schedule.factor(rounds, 0, local.epochs):
        raise ConfigError(
            f"the rate is 0 before the last round, {rounds}; a floor or another length avoids it",
            "local.schedule",
        )


_SKEWED = 0.5
"""Mean distance (total variation) of the clients' label distributions from the federation's."""


def warnings(
    experiment: Experiment,
    local: Local,
    dataset: Dataset,
    assignment: Assignment,
    loads: Ints,
    module: nn.Module,
    field: str = "model",
) -> tuple[str, ...]:
    """Combinations that are known to hurt."""
    found = []
    method = experiment.method
    if has_batch_norm(module) and isinstance(method.loss, CrossEntropy) and not dataset.remote:
        skew = label_skew(dataset.train.labels.numpy(), assignment)
        if skew > _SKEWED:
            found.append(
                "batch-norm with plain cross-entropy is known to fail on clients whose labels differ this "
                f"much (mean distance {skew:.2f} of at most 1); {field}.norm=group or method.loss=wsm may "
                "help"
            )
    if has_batch_norm(module) and type(method.buffers) is KeepServerBuffers:
        found.append(
            "method.buffers=server never updates batch-norm's statistics: the global model is evaluated "
            "with those it began with"
        )
    if has_batch_norm(module) and isinstance(method.server, Replace | Mix):
        moved, mixed = _rho(method.server), _rho(method.buffers)
        if isinstance(method.buffers, AverageBuffers | MixBuffers) and moved != mixed:
            found.append(
                f"the server moves models with ρ = {moved:g} and batch-norm's statistics with ρ = {mixed:g}; "
                "method.server and method.buffers should agree"
            )
    surveying = [type(part).name for part in method.parts if part.surveys == "end"]
    if has_batch_norm(module) and surveying and not method.buffers.sent:
        found.append(
            f"{surveying[0]} passes over a client's data with batch-norm's running statistics, which "
            f"method.buffers={type(method.buffers).name} never renews"
        )
    if method.loss.counted == "tasks" and loads.shape[1] == 1:
        found.append(
            f"method.loss={type(method.loss).name} leaves out the classes of tasks to come, and there are no "
            "tasks: it is plain cross-entropy; a stream of tasks would make the difference"
        )
    asked = experiment.evaluate.forgetting
    if isinstance(asked, tuple) and asked and min(asked) > experiment.rounds:
        found.append(f"evaluate.forgetting begins with round {min(asked)}, and there are {experiment.rounds}")
    return (*found, *_about_epochs(local, loads), *method.warnings(local))


def _rho(part: Part) -> float:
    """How far towards the mean something moves."""
    return part.rho if isinstance(part, Mix | MixBuffers) else 1.0


def _about_epochs(local: Local, loads: Ints) -> Iterator[str]:
    """What rounds of a few steps, or of one epoch, mean for parts that go by local epochs."""
    if not (local.optimizer.counts_epochs or local.schedule.counts_epochs):
        return
    batches = np.ceil(loads[loads.max(axis=1) > 0] / local.batch)
    short = 0 if local.steps is None else int((batches > local.steps).any(axis=1).sum())
    if short:
        yield (
            f"local.steps={local.steps} is less than a pass over the samples of {short} of {len(batches)} "
            "clients; such a round counts as one local epoch"
        )
    epochs = local.epochs if local.steps is None else int((local.steps // batches[batches > 0]).max())
    if local.optimizer.counts_epochs and not local.keeps and epochs <= 1:
        yield (
            f"{type(local.optimizer).name} learns at the end of a local epoch, and there is one in a round: "
            "what it learns is lost unless local.optimizer_state=kept"
        )
