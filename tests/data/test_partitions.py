"""Partitions: promises that all of them keep, and each against its definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mnemos.data.partition import Assignment, Ints, Partition, partitions, pooled
from mnemos.data.partitions._holders import levelled, top_up
from mnemos.data.partitions.dirichlet import draw_labels
from mnemos.data.proportions import cumulative, log_dirichlet
from mnemos.errors import ConfigError

NAMES = [name for name in partitions.names() if name != "whole"]
"""Partitions that give a sample to one client at most."""
ARTIFICIAL = [name for name in NAMES if name != "natural"]
WITH_ALPHA = [name for name in NAMES if "alpha" in partitions[name].model_fields]
PARTIAL = {"dirichlet", "labels"}
"""Partitions that may leave samples out."""


def make(name: str, **options: Any) -> Partition:
    return partitions.parse({"name": name, **options})


def split(name: str, labels: Any, seed: int = 0, owners: Any = None, **options: Any) -> Assignment:
    holders = None if owners is None else np.asarray(owners, np.int64)
    return make(name, **options).split(np.asarray(labels, np.int64), holders, np.random.default_rng(seed))


def held(assignment: Assignment, client: int) -> Ints:
    return assignment.order[assignment.offsets[client] : assignment.offsets[client + 1]]


def histogram(assignment: Assignment, labels: Any) -> Ints:
    """Clients × labels counts."""
    labels = np.asarray(labels)
    table = np.zeros((assignment.clients, int(labels.max()) + 1), np.int64)
    owner = np.repeat(np.arange(assignment.clients), assignment.sizes)
    np.add.at(table, (owner, labels[assignment.order]), 1)
    return table


def check_promises(assignment: Assignment, samples: int, empty: bool = False) -> None:
    order, offsets = assignment.order, assignment.offsets
    assert order.dtype == np.int64
    assert offsets.dtype == np.int64
    assert offsets[0] == 0
    assert offsets[-1] == len(order)
    assert (np.diff(offsets) >= (0 if empty else 1)).all()
    assert len(np.unique(order)) == len(order)
    if len(order):
        assert order.min() >= 0
        assert order.max() < samples


# What all partitions promise


@st.composite
def situations(draw: st.DrawFn) -> tuple[str, Ints, Ints, dict[str, Any], int]:
    name = draw(st.sampled_from(NAMES))
    clients = draw(st.integers(1, 60))
    samples = draw(st.integers(clients, 60 * 8))
    kinds = draw(st.lists(st.integers(0, 40), min_size=1, max_size=12, unique=True))
    skew = draw(st.floats(0.01, 3.0))
    seed = draw(st.integers(0, 2**32))
    rng = np.random.default_rng(seed)
    odds = np.exp(skew * rng.standard_normal(len(kinds)))
    labels = np.asarray(kinds, np.int64)[rng.choice(len(kinds), samples, p=odds / odds.sum())]
    owners = rng.integers(0, clients, samples) * 3
    fields = partitions[name].model_fields
    options: dict[str, Any] = {"validation": draw(st.floats(0, 0.999))}
    if name != "natural":
        options["clients"] = clients
    if "alpha" in fields:
        options["alpha"] = 10.0 ** draw(st.floats(-4, 4))
    if "per_client" in fields:
        options["per_client"] = draw(st.integers(1, len(np.unique(labels))))
    if "tries" in fields:
        options["tries"] = draw(st.integers(1, 5))
        options["min_samples"] = draw(st.none() | st.integers(1, samples // clients))
    return name, labels, owners, options, seed


@settings(max_examples=300, deadline=None)
@given(situations())
def test_promises(situation: tuple[str, Ints, Ints, dict[str, Any], int]) -> None:
    name, labels, owners, options, seed = situation
    before = labels.copy()
    assignment = split(name, labels, seed, owners, **options)
    check_promises(assignment, len(labels))
    assert (labels == before).all()
    if name not in PARTIAL:
        assert len(assignment.order) == len(labels)
    if options.get("min_samples"):
        assert assignment.sizes.min() >= options["min_samples"]
    again = split(name, labels, seed, owners, **options)
    assert (again.order == assignment.order).all()
    assert (again.offsets == assignment.offsets).all()
    check_cut(assignment)


def check_cut(assignment: Assignment) -> None:
    clients = range(assignment.clients)
    train = [assignment.train(client) for client in clients]
    kept = [assignment.held_out(client) for client in clients]
    for client in clients:
        assert np.concatenate([train[client], kept[client]]).tolist() == held(assignment, client).tolist()
        assert len(train[client]) > 0
    assert [len(part) for part in train] == assignment.train_sizes().tolist()
    assert np.concatenate(kept).tolist() == assignment.union_held_out().tolist()


@pytest.mark.parametrize(
    ("name", "options"),
    [(name, {}) for name in ARTIFICIAL]
    + [(name, {"alpha": alpha}) for name in WITH_ALPHA for alpha in (1e-4, 0.1, 1e4)],
)
def test_a_hundred_thousand_clients(name: str, options: dict[str, Any]) -> None:
    labels = np.random.default_rng(1).integers(0, 10, 250_000)
    assignment = split(name, labels, clients=100_000, **options)
    check_promises(assignment, len(labels))
    assert assignment.clients == 100_000


def test_a_hundred_thousand_owners() -> None:
    owners = np.random.default_rng(1).integers(0, 100_000, 250_000)
    assignment = split("natural", np.zeros(250_000), owners=owners)
    check_promises(assignment, len(owners))


@pytest.mark.parametrize("name", ARTIFICIAL)
@pytest.mark.parametrize("clients", [1, 2, 5])
def test_one_sample_each(name: str, clients: int) -> None:
    options = {"per_client": 1} if name in ("labels", "shards") else {}
    assert split(name, [3] * clients, clients=clients, **options).sizes.tolist() == [1] * clients


@pytest.mark.parametrize("name", ARTIFICIAL)
def test_more_clients_than_samples(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        split(name, np.arange(300) % 10, clients=500)
    assert str(caught.value.under("partition")) == (
        "partition.clients: found 500; the data set has 300 training samples, "
        "so at most 300 clients can hold one each"
    )


@pytest.mark.parametrize("name", ["label-dirichlet", "labels", "shards", "quantity"])
def test_empty_clients_only_where_allowed(name: str) -> None:
    labels = np.arange(30) % 10
    options = {"alpha": 0.01} if name in WITH_ALPHA else {}
    assignment = split(name, labels, clients=50, allow_empty=True, **options)
    check_promises(assignment, 30, empty=True)
    assert assignment.sizes.min() == 0
    assert len(assignment.order) == 30
    assert len(assignment.union_held_out()) == sum(len(assignment.held_out(k)) for k in range(50))


@pytest.mark.parametrize("name", NAMES)
def test_seeds_differ(name: str) -> None:
    labels, owners = np.arange(200) % 4, np.arange(200) // 50
    options = {} if name == "natural" else {"clients": 4}
    first, second = (split(name, labels, seed, owners, **options) for seed in (0, 1))
    assert first.order.tolist() != second.order.tolist()


@pytest.mark.parametrize("name", ["label-dirichlet", "labels", "shards", "quantity", "natural", "iid"])
def test_validation_samples_are_a_random_cut(name: str) -> None:
    """A client's samples come sorted by label from nowhere: with one client, labels are mixed all along."""
    labels = np.arange(2000) // 1000
    options = {} if name == "natural" else {"clients": 1}
    assignment = split(name, labels, owners=np.zeros(2000), validation=0.5, **options)
    share = labels[assignment.held_out(0)].mean()
    # Hypergeometric: the standard deviation of the share of 1000 out of 2000 is about 0.011.
    assert abs(share - 0.5) < 0.05


