"""The power-law partition against its definition, and the split of CIFAR-100's 50,000 samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
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


def by_hand(
    stock: list[int], sizes: list[int], weights: list[list[float]], wanted: list[float] | None = None
) -> list[list[int]]:
    """Counts [clients][classes] of the published procedure, one client and one class after the other.

    `weights` are each client's Dirichlet draws before they are normalised over the classes that are left.
    `wanted` is filled with the numbers that are rounded.
    """
    stock, held = list(stock), []
    wanted = [] if wanted is None else wanted
    for size, drawn in zip(sizes, weights, strict=True):
        left = [c for c in range(len(stock)) if stock[c] > 0]
        total = sum(drawn[c] for c in left)
        mine = [0] * len(stock)
        for c in left:
            wanted.append(drawn[c] / total * size)
            mine[c] = min(round(wanted[-1]), stock[c])
        stock = [s - m for s, m in zip(stock, mine, strict=True)]
        held.append(mine)
    for size, mine in zip(sizes, held, strict=True):
        while sum(mine) < size and any(stock):
            first = next(c for c in range(len(stock)) if stock[c] > 0)
            mine[first] += 1
            stock[first] -= 1
    return held


def with_draws(monkeypatch, stock, sizes, weights, **options):
    """The partition's own counts, for given sizes and given Dirichlet draws."""
    logs = np.log(np.array(weights, np.float64))
    # Clients are drawn for in blocks, and those after one who empties a class again.
    monkeypatch.setattr(
        PowerLaw, "_draw", lambda part, first, count, classes, rng: logs[first : first + count]
    )
    monkeypatch.setattr(PowerLaw, "_sizes", lambda part, samples, rng: np.array(sizes))
    labels = np.repeat(np.arange(len(stock)), stock)
    return table(split(labels, len(sizes), **options), labels, len(stock)).tolist()


def test_a_split_worked_out_by_hand(monkeypatch):
    """12 samples, of three classes 6, 4 and 2; clients of 5, 4 and 3.

    The first wants 5 · (0.48, 0.32, 0.2) = (2.4, 1.6, 1), to whole numbers (2, 2, 1); left are (4, 2, 1). The
    second wants 4 · (0.2, 0.2, 0.6) = (0.8, 0.8, 2.4), so (1, 1, 2), and gets (1, 1, 1); left are (3, 1, 0).
    The third has no choice but classes 0 and 1: 3 · (3/8, 5/8) = (1.125, 1.875), so (1, 2), and gets (1, 1);
    left are (2, 0, 0). The second lacks one and the third, too: both get one of class 0.
    """
    weights = [[0.48, 0.32, 0.2], [0.2, 0.2, 0.6], [0.3, 0.5, 0.2]]
    expected = [[2, 2, 1], [2, 1, 1], [2, 1, 0]]
    assert by_hand([6, 4, 2], [5, 4, 3], weights) == expected
    assert with_draws(monkeypatch, [6, 4, 2], [5, 4, 3], weights) == expected


def test_rounding_up_may_give_a_client_more_than_its_size(monkeypatch):
    """Two clients of 2; the first wants 2 · (0.3, 0.3, 0.4), to whole numbers (1, 1, 1): three samples.

    Of the four that leaves one for the second.
    """
    weights = [[0.3, 0.3, 0.4], [0.5, 0.3, 0.2]]
    expected = [[1, 1, 1], [1, 0, 0]]
    assert by_hand([2, 1, 1], [2, 2], weights) == expected
    assert with_draws(monkeypatch, [2, 1, 1], [2, 2], weights) == expected


def test_who_would_be_left_with_nothing_gets_one_of_the_largest(monkeypatch):
    """The first of two clients takes all three samples of three, though it was to have 2."""
    weights = [[0.3, 0.3, 0.4], [0.5, 0.3, 0.2]]
    assert by_hand([1, 1, 1], [2, 1], weights) == [[1, 1, 1], [0, 0, 0]]
    found = with_draws(monkeypatch, [1, 1, 1], [2, 1], weights, allow_empty=True)
    assert found == [[1, 1, 1], [0, 0, 0]]
    assert np.sum(with_draws(monkeypatch, [1, 1, 1], [2, 1], weights), axis=1).tolist() == [2, 1]


@settings(max_examples=200, deadline=None)
@given(
    clients=st.integers(1, 90),
    classes=st.integers(1, 12),
    each=st.integers(1, 40),
    alpha=st.sampled_from([0.05, 1.0, 30.0]),
    seed=st.integers(0, 2**32),
)
def test_every_count_is_that_of_the_published_procedure(clients, classes, each, alpha, seed):
    rng = np.random.default_rng(seed)
    stock = np.bincount(rng.integers(0, classes, clients * each), minlength=classes)
    stock = stock[stock > 0].tolist()
    sizes = np.bincount(rng.integers(0, clients, sum(stock)), minlength=clients).tolist()
    weights = np.maximum(rng.standard_gamma(alpha, (clients, len(stock))), 1e-200).tolist()
    with pytest.MonkeyPatch.context() as patch:
        found = with_draws(patch, stock, sizes, weights, allow_empty=True)
    wanted: list[float] = []
    expected = by_hand(stock, sizes, weights, wanted)
    # The partition has logarithms instead: how a half is rounded there depends on the processor.
    assume(all(abs(number % 1 - 0.5) > 1e-9 for number in wanted))
    assert found == expected


def test_labels_of_500_clients_are_those_of_the_paper():
    """CIFAR-100 has 500 samples of each of 100 classes, and tasks are ten classes each.

    100 splits of 500 clients by the published procedure, written out by itself, have a mean entropy of
    clients' labels of 3.874 ± 0.001 nats and 0.51 ± 0.02 % of client-tasks without a sample (a split's own
    standard deviation: 0.011 and 0.2 %). Cut at cumulative shares instead of rounded: 3.93 and 0.24 %.
    """
    labels = np.repeat(np.arange(100), 500)
    entropies, empty = [], []
    for seed in range(12):
        held = table(split(labels, 500, seed), labels, 100)
        share = held / held.sum(axis=1, keepdims=True)
        entropies.append(-(share * np.log(np.where(share > 0, share, 1))).sum(axis=1).mean())
        empty.append((held.reshape(500, 10, 10).sum(axis=2) == 0).mean())
    assert np.mean(entropies) == pytest.approx(3.874, abs=0.012)
    assert np.mean(empty) == pytest.approx(0.0051, abs=0.0015)


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
    """Rounded by class, each of thirty equal clients has at most one sample more; the last has the rest."""
    labels = np.arange(3000) % 3
    sizes = split(labels, 30, exponent=1e5).sizes
    assert set(sizes[:-1].tolist()) <= {100, 101}
    assert sizes[-1] == 3000 - sizes[:-1].sum()
    assert split(labels, 30, exponent=0.05).sizes.max() > 500
