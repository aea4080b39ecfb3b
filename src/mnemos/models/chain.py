"""Gradients of chains of linear layers and ReLUs in closed form, for many models at once.

For such models, `vmap` and autograd take longer to find the operations than the operations take. Here they
are known: one batched product for each layer forwards, and two backwards. Activations are [K, features, B] of
K models, as products and softmax are faster with the samples of a batch last.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mnemos.models.model import Classifier
from mnemos.vector import Layout


class _Linear(NamedTuple):
    """A linear layer of a chain: where its tensors are in the parameters, and whether a ReLU follows."""

    weight: slice
    shape: tuple[int, ...]
    """Outputs, inputs."""
    bias: slice | None
    relu: bool

    def weights(self, vectors: Tensor) -> Tensor:
        """The layer's weights in vectors of parameters [K, P], in their memory: [K, outputs, inputs]."""
        return vectors[:, self.weight].view(-1, *self.shape)


class Chain:
    """A model that is a chain of linear layers, with or without a ReLU after each."""

    def __init__(self, layers: tuple[_Linear, ...]) -> None:
        self._layers = layers

    @classmethod
    def of(cls, module: nn.Module, layout: Layout) -> Chain | None:
        """The module as a chain; None if it isn't one. `layout`: of the module's tensors."""
        parts = list(_parts(module))
        linear = [part for part in parts if isinstance(part, nn.Linear)]
        tensors = sum(1 if part.bias is None else 2 for part in linear)  # more than there are, if shared
        if layout.buffers or tensors != len(layout.parameters) or not all(map(_known, parts)):
            return None
        prefixes = {id(part): f"{name}." if name else "" for name, part in module.named_modules()}
        slots = {slot.name: slot for slot in layout.parameters}
        layers: list[_Linear] = []
        for part in parts:
            if isinstance(part, nn.Linear):
                weight, bias = (slots.get(prefixes[id(part)] + leaf) for leaf in ("weight", "bias"))
                assert weight is not None
                where = None if bias is None else slice(bias.start, bias.stop)
                layers.append(_Linear(slice(weight.start, weight.stop), weight.shape, where, relu=False))
            elif isinstance(part, nn.ReLU) and layers:
                layers[-1] = layers[-1]._replace(relu=True)
            elif isinstance(part, nn.ReLU):
                return None
        return cls(tuple(layers)) if layers and not layers[-1].relu else None

    @property
    def inputs(self) -> int:
        """The number of values in a sample."""
        return self._layers[0].shape[1]

    def forward(self, points: Tensor, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Logits [K, C, B] and the input of each layer [K, features, B].

        `points`: the models [K, P]; `x`: the samples of each [K, B, …].
        """
        value, inputs = x.flatten(2).mT, []
        for layer in self._layers:
            inputs.append(value)
            value = torch.bmm(layer.weights(points), value)
            if layer.bias is not None:
                value.add_(points[:, layer.bias].unsqueeze(2))
            if layer.relu:
                value.relu_()
        return value, inputs

    def backward(self, points: Tensor, inputs: list[Tensor], slopes: Tensor) -> Tensor:
        """The gradient [K, P] from the loss's gradient with respect to the logits [K, C, B]."""
        gradient = torch.empty_like(points)
        for index in reversed(range(len(self._layers))):
            layer, value = self._layers[index], inputs[index]
            torch.bmm(slopes, value.mT, out=layer.weights(gradient))
            if layer.bias is not None:
                torch.sum(slopes, 2, out=gradient[:, layer.bias])
            if index:
                slopes = torch.bmm(layer.weights(points).mT, slopes)
                if self._layers[index - 1].relu:
                    slopes = torch.ops.aten.threshold_backward(slopes, value, 0)
        return gradient


def _known(part: nn.Module) -> bool:
    """Whether it is a layer of chains; subclasses of these may do something else."""
    if type(part) is nn.Flatten and (part.start_dim, part.end_dim) != (1, -1):
        return False
    return type(part) in (nn.Flatten, nn.Linear, nn.ReLU, nn.Identity) and not _hooked(part)


def _parts(module: nn.Module) -> Iterator[nn.Module]:
    """The layers of a sequential model in the order in which they act; other modules as they are."""
    if type(module) is Classifier and not _hooked(module):
        yield from _parts(module.body)
        yield module.head
    elif type(module) is nn.Sequential and not _hooked(module):
        for part in module:
            yield from _parts(part)
    else:
        yield module


def _hooked(module: nn.Module) -> bool:
    """Whether something else is called with a module's forward pass."""
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
    )
