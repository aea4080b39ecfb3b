"""Dropout whose mask comes from an explicit generator, independent of all other draws."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mnemos.common.shapes import blank
from mnemos.models.masks import Masks
from mnemos.models.trial import global_states, trial

_CHANNELWISE: dict[type[nn.Module], bool] = {
    nn.Dropout: False,
    nn.Dropout1d: True,
    nn.Dropout2d: True,
    nn.Dropout3d: True,
}


class Dropout(nn.Module):
    """Dropout of elements, or of whole channels of a batch [B, C, …]; never in place.

    Without a generator it draws from the global one, like PyTorch's own layers.
    """

    def __init__(self, p: float = 0.5, *, channelwise: bool = False) -> None:
        super().__init__()
        self.p = p
        self.channelwise = channelwise
        self.generator: torch.Generator | Masks | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Zero with probability p and scale the rest by 1/(1 − p) while training."""
        if not self.training or self.p == 0:
            return x
        shape = x.shape[:2] + (1,) * (x.dim() - 2) if self.channelwise else x.shape
        kept = 1 - self.p
        if isinstance(self.generator, Masks):
            mask = self.generator(shape, kept, x.dtype)
            mask = mask if x.dtype == torch.float32 and kept else mask.to(x.dtype)
        else:
            device = self.generator.device if self.generator else x.device
            mask = torch.empty(shape, device=device, dtype=x.dtype).bernoulli_(kept, generator=self.generator)
        return x * (mask / kept if kept else mask).to(x.device)

    def extra_repr(self) -> str:
        """The options that `print(model)` shows."""
        return f"p={self.p}, channelwise={self.channelwise}"


def own_dropout(module: nn.Module) -> nn.Module:
    """The module with PyTorch's dropout layers replaced by `Dropout`, in place unless it is one itself."""
    replaced: dict[nn.Module, nn.Module] = {}

    def replacement(layer: nn.Module) -> nn.Module:
        # The exact type: a subclass may do something else in its forward.
        channelwise = _CHANNELWISE.get(type(layer))
        if channelwise is None or not isinstance(layer, nn.modules.dropout._DropoutNd):
            return layer
        if layer not in replaced:
            replaced[layer] = Dropout(layer.p, channelwise=channelwise).train(layer.training)
        return replaced[layer]

    for parent in list(module.modules()):
        # Not named_children(), which lists a layer that has two names only once.
        for name, child in list(parent._modules.items()):
            if child is not None and (new := replacement(child)) is not child:
                setattr(parent, name, new)
    return replacement(module)


def set_generator(module: nn.Module, generator: torch.Generator | Masks | None) -> None:
    """Give every `Dropout` in a module what its masks come from."""
    for layer in module.modules():
        if isinstance(layer, Dropout):
            layer.generator = generator


def without_dropout(module: nn.Module) -> nn.Module:
    """The module with its `Dropout` layers turned off, in place."""
    for layer in module.modules():
        if isinstance(layer, Dropout):
            layer.p = 0.0
    return module


def draws_globally(module: nn.Module, shape: tuple[int, ...]) -> bool:
    """Whether a training step draws from a global generator in spite of `own_dropout`.

    The generators are PyTorch's, NumPy's and Python's; one forward pass of a copy shows it.
    """
    with trial(module, training=True) as twin:
        set_generator(twin, torch.Generator())
        before = global_states()
        twin(blank(shape))
        return before != global_states()
