"""The round: select, train, screen, aggregate, evaluate, record."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from mnemos import rng
from mnemos.client import fresh_model, has_batch_norm
from mnemos.data.dataset import Dataset
from mnemos.data.load import load
from mnemos.data.partition import Assignment, Ints
from mnemos.engines.engine import Runner, Work
from mnemos.errors import ConfigError, DivergedError
from mnemos.experiment import Experiment
from mnemos.measures.evaluate import Evaluator
from mnemos.measures.measure import Moment, Opening, Record, Scores, Watch
from mnemos.message import Plan, Task
from mnemos.methods.method import Server, State, Update
from mnemos.models.buffers import changed_buffers
from mnemos.models.dropout import draws_globally
from mnemos.vector import Layout

Screen = Callable[[Update, Layout], str | None]
"""Looks at an update before it touches the aggregate: the reason to put it aside, or None."""


@dataclass(frozen=True)
class Outcome:
    """What a round left behind."""

    round: int
    records: list[Record]
    loss: float
    validation: Scores | None
    test: Scores | None


class Federation:
    """A population of clients, a server, and the rounds between them."""

    def __init__(self, experiment: Experiment, screens: tuple[Screen, ...] = ()) -> None:
        self.experiment = experiment
        self.screens = screens
        self.dataset = load(experiment.data)
        self.assignment = deal(experiment, self.dataset)
        self.cohort_size, self._eligible = _participants(experiment, self.assignment)
        module = _model(experiment.plan, self.dataset)
        _check(experiment, self.dataset, self.assignment, module)
        self.layout = Layout.of(module)
        self.method = experiment.method
        model, buffers = self.layout.gather(module.state_dict())
        self.server = Server(model, buffers, self.method.server_state(self.layout))
        self.states: dict[int, State] = {}
        self.round = 0
        self._evaluator = Evaluator(module, self.dataset)
        self._held_out = torch.from_numpy(self.assignment.union_held_out())

    def open(self) -> Runner:
        """The engine, ready to run cohorts."""
        work = Work(self.cohort_size, self.experiment.rounds)
        return self.experiment.engine.open(self.experiment.plan, self.dataset, work)

    def advance(self, runner: Runner) -> Outcome:
        """One round."""
        number = self.round + 1
        fold = self.method.server.fold(self.layout)
        records: list[Record] = []
        loss, samples, sent = 0.0, 0, 0
        states: dict[int, State] = {}
        watches = self._watches(number)
        for update in runner.run(self._tasks(number, runner)):
            reason = next(filter(None, (screen(update, self.layout) for screen in self.screens)), None)
            if reason is not None:
                records.append(Record(number, f"rejected: {reason}", 1.0, client=update.client))
                continue
            for watch in watches:
                watch.see(update.client, self.server.model + update.delta, update.buffers)
            fold.add(update, self.method.weighting.weigh(update, self.layout))
            if update.state:
                states[update.client] = update.state
            records.append(Record(number, "train_loss", update.loss, client=update.client))
            loss += update.loss * update.samples
            samples += update.samples
            sent += _bytes(update.delta, update.buffers, *update.change.values())
        if not samples:
            raise DivergedError(f"round {number}: no update of the {self.cohort_size} clients could be used")
        aggregate = fold.result()
        share = aggregate.clients / self.assignment.clients
        server = self.method.server_step(self.server, replace(aggregate, share=share))
        if not all(bool(torch.isfinite(part).all()) for part in (server.model, server.buffers)):
            raise DivergedError(
                f"round {number}: the model is not finite any more; a smaller local.lr may help"
            )
        self.server, self.round = server, number
        self.states.update(states)
        received = _bytes(
            self.server.model, self.server.buffers, *self.method.broadcast(self.server).values()
        )
        records += [
            Record(number, "train_loss", loss / samples),
            Record(number, "bytes_up", float(sent)),
            Record(number, "bytes_down", float(received * self.cohort_size)),
        ]
        for watch in watches:
            records += watch.records()
        validation, test = self._evaluate(number)
        records += self._measure(number, validation, test)
        return Outcome(number, records, loss / samples, validation, test)

    def close(self) -> None:
        """Let go of threads."""
        self._evaluator.close()

    def cohort(self, number: int) -> Ints:
        """The clients of a round."""
        generator = rng.numpy_generator(self.experiment.seed, "selection", number)
        return self.experiment.selection.select(self._eligible, self.cohort_size, generator)

    def _tasks(self, number: int, runner: Runner) -> Iterator[Task]:
        received = self.method.broadcast(self.server)
        fresh = self.method.client_state(self.layout)
        noise = self.assignment.noise
        for client in self.cohort(number).tolist():
            samples = self.experiment.stream.samples(self.assignment, client, number)
            yield Task(
                plan=runner.plan,
                round=number,
                client=client,
                model=self.server.model,
                buffers=self.server.buffers,
                received=received,
                state=self.states.get(client, fresh),
                samples=torch.from_numpy(np.ascontiguousarray(samples)),
                held_out=torch.from_numpy(np.ascontiguousarray(self.assignment.held_out(client))),
                noise=0.0 if noise is None else float(noise[client]),
            )

    def _watches(self, number: int) -> list[Watch]:
        opening = Opening(
            number,
            self.experiment.rounds,
            self.server.model,
            self.server.buffers,
            self.assignment,
            self.cohort(number),
            lambda model, buffers, indices: self._evaluator(model, buffers, self.dataset.train, indices),
        )
        watches = (measure.watch(opening) for measure in self.experiment.watching)
        return [watch for watch in watches if watch is not None]

    def _evaluate(self, number: int) -> tuple[Scores | None, Scores | None]:
        when, last = self.experiment.evaluate, self.experiment.rounds
        validation = test = None
        if len(self._held_out) and (number % when.every == 0 or number == last):
            validation = self._scores(self._held_out)
        if len(self.dataset.test) and number > last - when.test_last:
            test = self._scores(None)
        return validation, test

    def _scores(self, held_out: Tensor | None) -> Scores:
        split = self.dataset.test if held_out is None else self.dataset.train
        return self._evaluator(self.server.model, self.server.buffers, split, held_out)

    def _measure(self, number: int, validation: Scores | None, test: Scores | None) -> Iterator[Record]:
        if validation is None and test is None:
            return
        for part, scores in (("validation", validation), ("test", test)):
            if scores is not None:
                yield Record(number, f"{part}_accuracy", scores.accuracy)
                yield Record(number, f"{part}_loss", scores.loss)
        moment = Moment(
            number,
            self.server.model,
            self.server.buffers,
            self.layout,
            self.assignment,
            self._held_out.numpy(),
            validation,
            test,
        )
        for measure in self.experiment.measures:
            yield from measure.records(moment)


def deal(experiment: Experiment, dataset: Dataset) -> Assignment:
    """Who holds which sample in an experiment."""
    owners = dataset.train.owners
    generator = rng.numpy_generator(experiment.seed, "partition")
    try:
        return experiment.partition.split(
            dataset.train.labels.numpy(), None if owners is None else owners.numpy(), generator
        )
    except ConfigError as error:
        raise error.under("partition") from None


def _model(plan: Plan, dataset: Dataset) -> nn.Module:
    try:
        module = fresh_model(plan, dataset)
        _check_model(module, dataset.shape)
    except ConfigError as error:
        raise error.under("model") from None
    return module


def _check_model(module: nn.Module, shape: tuple[int, ...]) -> None:
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


def _participants(experiment: Experiment, assignment: Assignment) -> tuple[int, Ints | int]:
    """How many clients take part in a round, and who may: everyone who has something to train on."""
    sizes = assignment.train_sizes()
    eligible: Ints | int = assignment.clients if sizes.min() > 0 else np.flatnonzero(sizes)
    count = eligible if isinstance(eligible, int) else len(eligible)
    size = math.floor(experiment.participation * assignment.clients + 1e-9)
    if size < 1:
        raise ConfigError(
            f"found {experiment.participation}, which selects nobody of {assignment.clients} clients; "
            f"allowed: at least {1 / assignment.clients:.3g}",
            "participation",
        )
    if count == 0:
        raise ConfigError("no client has a training sample; take fewer clients", "partition")
    return min(size, count), eligible


def _check(experiment: Experiment, dataset: Dataset, assignment: Assignment, module: nn.Module) -> None:
    """Contradictions that only show when experiment, data and model come together."""
    local = experiment.local
    if local.augment and len(dataset.shape) != 3:
        raise ConfigError(f"{dataset.name} has no images but vectors of {dataset.shape}", "local.augment")
    for part in local.augment:
        try:
            part.draw(1, dataset.shape, torch.Generator())  # type: ignore[arg-type]
        except ConfigError as error:
            raise error.under("local.augment") from None
    if experiment.evaluate.forgetting and not len(assignment.union_held_out()):
        raise ConfigError(
            "forgetting is measured on validation data, and no client holds any; raise partition.validation",
            "evaluate.forgetting",
        )
    if has_batch_norm(module):
        if local.batch == 1:
            raise ConfigError("found 1, but batch-norm needs at least 2 samples a batch", "local.batch")
        lonely = np.flatnonzero(assignment.train_sizes() == 1)
        if len(lonely):
            raise ConfigError(
                f"client {lonely[0]} has one training sample ({len(lonely)} clients have), but batch-norm "
                "needs at least 2; take fewer clients or another model.norm",
                "partition",
            )


def _bytes(*tensors: Tensor) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
