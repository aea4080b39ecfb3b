"""Evaluates the model after a round, and asks measures for their records."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from mnemos.common.activity import doing
from mnemos.data.dataset import Split
from mnemos.federation.groups import Group
from mnemos.federation.population import Population
from mnemos.federation.servers import joined
from mnemos.measures.measure import Measure, Moment, Record, Scores
from mnemos.methods.exchange import Server
from mnemos.models.mixed import mean_prediction
from mnemos.vector import Layout

Servers = Sequence[Server]
"""One for each group."""


class Evaluation(NamedTuple):
    """The scores of the federation's model on some samples."""

    together: Scores
    branches: list[tuple[int | None, Scores]]
    """The scores of each branch, with the client that owns it, if one does; empty if there is one model."""


Evaluations = Mapping[str, Evaluation]
"""The evaluations of a round, by `validation` and `test`: those that are due and have samples."""


class RoundEvaluation:
    """Evaluates the federation's model when it is due, and asks measures for their records."""

    def __init__(self, population: Population, groups: Sequence[Group], layout: Layout) -> None:
        self._experiment, self._dataset = population.experiment, population.dataset
        self._flow, self._groups, self._layout = population.flow, groups, layout
        self._held_out = torch.from_numpy(population.flow.assignment.union_held_out())
        self.at_chance_since: int | None = None
        """The round since which the model has been no better than a constant answer; None: it is better."""

    def evaluate(self, servers: Servers, split: Split, indices: Tensor | None = None) -> Evaluation:
        """Evaluate the model on (some samples of) a split."""
        pairs = zip(self._groups, servers, strict=True)
        branches = [found for group, server in pairs for found in group.scores(server, split, indices)]
        (_, first), *others = branches
        if not others:
            return Evaluation(first, [])
        logits = mean_prediction([scores.logits for _, scores in branches])
        losses = F.cross_entropy(logits, first.labels, reduction="none")
        return Evaluation(Scores(logits, first.labels, losses), branches)

    def after(self, round: int, servers: Servers) -> tuple[Evaluations, list[Record]]:
        """The evaluations that are due after a round, and all records of the model."""
        when, last = self._experiment.evaluate, self._experiment.rounds
        found = self._evaluations(
            servers, validates=when.validates(round, last), tests=when.tests(round, last)
        )
        measures = self._experiment.measures
        if not found and not any(measure.due(round, last) for measure in measures):
            return found, []
        return found, [*_records(round, found), *self._measured(round, servers, found, measures)]

    def before_training(self, servers: Servers) -> list[Record]:
        """The records of measures that look at the model before the first round."""
        measures = [measure for measure in self._experiment.measures if measure.from_the_start]
        if not measures:
            return []
        found = self._evaluations(servers, validates=True, tests=True)
        return list(self._measured(0, servers, found, measures))

    def stuck(self, round: int, validation: Evaluation | None) -> str:
        """A sentence if the model has been no better than a constant answer for long; else empty."""
        patience = self._experiment.evaluate.patience
        if validation is None or not patience:
            return ""
        if not validation.together.at_chance:
            self.at_chance_since = None
        elif self.at_chance_since is None:
            self.at_chance_since = round
        if self.at_chance_since is None or round - self.at_chance_since < patience:
            return ""
        return (
            f"round {round}: validation accuracy ({validation.together.accuracy:.1%}) has been at chance "
            f"since round {self.at_chance_since}; with evaluate.patience=0 it would have gone on"
        )

    def _evaluations(self, servers: Servers, *, validates: bool, tests: bool) -> Evaluations:
        found = {}
        if validates or tests:
            doing("evaluating")
        if len(self._held_out) and validates:
            found["validation"] = self.evaluate(servers, self._dataset.train, self._held_out)
        if len(self._dataset.test) and tests:
            found["test"] = self.evaluate(servers, self._dataset.test)
        return found

    def _measured(
        self, round: int, servers: Servers, found: Evaluations, measures: Sequence[Measure]
    ) -> Iterator[Record]:
        server = joined(self._groups, servers)
        moment = Moment(
            round,
            server.model,
            server.buffers,
            self._layout,
            self._flow,
            self._held_out.numpy(),
            found["validation"].together if "validation" in found else None,
            found["test"].together if "test" in found else None,
            self._experiment.rounds,
            lambda mark: self.evaluate(servers, mark.on(self._dataset, self._dataset.test)).together,
        )
        for measure in measures:
            yield from measure.records(moment)


def _records(round: int, found: Evaluations) -> Iterator[Record]:
    """Accuracy and loss of the model, and the accuracy of its branches."""
    for part, evaluation in found.items():
        if math.isnan(evaluation.together.accuracy):
            continue  # no owner has answered
        yield Record(round, f"{part}_accuracy", evaluation.together.accuracy)
        yield Record(round, f"{part}_loss", evaluation.together.loss)
        for branch, (client, scores) in enumerate(evaluation.branches):
            name = f"{part}_accuracy" + (f"_branch_{branch}" if client is None else "")
            yield Record(round, name, scores.accuracy, model=client)
