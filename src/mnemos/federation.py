"""The round: select, train, screen, aggregate, evaluate, record."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mnemos import rng
from mnemos.client import fresh_model
from mnemos.clocks.clock import Timed
from mnemos.data.dataset import Dataset, Split
from mnemos.data.load import load
from mnemos.data.partition import Assignment, Ints
from mnemos.data.stream import Flow, Setting
from mnemos.engines.engine import Runner, Work
from mnemos.engines.flower import FlowerRunner
from mnemos.engines.several import open_each
from mnemos.errors import ConfigError, DivergedError
from mnemos.experiment import Experiment
from mnemos.local import Local
from mnemos.measures.measure import Moment, Record, Scores
from mnemos.message import Task
from mnemos.methods.exchange import Server
from mnemos.models.encoder import Encoder, place
from mnemos.models.mixed import Ensemble, Mixed, mean_prediction
from mnemos.pretrain.train import Tell
from mnemos.rounds.arrivals import Check, Conditions, vanishes
from mnemos.rounds.attempts import Attempts, heard_of
from mnemos.rounds.checks import check, check_company, check_measures, check_model, comparing, warnings
from mnemos.rounds.distil import Exchange, Voice, shared, unlabelled
from mnemos.rounds.flights import settled, time_of, timed
from mnemos.rounds.groups import Group, Peers, Progress
from mnemos.rounds.guarantee import check_privacy, check_uploads, guarantee_of
from mnemos.rounds.meta import drawn
from mnemos.rounds.mixed import cast, check_members, check_mixed, exchange_of, held_by
from mnemos.rounds.remote import Remote, check_remote
from mnemos.rounds.staggered import Staggered, check_clock
from mnemos.rounds.states import Shelves, States
from mnemos.rounds.traffic import traffic_of
from mnemos.rounds.waiting import waiting_of
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


def check_early(experiment: Experiment) -> None:
    """Refuse what can't be, whatever the data are."""
    check_clock(experiment)
    check_remote(experiment)
    check_privacy(experiment)


class _Judged(NamedTuple):
    """What the federation's model says of some samples."""

    together: Scores
    each: list[tuple[int | None, Scores]]
    """Its branches, if it has several, by the clients whose own they are."""


