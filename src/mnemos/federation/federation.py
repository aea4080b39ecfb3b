"""The round: select, train, screen, aggregate, step, evaluate, record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from mnemos.client.messages import TrainRequest
from mnemos.client.trainer import fresh_model
from mnemos.common.devices import send
from mnemos.data.partition import Ints
from mnemos.engines.engine import Runner, Work
from mnemos.engines.several import open_each
from mnemos.errors import naming
from mnemos.experiment.experiment import Experiment
from mnemos.federation.assembly import Parts
from mnemos.federation.client_states import ClientStates
from mnemos.federation.records import mean_loss, round_records
from mnemos.federation.round import Check, RoundContext, RoundResult
from mnemos.federation.servers import check_finite, joined, split
from mnemos.measures.measure import Record, Scores
from mnemos.methods.exchange import Server
from mnemos.models.encoder import Encoder, place

if TYPE_CHECKING:  # a run from random weights trains no encoder
    from mnemos.pretrain.train import Tell


@dataclass(frozen=True)
class Outcome:
    """What a round leaves: its records, its training loss, and the scores of its model."""

    round: int
    records: list[Record]
    loss: float
    validation: Scores | None
    test: Scores | None
    stuck: str = ""
    """Why going on is pointless, as a sentence; empty as a rule."""


class Federation:
    """A population of clients, a server, and the rounds between them."""

    def __init__(self, experiment: Experiment, checks: tuple[Check, ...] = ()) -> None:
        """`checks` look at each update before it counts. A `ConfigError` says why an experiment can't run."""
        parts = Parts(experiment)
        self.experiment, self.dataset, self.checks = parts.experiment, parts.dataset, checks
        self.population, self.guarantee, self.plan = parts.population, parts.guarantee, parts.plan
        self.flow, self.assignment = parts.population.flow, parts.population.flow.assignment
        self.layout, self.groups, self.warnings = parts.layout, parts.groups, parts.warnings
        self.protocol, self.retries, self.hooks = parts.protocol, parts.retries, parts.hooks
        self.evaluation, self.models, self.method = parts.evaluation, parts.models, self.plan.method
        promised = self.guarantee
        self.spend: Callable[[int, Server], float] | None = None if promised is None else promised.spend
        """Returns ε with a round's model; called before that model leaves the server. None: no privacy."""
        self.servers = tuple(group.first() for group in self.groups)
        self.client_states = ClientStates([group.example for group in self.groups], self.models.groups)
        self.round = 0
        self._started = False

    def advance(self, runner: Runner, without: frozenset[int] = frozenset()) -> Outcome:
        """Round t: select, train, screen, aggregate, step, evaluate, record; `without` are clients away."""
        self.load_start()
        ctx = RoundContext(
            self.round + 1, self.servers, self.client_states, runner, self.checks, without=without
        )
        ctx.client_states.drop()  # left over if a round was interrupted
        records = [] if self.round else self.evaluation.before_training(self.servers)
        result = self.play(ctx)
        server = joined(self.groups, result.servers)
        check_finite(ctx.round, server, sum(group.loss for group in result.groups))
        records += round_records(ctx.round, result)
        if self.spend is not None:  # before the model leaves the server
            records.append(Record(ctx.round, "epsilon", self.spend(ctx.round, server)))
        self.servers, self.round = result.servers, ctx.round
        self.client_states.commit(ctx.round)
        return self._evaluated(ctx, result, records)

    def play(self, ctx: RoundContext) -> RoundResult:
        """The result of a round, up to its last hook; client states are held, and nothing else is changed."""
        result = self.protocol.run(ctx)
        for hook in self.hooks:
            result = hook(ctx, result)
        return result

    def _evaluated(self, ctx: RoundContext, result: RoundResult, records: list[Record]) -> Outcome:
        """Evaluate the round's model, and return the outcome of the round."""
        found, measured = self.evaluation.after(ctx.round, self.servers)
        for group in result.groups:
            for watch in group.watches:
                watch.aggregated(group.server.model, group.server.buffers)
                records += watch.records()
        stuck = self.evaluation.stuck(ctx.round, found.get("validation"))
        scores = {part: evaluation.together for part, evaluation in found.items()}
        validation, test = scores.get("validation"), scores.get("test")
        return Outcome(ctx.round, [*records, *measured], mean_loss(result), validation, test, stuck)

    # before the first round, and around all of them

    def rewind(self) -> None:
        """Go back to the state before the first round."""
        self.servers = tuple(group.first() for group in self.groups)
        self.client_states.clear()
        self.evaluation.at_chance_since = None
        self.round, self._started = 0, False

    def check_start(self) -> None:
        """Raise a `ConfigError` if the model can't start from what the experiment names in `start`."""
        with naming("start"):
            encoder = self.experiment.start.check(self.plan.model, self.dataset.shape)
            if encoder is not None:
                place(encoder, fresh_model(self.plan, self.dataset), self.dataset.shape)

    def load_start(self, tell: Tell = lambda _done, _total, _note: None) -> Encoder | None:
        """Put the encoder that the experiment starts from into the model, and return it.

        None if the model starts from random weights, or if the encoder was put there before.
        """
        if self._started or self.round:
            return None
        with naming("start"):
            encoder = self.experiment.start.encoder(self.plan.model, self.dataset.shape, tell)
            if encoder is not None:
                module = fresh_model(self.plan, self.dataset)
                place(encoder, module, self.dataset.shape)
                model, buffers = send(self.layout.gather(module.state_dict()), self.server.model.device)
                self.server = replace(self.server, model=model, buffers=buffers)
        self._started = True
        return encoder

    def open(self) -> Runner:
        """Open the engine, and return the runner that trains cohorts."""
        work, schedule = Work(self.population.cohort_size, self.experiment.rounds), self.population.schedule
        if schedule is not None:
            work = Work(schedule.slots, -(-work.rounds * schedule.clock.buffer // schedule.slots))
        runner = open_each(self.experiment.engine, [group.plan for group in self.groups], self.dataset, work)
        for group in self.groups:
            group.connect(runner)
        return runner

    def close(self) -> None:
        """End the threads of the evaluators."""
        for group in self.groups:
            group.evaluator.close()

    @property
    def server(self) -> Server:
        """What the server holds; the models of several groups are laid end to end."""
        return joined(self.groups, self.servers)

    @server.setter
    def server(self, server: Server) -> None:
        self.servers = split(self.groups, server)

    def cohort(self, round: int) -> Ints:
        """The clients that are asked in the first attempt at a round."""
        return self.population.cohort(round)

    def requests(
        self, round: int, runner: Runner, group: int = 0, steps: Mapping[int, int] = MappingProxyType({})
    ) -> Iterator[TrainRequest]:
        """The requests to a group's clients in a round, made from what the server holds now.

        `steps`: how many steps each client makes that has to stop early.
        """
        ctx = RoundContext(round, self.servers, self.client_states, runner)
        broadcasts = self.groups[group].broadcasts(ctx, self.cohort(round))
        return iter(self.groups[group].requests(ctx, broadcasts, steps))
