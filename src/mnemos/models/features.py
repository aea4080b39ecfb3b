"""Features and logits of any module in one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from mnemos.errors import ConfigError


def features_and_logits(module: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Feature vectors [B, d] and logits [B, classes].

    Of a module with a `features` method and a `head` layer, such as a `Classifier`, the logits are
    `head(features(x))`. With the method alone, the features are what it returns during the forward pass; if
    the forward pass doesn't call it, it is called separately. Of any other module, the features are the input
    of the last `nn.Linear` in a forward pass.
    """
    features = getattr(module, "features", None)
    # A `features` that is itself a layer is a stack of convolutions, as in VGG, not a feature vector.
    if callable(features) and not isinstance(features, nn.Module):
        head = getattr(module, "head", None)
        if not isinstance(head, nn.Module):
            return _in_forward_pass(module, features, x)
        found: Tensor = features(x)
        return found, head(found)
    return _into_last_linear(module, x)


def head(module: nn.Module, features: Tensor) -> Tensor:
    """Logits [B, classes] of feature vectors [B, d], by the module's `head` or its last `nn.Linear`."""
    layer = getattr(module, "head", None)
    if not isinstance(layer, nn.Module):
        layers = [part for part in module.modules() if isinstance(part, nn.Linear)]
        layer = layers[-1]
    logits: Tensor = layer(features)
    return logits


def _in_forward_pass(module: nn.Module, features: Callable[..., Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    """The result of `features` in a forward pass, and the logits: one pass updates batch-norm once."""
    seen: list[Tensor] = []

    def remember(*inputs: Any, **options: Any) -> Tensor:
        seen[:] = [features(*inputs, **options)]
        return seen[0]

    own = vars(module).get("features")
    module.features = remember  # type: ignore[assignment]
    try:
        logits: Tensor = module(x)
    finally:
        if own is None:
            del module.features
        else:
            module.features = own
    return (seen[0] if seen else features(x)), logits


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