class Federation:
    """A population of clients, a server, and the rounds between them."""

    def __init__(self, experiment: Experiment, checks: tuple[Check, ...] = ()) -> None:
        check_early(experiment)
        self.checks = checks
        self.dataset = load(experiment.data)
        local, self.flow, self.cohort_size = _learners(experiment, self.dataset)
        self.guarantee = guarantee_of(experiment, self.flow, self.cohort_size)
        """What is promised about clients' data, if anything is."""
        if self.guarantee is not None and self.guarantee.limit:
            # An experiment of so many rounds: it is tested in its last ones, and its schedule ends there.
            experiment = experiment.model_copy(update={"rounds": self.guarantee.rounds})
            local, self.flow, self.cohort_size = _learners(experiment, self.dataset)
        self.experiment = experiment
        self.assignment = self.flow.assignment
        self.traffic = traffic_of(experiment, self.flow, self.cohort_size)
        self._waiting = waiting_of(experiment, self.flow, self.cohort_size)
        check_mixed(experiment)
        self._cast = cast(experiment, self.assignment.clients)
        self.plan = experiment.plan.model_copy(update={"local": local, "model": self._cast.model})
        with _naming("model"):
            module = fresh_model(self.plan, self.dataset)
        self.layout = Layout.of(module)
        check_measures(experiment, self.dataset, self.flow, self.layout)
        check_uploads(experiment, self.layout)
        self.method = experiment.method
        check_company(experiment, self.cohort_size)
        sentences = [] if self.guarantee is None else list(self.guarantee.warnings)
        self.groups = [self._group(which, module, sentences) for which in range(len(self._cast.models))]
        self.warnings = tuple(dict.fromkeys(sentences))
        first = [group.first() for group in self.groups]
        self._sizes = [len(server.model) for server in first], [len(server.buffers) for server in first]
        self.server = self._joined(first)
        self.states = Shelves([States(group.example) for group in self.groups], self._cast.which)
        self._exchange = self._open_exchange()
        self.round = 0
        self._begun = False
        self.at_chance_since: int | None = None
        self.in_vain = 0
        """How often the next round was tried before the run paused: it is tried so many times more."""
        self.spend: Callable[[int, Server], float] | None = None
        """Gives ε with a round's model, before anybody is sent it; None: it goes by the number of rounds."""
        self._held_out = torch.from_numpy(self.assignment.union_held_out())

    def _group(self, which: int, module: nn.Module, sentences: list[str]) -> Group:
        """The clients with one of the models, once nothing is wrong with them; adds what is known to hurt."""
        members, place, peers = self._cast.members(which), self._cast.branches.index(which), self._cast.peers
        name, field = "", self._cast.field(which)
        if isinstance(module, Ensemble):
            module, name = module.branches[place], "" if peers else f"branches.{place}"
        with _naming(field):
            check_model(module, self.dataset.shape)
        held = held_by(members, self.assignment) if len(self._cast.models) > 1 else self.assignment
        loads = self.flow.loads() * (held.sizes > 0)[:, None]
        sentences += check_members(held.train_sizes()[members], field, peers=peers)
        share = np.count_nonzero(held.train_sizes()) / np.count_nonzero(self.assignment.train_sizes())
        taken = self.cohort_size if self.traffic is None else self.traffic.clock.buffer
        sentences += comparing(self.experiment, taken * share, field)
        check(self.experiment, self.plan.local, self.dataset, held, loads, module, field)
        sentences += warnings(self.experiment, self.plan.local, self.dataset, held, loads, module, field)
        plan = self.plan.model_copy(update={"model": self._cast.models[which]})
        mechanism = None if self.guarantee is None else self.guarantee.mechanism
        arguments = self.experiment, plan, self.dataset, self.flow, module, members, name, mechanism
        if self.traffic is not None:
            return Staggered(*arguments, traffic=self.traffic)
        if self.dataset.remote:
            return Remote(*arguments)
        return Peers(*arguments, branch=place) if peers else Group(*arguments)

    def _open_exchange(self) -> Exchange | None:
        options = exchange_of(self.experiment)
        if options is None:
            return None
        samples = _drawn(self.experiment, len(self.dataset.train))[1]
        plans = [group.plan for group in self.groups]
        return Exchange(options, plans, self.dataset, unlabelled(self.dataset, samples))

    def check_start(self) -> None:
        """Refuse, before anything is done, what the model can't start from."""
        with _naming("start"):
            encoder = self.experiment.start.check(self.plan.model, self.dataset.shape)
            if encoder is not None:
                place(encoder, fresh_model(self.plan, self.dataset), self.dataset.shape)

    def begin(self, tell: Tell = lambda _done, _total, _note: None) -> Encoder | None:
        """Give the model what it starts from, once; None, if that is random weights or was done before."""
        if self._begun or self.round:
            return None
        with _naming("start"):
            encoder = self.experiment.start.encoder(self.plan.model, self.dataset.shape, tell)
            if encoder is not None:
                module = fresh_model(self.plan, self.dataset)
                place(encoder, module, self.dataset.shape)
                model, buffers = self.layout.gather(module.state_dict())
                self.server = replace(self.server, model=model, buffers=buffers)
        self._begun = True
        return encoder

    def open(self) -> Runner:
        """The engine, ready to run cohorts."""
        work = Work(self.cohort_size, self.experiment.rounds)
        if self.traffic is not None:
            slots, taken = self.traffic.slots, self.traffic.clock.buffer
            work = Work(slots, -(-work.rounds * taken // slots))
        runner = open_each(self.experiment.engine, [group.plan for group in self.groups], self.dataset, work)
        for group in self.groups:
            if isinstance(group, Remote) and isinstance(runner, FlowerRunner):
                group.reach(runner)
        return runner

    def advance(self, runner: Runner) -> Outcome:
        """One round."""
        self.begin()
        number = self.round + 1
        self.states.drop()  # of a round that was broken off
        untrained = [] if self.round else list(self._before_training())
        before = [self._part(which) for which in range(len(self.groups))]
        done, attempts = self._trained(number, before, runner)
        records = [*untrained, *attempts.records, *(record for one in done for record in one.records)]
        said = self._talk(number, done)
        after = [
            group.moved(old, one.server) for group, old, one in zip(self.groups, before, done, strict=True)
        ]
        if self._waiting is not None:
            tried = [*attempts.lost, heard_of(done)]
            time = time_of(before[0].state) + sum(self._waiting.lasts(*one, number) for one in tried)
            after = [one.moved(one.model, timed(time)) for one in after]
            records.append(Record(number, "time", time))
        server = self._joined(after)
        loss, samples = sum(one.loss for one in done), sum(one.samples for one in done)
        spoilt = _not_finite(server, loss)
        if spoilt is not None:
            raise DivergedError(
                f"round {number}: {spoilt} is not finite any more; a smaller local.lr may help"
            )
        mean = loss / samples if samples else math.nan  # of a round in which nobody has trained
        if samples:
            records.append(Record(number, "train_loss", mean))
        if self.guarantee is not None:
            epsilon = self.guarantee.epsilon(number) if self.spend is None else self.spend(number, server)
            records.append(Record(number, "epsilon", epsilon))
        self.server, self.round = server, number
        self.states.commit(number)
        records += [
            Record(number, "bytes_up", float(said + attempts.sent + sum(one.sent for one in done))),
            Record(number, "bytes_down", float(said + attempts.received + sum(one.received for one in done))),
        ]
        records += [record for one in done for record in one.watched]
        validation, test = self._evaluate(number)
        records += self._measure(number, validation, test)
        scores = validation and validation.together
        stuck = self._at_chance(number, scores)
        return Outcome(number, records, mean, scores, test and test.together, stuck)

    def _trained(self, number: int, before: list[Server], runner: Runner) -> tuple[list[Progress], Attempts]:
        """What becomes of the groups in a round; and what was lost on attempts that came to too little."""
        attempts, cohort = Attempts(number, self.experiment.min_clients), self.cohort(number)
        tried = cohort
        # With privacy a client is in a round with the probability that ε goes by: others don't step in. The
        # same ones are asked once whenever the run goes on, and what befalls them is drawn anew.
        tries = range(self.in_vain + self.experiment.retries + 1)
        if self.guarantee is not None:
            tries = range(self.in_vain, self.in_vain + 1)
        for attempt in tries:
            if attempt and self.guarantee is None:
                cohort = self._others(number, attempt, tried)
                tried = np.union1d(tried, cohort)
            conditions = self._conditions(cohort, number, attempt)
            groups = range(len(before))
            done = [
                self._progress(number, which, cohort, before[which], runner, conditions) for which in groups
            ]
            # An asynchronous server waits for others.
            if self.traffic is not None or self._enough(attempts, done):
                self.in_vain = 0
                return done, attempts
            attempts.give_up(done)
            self.states.drop()
        self.in_vain = tries.stop
        raise attempts.error()

    def _enough(self, attempts: Attempts, done: list[Progress]) -> bool:
        """Whether a round has come to enough updates.

        With privacy, what was sent must not decide it, so all who are heard of count; and nobody is needed,
        as noise alone will do, unless the experiment asks for more than one: then as many of them as chance
        has put into the cohort, which would be the same whenever it is drawn.
        """
        if self.guarantee is None:
            return attempts.suffice(done)
        fewest, (heard, asked) = self.experiment.min_clients, heard_of(done)
        return fewest == 1 or len(heard) >= min(fewest, asked)

    def _conditions(self, cohort: Ints, number: int, attempt: int) -> Conditions:
        """Under which an attempt at a round is made."""
        if self._waiting is None:
            return Conditions(attempt)
        experiment = self.experiment
        return self._waiting.conditions(
            cohort.tolist(), number, attempt, lambda client: vanishes(experiment, client, number, attempt)
        )

    def _others(self, number: int, attempt: int, tried: Ints) -> Ints:
        """Clients for another attempt at a round: none that was tried, if there are more."""
        selection, seed = self.experiment.selection, self.experiment.seed
        eligible = selection.reachable(self.flow.eligible(number), number, seed)
        everyone = np.arange(eligible) if isinstance(eligible, int) else eligible
        left: Ints = np.setdiff1d(everyone, tried)
        if len(left) < self.experiment.min_clients:
            left = everyone  # those that were lost may be back
        generator = rng.numpy_generator(seed, "selection", number, attempt)
        return selection.select(left, min(_asked(self.experiment, self.cohort_size), len(left)), generator)

    def _progress(
        self,
        number: int,
        which: int,
        cohort: Ints,
        server: Server,
        runner: Runner,
        conditions: Conditions,
    ) -> Progress:
        """What becomes of a group in a round of a cohort."""
        group = self.groups[which]
        if isinstance(group, Staggered):
            return group.meet(number, server, self.states, runner, self.checks)
        clients = self._clients(cohort, which)
        tasks = group.tasks(number, clients, server, self.states, runner, conditions.steps)
        return group.advance(number, clients, tasks, server, self.states, runner, self.checks, conditions)

    def _talk(self, number: int, done: list[Progress]) -> int:
        """Let models learn from each other, if it is time; gives the bytes that peers have sent for it."""
        if self._exchange is None or not self._exchange.due(number):
            return 0
        voices = [group.voices(one) for group, one in zip(self.groups, done, strict=True)]
        flat = [Voice(which, *voice) for which, several in enumerate(voices) for voice in several]
        after = self._exchange(flat)
        for voice, model in zip(flat, after, strict=True):
            if voice.model.isfinite().all() and not model.isfinite().all():
                raise DivergedError(
                    f"round {number}: a model is not finite any more after the exchange; a smaller "
                    "model.exchange.lr may help"
                )
        taught = iter(after)
        for group, one, several in zip(self.groups, done, voices, strict=True):
            one.server = group.taught(one, [next(taught) for _ in several])
        return self._exchange.bytes * len(flat) * (len(flat) - 1) if self._cast.peers else 0

    def close(self) -> None:
        """Let go of threads."""
        for group in self.groups:
            group.close()

    def cohort(self, number: int) -> Ints:
        """The clients of a round."""
        return self.flow.cohort(number)

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
        if len(self._held_out) and when.validates(number, last):
            validation = self._judge(self.dataset.train, self._held_out)
        if len(self.dataset.test) and when.tests(number, last):
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
            if judged is not None and not math.isnan(judged.together.accuracy):  # nobody was heard of
                yield Record(number, f"{part}_accuracy", judged.together.accuracy)
                yield Record(number, f"{part}_loss", judged.together.loss)
                for branch, (client, scores) in enumerate(judged.each):
                    name = f"{part}_accuracy" + (f"_branch_{branch}" if client is None else "")
                    yield Record(number, name, scores.accuracy, model=client)
        moment = self._moment(number, validation, test)
        for measure in self.experiment.measures:
            yield from measure.records(moment)

    def _before_training(self) -> Iterator[Record]:
        """What those measures that want to see it say of the first model."""
        measures = [measure for measure in self.experiment.measures if measure.from_the_start]
        if not measures:
            return
        validation = self._judge(self.dataset.train, self._held_out) if len(self._held_out) else None
        test = self._judge(self.dataset.test, None) if len(self.dataset.test) else None
        moment = self._moment(0, validation, test)
        for measure in measures:
            yield from measure.records(moment)

    def _moment(self, number: int, validation: _Judged | None, test: _Judged | None) -> Moment:
        return Moment(
            number,
            self.server.model,
            self.server.buffers,
            self.layout,
            self.flow,
            self._held_out.numpy(),
            validation and validation.together,
            test and test.together,
            self.experiment.rounds,
        )


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


def flow_of(experiment: Experiment, dataset: Dataset) -> Flow:
    """What everybody holds in each round of an experiment, and who is selected."""
    return _learners(experiment, dataset)[1]


def _learners(experiment: Experiment, dataset: Dataset) -> tuple[Local, Flow, int]:
    """How somebody trains, who holds what in which round, and how many train in one."""
    clients = deal(experiment, dataset)
    size = _cohort_size(experiment, clients)
    flow = _opened(experiment, dataset, clients, size)
    local, assignment = experiment.method.arrange(experiment.plan.local, flow, size)
    if assignment is clients:
        return local, flow, size
    # Others learn than those who were dealt samples: all of them.
    if isinstance(experiment.clock, Timed):
        raise ConfigError(f"it times clients, and {experiment.method.name} has none", "clock")
    if experiment.faults:
        raise ConfigError(f"they are clients', and {experiment.method.name} has none", "faults")
    return local, _opened(experiment, dataset, assignment, assignment.clients), assignment.clients


def _opened(experiment: Experiment, dataset: Dataset, assignment: Assignment, size: int) -> Flow:
    """The stream of those who hold something, of whom so many are selected for a round."""

    def choose(eligible: Ints | int, number: int) -> Ints:
        if traffic is not None:
            return traffic.cohort(number)
        there = experiment.selection.reachable(eligible, number, experiment.seed)
        count = there if isinstance(there, int) else len(there)
        if count < experiment.min_clients:
            return np.zeros(0, np.int64)  # a round passes in which nobody is asked
        # Privacy that counts on nobody knowing who is in a round has a key of its own.
        generator = rng.numpy_generator(experiment.privacy.key(experiment.seed), "selection", number)
        return experiment.selection.select(there, min(_asked(experiment, size), count), generator)

    labels, classes = dataset.train.labels.numpy(), len(dataset.classes)
    setting = Setting(assignment, labels, classes, experiment.rounds, experiment.seed, choose)
    try:
        flow = experiment.stream.open(setting)
    except ConfigError as error:
        raise error.under("stream") from None
    traffic = traffic_of(experiment, flow, size)
    return flow


def _asked(experiment: Experiment, size: int) -> int:
    """How many clients are asked for a round of so many."""
    return size + math.ceil(experiment.over_selection * size - 1e-9)


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


def _not_finite(server: Server, loss: float) -> str | None:
    """What isn't, after a round; None: all is."""
    if not all(bool(part.isfinite().all()) for part in (server.model, server.buffers)):
        return "the model"
    for name, value in settled(server.state).items():
        if value.is_floating_point() and not bool(value.isfinite().all()):
            return f"what the server keeps as {name}"
    return None if math.isfinite(loss) else "the training loss"


@contextmanager
def _naming(field: str) -> Iterator[None]:
    """Have errors name a field of the experiment."""
    try:
        yield
    except ConfigError as error:
        raise error.under(field) from None


def _cohort_size(experiment: Experiment, assignment: Assignment) -> int:
    """How many clients take part in a round, as long as so many have something to train on."""
    size = math.floor(experiment.participation * assignment.clients + 1e-9)
    if size < 1:
        raise ConfigError(
            f"found {experiment.participation}, which selects nobody of {assignment.clients} clients; "
            f"allowed: at least {1 / assignment.clients:.3g}",
            "participation",
        )
    count = int(np.count_nonzero(assignment.train_sizes()))
    if count == 0:
        raise ConfigError("no client has a training sample; take fewer clients", "partition")
    return min(size, count)
