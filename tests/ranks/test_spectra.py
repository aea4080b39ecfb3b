"""Spectra of whole models: both sides of a convolution, batched, and safe against anything."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from mnemos.ranks.layers import QUANTITIES, layer_values, network_value
from mnemos.ranks.spectra import Spectra, ranked
from mnemos.vector import Layout


@pytest.fixture(scope="module")
def layout():
    net = nn.Sequential(
        nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.Conv2d(6, 4, 1), nn.Conv1d(4, 5, 2), nn.Linear(5, 7)
    )
    return Layout.of(net)


def models(layout, count, seed=0):
    return torch.randn(count, layout.size, generator=torch.Generator().manual_seed(seed))


def direct(model, slot, side):
    """The singular values by an ordinary decomposition of the unfolding, written out."""
    tensor = model[slot.start : slot.stop].view(slot.shape).double()
    order = [1, 0, *range(2, tensor.ndim)] if side == "in" else range(tensor.ndim)
    matrix = tensor.permute(*order).flatten(1)
    return torch.linalg.svdvals(matrix), matrix.shape[0]


@pytest.mark.parametrize("quantity", list(QUANTITIES))
def test_both_sides_of_every_layer_as_by_plain_decompositions(layout, quantity):
    several = models(layout, 3)
    found = Spectra(several, layout, linear=True).of(QUANTITIES[quantity], noisy=True)
    assert found.shape == (3, 4, 2)
    for k, model in enumerate(several):
        for column, slot in enumerate(ranked(layout, linear=True)):
            for place, side in enumerate(("in", "out")):
                expected = QUANTITIES[quantity](*direct(model, slot, side))
                assert float(found[k, column, place]) == pytest.approx(float(expected), rel=1e-9)


def test_which_layers_are_ranked(layout):
    assert [slot.name for slot in ranked(layout)] == ["0.weight", "2.weight", "3.weight"]
    assert [slot.name for slot in ranked(layout, linear=True)][-1] == "4.weight"


def test_a_planted_channel_structure_is_seen_on_its_side():
    """W[o, i, :, :] = a_o b_i K + noise has one component on both sides; a full kernel has more."""
    layout = Layout.of(nn.Conv2d(16, 32, 3, bias=False))
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(32, generator=generator), torch.randn(16, generator=generator)
    kernel = torch.randn(3, 3, generator=generator)
    weight = torch.einsum("o,i,hw->oihw", a, b, kernel) + 0.05 * torch.randn(
        32, 16, 3, 3, generator=generator
    )
    ranks = Spectra(weight.view(1, -1), layout).of(QUANTITIES["rank"])
    assert ranks.tolist() == [[[1.0, 1.0]]]


@given(seed=st.integers(0, 1000), scale=st.sampled_from([1e-6, 0.1, 1.0, 1e4]))
@settings(max_examples=20, deadline=None)
def test_effective_rank_is_the_same_after_turning_and_scaling(seed, scale):
    generator = torch.Generator().manual_seed(seed)
    layout = Layout.of(nn.Linear(20, 12, bias=False))
    matrix = torch.randn(12, 20, generator=generator, dtype=torch.float64)
    matrix[:, :4] *= 30  # something that stands out

    def turn(size):
        return torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64)).Q

    turned = scale * (turn(12) @ matrix @ turn(20))
    for quantity in ("effective-rank", "stable-rank"):
        for noisy in (False, True):
            before, after = (
                Spectra(m.float().view(1, -1), layout, linear=True).of(QUANTITIES[quantity], noisy)
                for m in (matrix, turned)
            )
            assert torch.allclose(before, after, rtol=1e-4)


def test_a_layer_that_is_not_finite_has_no_rank_and_spoils_no_other(layout):
    several = models(layout, 3)
    clean = layer_values(several, layout, "effective-rank")
    for bad in (math.nan, math.inf):
        broken = several.clone()
        broken[1, ranked(layout)[0].start + 2] = bad
        found = Spectra(broken, layout).of(QUANTITIES["effective-rank"], noisy=True)
        assert found[1, 0].tolist() == [0.0, 0.0]
        expected = Spectra(several, layout).of(QUANTITIES["effective-rank"], noisy=True)
        expected[1, 0] = 0
        assert torch.equal(found, expected)
    assert torch.isfinite(clean).all()


def test_chunks_change_nothing(layout, monkeypatch):
    several = models(layout, 5)
    together = layer_values(several, layout, "knowledge-gain")
    monkeypatch.setattr("mnemos.ranks.spectra._CHUNK", 1)
    assert torch.allclose(layer_values(several, layout, "knowledge-gain"), together, rtol=1e-12)


def test_one_number_for_a_network(layout):
    """Two layers with sides (3, 4) and (0, 0): √(25/4), √(25/2) over the values there are, mean 7/4, √12."""
    values = torch.tensor([[[3.0, 4.0], [0.0, 0.0]]], dtype=torch.float64)
    net = Layout.of(nn.Sequential(nn.Conv2d(2, 3, 3), nn.Conv2d(3, 8, 3)))
    expected = {
        "l2": math.log(2.5),
        "l2-nonzero": math.log(math.sqrt(12.5)),
        "mean": 1.75,
        "geometric": math.sqrt(12),
        "weighted": 2 * 3.5 / 5,  # the smaller sides are 2 and 3
    }
    for how, number in expected.items():
        assert float(network_value(values, net, how)) == pytest.approx(number)
    assert float(network_value(0 * values, net, "l2")) == -math.inf