# The cut into training and validation samples


@pytest.mark.parametrize(
    ("size", "validation", "kept"),
    [
        (10, 0.1, 1),
        (9, 0.1, 0),
        (500, 0.1, 50),
        (100, 0.29, 29),
        (3, 0.5, 1),
        (1, 0.9, 0),
        (2, 0.9999999999999, 1),
    ],
)
def test_validation_share_is_rounded_down(size: int, validation: float, kept: int) -> None:
    assignment = Assignment(np.arange(size), np.array([0, size]), validation)
    assert len(assignment.held_out(0)) == kept
    assert assignment.train_sizes().tolist() == [size - kept]
    assert assignment.union_held_out().tolist() == list(range(size - kept, size))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 2000), min_size=1, max_size=20), st.floats(0, 1, exclude_max=True))
def test_all_ways_to_see_the_cut_agree(sizes: list[int], validation: float) -> None:
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    check_cut(Assignment(np.arange(offsets[-1]), offsets, validation))


# Moving samples to clients with too few


def test_levelling_by_hand() -> None:
    assert levelled(np.array([10, 7, 0, 1]), 3).tolist() == [6, 6, 3, 3]
    assert levelled(np.array([10, 7, 0, 2]), 3).tolist() == [7, 6, 3, 3]
    assert levelled(np.array([4, 4]), 4).tolist() == [4, 4]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=12), st.integers(0, 5))
