"""The power-law partition against its definition, and the split of CIFAR-100's 50,000 samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mnemos.data.partition import Assignment, partitions
from mnemos.data.partitions.power_law import PowerLaw


def split(labels: Any, clients: int, seed: int = 0, **options: Any) -> Assignment:
    part = partitions.parse({"name": "power-law", "clients": clients, "validation": 0, **options})
    return part.split(np.asarray(labels, np.int64), None, np.random.default_rng(seed))


def table(assignment: Assignment, labels: Any, classes: int) -> np.ndarray:
    owner = np.repeat(np.arange(assignment.clients), assignment.sizes)
    cells = owner * classes + np.asarray(labels)[assignment.order]
    return np.bincount(cells, minlength=assignment.clients * classes).reshape(-1, classes)


@settings(max_examples=150, deadline=None)
@given(
    clients=st.integers(1, 80),
    each=st.floats(1, 30),
    classes=st.integers(1, 30),
    exponent=st.sampled_from([0.2, 1.0, 3.0, 50.0]),
    alpha=st.sampled_from([1e-3, 0.1, 1.0, 100.0]),
    seed=st.integers(0, 2**32),
    empty=st.booleans(),
)
def test_every_sample_belongs_to_one_client(clients, each, classes, exponent, alpha, seed, empty):
    labels = np.random.default_rng(seed).integers(0, classes, int(clients * each))
    found = split(labels, clients, seed, exponent=exponent, alpha=alpha, allow_empty=empty)
    assert sorted(found.order.tolist()) == list(range(len(labels)))
    assert found.sizes.sum() == len(labels)
    assert empty or found.sizes.min() >= 1


@pytest.mark.parametrize("clients", [50, 100, 500])
def test_the_split_of_a_data_set_like_cifar100(clients):
    """50,000 samples, 500 of each of 100 classes; s ~ Power(3) has mean ¾ and standard deviation 0.194."""
    labels = np.repeat(np.arange(100), 500)
    found = split(labels, clients)
    held = table(found, labels, 100)
    assert held.sum() == 50_000
    assert held.sum(axis=0).tolist() == [500] * 100
    assert len(np.unique(found.order)) == 50_000
    sizes = found.sizes / found.sizes.mean()
    assert sizes.std() == pytest.approx(0.194 / 0.75, rel=0.2)
    assert sizes.max() < 4 / 3 * 1.1
    # α = 1 over 100 classes: most clients have most classes, and none is like the whole.
    share = held[: clients // 2] / held[: clients // 2].sum(axis=1, keepdims=True)
    assert np.abs(share - 0.01).sum(axis=1).mean() / 2 > 0.2


def test_sizes_are_shares_of_a_power_law():
    """With a = 3, P(s < x) = x³, so the median of s is 0.794, and 1.058 of its mean."""
    found = split(np.arange(400_000) % 10, 4000)
    sizes = np.sort(found.sizes / found.sizes.mean())
    assert sizes[2000] == pytest.approx(0.5 ** (1 / 3) / 0.75, rel=0.02)
    assert (found.sizes < 0.5 / 0.75 * 100).mean() == pytest.approx(0.125, abs=0.02)


def test_labels_are_dirichlet_while_there_is_plenty():
    """Of Dir(1) over C = 5 the share of a label has variance (1/C)(1 − 1/C)/(C + 1) = 0.0267."""
    labels = np.arange(200_000) % 5
    found = split(labels, 1000)
    held = table(found, labels, 5)[:400]
    share = held / held.sum(axis=1, keepdims=True)
    assert share.mean(axis=0) == pytest.approx([0.2] * 5, abs=0.03)
    assert share.var(axis=0).mean() == pytest.approx(0.16 / 6, rel=0.12)


def test_what_is_left_goes_to_clients_in_their_order_the_smallest_label_first(monkeypatch):
    """If nobody took anything at first, clients would get runs of the samples sorted by label."""
    monkeypatch.setattr(PowerLaw, "_fill", lambda part, pools, sizes, rng: np.full(len(pools.samples), -1))
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(6), 50))
    found = split(labels, 7)
    runs = np.split(labels[found.order], found.offsets[1:-1])
    assert np.concatenate([np.sort(run) for run in runs]).tolist() == np.sort(labels).tolist()


def test_clients_without_a_choice_take_what_there_is():
    """Tiny α: everyone wants one label. When it has run out, nobody wants it; in the end all have n_k."""
    labels = np.repeat(np.arange(4), 250)
    found = split(labels, 100, alpha=1e-3)
    kinds = (table(found, labels, 4) > 0).sum(axis=1)
    assert (kinds == 1).mean() > 0.8
    assert kinds.max() > 1


def test_a_large_exponent_gives_equal_sizes_and_a_small_one_giants():
    labels = np.arange(3000) % 3
    assert np.ptp(split(labels, 30, exponent=1e5).sizes) <= 1
    assert split(labels, 30, exponent=0.05).sizes.max() > 500
