"""Evaluation where the samples are: owners say how a model does on theirs, and keep samples and labels."""

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
        """`examine`: asks them; takes a model, its buffers, a part, and samples by client."""
        self._examine, self._dataset = examine, dataset

    def __call__(
        self, model: Tensor, buffers: Tensor, split: Split, indices: Tensor | None = None
    ) -> ReportedScores:
        """What they say, in the order of the samples, which is that of their owners."""
        assert split.owners is not None
        owners = (split.owners if indices is None else split.owners[indices]).numpy()
        test = split is self._dataset.test
        assert test or indices is not None  # by which owners find their own
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
        """There is nothing to let go of."""


class _Owners:
    """Those whose samples a model was evaluated on, to be asked more of it."""

    def __init__(self, examine: Callable[..., dict[int, EvaluateReply]]) -> None:
        """`examine`: asks them of the model; takes what is to be counted."""
        self._examine = examine

    def counts(self, groups: Groups) -> Counts:
        """How often it is right, by groups of classes."""
        found = (reply.counts for reply in self._examine(groups=groups).values())
        return Counts.sum([counts for counts in found if counts is not None], groups)

    def personalised(self, known: Callable[[int], Ints]) -> dict[int, int]:
        """How often it is right at each client, corrected for the labels of these training samples of its."""
        found = self._examine(known=known)
        return {client: reply.corrected for client, reply in found.items() if reply.corrected is not None}
