"""Clients with the same kind of model: what the server sends them, and what it makes of their updates.

An ordinary federation is one group. With mixed models there is one group per model, and its vector is a slice
of the federation's. Peers with the same kind of model are a group in which each client has its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from itertools import chain, islice

import numpy as np
import torch
from torch import Tensor, nn

from mnemos.client.evaluation import evaluating_a_client
from mnemos.client.messages import Plan
from mnemos.client.reply import kept
from mnemos.client.requests import TrainRequests
from mnemos.common.devices import send
from mnemos.data.dataset import Split
from mnemos.data.partition import Ints
from mnemos.engines.engine import Runner
from mnemos.faults.delivery import Answers, Train, ask, by_engine
from mnemos.faults.misconduct import LAST, Misconduct
from mnemos.federation.aggregation import Aggregation, Averaging
from mnemos.federation.model_assignment import ModelAssignment
from mnemos.federation.population import Population
from mnemos.federation.requests import BUFFERS, requests_to
from mnemos.federation.round import Attempt, GroupResult, RoundContext
from mnemos.federation.screening import Screening
from mnemos.measures.evaluate import Evaluator, Judge
from mnemos.measures.measure import Measure, Opening, Scores, Watch
from mnemos.methods.exchange import Broadcast, Occasion, Server, State, TrainReply
from mnemos.methods.replies import Columns, TrainReplies
from mnemos.privacy.gaussian import Mechanism
from mnemos.screens import guard
from mnemos.screens.sound import Form
from mnemos.vector import Layout


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
        """`plan`: has the group's own model; `mechanism`: clips and adds noise; None without privacy."""
        self.index, self.plan, self.method, self._mechanism = index, plan, plan.method, mechanism
        self.experiment, self.dataset, self.flow = population.experiment, population.dataset, population.flow
        self.clients, self.name, self._groups = models.clients(index), models.name(index), models.groups
        self._branch = models.branches.index(index)
        """The index of the group's first branch in the federation's model."""
        self._holders = int(np.count_nonzero(self.flow.assignment.train_sizes()[self.clients]))
        self.device = self.experiment.engine.home
        """Where the server's vectors and the clients' updates are."""
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
        """An example of what a client remembers, for names and shapes."""
        self.evaluator: Judge = Evaluator(
            module, self.dataset, self.method.buffers.in_batches, self.method.head.read, self.device
        )

    @property
    def _guarded(self) -> bool:
        """Whether the guard compares updates.

        Fewer than three can't be compared. With privacy updates are clipped anyway, and one client's update
        must not decide whether another's counts.
        """
        return self._mechanism is None and self._holders >= guard.FEWEST

    @property
    def _apart(self) -> bool:
        """Whether a round's clients start from different models."""
        return self.experiment.clock.asynchronous

    # a round

    def train(self, ctx: RoundContext, attempt: Attempt) -> GroupResult:
        """One attempt at a round: broadcast, train, screen, aggregate. Doesn't commit client states."""
        broadcasts = self.broadcasts(ctx, attempt.cohort)
        memory = dict(ctx.servers[self.index].screens)
        answers = self.answers(ctx, broadcasts, attempt, memory)
        result = self.aggregate(ctx, broadcasts, answers, memory)
        result.bytes_down = self.bytes_down(result.server) * result.asked
        return result

    def broadcasts(self, ctx: RoundContext, cohort: Ints) -> dict[int, Broadcast]:
        """What the server sends to each of the group's clients in a cohort, in the cohort's order."""
        clients = cohort[self._groups[cohort] == self.index].tolist()
        return dict.fromkeys(clients, self.broadcast(ctx.round, ctx.servers[self.index], len(clients)))

    def broadcast(self, round: int, server: Server, invited: int) -> Broadcast:
        """What the server sends to each of the `invited` clients of a round."""
        asks = {} if self._mechanism is None else self._mechanism.asks(server.privacy, invited)
        return Broadcast(round, server.model, server.buffers, {**self.method.broadcast(server), **asks})

    def answers(
        self,
        ctx: RoundContext,
        broadcasts: Mapping[int, Broadcast],
        attempt: Attempt,
        memory: State,
        train: Train | None = None,
    ) -> Iterator[Answers]:
        """Ask clients to train, screen their updates, and yield the answers in the order of the broadcasts.

        `memory`: what screens and bad clients remember; both add. `train`: called instead of the engine's.
        """
        requests = self.requests(ctx, broadcasts, attempt.steps)
        absent = {**attempt.absent, **dict.fromkeys(ctx.without)}
        if train is None:
            present = len(broadcasts) if not absent else sum(client not in absent for client in broadcasts)
            train = by_engine(ctx.runner, present)
        answers = ask(train, requests, absent, self.misconduct, memory)
        return self._screening.screen(answers, ctx.servers[self.index], memory, ctx.checks)

    def requests(
        self, ctx: RoundContext, broadcasts: Mapping[int, Broadcast], steps: Mapping[int, int]
    ) -> TrainRequests:
        """The requests to all clients that have samples; each is made when it is looked at.

        `steps`: how many steps each client makes that has to stop early.
        """
        return requests_to(self, ctx, broadcasts, steps)

    @cached_property
    def alike(self) -> bool:
        """Whether clients that are sent the same differ in samples and in the method's memory alone."""
        same_data = self.flow.assignment.noise is None and not self.flow.if_asked.tasks
        same_memory = not (self.plan.local.keeps or self.method.buffers.local)
        return same_data and same_memory and not self.misconduct.changes_data

    def aggregate(
        self,
        ctx: RoundContext,
        broadcasts: Mapping[int, Broadcast],
        answers: Iterable[Answers],
        memory: State,
        discount: Callable[[TrainReply], TrainReply] | None = None,
    ) -> GroupResult:
        """Watch, weigh and fold updates as they arrive; hold what their clients will remember.

        `memory`: the screens add to it while `answers` are read, and the server keeps it after the round. If
        no update was usable, it keeps only the guard's part. `discount`: scales down a late update.
        """
        before = ctx.servers[self.index]
        result, watches = GroupResult(before), self._watches(ctx, broadcasts)
        answers = _begun(answers)
        # Where the engine's last bits are vmap's, sums may be taken in another order as well.
        together = ctx.runner.plan.arithmetic.vmap
        aggregation = self.aggregation(ctx.round, before, len(broadcasts), together=together)
        for some in answers:
            result.bytes_up += sum(map(self.bytes_up, some.sent))
            updates = result.take(ctx.round, some)
            if not updates:
                continue
            for update in updates if ctx.measured and self.experiment.watching else ():
                self._show(update, broadcasts[update.client], watches[update.client])
            aggregation.add(updates if discount is None else updates.each(discount))
            if some.trained:  # a client that only pretends has no loss and no state
                self._hold(ctx, updates)
        if result.used or self._mechanism is not None:  # with privacy, noise alone is a step, too
            server, records = aggregation.result(ctx.round)
            result.server = replace(server, screens=memory)
            result.records += records
        else:
            result.server = guard.remembering(before, memory)
        different = {id(watch): watch for several in watches.values() for watch in several}
        result.watches = [*different.values()]
        return result

    def _hold(self, ctx: RoundContext, updates: TrainReplies) -> None:
        """Hold what clients will remember."""
        if updates.in_columns:
            found = updates.columns
            ctx.client_states.hold_all(found.clients, self._remembered(found.state, found.buffers))
            return
        for update in updates:
            ctx.client_states.hold(update.client, self._remembered(update.state, update.buffers))

    def _watches(self, ctx: RoundContext, broadcasts: Mapping[int, Broadcast]) -> dict[int, list[Watch]]:
        """The watches that see each client's model; clients that start from the same model share them."""
        measures = self.experiment.watching if ctx.measured else ()
        if not self._apart:
            return dict.fromkeys(broadcasts, self._opened(ctx, broadcasts, measures)) if broadcasts else {}
        single = [measure for measure in measures if not measure.together]
        found = {client: self._opened(ctx, {client: sent}, single) for client, sent in broadcasts.items()}
        if broadcasts and (rest := [measure for measure in measures if measure.together]):
            server = ctx.servers[self.index]
            current = Broadcast(ctx.round, server.model, server.buffers, {})
            shared = self._opened(ctx, dict.fromkeys(broadcasts, current), rest)
            found = {client: [*own, *shared] for client, own in found.items()}
        return found

    def _opened(
        self, ctx: RoundContext, broadcasts: Mapping[int, Broadcast], measures: Iterable[Measure]
    ) -> list[Watch]:
        """The watches of some measures over clients that start from the same model."""
        first = next(iter(broadcasts))
        opening = Opening(
            ctx.round,
            self.experiment.rounds,
            *self.start(broadcasts[first], first),
            self._client_layout(first),
            self.flow,
            np.array([*broadcasts]),
            lambda model, buffers, indices: self.evaluator(model, buffers, self.dataset.train, indices),
            lambda model, buffers: self.evaluator(model, buffers, self.dataset.test),
        )
        watches = [measure.watch(opening) for measure in measures]
        return [watch for watch in watches if watch is not None]

    def _show(self, update: TrainReply, broadcast: Broadcast, watches: Iterable[Watch]) -> None:
        """Show a client's model after its local training to the measures."""
        model, buffers = self.start(broadcast, update.client)
        after = update.buffers if self.method.buffers.sent else buffers
        with evaluating_a_client():
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
        """The model and the buffers that a client starts from; `source`: what it was sent, or the server."""
        return source.model, source.buffers

    def aggregation(self, round: int, server: Server, invited: int, *, together: bool) -> Aggregation:
        """A fresh aggregation for a round in which `invited` clients are asked.

        `together`: many updates may be folded at once, by which the last bits differ.
        """
        occasion = Occasion(server.state, self.experiment.seed, round)
        fold = (
            self.method.fold(self.layout, occasion)
            if self._mechanism is None
            else self._mechanism.fold(self.layout, server, round, invited)
        )
        return Averaging(self.method, server, self.layout, fold, self._holders, together=together)

    def models(self, result: GroupResult) -> list[tuple[Tensor, Tensor]]:
        """The models, with their buffers, that take part in an exchange after the round."""
        return [(result.server.model, result.server.buffers)]

    def with_models(self, result: GroupResult, models: list[Tensor]) -> Server:
        """The server with the models that an exchange has led to, in the order of `models`."""
        return result.server.moved(models[0], {})

    def scores(self, server: Server, split: Split, indices: Tensor | None) -> list[tuple[int | None, Scores]]:
        """Scores of each of the group's models on (some samples of) a split, with the client that owns it."""
        return [(None, self.evaluator(server.model, server.buffers, split, indices))]

    def connect(self, runner: Runner) -> None:
        """Have owners evaluate models from now on, if the engine's samples are with them."""
        evaluator = runner.evaluator(self.dataset)
        if evaluator is not None:
            self.evaluator.close()
            self.evaluator = evaluator

    def _example(self, model: Tensor, buffers: Tensor) -> State:
        optimizer = kept(self.plan.local, self.plan.local.optimizer.init(model, self.layout))
        return self._remembered({**self.method.client_state(self.layout), **optimizer}, buffers)

    def _remembered(self, state: State, buffers: Tensor) -> State:
        """What is kept for a client: the method's state, and its buffers if they stay with the client."""
        return {**state, BUFFERS: buffers} if self.method.buffers.local else state

    def sent_state(self, state: State, ctx: RoundContext) -> State:
        """The client's state as its request contains it."""
        return state

    def bytes_up(self, update: TrainReply | Columns) -> int:
        """Bytes that a client sends to the server, or all clients of some columns."""
        always = update.delta.nbytes + (_bytes(*update.change.values()) if update.change else 0)
        return always + (update.buffers.nbytes if self.method.buffers.sent else 0)

    def bytes_down(self, server: Server) -> int:
        """Bytes that the server sends to a client."""
        always = _bytes(server.model, *self.broadcast(0, server, 1).received.values())
        return always + (_bytes(server.buffers) if self.method.buffers.received else 0)

    def _client_layout(self, client: int) -> Layout:
        """The layout of a client's model; layers have the names that they have in the federation's model."""
        return self.layout


def _begun(answers: Iterable[Answers]) -> Iterator[Answers]:
    """The answers, the first of which has been asked for: `auto` chooses its engine by then."""
    rest = iter(answers)
    return chain(list(islice(rest, 1)), rest)


def _bytes(*tensors: Tensor) -> int:
    """The size of tensors in a message."""
    return sum(tensor.nbytes for tensor in tensors)
