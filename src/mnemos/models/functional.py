"""A module as a function of its two vectors, parameters and buffers.

It evaluates a model at several points: the parameters of many clients, or of an older model.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.func import functional_call

from mnemos.models.batchnorm import MaskedBatchNorm, mask_batch_norm
from mnemos.models.chain import Chain
from mnemos.models.features import features_and_logits, head
from mnemos.vector import Layout


class Functional:
    """A module that is called with given vectors instead of its own tensors, and changes no buffers."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module.train()
        self.layout = Layout.of(module)
        self._both, self._top = _Both(module), _Top(module)
        self._norms = mask_batch_norm(module)
        owned = {f"{name}.{leaf}" for name, norm in self._norms.items() for leaf, _ in norm.named_buffers()}
        self.chain = Chain.of(module, self.layout)
        """The module as a chain of linear layers; None if it isn't one."""
        self._others = [slot.name for slot in self.layout.buffers if slot.name not in owned]

    @property
    def device(self) -> torch.device:
        """Where the module is, and so the vectors must be."""
        return next(self.module.parameters()).device

    def net(self, parameters: Tensor, buffers: Tensor) -> FunctionalNet:
        """The model with these vectors."""
        return FunctionalNet(self, parameters, buffers)

    @contextmanager
    def masked(self, mask: Tensor | None) -> Iterator[None]:
        """Inside, batch-norm uses the samples that a mask [B] marks; its new statistics are then dropped."""
        self._set(mask)
        try:
            yield
        finally:
            self._set(None)

    @contextmanager
    def training(self, mode: bool) -> Iterator[None]:
        """Inside, the module is in training or evaluation mode."""
        self.module.train(mode)
        try:
            yield
        finally:
            self.module.train()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Inside, batch-norm's new statistics are ignored."""
        before = {norm: norm.updated for norm in self._norms.values()}
        for norm in before:
            norm.updated = {}
        try:
            yield
        finally:
            for norm, updated in before.items():
                norm.updated = updated

    def updated_buffers(self, buffers: Tensor) -> Tensor:
        """The buffers with the statistics that batch-norm has computed since `masked` began."""
        if not self._norms:
            return buffers
        new = self.layout.buffer_views(buffers)
        for name, norm in self._norms.items():
            new.update({f"{name}.{leaf}": value for leaf, value in norm.updated.items()})
        return torch.cat([new[slot.name].reshape(-1) for slot in self.layout.buffers])

    def call(self, parameters: Tensor, buffers: Tensor, x: Tensor) -> Tensor:
        """Logits [B, C] of the model with these vectors."""
        logits: Tensor = functional_call(self.module, self._tensors(parameters, buffers), (x,))
        return logits

    def features(self, parameters: Tensor, buffers: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Features [B, d] and logits [B, C] of the model with these vectors."""
        tensors = {f"inner.{name}": tensor for name, tensor in self._tensors(parameters, buffers).items()}
        both: tuple[Tensor, Tensor] = functional_call(self._both, tensors, (x,))
        return both

    def head(self, parameters: Tensor, buffers: Tensor, features: Tensor) -> Tensor:
        """Logits [B, C] of features [B, d] by the model with these vectors."""
        tensors = {f"inner.{name}": tensor for name, tensor in self._tensors(parameters, buffers).items()}
        logits: Tensor = functional_call(self._top, tensors, (features,))
        return logits

    def _tensors(self, parameters: Tensor, buffers: Tensor) -> dict[str, Tensor]:
        statistics = self.layout.buffer_views(buffers)
        for name in self._others:
            # A copy, because a layer other than batch-norm may change its statistics in place.
            statistics[name] = statistics[name].clone()
        return {**self.layout.views(parameters), **statistics}

    def _set(self, mask: Tensor | None) -> None:
        norms: list[MaskedBatchNorm] = list(self._norms.values())
        for norm in norms:
            norm.mask, norm.updated = mask, {}


class FunctionalNet:
    """A model with given vectors, as the function that a method's parts call."""

    def __init__(
        self, functional: Functional, parameters: Tensor, buffers: Tensor, aside: bool = False
    ) -> None:
        self._functional = functional
        self._vectors = (parameters, buffers)
        self._aside = aside

    def __call__(self, x: Tensor) -> Tensor:
        """Logits [B, C]."""
        if not self._aside:
            return self._functional.call(*self._vectors, x)
        with self._functional.aside():
            return self._functional.call(*self._vectors, x)

    def features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Features [B, d] and logits [B, C]."""
        if not self._aside:
            return self._functional.features(*self._vectors, x)
        with self._functional.aside():
            return self._functional.features(*self._vectors, x)

    def head(self, features: Tensor) -> Tensor:
        """Logits [B, C] of features [B, d]."""
        return self._functional.head(*self._vectors, features)

    def at(self, parameters: Tensor) -> FunctionalNet:
        """The model with other parameters; its passes don't change the client's buffers."""
        return FunctionalNet(self._functional, parameters, self._vectors[1], aside=True)


class _Both(nn.Module):
    """Features and logits as a module's forward, so that `functional_call` can reach them."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return features_and_logits(self.inner, x)


class _Top(nn.Module):
    """A module's head as a module's forward, likewise."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, features: Tensor) -> Tensor:
        return head(self.inner, features)
