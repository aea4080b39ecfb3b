"""The choice of normalisation (Hsieh et al., 2020: batch statistics are what skewed clients disagree on)."""

from __future__ import annotations

from typing import Literal

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from mnemos.errors import ConfigError

Norm = Literal["batch", "group", "layer", "instance", "none"]
VectorNorm = Literal["batch", "group", "layer", "none"]


def make_norm(kind: Norm, channels: int, groups: int = 2) -> nn.Module:
    """A normalisation of images [B, C, H, W]; `groups` is for group norm only."""
    if kind == "batch":
        return nn.BatchNorm2d(channels)
    if kind == "instance":
        return nn.InstanceNorm2d(channels, affine=True)
    if kind == "layer":
        return nn.GroupNorm(1, channels)
    if kind == "group":
        _check_groups(channels, groups)
        return nn.GroupNorm(groups, channels)
    return nn.Identity()


def make_vector_norm(kind: VectorNorm, features: int, groups: int = 2) -> nn.Module:
    """A normalisation of vectors [B, D]; there is no instance norm, as one number has no statistics."""
    if kind == "batch":
        return nn.BatchNorm1d(features)
    if kind == "layer":
        return nn.LayerNorm(features)
    if kind == "group":
        _check_groups(features, groups)
        if groups == features:
            raise ConfigError(
                f"found {groups}; groups of a single feature normalise it to a constant", "groups"
            )
        return nn.GroupNorm(groups, features)
    return nn.Identity()


def scaled(channels: int, width: float, multiple: int = 1) -> int:
    """A number of channels times a width, rounded to the nearest positive multiple of `multiple`."""
    return max(1, round(channels * width / multiple)) * multiple


def _check_groups(channels: int, groups: int) -> None:
    if channels % groups:
        raise ConfigError(
            f"found {groups}; {channels} channels can't be split into {groups} groups", "groups"
        )


def use_batch_statistics(module: nn.Module) -> None:
    """Make every batch-norm use the batch's own statistics in evaluation, too."""
    for part in module.modules():
        if isinstance(part, _BatchNorm):
            part.track_running_stats = False
            part.running_mean = part.running_var = part.num_batches_tracked = None
