"""Local client forgetting: how much accuracy on other clients' data a client's local training loses."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any, ClassVar

import numpy as np
import torch
from pydantic import Field, field_validator
from torch import Tensor

from mnemos.data.partition import Floats
from mnemos.errors import ConfigError
from mnemos.measures.measure import Measure, Occasions, Opening, Record, Scores, Watch, measures


@measures.register("forgetting")
class Forgetting(Measure):
    """How much accuracy on each client's data is lost in the local training of each other client.

    F_ki = Acc_k(w_{t−1}) − Acc_k(w_t^i) for all pairs of a round's clients, on their validation data.

    Legate, Caccia, Belilovsky, 2023, arXiv 2304.05260, equations 5 and 6. Each model is evaluated in one
    pass over the union of the cohort's validation data. Recorded are, all in accuracy:

    - `before_accuracy` of the global model on client k's data, and on each class of the union;
    - `after_accuracy` of client i's model (column `model`) on client k's data, and on each class;
    - `forgetting` of client k's data, F_k, the mean of F_ki over the models i ≠ k, and its mean over all k;
    - `forgetting_caused` by client i's model, the mean of F_ki over the data k ≠ i;
    - `own_accuracy`, the mean over k of Acc_k(w_t^k).

    `evaluate.forgetting` is short for this measure with these `rounds`.
    """

    remote: ClassVar[bool] = True
    in_step: ClassVar[bool] = True

    rounds: int | tuple[int, ...] = Field(
        10, description="rounds that are measured: a list, or n for 1, n, 2n, … and the last"
    )

    @field_validator("rounds", mode="before")
    @classmethod
    def _possible(cls, value: Any) -> Any:
        return check_rounds(value)

    def check(self, occasions: Occasions) -> None:
        """Refuse a measurement in no round, or without validation data."""
        if not self.rounds:
            raise ConfigError(f"found {self.rounds}, so it would be measured in no round", "rounds")
        if not len(occasions.flow.assignment.union_held_out()):
            raise ConfigError(
                "forgetting is measured on validation data, and no client holds any; "
                "raise partition.validation"
            )

    def watch(self, opening: Opening) -> Watch | None:
        """A watch in the rounds that are measured."""
        if not is_due(self.rounds, opening.round, opening.last):
            return None
        return _Watch(opening)


def check_rounds(value: Any) -> Any:
    """The value, if it is a list of rounds or an integer n ≥ 0; otherwise a `ValueError`."""
    # One sentence here, instead of pydantic's two, one for each type.
    regular = type(value) is int and value >= 0
    listed = isinstance(value, list | tuple) and all(type(round) is int and round >= 1 for round in value)
    if not regular and not listed:
        raise ValueError(
            f"found {value}; allowed: a list of rounds from 1 on, n for 1, n, 2n, … and the last, or 0"
        )
    return value


def is_due(rounds: int | tuple[int, ...], round: int, last: int) -> bool:
    """Whether a round is measured: one of a list, or, for an integer n, 1, a multiple of n, or the last."""
    if isinstance(rounds, int):
        return rounds > 0 and (round in {1, last} or round % rounds == 0)
    return round in rounds


class _Watch(Watch):
    """Evaluates the received model and each client's model on the validation data of the round's clients."""

    def __init__(self, opening: Opening) -> None:
        held = [(int(client), opening.assignment.held_out(client)) for client in opening.cohort]
        held = [(client, indices) for client, indices in held if len(indices)]
        self._round = opening.round
        self._clients = [client for client, _ in held]
        self._sizes = np.array([len(indices) for _, indices in held])
        none = opening.assignment.order[:0]
        self._samples = torch.from_numpy(np.concatenate([none, *(indices for _, indices in held)]))
        self._evaluate = opening.evaluate
        self._models: list[int] = []
        self._after: list[Floats] = []
        self._by_class: list[Floats] = []
        if self._clients:
            self._before = self._score(opening.model, opening.buffers)

    def see(self, client: int, model: Tensor, buffers: Tensor) -> None:
        """Evaluate a client's updated model on all clients' data."""
        if not self._clients:
            return
        after, by_class = self._score(model, buffers)
        self._models.append(client)
        self._after.append(after)
        self._by_class.append(by_class)

    def records(self) -> Iterator[Record]:
        """The accuracies of all models on all data, and the means of what was lost."""
        if not self._models:
            return iter(())
        self._leave_out_lost_owners()
        before, before_class = self._before
        lost = before - np.stack(self._after)  # [models, clients]
        others = np.not_equal.outer(self._models, self._clients)
        return chain(
            self._row("before_accuracy", before, before_class),
            *(
                self._row("after_accuracy", after, by_class, model)
                for model, after, by_class in zip(self._models, self._after, self._by_class, strict=True)
            ),
            self._means(lost, others),
        )

    def _leave_out_lost_owners(self) -> None:
        """Drop the data of owners that didn't answer for every model: it can't be compared."""
        known = np.isfinite(np.stack([self._before[0], *self._after]).sum(axis=0))
        self._clients = [client for client, kept in zip(self._clients, known.tolist(), strict=True) if kept]
        self._before = self._before[0][known], self._before[1]
        self._after = [after[known] for after in self._after]

    def _means(self, lost: Floats, others: np.ndarray) -> Iterator[Record]:
        """Means of F_ki [models, clients], where `others` marks the pairs with i ≠ k."""
        round = self._round
        by_client = [lost[others[:, k], k] for k in range(len(self._clients))]
        for client, values in zip(self._clients, by_client, strict=True):
            if len(values):
                yield Record(round, "forgetting", float(values.mean()), client=client)
        for model, values, mask in zip(self._models, lost, others, strict=True):
            if mask.any():
                yield Record(round, "forgetting_caused", float(values[mask].mean()), model=model)
        if others.any():
            means = [values.mean() for values in by_client if len(values)]
            yield Record(round, "forgetting", float(np.mean(means)))
        if not others.all():
            own = np.stack(self._after)[~others]
            yield Record(round, "own_accuracy", float(own.mean()))

    def _row(self, name: str, clients: Floats, classes: Floats, model: int | None = None) -> Iterator[Record]:
        for client, value in zip(self._clients, clients.tolist(), strict=True):
            yield Record(self._round, name, value, client=client, model=model)
        for label, value in enumerate(classes.tolist()):
            if not np.isnan(value):  # NaN: no client of the cohort holds out samples of this class
                yield Record(self._round, name, value, cls=label, model=model)

    def _score(self, model: Tensor, buffers: Tensor) -> tuple[Floats, Floats]:
        """Accuracy on each client's data, and on each class of the union."""
        scores: Scores = self._evaluate(model, buffers, self._samples)
        hits = scores.hits.numpy()
        owner = np.repeat(np.arange(len(self._sizes)), self._sizes)
        by_client = np.bincount(owner, hits, len(self._sizes)) / self._sizes
        labels = scores.labels.numpy()
        if not scores.labelled:
            return by_client, np.empty(0)
        counts = np.bincount(labels)
        with np.errstate(invalid="ignore"):
            by_class = np.bincount(labels, hits, len(counts)) / counts
        return by_client, by_class
