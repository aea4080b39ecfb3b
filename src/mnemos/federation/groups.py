"""Clients that have the same model: what they are sent, and what is made of what they send back.

An ordinary federation is one group. With mixed models there is a group for each, and its model is a slice of
the federation's; peers with the same model are a group in which each client has a model of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mnemos.client.messages import Plan, TrainRequest
from mnemos.client.reply import kept
from mnemos.data.dataset import Split
from mnemos.data.partition import Ints
from mnemos.engines.engine import Runner
from mnemos.federation.aggregation import Aggregation, Averaging, PrivateAveraging
from mnemos.federation.misconduct import LAST, Misconduct
from mnemos.federation.population import Population
from mnemos.federation.round import Answer, Attempt, Broadcast, GroupResult, RoundContext, Start
from mnemos.federation.screening import Screening
from mnemos.federation.server_learning import MetaStep
from mnemos.federation.watching import Watching
from mnemos.measures.evaluate import Evaluator, Judge
from mnemos.measures.measure import Opening, Scores, Watch
from mnemos.methods.exchange import Occasion, Server, State, TrainReply
from mnemos.privacy.gaussian import Mechanism
from mnemos.screens import guard
from mnemos.screens.sound import Form
from mnemos.vector import Layout

_BUFFERS = "buffers"


@dataclass(frozen=True)
class Members:
    """The clients of a group, and where their model is in the federation's."""

    group: int
    groups: NDArray[np.int16]
    """The group of every client of the federation."""
    branch: int = 0
    """The first branch of the federation's model that is the group's."""
    name: str = ""
    """What the names of the group's layers begin with; empty for the only group, and for peers."""

    @cached_property
    def clients(self) -> Ints:
        """All of them."""
        return np.flatnonzero(self.groups == self.group)

    def of(self, cohort: Ints) -> Ints:
        """Those that are in a cohort, in its order."""
        found: Ints = cohort[self.groups[cohort] == self.group]
        return found


