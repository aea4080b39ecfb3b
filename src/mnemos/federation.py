"""The round: select, train, screen, aggregate, evaluate, record."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mnemos import rng
from mnemos.arrivals import Check
from mnemos.checks import check, check_model, warnings
from mnemos.client import fresh_model
from mnemos.data.dataset import Dataset, Split
from mnemos.data.load import load
from mnemos.data.partition import Assignment, Ints
from mnemos.data.streams import training_counts
from mnemos.distil import Exchange, Voice, shared, unlabelled
from mnemos.engines.engine import Runner, Work
from mnemos.engines.several import open_each
from mnemos.errors import ConfigError, DivergedError
from mnemos.experiment import Experiment
from mnemos.groups import Group, Peers, Progress
from mnemos.measures.measure import Moment, Record, Scores
from mnemos.message import Plan, Task
from mnemos.meta import drawn
from mnemos.methods.exchange import Server
from mnemos.mixed import cast, check_mixed, exchange_of, held_by
from mnemos.models.mixed import Ensemble, Mixed, mean_prediction
from mnemos.states import Shelves, States
from mnemos.vector import Layout


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


class _Judged(NamedTuple):
    """What the federation's model says of some samples."""

    together: Scores
    each: list[tuple[int | None, Scores]]
    """Its branches, if it has several, by the clients whose own they are."""


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
        if self.assignment is not clients:  # others learn than those who were dealt samples: all of them
            self.cohort_size = self._eligible = self.assignment.clients
            if experiment.faults:
                raise ConfigError(f"they are clients', and {experiment.method.name} has none", "faults")
        check_mixed(experiment)
        self._cast = cast(experiment, self.assignment.clients)
        self.plan = plan.model_copy(update={"local": local, "model": self._cast.model})
        module = _model(self.plan, self.dataset)
        self.layout = Layout.of(module)
        self.method = experiment.method
        sentences: list[str] = []
        self.groups = [self._group(which, module, sentences) for which in range(len(self._cast.models))]
        self.warnings = tuple(dict.fromkeys(sentences))
        first = [group.first() for group in self.groups]
        self._sizes = [len(server.model) for server in first], [len(server.buffers) for server in first]
        self.server = self._joined(first)
        self.states = Shelves([States(group.example) for group in self.groups], self._cast.which)
        self._exchange = self._open_exchange()
        self.round = 0
        self.at_chance_since: int | None = None
        self._held_out = torch.from_numpy(self.assignment.union_held_out())

    def _group(self, which: int, module: nn.Module, sentences: list[str]) -> Group:
        """The clients with one of the models, once nothing is wrong with them; adds what is known to hurt."""
        members, name = self._cast.members(which), ""
        if isinstance(module, Ensemble):
            place = self._cast.branches.index(which)
            module, name = module.branches[place], "" if self._cast.peers else f"branches.{place}"
        held = held_by(members, self.assignment) if len(self._cast.models) > 1 else self.assignment
        check(self.experiment, self.plan.local, self.dataset, held, module)
        sentences += warnings(self.experiment, self.plan.local, self.dataset, held, module)
        plan = self.plan.model_copy(update={"model": self._cast.models[which]})
        kind = Peers if self._cast.peers else Group
        return kind(self.experiment, plan, self.dataset, self.assignment, module, members, name)

    def _open_exchange(self) -> Exchange | None:
        options = exchange_of(self.experiment)
        if options is None:
            return None
        samples = _drawn(self.experiment, len(self.dataset.train))[1]
        plans = [group.plan for group in self.groups]
        return Exchange(options, plans, self.dataset, unlabelled(self.dataset, samples))

    def open(self) -> Runner:
        """The engine, ready to run cohorts."""
        work = Work(self.cohort_size, self.experiment.rounds)
        return open_each(self.experiment.engine, [group.plan for group in self.groups], self.dataset, work)

    def advance(self, runner: Runner) -> Outcome:
        """One round."""
        number = self.round + 1
        self.states.drop()  # of a round that was broken off
        before = [self._part(which) for which in range(len(self.groups))]
        cohort, done = self.cohort(number), []
        for which, group in enumerate(self.groups):
            clients, tasks = self._clients(cohort, which), self._tasks(number, runner, which)
            done.append(
                group.advance(number, clients, tasks, before[which], self.states, runner, self.checks)
            )
        records = [record for one in done for record in one.records]
        if any(one.arrived for one in done) and not any(one.used for one in done):
            raise DivergedError(f"round {number}: no update of the {self.cohort_size} clients could be used")
        said = self._talk(number, done)
        server = self._joined(
            [group.moved(old, one.server) for group, old, one in zip(self.groups, before, done, strict=True)]
        )
        loss, samples = sum(one.loss for one in done), sum(one.samples for one in done)
        finite = all(bool(torch.isfinite(part).all()) for part in (server.model, server.buffers))
        if not (finite and math.isfinite(loss)):
            what = "training loss" if finite else "model"
            raise DivergedError(
                f"round {number}: the {what} is not finite any more; a smaller local.lr may help"
            )
        self.server, self.round = server, number
        self.states.commit(number)
        received = said + sum(
            group.received(one.server) * len(self._clients(cohort, which))
            for which, (group, one) in enumerate(zip(self.groups, done, strict=True))
        )
        mean = loss / samples if samples else math.nan  # of a round in which nobody has trained
        if samples:
            records.append(Record(number, "train_loss", mean))
        records += [
            Record(number, "bytes_up", float(said + sum(one.sent for one in done))),
            Record(number, "bytes_down", float(received)),
        ]
        records += [record for one in done for record in one.watched]
        validation, test = self._evaluate(number)
        records += self._measure(number, validation, test)
        scores = validation and validation.together
        stuck = self._at_chance(number, scores)
        return Outcome(number, records, mean, scores, test and test.together, stuck)

    def _talk(self, number: int, done: list[Progress]) -> int:
        """Let models learn from each other, if it is time; gives the bytes that peers have sent for it."""
        if self._exchange is None or not self._exchange.due(number):
            return 0
        voices = [group.voices(one) for group, one in zip(self.groups, done, strict=True)]
        flat = [Voice(which, *voice) for which, several in enumerate(voices) for voice in several]
        after = iter(self._exchange(flat))
        for group, one, several in zip(self.groups, done, voices, strict=True):
            one.server = group.taught(one, [next(after) for _ in several])
        return self._exchange.bytes * len(flat) * (len(flat) - 1) if self._cast.peers else 0

    def close(self) -> None:
        """Let go of threads."""
        for group in self.groups:
            group.close()

    def cohort(self, number: int) -> Ints:
        """The clients of a round."""
        generator = rng.numpy_generator(self.experiment.seed, "selection", number)
        return self.experiment.selection.select(self._eligible, self.cohort_size, generator)

    def _clients(self, cohort: Ints, which: int) -> Ints:
        """Those of a cohort that belong to a group."""
        found: Ints = cohort[self._cast.which[cohort] == which]
        return found

    def _tasks(self, number: int, runner: Runner, which: int = 0) -> Iterator[Task]:
        """What the clients of a group have to do in a round."""
        clients = self._clients(self.cohort(number), which)
        return self.groups[which].tasks(number, clients, self._part(which), self.states, runner)

    def _part(self, which: int) -> Server:
        """What belongs to a group of all that the server holds."""
        if len(self.groups) == 1:
            return self.server
        vectors = (self.server.model, self.server.buffers)
        model, buffers = (torch.split(v, s)[which] for v, s in zip(vectors, self._sizes, strict=True))
        prefix = f"{self.groups[which].name}."
        state = {n.removeprefix(prefix): v for n, v in self.server.state.items() if n.startswith(prefix)}
        return Server(model, buffers, state)

    def _joined(self, parts: list[Server]) -> Server:
        """The parts of all groups as one."""
        if len(parts) == 1:
            return parts[0]
        state = {
            f"{group.name}.{name}": value
            for group, part in zip(self.groups, parts, strict=True)
            for name, value in part.state.items()
        }
        return Server(
            torch.cat([part.model for part in parts]), torch.cat([part.buffers for part in parts]), state
        )

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

    def _evaluate(self, number: int) -> tuple[_Judged | None, _Judged | None]:
        when, last = self.experiment.evaluate, self.experiment.rounds
        validation = test = None
        if len(self._held_out) and (number % when.every == 0 or number == last):
            validation = self._judge(self.dataset.train, self._held_out)
        if len(self.dataset.test) and number > last - when.test_last:
            test = self._judge(self.dataset.test, None)
        return validation, test

    def _judge(self, split: Split, indices: Tensor | None) -> _Judged:
        parts = (group.scores(self._part(which), split, indices) for which, group in enumerate(self.groups))
        each = [one for several in parts for one in several]
        (_, first), *others = each
        return _Judged(_ensemble([scores for _, scores in each]), each) if others else _Judged(first, [])

    def _measure(self, number: int, validation: _Judged | None, test: _Judged | None) -> Iterator[Record]:
        due = [measure for measure in self.experiment.measures if measure.due(number, self.experiment.rounds)]
        if validation is None and test is None and not due:
            return
        for part, judged in (("validation", validation), ("test", test)):
            if judged is not None:
                yield Record(number, f"{part}_accuracy", judged.together.accuracy)
                yield Record(number, f"{part}_loss", judged.together.loss)
                for branch, (client, scores) in enumerate(judged.each):
                    name = f"{part}_accuracy" + (f"_branch_{branch}" if client is None else "")
                    yield Record(number, name, scores.accuracy, model=client)
        moment = Moment(
            number,
            self.server.model,
            self.server.buffers,
            self.layout,
            self.assignment,
            self._held_out.numpy(),
            validation and validation.together,
            test and test.together,
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
    rest = np.delete(np.arange(len(labels)), np.concatenate(_drawn(experiment, len(labels))))
    try:
        dealt = experiment.partition.split(labels[rest], None if owners is None else owners[rest], generator)
    except ConfigError as error:
        raise error.under("partition") from None
    return replace(dealt, order=rest[dealt.order])


def _drawn(experiment: Experiment, total: int) -> tuple[Ints, Ints]:
    """Which of the training samples nobody is dealt: those of the meta step, and those of an exchange."""
    meta, exchange, none = experiment.method.meta, exchange_of(experiment), np.zeros(0, np.int64)
    servers = none if meta is None else drawn(meta, total, experiment.seed)
    if exchange is None:
        return servers, none
    return servers, shared(exchange, np.delete(np.arange(total), servers), experiment.seed)


def model_of(experiment: Experiment, dataset: Dataset) -> nn.Module:
    """All that an experiment's federation learns, as one module, before the first round."""
    plan = experiment.plan
    if isinstance(plan.model, Mixed):
        clients = deal(experiment, dataset).clients
        plan = plan.model_copy(update={"model": cast(experiment, clients).model})
    return fresh_model(plan, dataset)


def _ensemble(each: list[Scores]) -> Scores:
    """What several models say together."""
    logits = mean_prediction([scores.logits for scores in each])
    labels = each[0].labels
    return Scores(logits, labels, F.cross_entropy(logits, labels, reduction="none"))


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
