"""The ledger by hand, and its parts, which sum to the change of accuracy exactly."""

from fractions import Fraction

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from mnemos.data.partition import Assignment
from mnemos.data.stream import Setting
from mnemos.data.streams.static import Still
from mnemos.errors import ConfigError
from mnemos.federation.federation import Federation
from mnemos.measures.ledger import Ledger
from mnemos.measures.measure import Opening, Scores
from mnemos.runs.why.ledger import Account, Subject, read_ledger
from mnemos.vector import Layout
from support.play import play, small

NOTHING = torch.zeros(0)
LABELS = torch.tensor([0, 1, 1, 1, 0, 0, 0, 1, 1, 2])
ASSIGNMENT = Assignment(np.arange(10), np.array([0, 4, 10]), 0.5)
"""Client 0 trains on 2 samples and holds out labels 1 1; client 1 trains on 3 and holds out 1 1 2."""


def rows(records):
    return [{**vars(record), "class": record.cls} for record in records]


def table(*predicted):
    """A linear model; samples of a class are all alike: the class as a one-hot vector."""
    return F.one_hot(torch.tensor(predicted), 3).float().flatten()


def evaluate(model, buffers, indices):
    labels = LABELS[indices]
    return Scores(F.one_hot(labels, 3).float() @ model.view(3, 3), labels, torch.zeros(len(labels)))


def opening(before):
    flow = Still(Setting(ASSIGNMENT, LABELS.numpy(), 3, 10, 0, lambda eligible, round: eligible))
    return Opening(4, 10, before, NOTHING, Layout((), ()), flow, np.array([0, 1]), evaluate, lambda *_: None)


def test_by_hand():
    """Class 1 has 4 samples: 4 correct before, 4 by client 0 (n = 2), 0 by client 1 (n = 3), 0 after.

    m = (2 · 4 + 3 · 0) / 5 = 8/5: −3/5 of accuracy in local training, −2/5 in aggregation, −1 together.
    Class 2 has one sample: 0 before, 0 and 1, so m = 3/5, and 1 after: +3/5 and +2/5. All 5 samples: 4
    before, 4 and 1, m = 11/5, 1 after: (11/5 − 4)/5 = −9/25 and (1 − 11/5)/5 = −6/25.
    """
    watch = Ledger(every=4).watch(opening(table(0, 1, 0)))
    watch.see(0, table(0, 1, 0), NOTHING)
    watch.see(1, table(0, 2, 2), NOTHING)
    watch.aggregated(table(0, 0, 2), NOTHING)
    accounts = read_ledger(rows(watch.records()))[4]
    one, two, everything = accounts[Subject("class", 1)], accounts[Subject("class", 2)], accounts[Subject()]
    assert one == Account(4, 4, 0, {0: 4, 1: 0}, {0: 2, 1: 3})
    assert (one.local, one.aggregation, one.change) == (Fraction(-3, 5), Fraction(-2, 5), -1)
    assert one.of_client(1) == -1
    assert (two.local, two.aggregation) == (Fraction(3, 5), Fraction(2, 5))
    assert (everything.local, everything.aggregation) == (Fraction(-9, 25), Fraction(-6, 25))
    assert Subject("class", 0) not in accounts  # nobody holds out a sample of it


def test_only_in_its_rounds():
    assert Ledger(every=3).watch(opening(table(0, 1, 2))) is None


def test_no_records_before_the_aggregate_is_known():
    watch = Ledger().watch(opening(table(0, 1, 2)))
    assert list(watch.records()) == []


SETTINGS = {
    "fedavg": {},
    "feder": {"method": "feder"},
    "momentum": {"method": "fedavgm"},
    "tasks": {"method": "fedspace", "stream": {"name": "tasks", "tasks": 2}},
    "asynchronous": {"clock": {"name": "asynchronous", "buffer": 2}},
    "on the test set": {"measures": [{"name": "ledger", "on": "test"}]},
    "drop-outs": {"faults": [{"name": "drop-outs", "rate": 0.5}]},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_the_parts_sum_to_the_change_exactly(name):
    """In each round, for every class and task; and a round begins where the one before has ended."""
    half = {"partition": {"name": "dirichlet", "clients": 8, "alpha": 0.3}, "participation": 0.5, "rounds": 4}
    _, outcomes = play(small(**{**half, "measures": ["ledger"], **SETTINGS[name]}))
    ledger = read_ledger(rows(record for outcome in outcomes for record in outcome.records))
    assert list(ledger) == [1, 2, 3, 4]
    last = {}
    for accounts in ledger.values():
        assert any(subject.kind == "task" for subject in accounts) == (name == "tasks")
        for subject, account in accounts.items():
            assert account.local + account.aggregation == account.change
            assert subject not in last or account.before == last[subject]
        last = {subject: account.after for subject, account in accounts.items()}
    for account in accounts.values():
        assert all(0 <= right <= account.samples for right in account.clients.values())


def test_it_agrees_with_the_evaluations():
    """After each round, the sum over classes is the validation accuracy on record."""
    _, outcomes = play(small(measures=["ledger"], evaluate={"every": 1}))
    for outcome in outcomes:
        account = read_ledger(rows(outcome.records))[outcome.round][Subject()]
        assert account.after / account.samples == outcome.validation.accuracy


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"partition": {"name": "iid", "clients": 8, "validation": 0}}, "no client holds validation data"),
        (
            {"model": {"name": "mixed", "of": [{"model": "mlp"}, {"model": "logistic"}]}},
            "measures.ledger: it",
        ),
    ],
)
def test_refused(changes, sentence):
    with pytest.raises(ConfigError, match=sentence):
        Federation(small(**changes, measures=["ledger"]))
