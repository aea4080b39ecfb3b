"""Features and logits of any module in one call."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from mnemos.errors import ConfigError


def features_and_logits(module: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Feature vectors [B, d] and logits [B, classes].

    A module with a `features` method and a `head` layer, such as a `Classifier`, is taken at its word: its
    logits are `head(features(x))`. One with the method alone is run twice. In any other, the features are
    what goes into the last `nn.Linear` that a forward pass goes through.
    """
    features = getattr(module, "features", None)
    # A `features` that is itself a layer is a stack of convolutions, as in VGG, not a feature vector.
    if callable(features) and not isinstance(features, nn.Module):
        found: Tensor = features(x)
        head = getattr(module, "head", None)
        return found, head(found) if isinstance(head, nn.Module) else module(x)
    return _into_last_linear(module, x)


def head(module: nn.Module, features: Tensor) -> Tensor:
    """Logits [B, classes] of feature vectors [B, d], by the layer that `features_and_logits` speaks of."""
    layer = getattr(module, "head", None)
    if not isinstance(layer, nn.Module):
        layers = [part for part in module.modules() if isinstance(part, nn.Linear)]
        layer = layers[-1]
    logits: Tensor = layer(features)
    return logits


def _into_last_linear(module: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    seen: list[Tensor] = []

    def remember(_: nn.Module, inputs: tuple[Any, ...]) -> None:
        seen[:] = [inputs[0]]

    handles = [
        layer.register_forward_pre_hook(remember)
        for layer in module.modules()
        if isinstance(layer, nn.Linear)
    ]
    try:
        logits: Tensor = module(x)
    finally:
        for handle in handles:
            handle.remove()
    if not seen:
        raise ConfigError(
            "the model has neither a features(x) method nor an nn.Linear layer to take features from"
        )
    return seen[0].flatten(1), logits
