"""Training of an encoder; images are computed shortly before the steps that need them, and then dropped."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from itertools import count, islice

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mnemos.client.trainer import intra_op
from mnemos.common import rng
from mnemos.common.cores import cores
from mnemos.data.augment import normalise, to_channels_last
from mnemos.data.fractals import HELD_OUT, Fractals
from mnemos.data.fractals.draws import Ints
from mnemos.errors import DivergedError
from mnemos.models.convolution import fast_convolutions
from mnemos.models.dropout import set_generator
from mnemos.models.encoder import Encoder, body_of, head_of
from mnemos.models.memory import channels_last_is_safe
from mnemos.models.model import Model
from mnemos.pretrain.pretraining import Pretraining
from mnemos.vector import Bound

Tell = Callable[[int, int, str], None]
"""Reports progress: steps done, all steps, and a note such as the loss."""

_AHEAD = 3
"""The number of batches that each thread computes ahead."""
_SCALED_BY = 1000
"""The number of images that give the mean and standard deviation."""
_TESTED = 2000
"""The number of images, not used for training, that the accuracy is measured on."""
_CHUNK = 250


def train(options: Pretraining, model: Model, shape: tuple[int, ...], tell: Tell) -> Encoder:
    """A trained encoder, the same on any number of cores."""
    options.verify(model, shape)
    supply = _Supply(options, options.fractals(shape))
    module = options.build(model, shape)
    head = head_of(module, shape)
    bound = Bound(module)
    set_generator(module, rng.generator(options.seed, "dropout"))
    with intra_op(1):
        scale = _Scale(supply, module)
        _learn(options, bound, supply, scale, tell)
        accuracy = _test(module.eval(), supply, scale)
    state = {**module.state_dict(), **bound.layout.state_dict(bound.parameters, bound.buffers)}
    about = options.facts(model, shape)
    about |= {"head": head, "mean": scale.mean.tolist(), "std": scale.std.tolist(), "accuracy": accuracy}
    return Encoder({name: tensor.detach().clone() for name, tensor in body_of(state, head).items()}, about)


class _Supply:
    """Images by their indices in one pass, and the classes that they contain [B, classes]."""

    def __init__(self, options: Pretraining, fractals: Fractals) -> None:
        self.options, self._fractals = options, fractals
        self.size = options.classes * options.images

    def __call__(self, indices: Ints) -> tuple[Tensor, Tensor]:
        """The images with these indices; those from `HELD_OUT` on are never used for training."""
        classes = self.options.classes
        if self.options.labels == "multi":
            images, present = self._fractals.scenes(indices)
            return torch.from_numpy(images), torch.from_numpy(present)
        labels, images = indices % classes, self._fractals.images(indices % classes, indices // classes)
        return torch.from_numpy(images), F.one_hot(torch.from_numpy(labels), classes).float()

    def batches(self) -> Generator[tuple[Tensor, Tensor], None, None]:
        """All batches in their order, computed by all cores but the one that trains."""
        threads = max(1, cores() - 1)
        pool = ThreadPoolExecutor(threads, "fractals")
        ahead: deque[Future[tuple[Tensor, Tensor]]] = deque()
        try:
            for indices in islice(self._order(), self.options.total):
                ahead.append(pool.submit(self, indices))
                if len(ahead) > threads * _AHEAD:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)

    def _order(self) -> Iterator[Ints]:
        batch = self.options.batch
        for epoch in count():
            order = rng.numpy_generator(self.options.seed, "pretraining", epoch).permutation(self.size)
            yield from (order[batch * index :][:batch] for index in range(self.options.epoch))


class _Scale:
    """Scales images by the mean and standard deviation of some, and arranges them in memory for a model."""

    def __init__(self, supply: _Supply, module: nn.Module) -> None:
        images = supply(np.arange(min(supply.size, _SCALED_BY)))[0].double()
        self.mean = images.mean((0, 2, 3))
        self.std = images.std((0, 2, 3)).clamp_min(1e-3)
        self._channels_last = channels_last_is_safe(module)
        if self._channels_last:
            fast_convolutions(module)

    def __call__(self, images: Tensor) -> Tensor:
        scaled = normalise(images, self.mean, self.std)
        return to_channels_last(scaled) if self._channels_last else scaled


def _learn(options: Pretraining, bound: Bound, supply: _Supply, scale: _Scale, tell: Tell) -> None:
    module, optimizer, total = bound.module.train(), options.optimizer, options.total
    schedule, state = options.schedule.within(total), optimizer.init(bound.parameters, bound.layout)
    loss, hits, seen = 0.0, 0.0, 0
    with closing(supply.batches()) as batches:
        for step, (images, present) in enumerate(batches, 1):
            bound.gradients.zero_()
            logits = module(scale(images))
            value = _loss(options, logits, present)
            value.backward()  # type: ignore[no-untyped-call]
            with torch.no_grad():
                rate = options.lr * schedule.factor(step, 0, 1)
                optimizer.step(bound.parameters, bound.gradients, state, rate, options.weight_decay)
                if optimizer.counts_epochs and step % options.epoch == 0:
                    optimizer.epoch(bound.parameters, state, bound.layout, options.lr)
                loss += float(value) * len(images)
                hits, seen = hits + _hits(logits, present), seen + len(images)
            if step == total or step * 100 // total > (step - 1) * 100 // total:
                if not bool(torch.isfinite(bound.parameters).all()) or not np.isfinite(loss):
                    raise DivergedError(
                        f"pre-training, step {step}: it is not finite any more; a smaller lr may help"
                    )
                tell(step, total, f"loss {loss / seen:.4g}, accuracy {100 * hits / seen:.1f} %")
                loss, hits, seen = 0.0, 0.0, 0


def _loss(options: Pretraining, logits: Tensor, present: Tensor) -> Tensor:
    """Cross-entropy; with several labels per image, binary, weighted so that present and absent balance."""
    if options.labels == "single":
        return F.cross_entropy(logits, present)
    weight = options.classes / present.sum(1, keepdim=True)
    return F.binary_cross_entropy_with_logits(logits, present, pos_weight=weight)


def _hits(logits: Tensor, present: Tensor) -> float:
    """The number of images whose highest output is a class that they contain."""
    return float(present.gather(1, logits.argmax(1, keepdim=True)).sum())


def _test(module: nn.Module, supply: _Supply, scale: _Scale) -> float:
    """Accuracy on images that weren't used for training."""
    hits = 0.0
    for start in range(0, _TESTED, _CHUNK):
        images, present = supply(HELD_OUT + np.arange(start, start + _CHUNK))
        with torch.no_grad():
            hits += _hits(module(scale(images)), present)
    return hits / _TESTED
