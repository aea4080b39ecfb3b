"""The meta step: the server learns from samples of its own."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from mnemos.client.messages import Plan
from mnemos.client.trainer import fresh_model, intra_op
from mnemos.common import rng
from mnemos.data.batches import Draw, Loader, even
from mnemos.data.dataset import Dataset
from mnemos.data.partition import Ints
from mnemos.errors import ConfigError
from mnemos.methods.exchange import Batch, Server
from mnemos.methods.meta import Meta
from mnemos.models.dropout import without_dropout
from mnemos.models.functional import Functional


def server_samples(meta: Meta, total: int, seed: int) -> Ints:
    """The training samples that the server holds itself (indices); clients hold the others."""
    if meta.samples >= total:
        raise ConfigError(
            f"found {meta.samples}; there are {total} training samples, and clients need some",
            "method.meta.samples",
        )
    chosen: Ints = rng.numpy_generator(seed, "meta").choice(total, meta.samples, replace=False)
    return np.sort(chosen)


class MetaStep:
    """Moves the server's model along the gradient of its own samples, in batches of a fixed size.

    Batch-norm normalises by those batches, as in training, and keeps its statistics as they are. Dropout is
    off.
    """

    def __init__(self, plan: Plan, meta: Meta, dataset: Dataset) -> None:
        self._meta = meta
        self._loss, head = plan.method.objective, plan.method.head
        self._functional = Functional(without_dropout(fresh_model(plan, dataset)))
        samples = torch.from_numpy(server_samples(meta, len(dataset.train), plan.seed))
        loader = Loader(dataset, (), channels_last=False)
        self._batches = [head.upright(Batch(*loader(Draw(some, some)))) for some in even(samples)]
        labels = dataset.train.labels[samples]
        self._counts = head.per_output(torch.bincount(labels, minlength=len(dataset.classes)).float())

    def __call__(self, server: Server) -> Server:
        """The server after its step."""

        def loss(model: Tensor, batch: Batch) -> Tensor:
            net = self._functional.net(server.model, server.buffers).at(model)
            return self._loss(net(batch.x), batch.labels, self._counts).sum() / self._meta.samples

        losses = [partial(loss, batch=batch) for batch in self._batches]
        with torch.no_grad(), intra_op(1):
            return server.moved(self._meta.step(server.model, losses), {})
