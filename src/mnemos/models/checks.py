"""Whether a module can be trained at all, repeatably, and by terms that want features."""

from __future__ import annotations

import torch
from torch import nn

from mnemos.common.shapes import sample_input
from mnemos.errors import ConfigError
from mnemos.models.buffers import changed_buffers
from mnemos.models.dropout import draws_globally
from mnemos.models.features import features_and_logits
from mnemos.models.trial import buffer_bytes, trial
from mnemos.vector import Layout


def check_model(module: nn.Module, shape: tuple[int, ...]) -> None:
    """Refuse a model that can't be trained, or not repeatably."""
    layout = Layout.of(module)
    if layout.size == 0:
        raise ConfigError("it has no parameters to train")
    try:
        draws = draws_globally(module, shape)
        changed = changed_buffers(module, shape, training=True)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            f"its forward pass fails in training mode ({type(error).__name__}: {error})"
        ) from error
    if draws:
        raise ConfigError(
            "its forward pass draws from a global random generator, so no result could be repeated; "
            "use nn.Dropout layers instead of functional dropout"
        )
    outside = set(changed) - {slot.name for slot in layout.buffers}
    if outside:
        raise ConfigError(
            f"training changes its buffer '{min(outside)}', which clients would share; "
            "register it as a persistent floating-point buffer"
        )
    if changed := changed_buffers(module, shape, training=False):
        raise ConfigError(
            f"evaluation changes its buffer '{changed[0]}', so a score would depend on the scores before it; "
            "change it only where self.training is true"
        )


def check_features(module: nn.Module, shape: tuple[int, ...]) -> None:
    """Refuse a model whose features and logits can't be had in one pass that is a pass like any other."""
    x = sample_input(shape)
    with trial(module, training=True) as one, trial(module, training=True) as other:
        features_and_logits(one, x)
        other(x)
        if buffer_bytes(one) != buffer_bytes(other):
            raise ConfigError(
                "the model's forward doesn't call its features(x), so a step would move statistics twice; "
                "let forward call it"
            )
    with trial(module, training=False) as one, trial(module, training=False) as other:
        if not torch.allclose(features_and_logits(one, x)[1], other(x), rtol=1e-4, atol=1e-5):
            raise ConfigError(
                "the model's head(features(x)) isn't what its forward gives; let forward give that, or give "
                "the layer 'head' another name"
            )
