"""Makes the parts of a federation from an experiment, and checks that they fit together."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from mnemos.client.trainer import fresh_model
from mnemos.common.activity import doing
from mnemos.data.dataset import Dataset
from mnemos.data.load import load
from mnemos.data.stream import Flow
from mnemos.errors import ConfigError, naming
from mnemos.experiment.compatibility.cautions import warnings
from mnemos.experiment.compatibility.check import check_experiment
from mnemos.experiment.compatibility.learners import CENTRALISED
from mnemos.experiment.compatibility.row import refuse
from mnemos.experiment.compatibility.setup import Setup
from mnemos.experiment.compatibility.training import check, check_company, check_measures
from mnemos.experiment.experiment import Experiment
from mnemos.federation.evaluation import RoundEvaluation
from mnemos.federation.groups import Group
from mnemos.federation.hooks import (
    ExchangePredictions,
    LearnFromOwnSamples,
    RoundHook,
    remember_change,
    simulate_time,
)
from mnemos.federation.model_assignment import assign_models, exchange_of
from mnemos.federation.peers import Peers
from mnemos.federation.population import Population, held_back, partition_samples
from mnemos.federation.protocols.asynchronous import AsynchronousRounds
from mnemos.federation.protocols.protocol import RoundProtocol
from mnemos.federation.protocols.synchronous import SynchronousRounds
from mnemos.federation.retries import Retries
from mnemos.privacy.guarantee import Guarantee, promise
from mnemos.vector import Layout


class Parts:
    """Everything a federation is made of."""

    def __init__(self, experiment: Experiment) -> None:
        check_experiment(experiment)
        self.dataset = load(experiment.data)
        doing("dividing the samples among clients")
        self.population = Population(experiment, self.dataset)
        self.guarantee = _promise(self.population)
        """What the experiment promises about clients' data; None: nothing."""
        if self.guarantee is not None and self.guarantee.limit:
            # The budget ends the run early: its last rounds, for tests and schedules, are the last it allows.
            experiment = experiment.model_copy(update={"rounds": self.guarantee.rounds})
            self.population = Population(experiment, self.dataset)
        self.experiment = experiment
        self.models = assign_models(experiment, self.population.flow.assignment.clients)
        self.plan = experiment.plan.model_copy(
            update={"local": self.population.local, "model": self.models.model}
        )
        with naming("model"):
            module = fresh_model(self.plan, self.dataset)
        self.layout = Layout.of(module)
        check_measures(experiment, self.dataset, self.population.flow, self.layout)
        check_company(experiment, self.population.cohort_size)
        sentences = [*experiment.fitted, *(self.guarantee.warnings if self.guarantee else ())]
        self.groups = [self._group(group, module, sentences) for group in range(len(self.models.models))]
        self.warnings = tuple(dict.fromkeys(sentences))
        self._assemble_rounds()
        self.evaluation = RoundEvaluation(self.population, self.groups, self.layout)

    def _assemble_rounds(self) -> None:
        experiment, population = self.experiment, self.population
        waiting = experiment.clock.waiting(
            population.pace, population.cohort_size, partial=experiment.method.partial
        )
        self.retries = Retries(population, waiting, private=self.guarantee is not None)
        usual: RoundProtocol = (
            SynchronousRounds(self.groups, self.retries)
            if population.schedule is None
            else AsynchronousRounds(self.groups[0], population.schedule)
        )
        self.protocol = experiment.clock.protocol(usual, self.groups)
        self.hooks = [*self._learning(), remember_change]
        if waiting is not None:
            self.hooks.append(simulate_time(waiting))

    def _learning(self) -> Iterator[RoundHook]:
        """The hooks by which models learn from samples that no client holds."""
        meta, exchange = self.experiment.method.meta, exchange_of(self.experiment)
        servers, exchanged = held_back(self.experiment, len(self.dataset.train))
        if meta is not None:
            yield LearnFromOwnSamples(self.groups, meta, servers)
        if exchange is not None:
            yield ExchangePredictions(self.groups, exchange, exchanged, peers=self.models.peers)

    def _group(self, group: int, module: nn.Module, sentences: list[str]) -> Group:
        """Check the clients of one model, and make their group; adds warnings to `sentences`."""
        models, population = self.models, self.population
        if len(models.branches) > 1:
            module = module.branches[models.branches.index(group)]  # type: ignore[index,assignment]
        schedule = population.schedule
        takes = population.cohort_size if schedule is None else schedule.clock.buffer
        setup = Setup(
            self.experiment,
            self.plan.local,
            self.dataset,
            population.flow,
            module,
            models.clients(group),
            takes,
            models.field(group),
        )
        check(setup)
        sentences += warnings(setup)
        plan = self.plan.model_copy(update={"model": models.models[group]})
        mechanism = None if self.guarantee is None else self.guarantee.mechanism
        return self._kind()(population, models, group, plan, module, mechanism)

    def _kind(self) -> type[Group]:
        """What the groups of this federation are."""
        if self.models.peers:
            return Peers
        if not self.dataset.remote:
            return Group
        from mnemos.federation.owners import RemoteGroup  # it needs all that reads owners' files

        return RemoteGroup


def _promise(population: Population) -> Guarantee | None:
    """What the experiment's privacy promises; refuses a budget that would cut a stream short."""
    experiment = population.experiment
    if not experiment.privacy.private:
        return None
    found = promise(experiment.privacy, population.sampling(), experiment.rounds, experiment.seed)
    if found is not None and found.limit and experiment.stream.paced:
        raise ConfigError(
            f"{found.limit}, and the stream {type(experiment.stream).name} is laid out over all of them",
            "privacy.budget",
        )
    return found


def flow_of(experiment: Experiment, dataset: Dataset) -> Flow:
    """The samples of every client in each round of an experiment, and the cohorts."""
    refuse((CENTRALISED,), experiment)
    return Population(experiment, dataset).flow


def model_of(experiment: Experiment, dataset: Dataset) -> nn.Module:
    """The model of an experiment before the first round; mixed models are one module."""
    plan = experiment.plan
    if experiment.model.mixture is not None:
        clients = partition_samples(experiment, dataset).clients
        plan = plan.model_copy(update={"model": assign_models(experiment, clients).model})
    return fresh_model(plan, dataset)
