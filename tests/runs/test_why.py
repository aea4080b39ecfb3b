"""Why a class was lost: the answer from a recorded ledger and from rounds that are played again."""

from fractions import Fraction

import pytest

import mnemos
from mnemos.errors import ConfigError
from mnemos.runs import execute
from mnemos.runs.replay import replaying
from mnemos.runs.why.answer import Answer
from mnemos.runs.why.ask import Question, to_play, why
from mnemos.runs.why.ledger import Account, Subject
from mnemos.runs.why.samples import Samples
from mnemos.runs.why.what_if import WhatIf
from mnemos.runs.why.who import Share, shares
from support.play import small

SKEWED = {
    "partition": {"name": "dirichlet", "clients": 8, "alpha": 0.1},
    "participation": 0.5,
    "rounds": 5,
    "local": {"steps": 8, "batch": 16, "lr": 0.2},
}


def made(folder, **changes):
    return execute.start(small(**{**SKEWED, **changes}), folder)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return made(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    return made(tmp_path_factory.mktemp("recorded"), measures=["ledger"])


def test_words_by_hand():
    """100 samples: 61 correct before and 43 after round 37, clients' mean 57: 4 points in local training.

    Without client 12 the class would have fallen by 3 points, so it has cost 15 by leave-one-out.
    """
    account = Account(100, 61, 43, {12: 49, 3: 65}, {12: 5, 3: 5})
    assert (account.local, account.aggregation) == (Fraction(-4, 100), Fraction(-14, 100))
    worst = Share(37, 12, 0, -0.03, 0.15, 1.0, 0.16, 0.01, 2.0, 0.5)
    other = Share(37, 3, 40, -0.2, -0.02, -1.0, 0.02, 0.01, -2.0, -0.5)
    better = Account(100, 43, 50, {3: 50}, {3: 5})
    answer = Answer("run", Subject("class", 7), {37: account, 38: better}, {37: [worst, other]})
    assert answer.text == (
        "Class 7 fell from 61 % to 43 % in round 37: 14 of 18 points in aggregation, the rest in local "
        "training; without client 12, who holds none of it, a fall of 3 points. In rounds 37 to 38, class 7 "
        "went from 61 % to 50 % (100 samples). What clients' updates have cost in round 37: client 12 "
        "(16 points ± 1.0), client 3 (2 points ± 1.0)."
    )
    assert [suspect.client for suspect in answer.suspects] == [12, 3]
    assert answer.falls == [37]
    assert answer.rounds_table().loc[37].to_dict() == pytest.approx(
        {"before": 0.61, "local": -0.04, "aggregation": -0.14, "change": -0.18, "after": 0.43}
    )


def test_several_rounds_are_summed():
    """Client 1 costs 5 and 3 points, with errors of 3 and 4 points, so 8 ± 5; client 2 costs 6 in one."""
    account = Account(100, 50, 40)
    one = [Share(r, 1, 9, 0.0, c, 0.0, c, e, 0.0, 1.0) for r, c, e in [(1, 0.05, 0.03), (2, 0.03, 0.04)]]
    two = Share(2, 2, 0, 0.0, 0.06, 0.0, 0.06, 0.0, 0.0, None)
    answer = Answer("run", Subject(), {1: account, 2: account}, {1: [one[0]], 2: [two, one[1]]})
    first, second = answer.suspects
    assert (first.client, first.cost, first.error, first.rounds) == (1, pytest.approx(0.08), 0.05, 2)
    assert (second.client, second.cost, second.slope) == (2, 0.06, None)


def test_never_fell():
    answer = Answer("run", Subject("task", 1), {1: Account(4, 1, 2), 2: Account(4, 2, 4)})
    assert answer.text == (
        "In rounds 1 to 2, task 1 went from 25 % to 100 % (4 samples). It fell in none of them."
    )


def test_played_again_is_as_recorded(plain, recorded):
    """The same answer with and without a ledger on record, and nothing is written to the run."""
    before = sorted((path, path.stat().st_size) for path in plain.path.rglob("*"))
    one, other = why(plain, Question()), recorded.why()
    assert one.accounts == other.accounts
    assert one.shares == other.shares
    assert one.text == other.text
    assert one.falls
    assert sorted((path, path.stat().st_size) for path in plain.path.rglob("*")) == before


def test_shares_add_up(plain):
    """Shapley values sum to the round's change; leave-one-out is the change without − the change with."""
    answer = mnemos.why(plain.path, mnemos.Question(closely=1))
    ((round, found),) = answer.shares.items()
    change = float(answer.accounts[round].change)
    assert -sum(share.shapley for share in found) == pytest.approx(change)
    for share in found:
        assert share.change - change == pytest.approx(share.leave_one_out)
        assert share.error == 0


def test_slope_predicts_the_loss(plain):
    """For a small step along an update, the class's loss changes by the step times the slope."""
    with replaying(plain) as replay:
        what_if = WhatIf(replay, 3)
        samples = Samples(replay.federation, "validation", Subject("class", 3))
        (server,), step = what_if.before, 3e-3  # larger ones cross kinks of the model's ReLUs
        for share in shares(what_if, samples, 0):
            delta = what_if.runner.known(share.client).delta
            moved = (server.moved(server.model + s * delta, {}) for s in (step, -step))
            there, back = (samples.score([one]).loss for one in moved)
            assert (there - back) / (2 * step) == pytest.approx(share.slope, rel=1e-3)


def test_tasks_and_one_client(tmp_path):
    run = made(tmp_path, stream={"name": "tasks", "tasks": 2}, measures=["ledger"])
    answer = why(run, Question(task=0, closely=1, orders=0))
    assert answer.subject == Subject("task", 0)
    assert all(share.shapley is None for found in answer.shares.values() for share in found)
    client = next(iter(next(iter(answer.accounts.values())).clients))
    only = why(run, Question(task=0, client=client, closely=0))
    assert all(client in account.clients for account in only.accounts.values())
    assert not only.shares


@pytest.mark.parametrize(
    "changes", [{"clock": {"name": "asynchronous", "buffer": 2}}, {"method": "scaffold"}]
)
def test_other_rounds(changes, tmp_path):
    answer = why(made(tmp_path, **changes, checkpoints={"keep": 2}), Question(closely=1))
    assert answer.falls
    assert answer.suspects


@pytest.mark.parametrize(
    ("question", "sentence"),
    [
        ({"cls": 12}, "class: found class 12; the classes are 0 to 9"),
        ({"client": 8}, "client: found client 8; the clients are 0 to 7"),
        ({"task": 1}, "task: found task 1; the stream has no tasks"),
        ({"rounds": (2, 9)}, "found round 9; the run has rounds 1 to 5"),
        ({"rounds": (3, 2)}, "found rounds 3 to 2; allowed: the first up to the last"),
        ({"cls": 1, "task": 1}, "found class 1 and task 1; allowed: one of them"),
    ],
)
def test_bad_questions(question, sentence, plain):
    with pytest.raises(ConfigError) as error:
        why(plain, Question(**question))
    assert sentence in str(error.value)


def test_a_client_that_took_no_part(recorded):
    ledger = recorded.ledger()
    away = next(client for client in range(8) if client not in ledger[1][Subject()].clients)
    with pytest.raises(
        ConfigError, match=f"found client {away}, whose updates counted in none of the rounds 1"
    ):
        why(recorded, Question(rounds=(1, 1), client=away))


PRIVATE = {
    "privacy": {"name": "gaussian", "noise": 1.0},
    "method": {"name": "fedavg", "weighting": "uniform"},
    "participation": 1.0,
}


def test_privacy(tmp_path):
    """Rounds aren't played again; a ledger that the run has recorded is read, and clients aren't ranked."""
    with pytest.raises(ConfigError, match="privacy: found gaussian: a round that is played again would show"):
        why(made(tmp_path / "a", **PRIVATE), Question())
    run = made(tmp_path / "b", **PRIVATE, measures=["ledger"])
    answer = why(run, Question())
    assert answer.accounts
    assert not answer.shares
    assert "Clients aren't ranked: privacy: found gaussian" in answer.text
    assert to_play(run, Question()) is None


def test_how_much_is_played_again(plain, recorded):
    """Without a ledger, all rounds, twice; with one, from the first to the last of the worst three."""
    assert to_play(plain, Question()) == (1, 5, 2)
    assert to_play(plain, Question(rounds=(2, 3))) == (2, 3, 2)
    worst = why(recorded, Question(closely=0)).worst[:3]
    assert to_play(recorded, Question()) == (min(worst), max(worst), 1)
