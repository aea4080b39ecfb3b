"""Personalised inference: by hand, where it must change nothing, and against plain loops in a federation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from mnemos.api import run
from mnemos.data.partition import Assignment
from mnemos.data.stream import Flow, Setting
from mnemos.data.streams.static import Still
from mnemos.experiment.experiment import load_experiment
from mnemos.federation.federation import Federation
from mnemos.measures.measure import Moment, Record, Scores
from mnemos.measures.personalised import Personalised
from mnemos.runs.store import overall
from mnemos.vector import Layout
from support.play import play

OWN = ("personalised_accuracy", "plain_accuracy")
TEST = ("personalised_test_accuracy", "plain_test_accuracy")


def scores(logits, labels):
    return Scores(torch.tensor(logits), torch.tensor(labels), torch.zeros(len(labels)))


def halves(clients, size):
    """Clients of equal sizes, half of whose samples are held out."""
    return Assignment(np.arange(clients * size), np.arange(clients + 1) * size, 0.5)


def measure(counts, validation=None, test=None, assignment=None, last=3):
    """The records after round 3; the model plays no part."""
    counts, nothing = np.array(counts), torch.zeros(0)
    assignment = assignment or halves(len(counts), 8)
    held_out, layout = assignment.union_held_out(), Layout((), ())
    setting = Setting(assignment, np.zeros(0, np.int64), 3, last, 0, lambda eligible, round: eligible)
    flow = Counted(setting, counts)
    moment = Moment(3, nothing, nothing, layout, flow, held_out, validation, test, last)
    return list(Personalised().records(moment))


class Counted(Still):
    """Says that clients hold so many samples of each class."""

    def __init__(self, setting, counts):
        super().__init__(setting)
        self.said = counts

    def counts(self, round):
        return self.said


def values(records):
    return {(record.name, record.client): record.value for record in records}


# --- by hand ------------------------------------------------------------------------------------------

ODDS = [
    ((1, 2, 5), 0),  # A
    ((1, 5, 1), 1),  # B
    ((4, 6, 1), 1),  # C
    ((1, 1, 9), 2),  # D
    ((9, 2, 1), 2),  # E
    ((9, 4, 1), 1),  # F
    ((1, 4, 2), 1),  # G
    ((1, 2, 1), 2),  # H
]
"""(exp f, label). Plainly predicted are 2, 1, 1, 2, 0, 0, 1, 1: B, C, D and G are right."""
COUNTS = [[3, 1, 0], [0, 1, 3]]
"""Personalised, client 0 takes the largest of (3a, b, 0), client 1 of (0, b, 3c)."""


def of(letters):
    chosen = [ODDS["ABCDEFGH".index(letter)] for letter in letters]
    return scores([[math.log(odds) for odds in row] for row, _ in chosen], [label for _, label in chosen])


def test_own_data_by_hand():
    """Client 0 holds out A to D, client 1 E to H.

    Client 0: A (3, 2, 0) is now right, B (3, 5, 0) still, C (12, 6, 0) no longer; D's class is none of its
    own. 2 of 4, plainly 3. Client 1: E (0, 2, 3), F (0, 4, 3) and H (0, 2, 3) are now right, G (0, 4, 6) no
    longer. 3 of 4, plainly 1. The tenth of two clients is one.
    """
    assert measure(COUNTS, validation=of("ABCDEFGH")) == [
        Record(3, "personalised_accuracy", 2 / 4, client=0),
        Record(3, "personalised_accuracy", 3 / 4, client=1),
        Record(3, "personalised_accuracy", 5 / 8),
        Record(3, "personalised_accuracy_worst_tenth", 2 / 4),
        Record(3, "plain_accuracy", 3 / 4, client=0),
        Record(3, "plain_accuracy", 1 / 4, client=1),
        Record(3, "plain_accuracy", 1 / 2),
        Record(3, "plain_accuracy_worst_tenth", 1 / 4),
    ]


def test_test_data_by_hand():
    """Class 0 is A, class 1 is B, C, F, G, class 2 is D, E, H; plainly right are 0, 3/4 and 1/3 of them.

    Client 0, β = (3/4, 1/4, 0): A is right; B and G (3, 4, 0) are, C and F (27, 4, 0) aren't.
    3/4 · 1 + 1/4 · 2/4 = 7/8, plainly 3/4 · 0 + 1/4 · 3/4 = 3/16.
    Client 1, β = (0, 1/4, 3/4): B (0, 5, 3), C (0, 6, 3), F are right, G isn't; D (0, 1, 27), E, H are.
    1/4 · 3/4 + 3/4 · 1 = 15/16, plainly 1/4 · 3/4 + 3/4 · 1/3 = 7/16.
    """
    found = values(measure(COUNTS, test=of("ABCDEFGH")))
    assert found == pytest.approx(
        {
            ("personalised_test_accuracy", 0): 7 / 8,
            ("personalised_test_accuracy", 1): 15 / 16,
            ("personalised_test_accuracy", None): 29 / 32,
            ("personalised_test_accuracy_worst_tenth", None): 7 / 8,
            ("plain_test_accuracy", 0): 3 / 16,
            ("plain_test_accuracy", 1): 7 / 16,
            ("plain_test_accuracy", None): 5 / 16,
            ("plain_test_accuracy_worst_tenth", None): 3 / 16,
        },
        rel=1e-12,
    )


def test_classes_without_test_samples_are_left_out_of_the_proportions():
    """Without A, client 0's β is (0, 1, 0) in the test, and still (3/4, 1/4, 0) in its predictions.

    So it has class 1 alone: 2/4, plainly 3/4. A client that only holds class 0 has nothing to be tested on,
    and doesn't count in the means.
    """
    found = values(measure([*COUNTS, [5, 0, 0]], test=of("BCDEFGH")))
    assert {client for _, client in found} == {0, 1, None}
    assert found["personalised_test_accuracy", 0] == pytest.approx(1 / 2, rel=1e-12)
    assert found["plain_test_accuracy", 0] == pytest.approx(3 / 4, rel=1e-12)
    assert found["personalised_test_accuracy", None] == pytest.approx((1 / 2 + 15 / 16) / 2, rel=1e-12)


def test_a_client_without_training_samples():
    """It predicts plainly on its own data, E to H (1 of 4), and is not tested."""
    counts = [COUNTS[0], [0, 0, 0]]
    found = values(measure(counts, validation=of("ABCDEFGH"), test=of("ABCDEFGH")))
    assert [found[name, 1] for name in OWN] == [1 / 4, 1 / 4]
    assert [(name, 1) in found for name in TEST] == [False, False]
    assert found["personalised_test_accuracy", None] == pytest.approx(7 / 8, rel=1e-12)


def test_clients_without_validation_samples_are_left_out():
    """Client 0 has one sample, which it trains on; client 1 holds out C and B, of which C (2, 3, 0) turns."""
    assignment = Assignment(np.arange(5), np.array([0, 1, 5]), 0.5)
    counts = [[0, 1, 0], [2, 1, 0]]
    found = values(measure(counts, validation=of("CB"), assignment=assignment))
    assert {client for _, client in found} == {1, None}
    assert [found[name, 1] for name in OWN] == [1 / 2, 1]


@pytest.mark.parametrize(
    ("clients", "worst"), [(20, 3 / 8), (29, 3 / 8), (19, 1 / 4), (9, 1 / 4), (30, 1 / 2)]
)
def test_the_worst_tenth_by_hand(clients, worst):
    """All four samples of a client are right, but 1 of client 7's, 2 of client 3's and 3 of client 0's.

    The tenth of 20 to 29 clients is two: (1/4 + 2/4) / 2; of 30 it is three: (1/4 + 2/4 + 3/4) / 3.
    """
    right = np.full(clients, 4)
    right[[7, 3, 0]] = 1, 2, 3
    labels = (np.arange(4) >= right[:, None]).astype(np.int64).ravel()  # class 0 is always predicted
    validation = scores([[1.0, 0.0]] * len(labels), labels.tolist())
    found = values(measure([[2, 2]] * clients, validation=validation))
    assert found["personalised_accuracy_worst_tenth", None] == worst
    assert found["plain_accuracy_worst_tenth", None] == worst


# --- what must not change -----------------------------------------------------------------------------


@pytest.mark.parametrize("tied", [False, True])
def test_equal_proportions_change_nothing(tied):
    """Not even where logits are the same, or so close that a sum with any number would make them the same."""
    generator = torch.Generator().manual_seed(1)
    logits = torch.zeros(400, 7) if tied else torch.randn(400, 7, generator=generator)
    logits[200:] *= 1e-20
    labels = torch.randint(7, (400,), generator=generator)
    found = Scores(logits, labels, torch.zeros(400))
    records = values(measure([[3] * 7] * 100, validation=found, test=found))
    assert len(records) == 4 * 102
    for personalised, plain in (OWN, TEST):
        pairs = [(records[personalised, client], records[plain, client]) for client in range(100)]
        assert all(one == other for one, other in pairs)


def test_close_logits_stay_apart():
    """Classes 1 and 2 have the same share, so the larger logit decides; 10⁻⁹ − log 4 needs 31 bits."""
    found = scores([[-9.0, 1e-9, 2e-9]], [2])
    assert values(measure([[4, 1, 1]], test=found))["personalised_test_accuracy", 0] == 1


def test_without_scores_there_is_nothing_to_say():
    assert measure(COUNTS) == []


def test_the_test_set_is_for_the_last_round():
    records = measure(COUNTS, validation=of("ABCDEFGH"), test=of("ABCDEFGH"), last=4)
    assert {record.name.removesuffix("_worst_tenth") for record in records} == set(OWN)


# --- the clients' labels ------------------------------------------------------------------------------


class Newest(Flow):
    """Round r leaves a client its first r training samples."""

    def samples(self, client, round):
        return self.assignment.train(client)[:round]


class Looped(Still):
    """Static, asked client by client."""

    counts = Flow.counts


def test_label_counts_by_hand():
    """Clients hold (2, 2, 1 | 0), (1), nothing and (0, 2 | 1): after the bar is for validation."""
    labels = np.array([1, 1, 2, 0, 2, 0, 1, 2])
    assignment = Assignment(np.array([4, 2, 1, 3, 6, 5, 7, 0]), np.array([0, 4, 5, 5, 8]), 0.34)
    static = [[0, 1, 2, 0], [0, 1, 0, 0], [0, 0, 0, 0], [1, 0, 1, 0]]
    newest = [[0, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0]]
    setting = Setting(assignment, labels, 4, rounds=1, seed=0, choose=lambda eligible, round: eligible)
    for flow, expected in ((Still, static), (Looped, static), (Newest, newest)):
        assert flow(setting).counts(1).tolist() == expected


def test_labels_are_counted_once_and_only_for_those_who_ask(tiny, monkeypatch):
    calls, original = [], Still.counts

    def counting(flow, round):
        calls.append(round)
        return original(flow, round)

    monkeypatch.setattr(Still, "counts", counting)
    for names, expected in ((["client-accuracy", "class-accuracy"], []), (["personalised"], [2, 4])):
        play(load_experiment({}, {**tiny, "measures": names}))
        assert calls == expected


# --- in a federation ----------------------------------------------------------------------------------


@pytest.fixture
def trained(tiny):
    """A federation after its two rounds, and the records of the last."""
    changes = {
        **tiny,
        "partition": {"name": "dirichlet", "clients": 12, "alpha": 0.3, "validation": 0.2},
        "rounds": 2,
        "measures": ["personalised"],
    }
    federation = Federation(load_experiment({}, changes))
    with federation.open() as runner:
        federation.advance(runner)
        outcome = federation.advance(runner)
    federation.close()
    return federation, outcome


def proportions(federation, client):
    labels = federation.dataset.train.labels[torch.from_numpy(federation.assignment.train(client))].tolist()
    return [labels.count(label) / len(labels) for label in range(10)]


def predict(logits, shares):
    """The personalised prediction for one sample, written out."""
    sums = {c: logits[c] + math.log(share) for c, share in enumerate(shares) if share}
    return max(sums, key=sums.get)


def test_own_data_against_a_loop(trained):
    federation, outcome = trained
    found = values(outcome.records)
    logits, labels = outcome.validation.logits.tolist(), outcome.validation.labels.tolist()
    start, by_client = 0, {name: [] for name in OWN}
    for client in range(12):
        end = start + len(federation.assignment.held_out(client))
        shares, mine = proportions(federation, client), range(start, end)
        hits = (
            [predict(logits[i], shares) == labels[i] for i in mine],
            [logits[i].index(max(logits[i])) == labels[i] for i in mine],
        )
        start = end
        for name, one in zip(OWN, hits, strict=True):
            assert found[name, client] == sum(one) / len(one)
            by_client[name].append(sum(one) / len(one))
    assert start == len(labels)
    for name in OWN:
        assert found[name, None] == pytest.approx(sum(by_client[name]) / 12, rel=1e-12)
        assert found[f"{name}_worst_tenth", None] == min(by_client[name])
    assert found["personalised_accuracy", None] > found["plain_accuracy", None]


def test_test_data_against_random_splits(trained):
    """The accuracy on 4000 test samples drawn like β_k has the standard deviation √(p (1 − p) / 4000).

    Five times that is allowed.
    """
    federation, outcome = trained
    found = values(outcome.records)
    logits, labels = outcome.test.logits.tolist(), outcome.test.labels
    draw, count = np.random.default_rng(3), 4000
    spread = []
    for client in range(12):
        shares = proportions(federation, client)
        pools = [torch.nonzero(labels == label).flatten().numpy() for label in range(10)]
        drawn = np.concatenate(
            [draw.choice(pool, n) for pool, n in zip(pools, draw.multinomial(count, shares), strict=True)]
        )
        own = {i: predict(logits[i], shares) == labels[i] for i in set(drawn.tolist())}
        hits = (
            np.mean([own[i] for i in drawn.tolist()]),
            np.mean([outcome.test.hits[i] for i in drawn.tolist()]),
        )
        for name, mean in zip(TEST, hits, strict=True):
            p = found[name, client]
            assert abs(mean - p) <= 5 * math.sqrt(p * (1 - p) / count) + 1e-9
            spread.append(p)
    assert max(spread) - min(spread) > 0.2  # clients differ by far more than is allowed
    assert found["personalised_test_accuracy", None] > found["plain_test_accuracy", None]


def test_it_is_recorded_and_readable(tiny, tmp_path):
    """Own data in rounds 2 and 4; the test set in round 4, though the model is tested in round 3 as well."""
    done = run({}, {**tiny, "measures": ["personalised", "client-accuracy"]}, out=tmp_path)
    metrics = done.metrics
    for names, rounds in ((OWN, [2, 4]), (TEST, [4])):
        for name in names:
            assert overall(metrics, name)["round"].tolist() == rounds
            assert overall(metrics, f"{name}_worst_tenth")["round"].tolist() == rounds
            rows = metrics[(metrics["name"] == name) & metrics["client"].notna()]
            assert rows.groupby("round").size().to_dict() == dict.fromkeys(rounds, 12)
    by_client = metrics[metrics["client"].notna()].pivot_table("value", ["round", "client"], "name")
    both = by_client[["plain_accuracy", "validation_accuracy"]].dropna()
    assert len(both) == 24
    assert both["plain_accuracy"].tolist() == both["validation_accuracy"].tolist()
