"""A client that stays out of several rounds: the bits of a branch without it, and its cost by hand."""

from fractions import Fraction

import pytest

from mnemos.errors import ConfigError
from mnemos.runs import execute
from mnemos.runs.branch import Branching, branch
from mnemos.runs.replay import replaying
from mnemos.runs.why.answer import Answer
from mnemos.runs.why.ask import Question, to_play, why
from mnemos.runs.why.ledger import Account, Subject
from mnemos.runs.why.samples import Score
from mnemos.runs.why.stay_out import StayedOut, ranked, stayed_out
from mnemos.runs.why.words import in_words
from support.play import small

HALF = {
    "partition": {"name": "dirichlet", "clients": 8, "alpha": 0.5},
    "participation": 0.5,
    "rounds": 5,
    "measures": [{"name": "ledger", "every": 2}],
}
SETTINGS = {
    "momentum": {"method": "fedavgm"},
    "scaffold": {"method": "scaffold", "checkpoints": {"keep": 2}},
    "drop-outs and retries": {"faults": [{"name": "drop-outs", "rate": 0.3}], "min_clients": 2},
}


def made(folder, **changes):
    return execute.start(small(**{**HALF, **changes}), folder)


def test_costs_by_hand():
    """Of 10 samples, 4 and 2 are right with the client, and 7 and 4 without it: 3 and 2 tenths."""
    accounts = {2: Account(10, 5, 4), 3: Account(10, 4, 2)}
    one = StayedOut(12, {2: 7, 3: 4}, accounts)
    assert (one.last, one.after) == (3, Fraction(4, 10))
    assert (one.cost, one.mean_cost) == (Fraction(2, 10), Fraction(1, 4))
    other = StayedOut(3, {2: 4}, accounts, "round 3: too few clients")
    assert [found.client for found in ranked([other, one])] == [12, 3]
    text = in_words(Answer("run", Subject("class", 7), accounts, stayed_out=(one, other)))
    assert (
        "Had client 12 stayed out of rounds 2 to 3, class 7 would be at 40 % after them instead of 20 %, and "
        "on average over these rounds at 25 points more." in text
    )
    assert text.endswith(
        "Had client 3 stayed out of rounds 2 to 2, class 7 would be at 40 % after them instead of 40 %, and "
        "on average over these rounds at the same. It can't be told further (round 3: too few clients)."
    )


class Looking:
    """Looks at the servers that are to be scored."""

    def __init__(self):
        self.seen = []

    def score(self, servers):
        self.seen.append(servers)
        return Score(1, 0.0)


@pytest.mark.parametrize("name", SETTINGS)
def test_it_is_a_branch_without_the_client(name, tmp_path):
    """Rounds 3 to 5 without a client of round 4: the bits of all that the server of the branch holds."""
    run = made(tmp_path, **SETTINGS[name])
    subject, looking = Subject(), Looking()
    accounts = {round: run.ledger()[round][subject] for round in (4, 5)}
    client = next(iter(accounts[4].clients))
    other = branch(run, Branching(2, without=(client,)), tmp_path)
    with replaying(run) as replay:
        assert sorted(stayed_out(replay, client, 3, accounts, looking).right) == [4, 5]
        replay.to(5)
        assert not replay.federation.server.model.equal(looking.seen[-1][0].model)
    with replaying(other) as replay:
        for round, (server,) in zip((4, 5), looking.seen, strict=True):
            replay.to(round)
            theirs = replay.federation.server.tensors
            # A federation with faults keeps the last change for those that make up an update.
            assert theirs.keys() - {"screens.last"} == server.tensors.keys() - {"screens.last"}
            assert [name for name, mine in server.tensors.items() if not mine.equal(theirs[name])] == []
    answer = why(run, Question(cls=3, rounds=(3, 5), stay_out=(client,), closely=0))
    (found,) = answer.stayed_out
    subject = Subject("class", 3)
    assert found.right[4] == other.ledger()[4][subject].after
    assert found.right[5] == other.ledger()[5][subject].after
    assert sorted(found.right) == [3, 4, 5]


def test_the_replay_is_as_before(tmp_path):
    """Afterwards the run's own rounds are played again as recorded, what clients remember included."""
    run = made(tmp_path, method="scaffold")
    with replaying(run) as replay:
        for client in (0, 1):
            stayed_out(replay, client, 3, {5: run.ledger()[5][Subject()]}, Looking())
        assert replay.federation.round == 2
        for _ in range(3):
            replay.advance()  # which compares with what the run has recorded


def test_a_run_that_would_have_paused(tmp_path):
    """All eight clients must be there, so no round can be played without one of them."""
    run = made(tmp_path, participation=1.0, min_clients=8)
    assert not why(run, Question(rounds=(4, 5), stay_out=(1,), closely=0)).stayed_out


@pytest.mark.parametrize("client", [-1, 8])
def test_unknown_clients(client, tmp_path):
    with pytest.raises(ConfigError, match=f"client: found client {client}; the clients are 0 to 7"):
        why(made(tmp_path), Question(stay_out=(client,)))


def test_how_much_is_played(tmp_path):
    """Once for each client, and once for the worst rounds; without a ledger once more."""
    run = made(tmp_path)
    assert to_play(run, Question(stay_out=(1, 2))) == (1, 5, 3)
    assert to_play(run, Question(rounds=(3, 5), stay_out=(1, 2))) == (3, 5, 4)
