"""Whether an experiment can keep its promise about clients' data, what that is, and for how many rounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mnemos.clocks.asynchronous import Asynchronous
from mnemos.data.sources.elsewhere import Elsewhere
from mnemos.data.stream import Flow
from mnemos.engines.flower import Flower
from mnemos.errors import ConfigError
from mnemos.experiment import Experiment
from mnemos.measures.task_forgetting import TaskForgetting
from mnemos.methods.centralised import Centralised
from mnemos.methods.fedavg import Mean, Uniform
from mnemos.methods.part import ServerStep
from mnemos.models.mixed import Mixed
from mnemos.privacy.accountant import Accountant, Sampling, calibrated
from mnemos.privacy.gaussian import Gaussian, Mechanism
from mnemos.selection import Poisson
from mnemos.selection import Uniform as WithoutReplacement
from mnemos.vector import Layout

_SENT = "would be sent each other's models, which have no noise; allowed with privacy in a federation: none"


@dataclass(frozen=True)
class Guarantee:
    """What is promised about clients' data."""

    options: Gaussian
    mechanism: Mechanism
    accountant: Accountant
    asked: int
    """How many rounds the experiment asks for."""
    rounds: int
    """How many of them the budget allows."""

    def epsilon(self, rounds: int, again: Sequence[int] = ()) -> float:
        """ε after so many rounds; `again`: how often each of those was done that were done more than once."""
        return self.accountant.epsilon(rounds, again)

    @property
    def budget(self) -> str:
        """The budget in words."""
        return f"the privacy budget, ε = {self.options.budget:g} at δ = {self.options.delta:g},"

    @property
    def limit(self) -> str:
        """What the budget has to say; nothing, if it allows all rounds."""
        if self.rounds == self.asked:
            return ""
        return f"{self.budget} allows {self.rounds} of {self.asked} rounds"

    @property
    def warnings(self) -> Iterator[str]:
        """What is to be known before the first round."""
        if self.limit:
            yield self.limit
        population = self.accountant.sampling.population
        if self.options.delta * population >= 1:
            yield (
                f"privacy.delta: {self.options.delta:g} isn't below 1 / {population}, the number of clients: "
                "a mechanism that gives away one client's data in full could have this δ"
            )

    def facts(self) -> dict[str, Any]:
        """All that ε speaks of, for a run's record."""
        options, sampling = self.options, self.accountant.sampling
        return {
            "delta": options.delta,
            "noise": self.mechanism.noise,
            "update_noise": self.mechanism.update_noise,
            "clip": options.clip,
            "adaptive": options.adaptive is not None,
            "at": options.at,
            "secret": options.secret,
            "sampling": sampling.words,
            "relation": sampling.relation,
            "budget": options.budget,
            "rounds": self.rounds,
            "asked": self.asked,
        }


def guarantee_of(experiment: Experiment, flow: Flow, cohort: int) -> Guarantee | None:
    """What an experiment promises about clients' data, of whom so many are in a round; None: nothing."""
    options = experiment.privacy
    if not isinstance(options, Gaussian):
        return None
    sampling = _sampling(experiment, flow, cohort)
    noise = options.noise
    if noise is None:
        assert options.budget is not None
        noise = calibrated(sampling, experiment.rounds, options.budget, options.delta)
    accountant = Accountant(sampling, noise, options.delta)
    rounds = experiment.rounds
    if options.budget is not None:
        rounds = accountant.rounds(options.budget, rounds)
    if not rounds:
        raise ConfigError(
            f"found {options.budget:g}, which allows no round: the first costs ε = "
            f"{accountant.epsilon(1):.3g}; more noise, or fewer clients a round, cost less",
            "privacy.budget",
        )
    mechanism = Mechanism(options, noise, cohort, experiment.seed)
    found = Guarantee(options, mechanism, accountant, experiment.rounds, rounds)
    if found.limit and experiment.stream.paced:
        raise ConfigError(
            f"{found.limit}, and the stream {type(experiment.stream).name} is laid out over all of them",
            "privacy.budget",
        )
    return found


