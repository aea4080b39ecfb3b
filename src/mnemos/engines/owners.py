"""Evaluation by owners: they report how a model does on their samples, and keep samples and labels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor

from mnemos.client.evaluation import EvaluateReply
from mnemos.data.dataset import Dataset, Split
from mnemos.data.partition import Ints
from mnemos.measures.counting import Counts, Groups
from mnemos.measures.measure import ReportedScores


class RemoteEvaluator:
    """Asks owners how a model does on their samples."""

    def __init__(self, examine: Callable[..., dict[int, EvaluateReply]], dataset: Dataset) -> None:
        """`examine`: asks owners, given a model, its buffers, a part of the data, and samples by client."""
        self._examine, self._dataset = examine, dataset

    def __call__(
        self, model: Tensor, buffers: Tensor, split: Split, indices: Tensor | None = None
    ) -> ReportedScores:
        """The reported scores; owners send counts, so an owner's first samples are taken to be right."""
        assert split.owners is not None
        owners = (split.owners if indices is None else split.owners[indices]).numpy()
        test = split is self._dataset.test
        assert test or indices is not None  # owners need indices to find training samples
        samples = {}
        for client in np.unique(owners).tolist():
            count = int(np.count_nonzero(owners == client))
            own = torch.arange(count) if indices is None else indices[torch.from_numpy(owners == client)]
            samples[client] = own
        examine = partial(self._examine, model, buffers, "test" if test else "train", samples)
        found = examine()
        right, losses = (torch.full((len(owners),), float("nan"), dtype=torch.float64) for _ in range(2))
        for client, reply in found.items():
            where = torch.from_numpy(np.flatnonzero(owners == client))
            right[where] = (torch.arange(len(where)) < reply.hits).double()
            losses[where] = reply.loss / max(reply.samples, 1)
        return ReportedScores.of(right, losses, len(self._dataset.classes), _Owners(examine))

    def close(self) -> None:
        """Nothing to close."""


class _Owners:
    """The owners that have evaluated a model, for further questions about it."""

    def __init__(self, examine: Callable[..., dict[int, EvaluateReply]]) -> None:
        """`examine`: asks them about the model, given what to count."""
        self._examine = examine

    def counts(self, groups: Groups) -> Counts:
        """How many answers are right, by groups of classes."""
        found = (reply.counts for reply in self._examine(groups=groups).values())
        return Counts.sum([counts for counts in found if counts is not None], groups)

    def personalised(self, known: Callable[[int], Ints]) -> dict[int, int]:
        """How many answers are right at each client, corrected by its training samples `known(client)`."""
        found = self._examine(known=known)
        return {client: reply.corrected for client, reply in found.items() if reply.corrected is not None}