def test_levelling_takes_from_the_largest_one_by_one(sizes: list[int], floor: int) -> None:
    floor = min(floor, sum(sizes) // len(sizes))
    expected = list(sizes)
    while min(expected) < floor:
        expected[expected.index(max(expected))] -= 1
        expected[expected.index(min(expected))] += 1
    assert sorted(levelled(np.array(sizes), floor)) == sorted(expected)


def test_topping_up_moves_no_more_than_needed() -> None:
    holders = np.array([0] * 10 + [1] * 7 + [3])
    after = top_up(holders, 4, 3, np.random.default_rng(0))
    assert np.bincount(after).tolist() == [6, 6, 3, 3]
    assert (after != holders).sum() == 5


def test_topping_up_favours_no_label() -> None:
    """One client holds 25 samples of each of four labels, another none: the label it gets is any of them."""
    holders, rng = np.zeros(100, np.int64), np.random.default_rng(0)
    moved = [int(np.flatnonzero(top_up(holders, 2, 1, rng))[0]) // 25 for _ in range(400)]
    assert np.allclose(np.bincount(moved, minlength=4) / 400, 0.25, atol=0.09)


# Dirichlet proportions


@pytest.mark.parametrize("alpha", [1e-9, 1e-4, 0.01, 1.0, 1e4, 1e9])
def test_proportions_are_finite_and_have_dirichlet_moments(alpha: float) -> None:
    """Var[q_c] = (1/C)(1 − 1/C) / (1 + Cα)."""
    logs = log_dirichlet(alpha, (20_000, 4), np.random.default_rng(0))
    assert np.isfinite(logs).all()
    shares = np.diff(cumulative(logs, np.ones(4, bool)), prepend=0)
    assert np.allclose(shares.mean(0), 0.25, atol=0.02)
    assert np.allclose(shares.var(0), 0.1875 / (1 + 4 * alpha), rtol=0.05, atol=1e-6)


def test_renormalising_never_divides_by_zero() -> None:
    logs = np.array([[0.0, -1e5, -2e5], [-3e6, -1e6, -2e6]])
    assert cumulative(logs, np.array([False, False, True])).tolist() == [[0, 0, 1], [0, 0, 1]]
    assert cumulative(logs, np.array([False, True, True])).tolist() == [[0, 1, 1], [0, 1, 1]]


# dirichlet


@pytest.mark.parametrize("alpha", [0.05, 1.0, 50.0])
def test_dirichlet_counts_are_dirichlet_multinomial(alpha: float) -> None:
    """With stock for everyone: E[X] = n/C and Var[X] = n (1/C)(1 − 1/C)(n + Cα)/(1 + Cα)."""
    clients, size, classes = 20_000, 12, 5
    drawn = draw_labels(alpha, clients, size, np.full(classes, 10**9), np.random.default_rng(0))
    counts = np.stack([(drawn.reshape(clients, size) == c).sum(1) for c in range(classes)], axis=1)
    variance = size * 0.2 * 0.8 * (size + classes * alpha) / (1 + classes * alpha)
    assert np.allclose(counts.mean(0), size / classes, atol=5 * np.sqrt(variance / clients))
    assert np.allclose(counts.var(0), variance, rtol=0.06)


def test_dirichlet_draws_are_independent_along_a_client() -> None:
    """Given q the draws are independent, so any two agree equally often: P = (1 + α)/(1 + Cα)."""
    drawn = draw_labels(0.5, 40_000, 4, np.full(3, 10**9), np.random.default_rng(1)).reshape(-1, 4)
    for i, j in [(0, 1), (0, 3), (2, 3)]:
        assert abs((drawn[:, i] == drawn[:, j]).mean() - 1.5 / 2.5) < 0.01


def test_dirichlet_place_of_the_only_sample_of_a_label() -> None:
    """Two clients of two samples, labels 0 1 1 1, q = (½, ½): label 0 comes at place 0, 1, 2, 3 with
    probability ½, ¼, ⅛, ⅛ (the last one is forced, as label 1 has run out)."""
    rng = np.random.default_rng(0)
    part = make("dirichlet", clients=2, alpha=1e9)
    places = np.zeros(4)
    for _ in range(4000):
        order, _ = part.assign(np.array([0, 1, 1, 1]), None, rng)
        places[int(np.flatnonzero(order == 0)[0])] += 1
    assert np.allclose(places / 4000, [0.5, 0.25, 0.125, 0.125], atol=0.03)


def one_by_one(counts: list[int], clients: int, size: int, alpha: float, rng: np.random.Generator) -> Ints:
    """The papers' procedure, sample by sample: clients × labels counts."""
    stock, table = list(counts), np.zeros((clients, len(counts)), np.int64)
    proportions = rng.dirichlet([alpha] * len(counts), clients)
    for client in range(clients):
        for _ in range(size):
            odds = proportions[client] * (np.array(stock) > 0)
            label = rng.choice(len(counts), p=odds / odds.sum())
            stock[label] -= 1
            table[client, label] += 1
    return table


@pytest.mark.parametrize("alpha", [0.3, 3.0])
def test_dirichlet_is_the_sample_by_sample_procedure(alpha: float) -> None:
    """Labels of unequal stock run out at different times; every statistic agrees within 4 standard errors."""
    counts, clients, repeats = [5, 10, 15, 18], 6, 500
    labels = np.repeat(np.arange(4), counts)
    size = len(labels) // clients
    rng, part = np.random.default_rng(7), make("dirichlet", clients=clients, alpha=alpha)

    def statistics(table: Ints) -> list[float]:
        return [
            *(table > 0).sum(1).astype(float),
            *(table.max(1) / size),
            *table[0].astype(float),
            *table[-1].astype(float),
            *table[:, 0].astype(float),
        ]

    expected = np.array([statistics(one_by_one(counts, clients, size, alpha, rng)) for _ in range(repeats)])
    found = np.array(
        [
            statistics(histogram(part.split(labels, None, np.random.default_rng(seed)), labels))
            for seed in range(repeats)
        ]
    )
    error = np.sqrt((expected.var(0) + found.var(0)) / repeats)
    assert (np.abs(expected.mean(0) - found.mean(0)) < 4 * error + 1e-12).all()


def test_dirichlet_sizes_are_equal_and_the_rest_is_left() -> None:
    assignment = split("dirichlet", np.arange(1003) % 10, clients=100)
    assert assignment.sizes.tolist() == [10] * 100


def test_dirichlet_of_tiny_alpha_gives_one_label_a_client() -> None:
    labels = np.arange(10_000) % 10
    table = histogram(split("dirichlet", labels, clients=100, alpha=1e-4), labels)
    # Only a client during which a label runs out can have more than one.
    assert ((table > 0).sum(1) > 1).sum() <= 10


def test_dirichlet_of_huge_alpha_is_iid() -> None:
    labels = np.arange(100_000) % 10
    table = histogram(split("dirichlet", labels, clients=20, alpha=1e4), labels)
    # 5 000 draws of probability 0.1: standard deviation 21.
    assert np.abs(table[:15] - 500).max() < 110


def test_dirichlet_takes_a_random_sample_of_a_label() -> None:
    """Sample 0 of 20 alike goes to each of four clients equally often."""
    part, rng = make("dirichlet", clients=4), np.random.default_rng(0)
    clients = [
        int(np.flatnonzero(part.assign(np.zeros(20, int), None, rng)[0] == 0)[0]) // 5 for _ in range(1000)
    ]
    assert np.allclose(np.bincount(clients) / 1000, 0.25, atol=0.06)


# label-dirichlet


def label_by_label(labels: Ints, clients: int, alpha: float, rng: np.random.Generator) -> Ints:
    """NIID-Bench's procedure without its minimum: clients × labels counts."""
    classes = int(labels.max()) + 1
    table = np.zeros((clients, classes), np.int64)
    for c in range(classes):
        count = int((labels == c).sum())
        odds = rng.dirichlet([alpha] * clients) * (table.sum(1) < len(labels) / clients)
        ends = (np.cumsum(odds / odds.sum()) * count).astype(int)
        ends[-1] = count
        table[:, c] = np.diff(ends, prepend=0)
    return table


@pytest.mark.parametrize("alpha", [0.3, 5.0])
def test_label_dirichlet_is_the_label_by_label_procedure(alpha: float) -> None:
    labels, clients, repeats = np.repeat(np.arange(4), [40, 80, 120, 160]), 5, 500
    rng, part = (
        np.random.default_rng(3),
        make("label-dirichlet", clients=clients, alpha=alpha, allow_empty=True),
    )

    def statistics(table: Ints) -> list[float]:
        sizes = np.sort(table.sum(1))
        return [*sizes.astype(float), float((table > 0).sum(1).mean()), *table[0].astype(float)]

    expected = np.array([statistics(label_by_label(labels, clients, alpha, rng)) for _ in range(repeats)])
    found = np.array(
        [
            statistics(histogram(part.split(labels, None, np.random.default_rng(seed)), labels))
            for seed in range(repeats)
        ]
    )
    error = np.sqrt((expected.var(0) + found.var(0)) / repeats)
    assert (np.abs(expected.mean(0) - found.mean(0)) < 4 * error + 1e-12).all()


def test_label_dirichlet_minimum() -> None:
    labels = np.arange(6000) % 10
    assert split("label-dirichlet", labels, clients=10, alpha=0.1).sizes.min() >= 10
    assert split("label-dirichlet", labels, clients=100, alpha=1e-4).sizes.min() >= 10
    assert (
        split("label-dirichlet", labels, clients=10, alpha=1e-4, min_samples=600).sizes.tolist() == [600] * 10
    )


@pytest.mark.parametrize("name", ["label-dirichlet", "quantity"])
def test_a_minimum_that_cannot_be(name: str) -> None:
    with pytest.raises(
        ConfigError, match="min_samples: found 7; 60 training samples over 10 clients are at most 6"
    ):
        split(name, np.zeros(60), clients=10, min_samples=7)


def test_topped_up_clients_keep_few_labels_and_favour_none() -> None:
    labels = np.arange(6000) % 10
    seen = np.zeros(10)
    for seed in range(20):
        table = histogram(split("label-dirichlet", labels, seed, clients=100, alpha=1e-4), labels)
        small = table[table.sum(1) == 10]
        assert len(small) > 50
        assert (small > 0).sum(1).mean() < 2
        seen += (small > 0).sum(0)
    assert seen.max() < 4 * seen.min()


# labels


def test_labels_by_hand() -> None:
    labels = [0] * 6 + [1] * 4
    assert histogram(split("labels", labels, clients=2, per_client=1), labels).tolist() == [[6, 0], [0, 4]]
    assert histogram(split("labels", labels, clients=4, per_client=1), labels).tolist() == [
        [3, 0], [0, 2], [3, 0], [0, 2],
    ]  # fmt: skip
    assert histogram(split("labels", labels, clients=2, per_client=2), labels).tolist() == [[3, 2], [3, 2]]


def test_labels_that_cannot_be_split_equally_even_out() -> None:
    labels = [0] * 3 + [1] * 3
    assert histogram(split("labels", labels, clients=2, per_client=2), labels).tolist() == [[2, 1], [1, 2]]


def test_labels_that_nobody_holds_are_left_out() -> None:
    labels = np.arange(40) % 10
    assignment = split("labels", labels, clients=3, per_client=1)
    assert sorted(set(labels[assignment.order])) == [0, 1, 2]
    assert assignment.sizes.tolist() == [4, 4, 4]


def test_labels_own_and_random_others() -> None:
    labels = np.arange(20_000) % 10
    table = histogram(split("labels", labels, clients=200, per_client=3), labels)
    assert ((table > 0).sum(1) == 3).all()
    assert (table[np.arange(200), np.arange(200) % 10] > 0).all()
    for column in table.T:
        shares = column[column > 0]
        assert shares.max() - shares.min() <= 1
    # Each of the other nine labels is chosen with probability 2/9: 40 ± 5.6 of the 180 clients.
    assert np.abs((table > 0).sum(0) - 60).max() < 25


def test_labels_with_fewer_samples_than_holders() -> None:
    labels = [0] * 98 + [1, 1]
    assignment = split("labels", labels, clients=50, per_client=1)
    check_promises(assignment, 100)
    assert len(assignment.order) == 100


def test_more_labels_a_client_than_there_are() -> None:
    with pytest.raises(
        ConfigError, match="per_client: found 3; the training samples have 2 different labels"
    ):
        split("labels", [0, 1, 0, 1], clients=2, per_client=3)


# shards


def test_shards_by_hand() -> None:
    labels = [3, 1, 0, 2, 2, 0, 1, 3]
    whole = histogram(split("shards", labels, clients=4, per_client=1), labels)
    assert sorted(whole.tolist(), reverse=True) == [[2, 0, 0, 0], [0, 2, 0, 0], [0, 0, 2, 0], [0, 0, 0, 2]]
    two = histogram(split("shards", labels, clients=2, per_client=2), labels)
    assert sorted(two.ravel().tolist()) == [0, 0, 0, 0, 2, 2, 2, 2]
    assert two.sum(1).tolist() == [4, 4]
    assert two.sum(0).tolist() == [2, 2, 2, 2]


def test_shards_of_the_first_paper() -> None:
    """60 000 samples, 6 000 a label, 100 clients, two shards of 300: at most two labels each."""
    labels = np.arange(60_000) % 10
    table = histogram(split("shards", labels, clients=100), labels)
    assert (table.sum(1) == 600).all()
    assert ((table > 0).sum(1) <= 2).all()
    assert set(np.unique(table)) == {0, 300, 600}


def test_shards_use_every_sample() -> None:
    sizes = split("shards", np.arange(107) % 5, clients=10).sizes
    assert sizes.sum() == 107
    assert sizes.max() - sizes.min() <= 2


# quantity


def test_quantity_sizes_are_dirichlet() -> None:
    """Var[n_k/N] = (1/K)(1 − 1/K)/(1 + Kα)."""
    part, labels = make("quantity", clients=4, alpha=2.0, allow_empty=True), np.zeros(10_000, int)
    shares = np.array([part.split(labels, None, np.random.default_rng(s)).sizes / 1e4 for s in range(1000)])
    assert np.allclose(shares.mean(0), 0.25, atol=0.02)
    assert np.allclose(shares.var(0), 0.1875 / 9, rtol=0.15)


def test_quantity_labels_are_iid() -> None:
    labels = np.arange(20_000) // 10_000
    assignment = split("quantity", labels, clients=4, alpha=10.0)
    assert np.ptp(assignment.sizes) > 100
    table = histogram(assignment, labels)
    assert np.abs(table[:, 0] / table.sum(1) - 0.5).max() < 0.05


def test_quantity_minimum() -> None:
    sizes = split("quantity", np.zeros(1000), clients=20, alpha=1e-4, min_samples=15).sizes
    assert sorted(sizes) == [15] * 19 + [715]


# iid and feature noise


def test_iid_by_hand() -> None:
    assert split("iid", np.zeros(11), clients=4).sizes.tolist() == [3, 3, 3, 2]
    labels = np.arange(20_000) // 2000
    assert np.abs(histogram(split("iid", labels, clients=10), labels) - 200).max() < 75


def test_feature_noise_grows_along_the_clients() -> None:
    assignment = split("feature-noise", np.zeros(9), clients=3, noise=0.5)
    assert assignment.sizes.tolist() == [3, 3, 3]
    assert assignment.noise is not None
    assert assignment.noise.tolist() == [0.0, 0.25, 0.5]
    single = split("feature-noise", np.zeros(9), clients=1).noise
    assert single is not None
    assert single.tolist() == [0.0]
    assert split("iid", np.zeros(9), clients=3).noise is None


# natural


OWNERS = [7, 7, 7, 2, 2, 9, 4, 4, 4, 4]


def test_natural_by_hand() -> None:
    assignment = split("natural", np.zeros(10), owners=OWNERS)
    assert [sorted(held(assignment, k).tolist()) for k in range(4)] == [[3, 4], [6, 7, 8, 9], [0, 1, 2], [5]]


def test_natural_with_enough_samples() -> None:
    assignment = split("natural", np.zeros(10), owners=OWNERS, min_samples=3)
    assert [sorted(held(assignment, k).tolist()) for k in range(2)] == [[6, 7, 8, 9], [0, 1, 2]]


def test_natural_takes_some_owners_at_random() -> None:
    times = np.zeros(10)
    for seed in range(300):
        assignment = split("natural", np.zeros(10), seed, owners=OWNERS, clients=2, min_samples=2)
        assert assignment.clients == 2
        times[np.unique(np.array(OWNERS)[assignment.order])] += 1
    assert times[9] == 0
    assert np.allclose(times[[2, 4, 7]] / 300, 2 / 3, atol=0.12)


@pytest.mark.parametrize(
    ("owners", "options", "sentence"),
    [
        (None, {}, "name: found 'natural'; this data set does not say who its samples belong to (an npz file "
         "does so by an array 'owners', a table by data.owner=COLUMN)"),
        (OWNERS, {"clients": 3, "min_samples": 3},
         "clients: found 3; the data set has 2 owners with at least 3 training samples"),
        (OWNERS, {"min_samples": 5}, "min_samples: found 5; no owner has more than 4 training samples"),
    ],
)  # fmt: skip
def test_natural_that_cannot_be(owners: Any, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        split("natural", np.zeros(10), owners=owners, **options)
    assert str(caught.value) == sentence


# whole


@pytest.mark.parametrize("validation", [0.0, 0.1, 0.29, 0.999])
def test_whole_gives_everyone_everything_but_what_is_held_out(validation: float) -> None:
    """100 samples: everyone trains on the same ones, and nobody on what anyone has held out."""
    assignment = split("whole", np.arange(100) % 10, clients=3, validation=validation)
    check_cut(assignment)
    assert assignment.sizes.tolist() == [100] * 3
    train = [set(assignment.train(client).tolist()) for client in range(3)]
    kept = [set(assignment.held_out(client).tolist()) for client in range(3)]
    assert train[0] == train[1] == train[2]
    assert kept[0] == kept[1] == kept[2]
    assert len(kept[0]) == min(99, round(100 * validation))
    assert train[0] | kept[0] == set(range(100))
    assert not train[0] & kept[0]


def test_whole_holds_out_at_random() -> None:
    """Sorted labels must not put one class aside; another seed holds out others."""
    labels = np.repeat(np.arange(10), 100)
    first, second = (split("whole", labels, seed, clients=2).held_out(0) for seed in (0, 1))
    assert len(np.unique(labels[first])) == 10
    assert set(first) != set(second)
    assert (first == split("whole", labels, 0, clients=2).held_out(0)).all()


def test_whole_pooled_is_each_sample_once() -> None:
    """For a learner without clients: the training samples once, and nothing of what is held out."""
    one = pooled(split("whole", np.arange(100) % 10, clients=4, validation=0.2))
    assert (one.clients, len(one.train(0)), len(one.held_out(0))) == (1, 80, 20)
    assert set(one.train(0)) | set(one.held_out(0)) == set(range(100))


def test_whole_of_too_many_clients() -> None:
    with pytest.raises(ConfigError) as caught:
        split("whole", np.zeros(50_000), clients=2001)
    assert str(caught.value) == (
        "clients: found 2001; each holds all 50000 training samples, so at most 2000 clients are allowed"
    )


# Options


@pytest.mark.parametrize("name", WITH_ALPHA)
@pytest.mark.parametrize("alpha", [0, -1, float("nan"), float("inf")])
def test_alpha_is_positive_and_finite(name: str, alpha: float) -> None:
    with pytest.raises(ConfigError, match="alpha: found"):
        make(name, alpha=alpha)


def test_every_partition_is_documented() -> None:
    assert partitions.names() == [
        "dirichlet", "feature-noise", "iid", "label-dirichlet", "labels", "natural", "power-law", "quantity",
        "shards", "whole",
    ]  # fmt: skip
    assert all(part.__doc__ for part in partitions)