class Group:
    """Clients whose models are averaged at a server."""

    def __init__(
        self,
        population: Population,
        plan: Plan,
        members: Members,
        module: nn.Module,
        mechanism: Mechanism | None = None,
    ) -> None:
        """`plan`: with the group's own model; `mechanism`: the noise that the experiment's privacy adds."""
        self.plan, self.members, self._population, self._mechanism = plan, members, population, mechanism
        self.experiment, self.dataset, self.flow = population.experiment, population.dataset, population.flow
        self.method = plan.method
        self._holders = int(np.count_nonzero(self.flow.assignment.train_sizes()[members.clients]))
        own = Layout.of(module)
        self.layout = own.under(members.name)
        model, buffers = self._first = own.gather(module.state_dict())
        beside = {**self.method.sends(self.layout), **self.experiment.privacy.sends}
        form = Form(self.layout.zeros(), torch.zeros(self.layout.buffer_size), beside)
        clients = self.flow.assignment.clients
        self.misconduct = Misconduct(self.experiment, self.dataset, self.layout, form, clients)
        self.screening = Screening(self.experiment, self.layout, form, guarded=self._guarded)
        meta = self.method.meta
        self._meta = None if meta is None else MetaStep(plan, meta, self.dataset)
        self.example = self._example(model, buffers)
        """What a client remembers, as an example: names and shapes."""
        self.evaluator: Judge = Evaluator(
            module, self.dataset, self.method.buffers.in_batches, self.method.head.read
        )

    @property
    def _guarded(self) -> bool:
        """Whether the guard compares updates.

        Fewer than three can't be compared; with privacy an update is clipped, and what one client sends must
        not decide whether another's counts.
        """
        return self._mechanism is None and self._holders >= guard.FEWEST

    # a round

    def train(self, ctx: RoundContext, attempt: Attempt) -> GroupResult:
        """One attempt at a round: broadcast, train, screen, aggregate. New client states are only held."""
        server = ctx.servers[self.members.group]
        clients = self.members.of(attempt.cohort)
        memory = dict(server.screens)
        answers = self.answers(ctx, attempt, memory)
        aggregation = self.aggregation(ctx.round, server, len(clients))
        watching = self.watching(ctx.round, clients, server)
        result = self.aggregate(ctx, answers, aggregation, watching, memory)
        result.received = self.bytes_received(result.server) * result.asked
        return result

    def answers(self, ctx: RoundContext, attempt: Attempt, memory: State) -> Iterator[Answer]:
        """What comes of asking the group's clients of an attempt to train: screened, in the cohort's order.

        `memory`: what screens remember, which they add to.
        """
        server = ctx.servers[self.members.group]
        clients = self.members.of(attempt.cohort)
        broadcast = self.broadcast(ctx.round, server, len(clients))
        requests = self.requests(ctx, broadcast, clients, attempt.steps)
        heard = self.misconduct.around(ctx.runner, requests, attempt, memory)
        return self.screening.screen(heard, server, memory, ctx.checks)

    def broadcast(self, round: int, server: Server, invited: int) -> Broadcast:
        """What the `invited` clients of a round are sent."""
        asks = {} if self._mechanism is None else self._mechanism.asks(server.privacy, invited)
        received = {**self.method.broadcast(server), **asks}
        return Broadcast(round, partial(self.start, server), received)

    def requests(
        self, ctx: RoundContext, broadcast: Broadcast, clients: Ints, steps: Mapping[int, int]
    ) -> Iterator[TrainRequest]:
        """A request a client that has samples, made when it is sent; `steps`: of those that stop early."""
        plan = self.plan.model_copy(update={"arithmetic": ctx.runner.plan.arithmetic})
        fresh = self.method.client_state(self.layout)
        assignment, flow, round = self.flow.assignment, self.flow.if_asked, broadcast.round
        for client in clients.tolist():
            model, buffers = broadcast.start(client)
            state = fresh
            if client in ctx.client_states:
                state = ctx.client_states[client]
                buffers = state.pop(_BUFFERS, buffers)
            samples = flow.samples(client, round)
            if not len(samples):
                continue  # a stream may leave a client without data for a while
            yield TrainRequest(
                plan=plan,
                round=round,
                client=client,
                model=model,
                buffers=buffers,
                received=broadcast.received,
                state=self._sent_state(state, ctx),
                samples=torch.from_numpy(np.ascontiguousarray(samples)),
                held_out=torch.from_numpy(np.ascontiguousarray(assignment.held_out(client))),
                met=torch.from_numpy(flow.met(client, round)),
                present=torch.from_numpy(flow.present(client, round)),
                noise=0.0 if assignment.noise is None else float(assignment.noise[client]),
                label_map=self.misconduct.label_map(client),
                steps=steps.get(client),
                trigger=self.misconduct.trigger(client),
            )

    def aggregate(
        self,
        ctx: RoundContext,
        answers: Iterable[Answer],
        aggregation: Aggregation,
        watching: Watching,
        memory: State,
    ) -> GroupResult:
        """Watch, weigh and fold updates as they arrive; hold what their clients will remember.

        `memory`: what screens remember after the last answer; of a round that came to nothing, the guard
        alone learns.
        """
        before = ctx.servers[self.members.group]
        result = GroupResult(before)
        for answer in answers:
            update = answer.update
            result.sent += 0 if update is None else self.bytes_sent(update)
            if not result.take(ctx.round, answer) or update is None:
                continue
            watching.see(update)
            aggregation.add(update)
            if answer.trained:  # a client that pretends has neither a loss nor anything to remember
                ctx.client_states.hold(update.client, self._remembered(update.state, update.buffers))
                result.trained_on(ctx.round, update)
        if result.used or aggregation.without_updates:
            server, records = aggregation.result(ctx.round)
            server = server if self._meta is None else self._meta(server)
            result.server = replace(server, screens=memory)
            result.records += records
        else:
            result.server = replace(before, screens={**before.screens, **guard.learnt(memory)})
        result.watched = list(watching.records())
        return result

    def moved(self, before: Server, after: Server) -> Server:
        """The server after a round and its hooks, which remembers its change if faults or screens need it."""
        if LAST not in after.screens or after.model is before.model:
            return after
        return replace(after, screens={**after.screens, LAST: after.model - before.model})

    # what differs between kinds of groups

    def first(self) -> Server:
        """The server before the first round."""
        privacy = {} if self._mechanism is None else self._mechanism.state()
        watched = self.experiment.faults or self.experiment.screens
        screens = {LAST: self.layout.zeros()} if watched else {}
        return Server(*self._first, self.method.server_state(self.layout), screens=screens, privacy=privacy)

    def start(self, server: Server, client: int) -> tuple[Tensor, Tensor]:
        """The model that a client starts a round from, and its buffers."""
        return server.model, server.buffers

    def aggregation(self, round: int, server: Server, invited: int) -> Aggregation:
        """A fresh aggregation for a round to which `invited` clients are asked."""
        if self._mechanism is None:
            fold = self.method.fold(self.layout, Occasion(server.state, self.experiment.seed, round))
            return Averaging(self.method, server, self.layout, fold, self._holders)
        noisy = self._mechanism.fold(self.layout, server, round, invited)
        return PrivateAveraging(self.method, server, self.layout, noisy, self._holders)

    def models(self, result: GroupResult) -> list[tuple[Tensor, Tensor]]:
        """The models that take part in an exchange after the round, with their buffers."""
        return [(result.server.model, result.server.buffers)]

    def with_models(self, result: GroupResult, models: list[Tensor]) -> Server:
        """The server with what an exchange has made of these models."""
        return result.server.moved(models[0], {})

    def scores(self, server: Server, split: Split, indices: Tensor | None) -> list[tuple[int | None, Scores]]:
        """Scores of the group's models, by the client whose own it is, on (some samples of) a split."""
        return [(None, self.evaluator(server.model, server.buffers, split, indices))]

    def watching(self, round: int, clients: Ints, server: Server) -> Watching:
        """The measures that watch the clients' models."""
        opened = self._opened(round, clients, server.model, server.buffers, self.layout)
        return Watching(self.method, partial(self.start, server), dict.fromkeys(clients.tolist(), opened))

    def watching_apart(self, round: int, clients: Ints, start: Start) -> Watching:
        """The measures that watch the clients' models, where clients start from different ones."""
        opened = {
            client: self._opened(round, np.array([client]), *start(client), self._client_layout(client))
            for client in clients.tolist()
        }
        return Watching(self.method, start, opened)

    def connect(self, runner: Runner) -> None:
        """Evaluate models where the samples are, if the engine knows how."""
        evaluator = runner.evaluator(self.dataset)
        if evaluator is not None:
            self.evaluator.close()
            self.evaluator = evaluator

    def close(self) -> None:
        """Let go of threads."""
        self.evaluator.close()

    def _example(self, model: Tensor, buffers: Tensor) -> State:
        optimizer = kept(self.plan.local, self.plan.local.optimizer.init(model, self.layout))
        return self._remembered({**self.method.client_state(self.layout), **optimizer}, buffers)

    def _remembered(self, state: State, buffers: Tensor) -> State:
        """What is kept of a client: the method's state, and its buffers if they are its own."""
        return {**state, _BUFFERS: buffers} if self.method.buffers.local else state

    def _sent_state(self, state: State, ctx: RoundContext) -> State:
        """What a client is reminded of."""
        return state

    def bytes_sent(self, update: TrainReply) -> int:
        """Bytes that a client sends."""
        sent = bytes_of(update.delta, *update.change.values())
        return sent + (bytes_of(update.buffers) if self.method.buffers.sent else 0)

    def bytes_received(self, server: Server) -> int:
        """Bytes that a client is sent."""
        sent = bytes_of(server.model, *self.broadcast(0, server, 1).received.values())
        return sent + (bytes_of(server.buffers) if self.method.buffers.received else 0)

    def _client_layout(self, client: int) -> Layout:
        """The layout of a client's model, with the names that its layers have in the federation's."""
        return self.layout

    def _opened(
        self, round: int, clients: Ints, model: Tensor, buffers: Tensor, layout: Layout
    ) -> list[Watch]:
        opening = Opening(
            round,
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


def bytes_of(*tensors: Tensor) -> int:
    """How much tensors take up in a message."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
