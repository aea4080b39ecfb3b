"""Personalised inference: the global model with each client's label proportions as a prior."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from mnemos.data.partition import Floats, Ints
from mnemos.measures.measure import Measure, Moment, Record, ReportedScores, Scores, measures


@measures.register("personalised")
class Personalised(Measure):
    """Accuracy of predictions that are corrected by the client's own label proportions.

    Client k predicts argmax_c (f_c + log β_kc), β_kc the share of class c among its training samples.

    Legate, Caccia, Belilovsky, 2023, arXiv 2304.05260, appendix A.4: no retraining. Classes a client
    doesn't hold are never predicted. Each number stands beside that of the plain argmax_c f_c:

    - `personalised_accuracy` and `plain_accuracy` on a client's own validation samples;
    - `personalised_test_accuracy` and `plain_test_accuracy`, in the last round, on test samples
      distributed like β_k: Σ_c β_kc · (accuracy on the test samples of class c), which is the mean over
      all ways to draw them;
    - without a client, the mean of each over the clients; with the ending `_worst_tenth`, the mean over the
      tenth of the clients with the lowest values (rounded down, but at least one client).

    Classes without a test sample are left out of β_k. A client without training samples predicts without a
    prior on its own samples and, having no β_k, is left out of the test. In a real federation, where only
    client k knows β_k, there is no test.
    """

    remote: ClassVar[bool] = True

    def records(self, moment: Moment) -> Iterator[Record]:
        """Each client's accuracy with and without its prior, and their summaries."""
        if moment.validation is not None:
            yield from _own(moment, moment.validation)
        if moment.test is not None and moment.test.labelled and moment.round == moment.last:
            yield from _test(moment, moment.test)


def _own(moment: Moment, scores: Scores) -> Iterator[Record]:
    assignment = moment.assignment
    sizes = assignment.sizes - assignment.train_sizes()
    clients = np.flatnonzero(sizes)
    owner = np.repeat(np.arange(len(clients)), sizes[clients])
    plain = np.bincount(owner, scores.hits.numpy(), len(clients))
    if isinstance(scores, ReportedScores):
        reported = scores.owners.personalised(lambda client: moment.flow.samples(client, moment.round))
        own = np.array([reported.get(client, np.nan) for client in clients.tolist()])
    else:
        predicted = personalised(scores.logits, moment.counts[clients], owner)
        own = np.bincount(owner, predicted == scores.labels.numpy(), len(clients))
    known = np.isfinite(plain) & np.isfinite(own)
    for name, right in (("personalised_accuracy", own), ("plain_accuracy", plain)):
        yield from _summarised(moment.round, name, clients[known], (right / sizes[clients])[known])


def _test(moment: Moment, scores: Scores) -> Iterator[Record]:
    labels = scores.labels.numpy()
    classes = np.bincount(labels, minlength=moment.counts.shape[1])
    weights = moment.counts * (classes > 0)
    clients = np.flatnonzero(weights.any(1))
    weights = weights[clients]
    plain = np.bincount(labels, scores.hits.numpy(), len(classes)) / np.maximum(classes, 1)
    for name, rates in (
        ("personalised_test_accuracy", _hit_rates(moment.counts[clients], scores)),
        ("plain_test_accuracy", plain),
    ):
        # No matrix product: its last bits depend on the number of threads.
        values = (weights * rates).sum(1) / weights.sum(1)
        yield from _summarised(moment.round, name, clients, values)


def _hit_rates(counts: Ints, scores: Scores) -> Floats:
    """Each client's personalised accuracy on each class it holds [clients, classes].

    Computed class by class, so that a class's logits stay in the cache for all clients that hold it.
    """
    logits, labels, priors = _double(scores.logits), scores.labels.numpy(), _priors(counts)
    rates = np.zeros(counts.shape)
    for label in np.unique(labels).tolist():
        block = logits[labels == label]
        shifted = np.empty_like(block)
        for client in np.flatnonzero(counts[:, label]).tolist():
            predicted = np.add(block, priors[client], out=shifted).argmax(1)
            rates[client, label] = np.count_nonzero(predicted == label) / len(block)
    return rates


def personalised(logits: Tensor, counts: Ints, owner: Ints) -> Ints:
    """The class that each sample's owner predicts.

    `counts` are the owners' samples of each class [owners, classes], and `owner` is each sample's row in it.
    """
    predicted: Ints = (_double(logits) + _priors(counts)[owner]).argmax(1)
    return predicted


def _double(logits: Tensor) -> Floats:
    # In single precision, a sum with a prior could round two different logits to a tie.
    double: Floats = logits.to(torch.float64).numpy()
    return double


def _priors(counts: Ints) -> Floats:
    """log β_kc − max_c log β_kc [clients, classes]: −∞ for absent classes; 0 for clients without samples.

    Subtracting the maximum changes no prediction, and gives exactly 0 where all proportions are equal.
    """
    most = counts.max(1, initial=0, keepdims=True)
    with np.errstate(divide="ignore"):
        return np.where(most > 0, np.log(counts / np.maximum(most, 1)), 0.0)


def _summarised(round: int, name: str, clients: Ints, values: Floats) -> Iterator[Record]:
    """A record for each client, then their mean and that of the worst tenth."""
    if not len(clients):
        return
    for client, value in zip(clients.tolist(), values.tolist(), strict=True):
        yield Record(round, name, value, client=client)
    worst = np.sort(values)[: max(1, len(values) // 10)]
    yield Record(round, name, float(values.mean()))
    yield Record(round, f"{name}_worst_tenth", float(worst.mean()))
