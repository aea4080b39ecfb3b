"""Clients that have the same model: what they are sent, and what becomes of what they send back.

An ordinary federation is one group. With mixed models there is a group for each, and its model is a slice of
the federation's; peers with the same model are a group in which each has a model of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from mnemos.client import kept
from mnemos.data.dataset import Dataset, Split
from mnemos.data.partition import Ints
from mnemos.data.stream import Flow
from mnemos.engines.engine import Runner
from mnemos.experiment import Experiment
from mnemos.faults import fault as faults
from mnemos.measures.evaluate import Evaluator, Judge
from mnemos.measures.measure import Opening, Record, Scores, Watch
from mnemos.message import Plan, Task
from mnemos.methods.exchange import Cohort, Fold, Server, State, Update
from mnemos.methods.method import Method
from mnemos.methods.part import Single
from mnemos.privacy.gaussian import Mechanism, NoisySum
from mnemos.ranks.spectra import ranked
from mnemos.rounds.arrivals import Arrival, Arrivals, Check, Conditions, dropped, rejected
from mnemos.rounds.meta import MetaStep
from mnemos.rounds.states import Shelves
from mnemos.screens import screen as screens
from mnemos.vector import Layout

_BUFFERS = "buffers"
_LAST = "federation.last"
"""The model's change in the round before, which faults and screens go by; zero before the first."""


@dataclass
class Progress:
    """What has become of a group in a round."""

    server: Server
    records: list[Record] = field(default_factory=list)
    watched: list[Record] = field(default_factory=list)
    """What measures have seen of the clients' models."""
    trained: list[int] = field(default_factory=list)
    """The clients whose training counts."""
    loss: float = 0.0
    """Summed over the samples they trained on."""
    samples: int = 0
    sent: int = 0
    """Bytes."""
    received: int = 0
    """Bytes."""
    asked: int = 0
    """How many clients were to train."""
    arrived: list[int] = field(default_factory=list)
    """Those of them that were heard of."""
    used: int = 0
    """How many of their updates count."""


Start = Callable[[int], tuple[Tensor, Tensor]]
"""The model that a client began with, and its buffers."""


class Gathering(Protocol):
    """Takes a round's updates as they arrive."""

    def add(self, update: Update) -> None:
        """Take in one update."""

    def result(self, number: int) -> tuple[Server, list[Record]]:
        """The group after the round, from at least one update, and what is to be recorded of it.

        With privacy, a round without any updates is a round like others.
        """


