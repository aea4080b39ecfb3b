"""Clients with the same model: what they are sent, and what is made of what they send back.

An ordinary federation is one group. With mixed models there is a group for each, and its model is a slice of
the federation's; peers with the same model are a group in which each client has a model of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from mnemos.client.messages import Plan, TrainRequest
from mnemos.client.reply import kept
from mnemos.common.devices import send
from mnemos.data.dataset import Split
from mnemos.data.partition import Ints
from mnemos.engines.engine import Runner
from mnemos.faults.asking import Answer, Train, ask
from mnemos.faults.misconduct import LAST, Misconduct
from mnemos.federation.aggregation import Aggregation, Averaging
from mnemos.federation.model_assignment import ModelAssignment
from mnemos.federation.population import Population
from mnemos.federation.round import Attempt, GroupResult, RoundContext
from mnemos.federation.screening import Screening
from mnemos.measures.evaluate import Evaluator, Judge
from mnemos.measures.measure import Opening, Scores, Watch
from mnemos.methods.exchange import Broadcast, Occasion, Server, State, TrainReply
from mnemos.privacy.gaussian import Mechanism
from mnemos.screens import guard
from mnemos.screens.sound import Form
from mnemos.vector import Layout

_BUFFERS = "buffers"


class Group:
    """Clients whose models are averaged at a server."""

    def __init__(
        self,
        population: Population,
        models: ModelAssignment,
        index: int,
        plan: Plan,
        module: nn.Module,
        mechanism: Mechanism | None = None,
    ) -> None:
        """`plan`: with the group's own model; `mechanism`: the noise that the experiment's privacy adds."""
        self.index, self.plan, self.method, self._mechanism = index, plan, plan.method, mechanism
        self.experiment, self.dataset, self.flow = population.experiment, population.dataset, population.flow
        self.clients, self.name, self._groups = models.clients(index), models.name(index), models.groups
        self._branch = models.branches.index(index)
        """The first branch of the federation's model that is the group's."""
        self._holders = int(np.count_nonzero(self.flow.assignment.train_sizes()[self.clients]))
        self.device = self.experiment.engine.home
        """Where the server's vectors are, and what clients send."""
        own = Layout.of(module)
        self.layout = own.under(self.name)
        beside = {**self.method.sends(self.layout), **self.experiment.privacy.sends}
        first, beside = send((own.gather(module.state_dict()), beside), self.device)
        model, buffers = self._first = first
        form = Form(model, buffers, beside)
        faults, clients = self.experiment.faults, self.flow.assignment.clients
        self.misconduct = Misconduct(faults, plan.seed, clients, self.dataset, self.layout, form)
        self._screening = Screening(self.experiment, self.layout, form, guarded=self._guarded)
        self.example = self._example(model, buffers)
        """What a client remembers, as an example: names and shapes."""
        self.evaluator: Judge = Evaluator(
            module, self.dataset, self.method.buffers.in_batches, self.method.head.read, self.device
        )

    @property
    def _guarded(self) -> bool:
        """Whether the guard compares updates.

        Fewer than three can't be compared; with privacy an update is clipped, and what one client sends must
        not decide whether another's counts.
        """
        return self._mechanism is None and self._holders >= guard.FEWEST

    @property
    def _apart(self) -> bool:
        """Whether a round's clients start from different models."""
        return self.experiment.clock.asynchronous

    # a round

    def train(self, ctx: RoundContext, attempt: Attempt) -> GroupResult:
        """One attempt at a round: broadcast, train, screen, aggregate. New client states are only held."""
        broadcasts = self.broadcasts(ctx, attempt.cohort)
        memory = dict(ctx.servers[self.index].screens)
        answers = self.answers(ctx, broadcasts, attempt, memory)
        result = self.aggregate(ctx, broadcasts, answers, memory)
        result.bytes_down = self.bytes_down(result.server) * result.asked
        return result

    def broadcasts(self, ctx: RoundContext, cohort: Ints) -> dict[int, Broadcast]:
        """What each of the group's clients in a cohort is sent, in the cohort's order."""
        clients = cohort[self._groups[cohort] == self.index].tolist()
        return dict.fromkeys(clients, self.broadcast(ctx.round, ctx.servers[self.index], len(clients)))

    def broadcast(self, round: int, server: Server, invited: int) -> Broadcast:
        """What the `invited` clients of a round are sent."""
        asks = {} if self._mechanism is None else self._mechanism.asks(server.privacy, invited)
        return Broadcast(round, server.model, server.buffers, {**self.method.broadcast(server), **asks})

    def answers(
        self,
        ctx: RoundContext,
        broadcasts: Mapping[int, Broadcast],
        attempt: Attempt,
        memory: State,
        train: Train | None = None,
    ) -> Iterator[Answer]:
        """What comes of asking clients to train, in order; with the reason if an update is rejected.

        `memory`: what screens and bad clients remember, to which they add; `train`: in place of the engine.
        """
        requests = self.requests(ctx, broadcasts, attempt.steps)
        answers = ask(train or ctx.runner.run, requests, attempt.absent, self.misconduct, memory)
        return self._screening.screen(answers, ctx.servers[self.index], memory, ctx.checks)

    def requests(
        self, ctx: RoundContext, broadcasts: Mapping[int, Broadcast], steps: Mapping[int, int]
    ) -> Iterator[TrainRequest]:
        """A request a client that has samples, made when it is sent; `steps`: of those that stop early."""
        plan = self.plan.model_copy(update={"arithmetic": ctx.runner.plan.arithmetic})
        fresh = self.method.client_state(self.layout)
        assignment, flow = self.flow.assignment, self.flow.if_asked
        for client, broadcast in broadcasts.items():
            round = broadcast.round
            model, buffers = self.start(broadcast, client)
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
        broadcasts: Mapping[int, Broadcast],
        answers: Iterable[Answer],
        memory: State,
        discount: Callable[[TrainReply], TrainReply] = lambda update: update,
    ) -> GroupResult:
        """Watch, weigh and fold updates as they arrive; hold what their clients will remember.

        `memory`: what screens remember after the last answer; of a round that came to nothing, the guard
        alone learns. `discount`: makes an update count for less.
        """
        before = ctx.servers[self.index]
        result, watches = GroupResult(before), self._watches(ctx.round, broadcasts)
        aggregation = self.aggregation(ctx.round, before, len(broadcasts))
        for answer in answers:
            result.bytes_up += 0 if answer.update is None else self.bytes_up(answer.update)
            update = result.take(ctx.round, answer)
            if update is None:
                continue
            self._show(update, broadcasts[update.client], watches[update.client])
            aggregation.add(discount(update))
            if answer.trained:  # a client that pretends has neither a loss nor anything to remember
                ctx.client_states.hold(update.client, self._remembered(update.state, update.buffers))
                result.trained_on(ctx.round, update)
        if result.used or self._mechanism is not None:  # noise alone moves the server, too
            server, records = aggregation.result(ctx.round)
            result.server = replace(server, screens=memory)
            result.records += records
        else:
            result.server = guard.remembering(before, memory)
        different = {id(watch): watch for several in watches.values() for watch in several}
        result.watched = [record for watch in different.values() for record in watch.records()]
        return result

    def _watches(self, round: int, broadcasts: Mapping[int, Broadcast]) -> dict[int, list[Watch]]:
        """The watches that see each client's model: one per measure for clients that start from one model."""
        found: dict[int, list[Watch]] = {}
        together = (
            [[client] for client in broadcasts] if self._apart else [[*broadcasts]] if broadcasts else []
        )
        for clients in together:
            first = clients[0]
            opening = Opening(
                round,
                self.experiment.rounds,
                *self.start(broadcasts[first], first),
                self._client_layout(first),
                self.flow,
                np.array(clients),
                lambda model, buffers, indices: self.evaluator(model, buffers, self.dataset.train, indices),
                lambda model, buffers: self.evaluator(model, buffers, self.dataset.test),
            )
            watches = [measure.watch(opening) for measure in self.experiment.watching]
            opened = [watch for watch in watches if watch is not None]
            found |= dict.fromkeys(clients, opened)
        return found

    def _show(self, update: TrainReply, broadcast: Broadcast, watches: Iterable[Watch]) -> None:
        """Let measures see a client's model after its local training."""
        model, buffers = self.start(broadcast, update.client)
        after = update.buffers if self.method.buffers.sent else buffers
        for watch in watches:
            watch.see(update.client, model + update.delta, after)

    # what differs between kinds of groups

    def first(self) -> Server:
        """The server before the first round."""
        privacy = {} if self._mechanism is None else self._mechanism.state()
        watched = self.experiment.faults or self.experiment.screens
        screens = {LAST: torch.zeros_like(self._first[0])} if watched else {}
        state = send(self.method.server_state(self.layout), self.device)
        return Server(*self._first, state, screens=screens, privacy=privacy)

    def start(self, source: Broadcast | Server, client: int) -> tuple[Tensor, Tensor]:
        """The model that a client starts a round from, and its buffers."""
        return source.model, source.buffers

    def aggregation(self, round: int, server: Server, invited: int) -> Aggregation:
        """A fresh aggregation for a round to which `invited` clients are asked."""
        occasion = Occasion(server.state, self.experiment.seed, round)
        fold = (
            self.method.fold(self.layout, occasion)
            if self._mechanism is None
            else self._mechanism.fold(self.layout, server, round, invited)
        )
        return Averaging(self.method, server, self.layout, fold, self._holders)

    def models(self, result: GroupResult) -> list[tuple[Tensor, Tensor]]:
        """The models that take part in an exchange after the round, with their buffers."""
        return [(result.server.model, result.server.buffers)]

    def with_models(self, result: GroupResult, models: list[Tensor]) -> Server:
        """The server with what an exchange has made of these models."""
        return result.server.moved(models[0], {})

    def scores(self, server: Server, split: Split, indices: Tensor | None) -> list[tuple[int | None, Scores]]:
        """Scores of the group's models, by the client whose own it is, on (some samples of) a split."""
        return [(None, self.evaluator(server.model, server.buffers, split, indices))]

    def connect(self, runner: Runner) -> None:
        """Evaluate models where the samples are, if the engine knows how."""
        evaluator = runner.evaluator(self.dataset)
        if evaluator is not None:
            self.evaluator.close()
            self.evaluator = evaluator

    def _example(self, model: Tensor, buffers: Tensor) -> State:
        optimizer = kept(self.plan.local, self.plan.local.optimizer.init(model, self.layout))
        return self._remembered({**self.method.client_state(self.layout), **optimizer}, buffers)

    def _remembered(self, state: State, buffers: Tensor) -> State:
        """What is kept of a client: the method's state, and its buffers if they are its own."""
        return {**state, _BUFFERS: buffers} if self.method.buffers.local else state

    def _sent_state(self, state: State, ctx: RoundContext) -> State:
        """What a client is reminded of."""
        return state

    def bytes_up(self, update: TrainReply) -> int:
        """Bytes that a client sends."""
        always = _bytes(update.delta, *update.change.values())
        return always + (_bytes(update.buffers) if self.method.buffers.sent else 0)

    def bytes_down(self, server: Server) -> int:
        """Bytes that a client is sent."""
        always = _bytes(server.model, *self.broadcast(0, server, 1).received.values())
        return always + (_bytes(server.buffers) if self.method.buffers.received else 0)

    def _client_layout(self, client: int) -> Layout:
        """The layout of a client's model, with the names that its layers have in the federation's."""
        return self.layout


def _bytes(*tensors: Tensor) -> int:
    """How much tensors take up in a message."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
