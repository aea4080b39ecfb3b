"""The round: select, train, screen, aggregate, evaluate, record."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from mnemos import rng
from mnemos.arrivals import Arrivals, Check
from mnemos.checks import check, check_model, warnings
from mnemos.client import fresh_model, kept
from mnemos.data.dataset import Dataset
from mnemos.data.load import load
from mnemos.data.partition import Assignment, Ints
from mnemos.data.streams import training_counts
from mnemos.engines.engine import Runner, Work
from mnemos.errors import ConfigError, DivergedError
from mnemos.experiment import Experiment
from mnemos.measures.evaluate import Evaluator
from mnemos.measures.measure import Moment, Opening, Record, Scores, Watch
from mnemos.message import Plan, Task
from mnemos.meta import MetaStep, drawn
from mnemos.methods.exchange import Cohort, Fold, Server, State, Update
from mnemos.ranks.spectra import ranked
from mnemos.states import States
from mnemos.vector import Layout

_BUFFERS = "buffers"
_LAST = "federation.last"
"""The model's change in the round before, which faults and screens go by; zero before the first."""


@dataclass(frozen=True)
class Outcome:
    """What a round left behind."""

    round: int
    records: list[Record]
    loss: float
    validation: Scores | None
    test: Scores | None
    stuck: str = ""
    """Why there is no point in going on; empty, as a rule."""


