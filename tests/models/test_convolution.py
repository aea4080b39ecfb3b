import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mnemos.models.convolution import fast_convolutions, weight_gradient


def test_weight_gradient_by_hand():
    """One image of 1×2 pixels with one channel, (1, 2), kernel 1×2, no padding: one output, gradient 3.

    y = w₀·1 + w₁·2, so ∂L/∂w = 3·(1, 2) = (3, 6).
    """
    x = torch.tensor([[[[1.0, 2.0]]]]).contiguous(memory_format=torch.channels_last)
    gradient = torch.tensor([[[[3.0]]]])
    found = weight_gradient(x, gradient, torch.Size([1, 1, 1, 2]), (1, 1), (0, 0))
    assert found.flatten().tolist() == [3.0, 6.0]


CASES = [
    (kernel, stride, padding, bias, size)
    for kernel in ((3, 3), (5, 3), (1, 3))
    for stride in ((1, 1), (2, 1), (2, 2))
    for padding in ((0, 0), (1, 1), (2, 1))
    for bias, size in ((True, 9), (False, 8))
]


@pytest.mark.parametrize(("kernel", "stride", "padding", "bias", "size"), CASES)
def test_gradients_agree_with_double_precision(kernel, stride, padding, bias, size):
    generator = torch.Generator().manual_seed(1)
    layer = nn.Conv2d(16, 5, kernel, stride, padding, bias=bias)
    exact = nn.Conv2d(16, 5, kernel, stride, padding, bias=bias).double()
    exact.load_state_dict(layer.state_dict())
    fast_convolutions(layer)
    assert type(layer) is not nn.Conv2d
    x = torch.randn(3, 16, size, size, generator=generator)
    ours = x.clone().contiguous(memory_format=torch.channels_last).requires_grad_()
    theirs = x.double().requires_grad_()
    out = layer(ours)
    weights = torch.randn(out.shape, generator=generator)
    (out * weights).sum().backward()
    (exact(theirs) * weights.double()).sum().backward()
    torch.testing.assert_close(ours.grad.double(), theirs.grad, rtol=1e-4, atol=1e-4)
    for a, b in zip(layer.parameters(), exact.parameters(), strict=True):
        torch.testing.assert_close(a.grad.double(), b.grad, rtol=1e-4, atol=1e-4)


def test_several_chunks_add_up(monkeypatch):
    monkeypatch.setattr("mnemos.models.convolution._CACHE", 1)
    layer = nn.Conv2d(16, 4, 3, padding=1)
    x = torch.randn(5, 16, 6, 6).contiguous(memory_format=torch.channels_last)
    plain = torch.autograd.grad(layer(x).square().sum(), layer.weight)[0]
    fast_convolutions(layer)
    chunked = torch.autograd.grad(layer(x).square().sum(), layer.weight)[0]
    # A sum in another order, of terms that are larger than it: the last bits of the terms show.
    torch.testing.assert_close(chunked, plain, rtol=1e-4, atol=1e-4)


def test_what_does_not_gain_stays_as_it_is():
    layers = nn.Sequential(
        nn.Conv2d(3, 16, 3),
        nn.Conv2d(16, 16, 1),
        nn.Conv2d(16, 16, 3, groups=2),
        nn.Conv2d(16, 16, 3, dilation=2),
        nn.Conv2d(16, 16, 3, padding="same"),
        nn.Conv2d(16, 16, 3, padding=1, padding_mode="circular"),
    )
    fast_convolutions(layers)
    assert all(type(layer) is nn.Conv2d for layer in layers)


def test_ordinary_memory_order_takes_the_ordinary_way():
    layer = nn.Conv2d(16, 4, 3)
    x = torch.randn(2, 16, 5, 5)
    plain = torch.autograd.grad(layer(x).sum(), layer.weight)[0]
    fast_convolutions(layer)
    assert torch.equal(torch.autograd.grad(layer(x).sum(), layer.weight)[0], plain)
    with torch.no_grad():
        torch.testing.assert_close(layer(x), F.conv2d(x, layer.weight, layer.bias))
