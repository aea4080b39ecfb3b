"""Normalisations by name."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mnemos.errors import ConfigError
from mnemos.models.norm import make_norm, make_vector_norm, scaled


@pytest.mark.parametrize(
    ("kind", "dims"),
    [("batch", (0, 2, 3)), ("layer", (1, 2, 3)), ("instance", (2, 3)), ("group", None), ("none", None)],
)
def test_what_is_normalised(kind: str, dims: tuple[int, ...] | None) -> None:
    x = torch.randn(3, 4, 5, 6, generator=torch.Generator().manual_seed(0)) * 3 + 1
    y = make_norm(kind, 4, 2)(x)
    if kind == "none":
        assert torch.equal(x, y)
        return
    if kind == "group":
        x, y, dims = x.view(3, 2, 2, 5, 6), y.view(3, 2, 2, 5, 6), (2, 3, 4)
    expected = (x - x.mean(dims, keepdim=True)) / (x.var(dims, unbiased=False, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(y, expected)


@pytest.mark.parametrize("kind", ["batch", "group", "layer", "instance"])
def test_every_norm_has_a_scale_and_a_shift(kind: str) -> None:
    assert [tuple(p.shape) for p in make_norm(kind, 6, 3).parameters()] == [(6,), (6,)]


def test_only_batch_norm_has_buffers() -> None:
    for kind in ("group", "layer", "instance", "none"):
        assert not list(make_norm(kind, 4).buffers())
    assert len(list(make_norm("batch", 4).buffers())) == 3


def test_vectors() -> None:
    assert isinstance(make_vector_norm("batch", 4), nn.BatchNorm1d)
    assert isinstance(make_vector_norm("none", 4), nn.Identity)
    x = torch.tensor([[1.0, 3.0, 10.0, 30.0]])
    torch.testing.assert_close(
        make_vector_norm("group", 4, 2)(x), torch.tensor([[-1.0, 1.0, -1.0, 1.0]]), rtol=1e-4, atol=1e-4
    )
    assert make_vector_norm("layer", 4)(x).mean().item() == pytest.approx(0, abs=1e-6)


def test_groups_that_do_not_divide() -> None:
    for make in (make_norm, make_vector_norm):
        with pytest.raises(ConfigError, match="groups: found 4; 6 channels can't be split into 4 groups"):
            make("group", 6, 4)


@pytest.mark.parametrize(
    ("channels", "width", "multiple", "expected"),
    [
        (64, 1.0, 1, 64),
        (64, 0.25, 2, 16),
        (64, 0.3, 2, 20),
        (6, 0.01, 1, 1),
        (64, 0.01, 8, 8),
        (64, 2.0, 2, 128),
    ],
)
def test_scaled(channels: int, width: float, multiple: int, expected: int) -> None:
    assert scaled(channels, width, multiple) == expected