class Federation:
    """A population of clients, a server, and the rounds between them."""

    def __init__(self, experiment: Experiment, checks: tuple[Check, ...] = ()) -> None:
        self.experiment = experiment
        self.checks = checks
        self.dataset = load(experiment.data)
        clients = deal(experiment, self.dataset)
        self.cohort_size, self._eligible = _participants(experiment, clients)
        plan = experiment.plan
        local, self.assignment = experiment.method.arrange(plan.local, clients, self.cohort_size)
        self.plan = plan.model_copy(update={"local": local})
        if self.assignment is not clients:  # others learn than those who were dealt samples: all of them
            self.cohort_size = self._eligible = self.assignment.clients
        self._population = self._eligible if isinstance(self._eligible, int) else len(self._eligible)
        module = _model(self.plan, self.dataset)
        check(experiment, self.dataset, self.assignment, module)
        self.layout = Layout.of(module)
        self.method = experiment.method
        model, buffers = self.layout.gather(module.state_dict())
        self.server = Server(model, buffers, self.method.server_state(self.layout))
        if experiment.faults or experiment.screens:
            self.server = self.server.moved(model, {_LAST: self.layout.zeros()})
        self._arrivals = Arrivals(experiment, self.dataset, self.layout, self.assignment.clients)
        meta = self.method.meta
        self._meta = None if meta is None else MetaStep(self.plan, meta, self.dataset)
        optimizer = kept(local, local.optimizer.init(model, self.layout))
        state = {**self.method.client_state(self.layout), **optimizer}
        self.states = States(self._remembered(state, buffers))
        self.round = 0
        self.at_chance_since: int | None = None
        self.warnings = warnings(experiment, self.dataset, self.assignment, module)
        self._evaluator = Evaluator(module, self.dataset, self.method.buffers.in_batches)
        self._held_out = torch.from_numpy(self.assignment.union_held_out())

    def open(self) -> Runner:
        """The engine, ready to run cohorts."""
        work = Work(self.cohort_size, self.experiment.rounds)
        return self.experiment.engine.open(self.plan, self.dataset, work)

    def advance(self, runner: Runner) -> Outcome:
        """One round."""
        number = self.round + 1
        fold = self.method.server.fold(self.layout)
        records: list[Record] = []
        loss, samples, sent, arrived, used = 0.0, 0, 0, 0, 0
        self.states.drop()  # of a round that was broken off
        watches = self._watches(number)
        compared: list[Update] = []
        tasks, last = self._tasks(number, runner), self.server.state.get(_LAST, self.server.model[:0])
        for client, update, trained, reason in self._arrivals.of(
            runner, tasks, self.server.model, last, self.checks
        ):
            if update is None:
                records.append(Record(number, "dropped", 1.0, client=client))
                continue
            arrived += 1
            sent += _bytes(update.delta, *update.change.values())
            sent += _bytes(update.buffers) if self.method.buffers.sent else 0
            if reason is not None:
                records.append(Record(number, f"rejected: {reason}", 1.0, client=update.client))
                continue
            for watch in watches:
                buffers = update.buffers if self.method.buffers.sent else self.server.buffers
                watch.see(update.client, self.server.model + update.delta, buffers)
            if self.method.weighting.compares:
                compared.append(update)
            else:
                fold.add(update, self.method.weighting.weigh(update, self.layout))
            used += 1
            if not trained:
                continue  # it has neither a loss nor anything to remember
            self.states.hold(update.client, self._remembered(update.state, update.buffers))
            records.append(Record(number, "train_loss", update.loss, client=update.client))
            loss += update.loss * update.samples
            samples += update.samples
        if arrived and not used:
            raise DivergedError(f"round {number}: no update of the {self.cohort_size} clients could be used")
        records += self._compare(number, tuple(compared), fold)
        server = self._next(fold) if used else self.server
        finite = all(bool(torch.isfinite(part).all()) for part in (server.model, server.buffers))
        if not (finite and math.isfinite(loss)):
            what = "training loss" if finite else "model"
            raise DivergedError(
                f"round {number}: the {what} is not finite any more; a smaller local.lr may help"
            )
        self.server, self.round = server, number
        self.states.commit(number)
        received = _bytes(self.server.model, *self.method.broadcast(self.server).values())
        received += _bytes(self.server.buffers) if self.method.buffers.received else 0
        mean = loss / samples if samples else math.nan  # of a round in which nobody has trained
        if samples:
            records.append(Record(number, "train_loss", mean))
        records += [
            Record(number, "bytes_up", float(sent)),
            Record(number, "bytes_down", float(received * self.cohort_size)),
        ]
        for watch in watches:
            records += watch.records()
        validation, test = self._evaluate(number)
        records += self._measure(number, validation, test)
        stuck = self._at_chance(number, validation)
        return Outcome(number, records, mean, validation, test, stuck)

    def _next(self, fold: Fold) -> Server:
        """The server after a round with updates."""
        aggregate = fold.result()
        share = aggregate.clients / self._population
        server = self.method.server_step(self.server, replace(aggregate, share=share))
        if self._meta is not None:
            server = self._meta(server)
        if _LAST in server.state:
            server = server.moved(server.model, {_LAST: server.model - self.server.model})
        return server

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
            state, buffers = fresh, self.server.buffers
            if client in self.states:
                state = self.states[client]
                buffers = state.pop(_BUFFERS, buffers)
            samples = self.experiment.stream.samples(self.assignment, client, number)
            if not len(samples):
                continue  # a stream may leave a client without data for a while
            yield Task(
                plan=runner.plan,
                round=number,
                client=client,
                model=self.server.model,
                buffers=buffers,
                received=received,
                state=state,
                samples=torch.from_numpy(np.ascontiguousarray(samples)),
                held_out=torch.from_numpy(np.ascontiguousarray(self.assignment.held_out(client))),
                noise=0.0 if noise is None else float(noise[client]),
            )

    def _compare(self, number: int, updates: tuple[Update, ...], fold: Fold) -> Iterator[Record]:
        """Weigh updates beside each other and fold them; records each client's share αₖ of every layer."""
        if not updates:
            return
        layers = ranked(self.layout, linear=True)
        weights = self.method.weighting.weigh_cohort(Cohort(self.server.model, updates, self.layout))
        for update, weight in zip(updates, weights, strict=True):
            fold.add(update, weight)
            shares = weight.parameters / len(updates)
            if not isinstance(shares, Tensor):
                yield Record(number, "weight", shares, client=update.client)
                continue
            for slot in layers:
                share = float(shares[slot.start : slot.stop].mean(dtype=torch.float64))
                yield Record(number, "weight", share, client=update.client, layer=slot.name)

    def _remembered(self, state: State, buffers: Tensor) -> State:
        """What is kept of a client: the method's state, and its buffers if they are its own."""
        return {**state, _BUFFERS: buffers} if self.method.buffers.local else state

    def _at_chance(self, number: int, validation: Scores | None) -> str:
        """Says so if the model has been no better than a constant answer for long."""
        patience = self.experiment.evaluate.patience
        if validation is None or not patience:
            return ""
        if not validation.at_chance:
            self.at_chance_since = None
        elif self.at_chance_since is None:
            self.at_chance_since = number
        if self.at_chance_since is None or number - self.at_chance_since < patience:
            return ""
        return (
            f"round {number}: validation accuracy ({validation.accuracy:.1%}) has been at chance since round "
            f"{self.at_chance_since}; with evaluate.patience=0 it would have gone on"
        )

    def _watches(self, number: int) -> list[Watch]:
        opening = Opening(
            number,
            self.experiment.rounds,
            self.server.model,
            self.server.buffers,
            self.layout,
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
        due = [measure for measure in self.experiment.measures if measure.due(number, self.experiment.rounds)]
        if validation is None and test is None and not due:
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
            self.experiment.rounds,
            lambda: training_counts(
                self.experiment.stream,
                self.assignment,
                number,
                self.dataset.train.labels.numpy(),
                len(self.dataset.classes),
            ),
        )
        for measure in self.experiment.measures:
            yield from measure.records(moment)


def deal(experiment: Experiment, dataset: Dataset) -> Assignment:
    """Who holds which sample in an experiment; what the server holds itself is nobody else's."""
    labels = dataset.train.labels.numpy()
    owners = None if dataset.train.owners is None else dataset.train.owners.numpy()
    generator = rng.numpy_generator(experiment.seed, "partition")
    rest, meta = np.arange(len(labels)), experiment.method.meta
    if meta is not None:
        rest = np.delete(rest, drawn(meta, len(labels), experiment.seed))
    try:
        dealt = experiment.partition.split(labels[rest], None if owners is None else owners[rest], generator)
    except ConfigError as error:
        raise error.under("partition") from None
    return replace(dealt, order=rest[dealt.order])


def _model(plan: Plan, dataset: Dataset) -> nn.Module:
    try:
        module = fresh_model(plan, dataset)
        check_model(module, dataset.shape)
    except ConfigError as error:
        raise error.under("model") from None
    return module


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


def _bytes(*tensors: Tensor) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