def _sampling(experiment: Experiment, flow: Flow, cohort: int) -> Sampling:
    """How cohorts are drawn, if a bound is known for it."""
    selection = experiment.selection
    if type(selection) not in {WithoutReplacement, Poisson}:
        raise ConfigError(
            f"found {type(selection).name}, for whose cohorts no bound on ε is known; allowed with privacy: "
            "poisson, uniform",
            "selection",
        )
    if type(flow).eligible is not Flow.eligible and not isinstance(flow.eligible(1), int):
        raise ConfigError(
            "who can be selected depends on which samples clients hold in a round, which tells of their "
            "data; with privacy, every client needs samples of every task",
            "stream",
        )
    population = int(np.count_nonzero(flow.assignment.train_sizes()))
    return Sampling(population, cohort, isinstance(selection, Poisson))


def check_privacy(experiment: Experiment) -> None:
    """Refuse what lets a client change the sum by more than its clipped update, and noise that is known."""
    options = experiment.privacy
    if not isinstance(options, Gaussian):
        return
    method, clock = experiment.method, experiment.clock
    weighting, rule, server = type(method.weighting).name, type(method.rule).name, type(method.server).name
    sentences = (
        (
            isinstance(method, Centralised),
            "method",
            "found centralised, which has no clients whose data could be private",
        ),
        (
            isinstance(experiment.model, Mixed),
            "model",
            "found mixed; privacy is for one model that all clients share",
        ),
        (
            isinstance(clock, Asynchronous),
            "clock",
            f"found {type(clock).name}, under which a client's update counts by when it arrives; allowed "
            "with privacy: rounds, synchronous",
        ),
        (
            experiment.over_selection > 0,
            f"{'engine' if isinstance(experiment.engine, Flower) else 'clock'}.over_selection",
            "found some: one client's speed would decide whether another one counts; allowed with privacy: 0",
        ),
        (
            type(method.weighting) is not Uniform,
            "method.weighting",
            f"found {weighting}, by which a client's data decide how much it counts; allowed with privacy: "
            "uniform",
        ),
        (
            type(method.rule) is not Mean,
            "method.rule",
            f"found {rule}, which goes by how clients differ, and noise is scaled for a sum; allowed with "
            "privacy: mean",
        ),
        (
            type(method.server).fold is not ServerStep.fold,
            "method.server",
            f"found {server}, which has a mean of its own; noise is scaled for a plain one",
        ),
        (
            bool(experiment.screens),
            "screens",
            "found some, which compare clients: whom they put aside tells of the others' data",
        ),
        (
            isinstance(experiment.data, Elsewhere) and not options.secret,
            "privacy.secret",
            "found false: noise and cohorts would be drawn with the seed that all owners are sent; allowed "
            "in a federation: true",
        ),
        (
            isinstance(experiment.data, Elsewhere) and bool(experiment.evaluate.forgetting),
            "evaluate.forgetting",
            f"found some, for which owners {_SENT}",
        ),
        (
            isinstance(experiment.data, Elsewhere)
            and any(isinstance(one, TaskForgetting) for one in experiment.measures),
            "measures",
            f"found task-forgetting, for which owners {_SENT}",
        ),
    )
    for wrong, field, sentence in sentences:
        if wrong:
            raise ConfigError(sentence, field)
    options.key(experiment.seed)  # a secret that is missing shows now


def check_uploads(experiment: Experiment, layout: Layout) -> None:
    """Refuse what clients would send beside an update of bounded length."""
    if not isinstance(experiment.privacy, Gaussian):
        return
    for part in experiment.method.parts:
        if sent := part.sends(layout):
            raise ConfigError(
                f"found {type(part).name}, with which a client also sends {min(sent)}; noise on updates "
                "doesn't cover that",
                "method",
            )
    buffers = experiment.method.buffers
    if buffers.sent and layout.buffer_size:
        raise ConfigError(
            f"found {type(buffers).name}: clients would send '{layout.buffers[0].name}' and other statistics "
            "of their data as they are; allowed with privacy: server, leave-out, or a model without",
            "method.buffers",
        )