class Group:
    """Clients whose models are averaged at a server."""

    def __init__(
        self,
        experiment: Experiment,
        plan: Plan,
        dataset: Dataset,
        flow: Flow,
        module: nn.Module,
        members: Ints,
        name: str = "",
        mechanism: Mechanism | None = None,
    ) -> None:
        """`members`: its clients; `name`: the module's, as a part of a larger one; `mechanism`: its noise."""
        self.experiment, self.plan, self.dataset, self.flow = experiment, plan, dataset, flow
        self.assignment = assignment = flow.assignment
        self.members, self.name, self.method = members, name, experiment.method
        self._mechanism = mechanism
        self._population = int(np.count_nonzero(assignment.train_sizes()[members]))
        own = Layout.of(module)
        self.layout = own.under(name)
        model, buffers = self._first = own.gather(module.state_dict())
        self._arrivals = Arrivals(experiment, dataset, self.layout, assignment.clients)
        meta = self.method.meta
        self._meta = None if meta is None else MetaStep(plan, meta, dataset)
        optimizer = kept(plan.local, plan.local.optimizer.init(model, self.layout))
        state = {**self.method.client_state(self.layout), **optimizer}
        self.example = self._remembered(state, buffers)
        """What a client remembers, by names and shapes."""
        self.evaluator: Judge = Evaluator(
            module, dataset, self.method.buffers.in_batches, self.method.head.read
        )

    def first(self) -> Server:
        """The server before the first round."""
        state = self.method.server_state(self.layout)
        if self._mechanism is not None:
            state |= self._mechanism.state()
        if self.experiment.faults or self.experiment.screens:
            state[_LAST] = self.layout.zeros()
        return Server(*self._first, state)

    def tasks(
        self,
        number: int,
        clients: Ints,
        server: Server,
        states: Shelves,
        runner: Runner,
        steps: Mapping[int, int] = MappingProxyType({}),
    ) -> Iterator[Task]:
        """What clients have to do in a round; `steps`: those who have to stop early, and when."""
        plan = self.plan.model_copy(update={"arithmetic": runner.plan.arithmetic})
        received = {**self._broadcast(server), **self._asks(server, len(clients))}
        fresh = self.method.client_state(self.layout)
        noise = self.assignment.noise
        for client in clients.tolist():
            model, buffers = self._start(server, client)
            state = fresh
            if client in states:
                state = states[client]
                buffers = state.pop(_BUFFERS, buffers)
            samples = self.flow.samples(client, number)
            if not len(samples):
                continue  # a stream may leave a client without data for a while
            yield Task(
                plan=plan,
                round=number,
                client=client,
                model=model,
                buffers=buffers,
                received=received,
                state=state,
                samples=torch.from_numpy(np.ascontiguousarray(samples)),
                held_out=torch.from_numpy(np.ascontiguousarray(self.assignment.held_out(client))),
                met=torch.from_numpy(self.flow.met(client, number)),
                present=torch.from_numpy(self.flow.present(client, number)),
                noise=0.0 if noise is None else float(noise[client]),
                relabel=self._arrivals.relabel(client),
                steps=steps.get(client),
            )

    def advance(
        self,
        number: int,
        clients: Ints,
        tasks: Iterable[Task],
        server: Server,
        states: Shelves,
        runner: Runner,
        checks: tuple[Check, ...],
        conditions: Conditions,
    ) -> Progress:
        """Train, screen and gather; clients' new states are held, not yet committed."""
        last = server.state.get(_LAST, server.model[:0])
        memory = remembered(server)
        arriving = self._arrivals.of(runner, tasks, server, last, memory, checks, conditions)
        watches, start = self._watches(number, clients, server), partial(self._start, server)
        gathering = self._gathering(server, number, len(clients))
        done = self._gather(number, arriving, server, states, gathering, watches, start, memory)
        done.received = self.received(done.server) * len(clients)
        return done

    def _gather(
        self,
        number: int,
        arriving: Iterable[Arrival],
        server: Server,
        states: Shelves,
        gathering: Gathering,
        watches: dict[int, list[Watch]],
        start: Start,
        memory: State,
    ) -> Progress:
        """Take in a round's clients as they arrive; `memory` is what bad ones and screens remember then."""
        done = Progress(server)
        for client, update, trained, reason in arriving:
            done.asked += 1
            if update is None:
                done.records.append(Record(number, dropped(reason), 1.0, client=client))
                continue
            done.arrived.append(client)
            done.sent += self._sent(update)
            if reason is not None:
                done.records.append(Record(number, rejected(reason), 1.0, client=client))
                continue
            model, buffers = start(client)
            for watch in watches[client]:
                watch.see(
                    client, model + update.delta, update.buffers if self.method.buffers.sent else buffers
                )
            gathering.add(update)
            done.used += 1
            if not trained:
                continue  # it has neither a loss nor anything to remember
            done.trained.append(client)
            states.hold(client, self._remembered(update.state, update.buffers))
            done.records.append(Record(number, "train_loss", update.loss, client=client))
            done.loss += update.loss * update.samples
            done.samples += update.samples
        if done.used or self._mechanism is not None:
            done.server, records = gathering.result(number)
            done.server = done.server.moved(done.server.model, memory)
            done.records += records
        different = {id(watch): watch for several in watches.values() for watch in several}
        done.watched = [record for watch in different.values() for record in watch.records()]
        return done

    def received(self, server: Server) -> int:
        """Bytes that a client is sent."""
        beside = (*self.method.broadcast(server).values(), *self._asks(server, 1).values())
        sent = bytes_of(server.model, *beside)
        return sent + (bytes_of(server.buffers) if self.method.buffers.received else 0)

    def voices(self, done: Progress) -> list[tuple[Tensor, Tensor]]:
        """The models that take part in an exchange after the round, with their buffers."""
        return [(done.server.model, done.server.buffers)]

    def taught(self, done: Progress, models: list[Tensor]) -> Server:
        """The group with what the exchange has made of its voices' models."""
        return done.server.moved(models[0], {})

    def moved(self, before: Server, after: Server) -> Server:
        """The server after a round, which remembers how it has moved if somebody goes by that."""
        if _LAST not in after.state or after is before:
            return after
        return after.moved(after.model, {_LAST: after.model - before.model})

    def scores(self, server: Server, split: Split, indices: Tensor | None) -> list[tuple[int | None, Scores]]:
        """What the group's models, by the clients whose own they are, say of (some samples of) a split."""
        return [(None, self.evaluator(server.model, server.buffers, split, indices))]

    def close(self) -> None:
        """Let go of threads."""
        self.evaluator.close()

    def _start(self, server: Server, client: int) -> tuple[Tensor, Tensor]:
        """The model that a client begins a round with, and its buffers."""
        return server.model, server.buffers

    def _broadcast(self, server: Server) -> State:
        """What clients are sent beside the model."""
        return self.method.broadcast(server)

    def _asks(self, server: Server, invited: int) -> State:
        """What each of so many clients is told to do for its privacy."""
        return {} if self._mechanism is None else self._mechanism.asks(server.state, invited)

    def _gathering(self, server: Server, number: int, invited: int) -> Gathering:
        arguments = self.method, self.layout, server, self._population, self._meta
        if self._mechanism is None:
            return _Averaging(*arguments, self.method.fold(self.layout))
        return _Private(*arguments, self._mechanism.fold(self.layout, server, number, invited))

    def _sent(self, update: Update) -> int:
        sent = bytes_of(update.delta, *update.change.values())
        return sent + (bytes_of(update.buffers) if self.method.buffers.sent else 0)

    def _remembered(self, state: State, buffers: Tensor) -> State:
        """What is kept of a client: the method's state, and its buffers if they are its own."""
        return {**state, _BUFFERS: buffers} if self.method.buffers.local else state

    def _watches(self, number: int, clients: Ints, server: Server) -> dict[int, list[Watch]]:
        """Who looks on at each client's model."""
        opened = self._opened(number, clients, server.model, server.buffers, self.layout)
        return dict.fromkeys(clients.tolist(), opened)

    def _one_by_one(self, number: int, clients: Ints, start: Start) -> dict[int, list[Watch]]:
        """Who looks on at each client's model, where clients don't begin with the same one."""
        return {
            client: self._opened(number, np.array([client]), *start(client), self._named(client))
            for client in clients.tolist()
        }

    def _named(self, client: int) -> Layout:
        """The layout of a client's model, with the names that its layers have in the federation's."""
        return self.layout

    def _opened(
        self, number: int, clients: Ints, model: Tensor, buffers: Tensor, layout: Layout
    ) -> list[Watch]:
        opening = Opening(
            number,
            self.experiment.rounds,
            model,
            buffers,
            layout,
            self.flow,
            clients,
            lambda model, buffers, indices: self.evaluator(model, buffers, self.dataset.train, indices),
            lambda model, buffers: self.evaluator(model, buffers, self.dataset.test),
        )
        watches = (measure.watch(opening) for measure in self.experiment.watching)
        return [watch for watch in watches if watch is not None]


