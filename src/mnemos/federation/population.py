"""The clients of a federation: who holds which samples in which round, and who is asked to train."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from mnemos.common import rng
from mnemos.data.dataset import Dataset
from mnemos.data.partition import Assignment, Ints, pooled
from mnemos.data.stream import Flow, Setting
from mnemos.errors import ConfigError, naming
from mnemos.experiment.experiment import Experiment
from mnemos.federation.model_assignment import exchange_of
from mnemos.privacy.accountant import Sampling


def partition_samples(experiment: Experiment, dataset: Dataset) -> Assignment:
    """Which client holds which training sample; no client holds those of `held_back`."""
    labels = dataset.train.labels.numpy()
    owners = None if dataset.train.owners is None else dataset.train.owners.numpy()
    generator = rng.numpy_generator(experiment.seed, "partition")
    rest = np.delete(np.arange(len(labels)), np.concatenate(held_back(experiment, len(labels))))
    with naming("partition"):
        found = experiment.partition.split(labels[rest], None if owners is None else owners[rest], generator)
    return replace(found, order=rest[found.order])


def held_back(experiment: Experiment, total: int) -> tuple[Ints, Ints]:
    """The training samples that no client holds: (those of the meta step, those of an exchange)."""
    meta, exchange, seed = experiment.method.meta, exchange_of(experiment), experiment.seed
    everything = np.arange(total)
    servers = _drawn(everything, meta.samples if meta else 0, seed, "meta", "method.meta.samples")
    rest = np.delete(everything, servers)
    count = exchange.samples if exchange else 0
    return servers, _drawn(rest, count, seed, "co-distillation", "model.exchange.samples")


def _drawn(of: Ints, count: int, seed: int, purpose: str, field: str) -> Ints:
    """Draw the indices of some samples for a purpose; refuses to take all of them."""
    if count and count >= len(of):
        raise ConfigError(
            f"found {count}; there are {len(of)} training samples, and clients need some", field
        )
    chosen: Ints = rng.numpy_generator(seed, purpose).choice(of, count, replace=False)
    return np.sort(chosen)


class Population:
    """The clients of an experiment, and the draw of a round's cohort."""

    def __init__(self, experiment: Experiment, dataset: Dataset) -> None:
        self.experiment, self.dataset = experiment, dataset
        clients = partition_samples(experiment, dataset)
        self.cohort_size = _cohort_size(experiment, clients)
        """How many clients' updates a round takes."""
        self.flow = self._open(clients)
        """The samples of every client in every round."""
        pooled_local = experiment.method.pooled_training(experiment.plan.local, self.flow, self.cohort_size)
        self.local = pooled_local or experiment.plan.local
        """How a client trains."""
        if pooled_local is not None:  # a centralised method has one learner that holds all samples
            learners = pooled(clients)
            self.cohort_size = learners.clients
            self.flow = self._open(learners)

    def cohort(self, round: int) -> Ints:
        """The clients that are asked in the first attempt at a round."""
        return self.flow.cohort(round)

    def others(self, round: int, attempt: int, tried: Ints) -> Ints:
        """The clients to ask in another attempt: untried ones, if `min_clients` of these can be reached."""
        experiment = self.experiment
        eligible = experiment.selection.reachable(self.flow.eligible(round), round, experiment.seed)
        everyone = np.arange(eligible) if isinstance(eligible, int) else eligible
        left: Ints = np.setdiff1d(everyone, tried)
        if len(left) < experiment.min_clients:
            left = everyone  # those that didn't answer may be back
        generator = rng.numpy_generator(experiment.seed, "selection", round, attempt)
        return experiment.selection.select(left, min(self._asked, len(left)), generator)

    def sampling(self) -> Sampling:
        """How cohorts are drawn, for the accountant of privacy; refuses a draw that depends on data."""
        flow = self.flow
        if type(flow).eligible is not Flow.eligible and not isinstance(flow.eligible(1), int):
            raise ConfigError(
                "who can be selected depends on which samples clients hold in a round, which tells of their "
                "data; with privacy, every client needs samples of every task",
                "stream",
            )
        holders = int(np.count_nonzero(flow.assignment.train_sizes()))
        return Sampling(holders, self.cohort_size, not self.experiment.selection.fixed_size)

    @property
    def _asked(self) -> int:
        """How many clients are asked; with over-selection, more than a round takes."""
        return self.cohort_size + math.ceil(self.experiment.over_selection * self.cohort_size - 1e-9)

    def _open(self, assignment: Assignment) -> Flow:
        """The stream of these clients' samples; also sets pace and schedule, which depend on it."""
        experiment, dataset = self.experiment, self.dataset
        labels, classes = dataset.train.labels.numpy(), len(dataset.classes)
        setting = Setting(assignment, labels, classes, experiment.rounds, experiment.seed, self._choose)
        with naming("stream"):
            flow = experiment.stream.open(setting)
        self.pace = experiment.clock.pace(flow, experiment.plan.local, experiment.seed)
        """How long clients take; None if time isn't simulated."""
        self.schedule = experiment.clock.schedule(self.pace, self.cohort_size, experiment.selection)
        """Which client trains when, under an asynchronous clock; None otherwise."""
        return flow

    def _choose(self, eligible: Ints | int, round: int) -> Ints:
        """Draw the cohort of a round from the eligible clients."""
        if self.schedule is not None:
            return self.schedule.cohort(round)
        experiment = self.experiment
        reachable = experiment.selection.reachable(eligible, round, experiment.seed)
        count = reachable if isinstance(reachable, int) else len(reachable)
        if count < experiment.min_clients:
            return np.zeros(0, np.int64)  # the round passes without asking any client
        # Privacy that relies on secret cohorts draws them with its own key.
        generator = rng.numpy_generator(experiment.privacy.key(experiment.seed), "selection", round)
        return experiment.selection.select(reachable, min(self._asked, count), generator)


def _cohort_size(experiment: Experiment, assignment: Assignment) -> int:
    """The number of clients in a round: by participation, from 1 to those with training samples."""
    size = max(1, math.floor(experiment.participation * assignment.clients + 1e-9))
    count = int(np.count_nonzero(assignment.train_sizes()))
    if count == 0:
        raise ConfigError("no client has a training sample; take fewer clients", "partition")
    return min(size, count)
