"""The representation loss against numbers worked out by hand."""

import math

import pytest
import torch

from mnemos.errors import ConfigError
from mnemos.experiment.experiment import Experiment
from mnemos.methods.exchange import Batch, Client
from mnemos.methods.head import Head
from mnemos.methods.terms.representation import Representation, contrast

CROSS = torch.tensor([[2.0, 0.0], [0.0, 1.0], [-3.0, 0.0], [0.0, -1.0]])
"""Four directions; of class 0 the first two, of class 1 the others. Lengths don't matter."""
LABELS = torch.tensor([0, 0, 1, 1])
ALL = torch.ones(4)
EVERY = torch.tensor([True] * 4)

# cosines: 0 within a class; to the other class −1 and 0, so nᵢ = e⁻¹ + 1 for all four.
SLIDES = math.log(2 + math.exp(-1))  # −log(e⁰ / (e⁰ + nᵢ)), of each ordered pair
RELEASED = math.log(3 + math.exp(-1))  # −log(e⁰ / (1 + e⁰ + nᵢ))


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        # 1/4 of the sum over two classes of 1/(2 · 1) times two pairs
        ("slides", 0.25 * 2 * (0.5 * 2 * SLIDES)),
        # 1/4 of the sum over two classes of 1/1 times two pairs
        ("released", 0.25 * 2 * (2 * RELEASED)),
    ],
)
def test_four_vectors(form, expected):
    assert float(contrast(CROSS, LABELS, ALL, EVERY, 1.0, form)) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("form", "expected"), [("slides", 0.25 * SLIDES), ("released", 0.5 * RELEASED)])
def test_classes_that_the_client_lacks_only_push(form, expected):
    """Only class 0's pairs count, of four vectors all the same."""
    found = contrast(CROSS, LABELS, ALL, LABELS == 0, 1.0, form)
    assert float(found) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("form", ["slides", "released"])
def test_what_fills_a_batch_up_does_not_count(form):
    """Two more vectors, one of each class, that aren't real."""
    vectors = torch.cat([CROSS, torch.tensor([[5.0, 1.0], [1.0, 5.0]])])
    labels, real = torch.tensor([0, 0, 1, 1, 0, 1]), torch.tensor([1.0, 1, 1, 1, 0, 0])
    found = contrast(vectors, labels, real, real > 0, 1.0, form)
    assert float(found) == pytest.approx(float(contrast(CROSS, LABELS, ALL, EVERY, 1.0, form)), rel=1e-6)


@pytest.mark.parametrize("form", ["slides", "released"])
def test_a_class_with_one_vector_has_no_pairs(form):
    """Two classes of one vector each and nothing else: 0, and nothing that isn't finite."""
    vectors = CROSS[:2].clone().requires_grad_()
    found = contrast(vectors, torch.tensor([0, 1]), torch.ones(2), torch.tensor([True] * 2), 1.0, form)
    assert float(found.detach()) == 0
    found.backward()
    assert torch.isfinite(vectors.grad).all()


def test_three_of_a_class_in_both_forms():
    """Class 0: (1, 0), (1, 0), (0, 1); class 1: (0, 1). Cosines in class 0: s₁₂ = 1, s₁₃ = s₂₃ = 0.

    To class 1: n₁ = n₂ = e⁰ = 1, n₃ = e¹. Slides: pairs 12, 21: 1 − log(e + 1); 13, 23: −log(1 + 1);
    31, 32: −log(1 + e); by 3 · 2. Class 1 has no pair. Released: the sums with i fixed are 1 + e + 1 + 1 for
    i = 1, 2 and 1 + 1 + 1 + e for i = 3, so log(3 + e) for all; Σ s = 2, by 3 − 1.
    """
    vectors, labels = torch.tensor([[1.0, 0], [1, 0], [0, 1], [0, 1]]), torch.tensor([0, 0, 0, 1])
    e = math.e
    slides = -(2 * (1 - math.log(e + 1)) - 2 * math.log(2) - 2 * math.log(1 + e)) / 6 / 4
    released = -(2 - 6 * math.log(3 + e)) / 2 / 4
    assert float(contrast(vectors, labels, ALL, EVERY, 1.0, "slides")) == pytest.approx(slides, rel=1e-6)
    assert float(contrast(vectors, labels, ALL, EVERY, 1.0, "released")) == pytest.approx(released, rel=1e-6)


def test_cold_temperatures_are_finite():
    assert torch.isfinite(contrast(CROSS, LABELS, ALL, EVERY, 1e-3, "slides"))


def test_features_beside_prototypes():
    """The batch has (2, 0), of class 0; the pseudo-features are e₀ = (0, 1), and (−3, 0) and (0, −1) of
    class 1, which the client doesn't train on: class 0's pairs of CROSS, λ times. Turned images are left out.
    """
    state = {
        "prototypes.vectors": torch.tensor([[0.0, 1.0], [0.0, 0.0]]),
        "prototypes.known": torch.tensor([1.0, 1.0]),
        "prototypes.radius": torch.ones(()),
    }
    noise = torch.tensor([[0.0, 0.0], [-3.0, 0.0], [0.0, -1.0]])
    drawn = {"representation.pick": torch.tensor([0.1, 0.6, 0.9]), "representation.noise": noise}
    who = Client(torch.zeros(0), {}, state, torch.ones(8), torch.tensor([9.0, 0.0]), torch.tensor([1.0, 0.0]))
    features = torch.cat([CROSS[:1], torch.full((3, 2), 5.0)])
    batch = Batch(torch.zeros(4, 1), torch.tensor([0, 1, 2, 3]), drawn=drawn)
    term = Representation(weight=0.5).within(Head(rotations=True))
    found = term.losses(None, batch, features, who)
    assert float(found) == pytest.approx(0.5 * 0.25 * SLIDES, rel=1e-6)


def test_without_prototypes_only_the_batch_counts():
    """As CROSS alone, with both classes of the client's."""
    state = {
        "prototypes.vectors": torch.zeros(2, 2),
        "prototypes.known": torch.zeros(2),
        "prototypes.radius": torch.zeros(()),
    }
    drawn = {"representation.pick": torch.rand(3), "representation.noise": torch.randn(3, 2)}
    who = Client(torch.zeros(0), {}, state, torch.ones(2), torch.ones(2), torch.ones(2))
    found = Representation(weight=1.0).losses(None, Batch(CROSS, LABELS, drawn=drawn), CROSS, who)
    assert float(found) == pytest.approx(0.5 * SLIDES, rel=1e-6)


def test_it_needs_prototypes():
    with pytest.raises(ConfigError, match="the term 'representation' needs the term 'prototypes' beside it"):
        Experiment.parse({"method": {"name": "fedavg", "terms": ["representation"]}})