class Peers(Group):
    """Clients with the same kind of model, each with one of its own: there is no server.

    What a server would hold is all their models in a row.
    """

    def __init__(self, *args: Any, branch: int) -> None:
        """`branch`: where in the federation's model the first of them is."""
        super().__init__(*args)
        self._branch = branch

    @cached_property
    def _place(self) -> dict[int, int]:
        """Where each client's model is."""
        return {client: place for place, client in enumerate(self.members.tolist())}

    def first(self) -> Server:
        """All begin with the same model."""
        model, buffers = (vector.repeat(len(self.members)) for vector in self._first)
        return Server(model, buffers, {})

    def received(self, server: Server) -> int:
        """Nobody sends models."""
        return 0

    def voices(self, done: Progress) -> list[tuple[Tensor, Tensor]]:
        """Those of the round's clients."""
        return [self._start(done.server, client) for client in done.trained]

    def taught(self, done: Progress, models: list[Tensor]) -> Server:
        """The others stay as they are."""
        after = self._rows(done.server.model).clone()
        for client, model in zip(done.trained, models, strict=True):
            after[self._place[client]] = model
        return done.server.moved(after.flatten(), {})

    def scores(self, server: Server, split: Split, indices: Tensor | None) -> list[tuple[int | None, Scores]]:
        """Every client's."""
        return [
            (client, self.evaluator(*self._start(server, client), split, indices)) for client in self._place
        ]

    def _start(self, server: Server, client: int) -> tuple[Tensor, Tensor]:
        place = self._place[client]
        return self._rows(server.model)[place], self._rows(server.buffers)[place]

    def _gathering(self, server: Server, number: int, invited: int) -> Gathering:
        return _Apart(self.method, self._place, self._rows(server.model), self._rows(server.buffers))

    def _sent(self, update: Update) -> int:
        return 0

    def _watches(self, number: int, clients: Ints, server: Server) -> dict[int, list[Watch]]:
        return self._one_by_one(number, clients, partial(self._start, server))

    def _named(self, client: int) -> Layout:
        return self.layout.under(f"branches.{self._branch + self._place[client]}")

    def _rows(self, vector: Tensor) -> Tensor:
        count = len(self.members)
        return vector.view(count, len(vector) // count)


class _Averaging:
    """The weighted mean of the updates, and the server's step."""

    def __init__(
        self,
        method: Method,
        layout: Layout,
        server: Server,
        population: int,
        meta: MetaStep | None,
        fold: Fold,
    ) -> None:
        self._method, self._layout, self._server = method, layout, server
        self._population, self._meta, self._fold = population, meta, fold
        self._compared: list[Update] = []

    def add(self, update: Update) -> None:
        weighting = self._method.weighting
        if isinstance(weighting, Single):
            self._fold.add(update, weighting.weigh(update, self._layout))
        else:
            self._compared.append(replace(update, state={}))  # which is held elsewhere by now

    def result(self, number: int) -> tuple[Server, list[Record]]:
        records = list(self._compare(number, tuple(self._compared)))
        aggregate = self._fold.result()
        share = aggregate.clients / self._population
        server = self._method.server_step(self._server, replace(aggregate, share=share))
        return (server if self._meta is None else self._meta(server)), records

    def _compare(self, number: int, updates: tuple[Update, ...]) -> Iterator[Record]:
        """Weigh updates beside each other and fold them; records each client's share αₖ of every layer."""
        if not updates:
            return
        layers = ranked(self._layout, linear=True)
        cohort = Cohort(self._server.model, self._server.buffers, updates, self._layout)
        weights = self._method.weighting.weigh_cohort(cohort)
        for update, weight in zip(updates, weights, strict=True):
            self._fold.add(update, weight)
            values, count = weight.parameters, len(updates)
            if not isinstance(values, Tensor):
                yield Record(number, "weight", values / count, client=update.client)
                continue
            for slot in layers:
                # Divided in double precision: a plain mean's share is 1/K, and not what single makes of it.
                # By numpy, whose sum is the same on any number of threads.
                share = float(values[slot.start : slot.stop].double().numpy().mean()) / count
                yield Record(number, "weight", share, client=update.client, layer=slot.name)


class _Private(_Averaging):
    """The noisy mean of clipped updates, and the server's step."""

    _fold: NoisySum

    def result(self, number: int) -> tuple[Server, list[Record]]:
        server, records = super().result(number)
        return server.moved(server.model, self._fold.state()), [
            *records,
            Record(number, "clip", self._fold.clip),
        ]


class _Apart:
    """Every client's update goes to its own model."""

    def __init__(self, method: Method, place: dict[int, int], models: Tensor, buffers: Tensor) -> None:
        self._method, self._place = method, place
        self._models, self._buffers = models.clone(), buffers.clone()

    def add(self, update: Update) -> None:
        place = self._place[update.client]
        self._models[place] += update.delta
        self._buffers[place] = self._method.buffers.next(self._buffers[place], update.buffers)

    def result(self, number: int) -> tuple[Server, list[Record]]:
        return Server(self._models.flatten(), self._buffers.flatten(), {}), []


def remembered(server: Server) -> State:
    """What bad clients and screens remember."""
    prefixes = faults.MEMORY, screens.MEMORY
    return {name: value for name, value in server.state.items() if name.startswith(prefixes)}


def bytes_of(*tensors: Tensor) -> int:
    """How much tensors take up in a message."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
