"""Local client forgetting: what a client's update loses of what the others know."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from mnemos.data.partition import Floats
from mnemos.measures.measure import Measure, Opening, Record, Scores, Watch


class Forgetting(Measure):
    """F_ki = Acc_k(w_{t−1}) − Acc_k(w_t^i) for all pairs of a round's clients, on their validation data.

    Legate, Caccia, Belilovsky, 2023, arXiv 2304.05260, equations 5 and 6. Each model is evaluated in one
    pass over the union of the cohort's validation data. Recorded are, all in accuracy:

    - `before_accuracy` of the global model on client k's data, and on each class of the union;
    - `after_accuracy` of client i's model (column `model`) on client k's data, and on each class;
    - `forgetting` of client k's data, F_k, the mean of F_ki over the models i ≠ k, and its mean over all k;
    - `forgetting_caused` by client i's model, the mean of F_ki over the data k ≠ i;
    - `own_accuracy`, the mean over k of Acc_k(w_t^k).
    """

    remote: ClassVar[bool] = True
    rounds: tuple[int, ...] | int = ()

    def watch(self, opening: Opening) -> Watch | None:
        """A watch at the rounds asked for."""
        if not is_due(self.rounds, opening.round, opening.last):
            return None
        return _Watch(opening)


def is_due(rounds: tuple[int, ...] | int, number: int, last: int) -> bool:
    """Whether a round is in a list; or, for a number n, whether it is 1, a multiple of n, or the last."""
    if isinstance(rounds, int):
        return rounds > 0 and (number in {1, last} or number % rounds == 0)
    return number in rounds


class _Watch(Watch):
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
        """Evaluate a client's updated model on everyone's data."""
        if not self._clients:
            return
        after, by_class = self._score(model, buffers)
        self._models.append(client)
        self._after.append(after)
        self._by_class.append(by_class)

    def records(self) -> Iterator[Record]:
        """The matrix of the round, and its means."""
        if not self._models:
            return iter(())
        self._leave_out_unheard()
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

    def _leave_out_unheard(self) -> None:
        """Owners that were lost in the middle of the round can't be compared."""
        heard = np.isfinite(np.stack([self._before[0], *self._after]).sum(axis=0))
        self._clients = [client for client, known in zip(self._clients, heard.tolist(), strict=True) if known]
        self._before = self._before[0][heard], self._before[1]
        self._after = [after[heard] for after in self._after]

    def _means(self, lost: Floats, others: np.ndarray) -> Iterator[Record]:
        number = self._round
        of = [lost[others[:, k], k] for k in range(len(self._clients))]
        for client, values in zip(self._clients, of, strict=True):
            if len(values):
                yield Record(number, "forgetting", float(values.mean()), client=client)
        for model, values, mask in zip(self._models, lost, others, strict=True):
            if mask.any():
                yield Record(number, "forgetting_caused", float(values[mask].mean()), model=model)
        if others.any():
            yield Record(number, "forgetting", float(np.mean([v.mean() for v in of if len(v)])))
        if not others.all():
            own = np.stack(self._after)[~others]
            yield Record(number, "own_accuracy", float(own.mean()))

    def _row(self, name: str, clients: Floats, classes: Floats, model: int | None = None) -> Iterator[Record]:
        for client, value in zip(self._clients, clients.tolist(), strict=True):
            yield Record(self._round, name, value, client=client, model=model)
        for label, value in enumerate(classes.tolist()):
            if not np.isnan(value):  # a class nobody of the cohort holds out
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
