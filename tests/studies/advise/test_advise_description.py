"""What a federation is like, without training; the formulas by hand."""

import math

import numpy as np
import pytest

from mnemos.studies.advise.description import base_of, coverage, describe, effective_classes, overlap


def test_effective_classes_by_hand():
    """One class: 1. Two alike: 2. Three quarters and one: exp(−¾ ln ¾ − ¼ ln ¼) = 4 / 27^¼ = 1.7548."""
    found = effective_classes(np.array([[5, 0], [2, 2], [3, 1]]))
    assert found == pytest.approx([1.0, 2.0, 4 / 27**0.25])


def test_overlap_by_hand():
    """Shares (1, 0), (½, ½), (0, 1): pairs ½, 0, ½, so ⅓ on average."""
    assert overlap(np.array([[4, 0], [3, 3], [0, 2]])) == pytest.approx(1 / 3)
    assert overlap(np.array([[1, 2]])) == 1.0


def test_overlap_is_that_of_all_pairs():
    counts = np.random.default_rng(0).integers(1, 9, size=(7, 4))
    p = counts / counts.sum(axis=1, keepdims=True)
    pairs = [np.minimum(p[i], p[j]).sum() for i in range(7) for j in range(i)]
    assert overlap(counts) == pytest.approx(np.mean(pairs))


def test_coverage_by_hand():
    """N = 4, m = 2; held by 0, 1, 2, 3 clients: 0, 1 − C(3,2)/C(4,2) = ½, 1 − 1/6 = 5/6, 1.

    The fifth client has nothing and can't be drawn.
    """
    counts = np.array([[0, 9, 1, 1], [0, 0, 1, 1], [0, 0, 0, 1], [1, 0, 0, 0], [0, 0, 0, 0]])
    counts[3, 0] = 0
    counts = np.column_stack([counts, [0, 0, 0, 1, 0]])
    assert coverage(counts, 2) == pytest.approx([0, 1 / 2, 5 / 6, 1, 1 / 2])
    assert coverage(counts, 10) == pytest.approx([0, 1, 1, 1, 1]), "a cohort of all"


def test_coverage_of_a_large_population_is_finite():
    counts = np.eye(1000, 2, dtype=np.int64)
    counts[:, 1] = 1
    assert coverage(counts, 100) == pytest.approx([0.1, 1.0])


TINY = {"data": "digits", "partition": {"clients": 10, "alpha": 0.1}, "participation": 0.2, "rounds": 30}


def test_digits():
    """10 clients, 2 a round, 30 rounds: each takes part in 6; a batch of 64 takes 2 or 3 steps of ~129."""
    found = describe(base_of(TINY))
    assert (found.clients, found.classes, found.cohort, found.participation) == (10, 10, 2, 0.2)
    assert found.times_asked == pytest.approx(6)
    assert found.local_steps == pytest.approx(math.ceil(found.size_median / 64), abs=1)
    assert 1 <= found.effective_classes_min <= found.effective_classes <= found.classes_held <= 10
    assert found.classes_held < found.coverage <= 10
    assert 0 < found.rarest_coverage <= 1
    assert found.warnings == ()
    assert "10 clients hold" in str(found)
    assert found.facts["sentences"] == list(found.sentences)


def test_the_figure_shows_every_client_and_class():
    """Bars of clients sum to 10; the bars of classes are the probabilities whose sum is the coverage."""
    found = describe(base_of(TINY))
    left, right = found.plot().axes
    assert sum(bar.get_height() for bar in left.patches) == 10
    heights = [bar.get_height() for bar in right.patches]
    assert sum(heights) == pytest.approx(100 * found.coverage)
    assert min(heights) == pytest.approx(100 * found.rarest_coverage)
    assert [label.get_text() for label in right.get_xticklabels()] == list("0123456789")
    assert "client_classes" not in found.facts


def test_clients_that_are_alike_overlap():
    alike = describe(base_of(TINY, {"partition.alpha": 1000}))
    skewed = describe(base_of(TINY, {"partition.alpha": 0.05}))
    assert alike.overlap > 0.8 > 0.3 > skewed.overlap
    assert alike.effective_classes > 9 > 4 > skewed.effective_classes
    assert "low" in alike.sentences[1]
    assert "high" in skewed.sentences[1]


def test_the_base_of_a_study_is_described():
    study = {"base": TINY, "grid": {"local.lr": [0.1, 0.2]}}
    assert base_of(study, {"rounds": 7}) == base_of(TINY, {"rounds": 7})


def test_a_stream_shows_fewer_classes_at_a_time():
    stream = describe(base_of(TINY, {"stream": {"name": "tasks", "tasks": 5}}))
    assert stream.coverage < describe(base_of(TINY)).coverage
    assert "changes over time (tasks)" in str(stream)


def test_what_makes_it_hard_is_said():
    hard = describe(base_of(TINY, {"partition.validation": 0.01, "rounds": 5, "selection": "poisson"}))
    said = " ".join(hard.warnings)
    assert "validation sample" in said
    assert "SCAFFOLD" in said
    assert "uniformly" in said
