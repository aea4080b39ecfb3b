"""Personalised inference: the global model, corrected for the labels a client expects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from mnemos.data.partition import Floats, Ints
from mnemos.measures.measure import Measure, Moment, Record, Scores, Told, measures


@measures.register("personalised")
class Personalised(Measure):
    """Client k predicts argmax_c (f_c + log β_kc), β_kc the share of class c among its training samples.

    Legate, Caccia, Belilovsky, 2023, arXiv 2304.05260, appendix A.4: no retraining. Classes a client
    doesn't hold are never predicted. Each number stands beside that of the plain argmax_c f_c:

    - `personalised_accuracy` and `plain_accuracy` on a client's own validation samples;
    - `personalised_test_accuracy` and `plain_test_accuracy`, in the last round, on test samples
      distributed like β_k: Σ_c β_kc · (accuracy on the test samples of class c), which is the mean over
      all ways to draw them;
    - without a client, each one's mean over the clients; with the ending `_worst_tenth`, the mean of the
      tenth of the clients that has the lowest values (rounded down, but at least one client).

    Classes without a test sample are left out of β_k. A client without training samples predicts plainly
    on its own samples and, having no β_k, is left out of the test. In a federation, where β_k is client k's
    alone, there is no test.
    """

    remote: ClassVar[bool] = True

    def records(self, moment: Moment) -> Iterator[Record]:
        """Each client's accuracy of both kinds, and their summaries."""
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
    if isinstance(scores, Told):
        told = scores.owners.personalised(lambda client: moment.flow.samples(client, moment.round))
        own = np.array([told.get(client, np.nan) for client in clients.tolist()])
    else:
        predicted = personalised(scores.logits, moment.counts[clients], owner)
        own = np.bincount(owner, predicted == scores.labels.numpy(), len(clients))
    heard = np.isfinite(plain) & np.isfinite(own)
    for name, right in (("personalised_accuracy", own), ("plain_accuracy", plain)):
        yield from _summarised(moment.round, name, clients[heard], (right / sizes[clients])[heard])


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

    Class by class, so that a class's logits stay in the cache while its clients pass by.
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
    """The class that each sample's owner predicts, by how many samples of each class it has."""
    predicted: Ints = (_double(logits) + _priors(counts)[owner]).argmax(1)
    return predicted


def _double(logits: Tensor) -> Floats:
    # Lest a sum with a prior round two different logits to a tie.
    double: Floats = logits.to(torch.float64).numpy()
    return double


def _priors(counts: Ints) -> Floats:
    """log β_kc − max_c log β_kc: −∞ for absent classes, and 0 everywhere where nothing is known.

    The maximum changes no prediction, and is exactly log β_kc where all proportions are equal.
    """
    most = counts.max(1, initial=0, keepdims=True)
    with np.errstate(divide="ignore"):
        return np.where(most > 0, np.log(counts / np.maximum(most, 1)), 0.0)


def _summarised(number: int, name: str, clients: Ints, values: Floats) -> Iterator[Record]:
    """A record a client, then their mean and that of the worst tenth."""
    if not len(clients):
        return
    for client, value in zip(clients.tolist(), values.tolist(), strict=True):
        yield Record(number, name, value, client=client)
    worst = np.sort(values)[: max(1, len(values) // 10)]
    yield Record(number, name, float(values.mean()))
    yield Record(number, f"{name}_worst_tenth", float(worst.mean()))
