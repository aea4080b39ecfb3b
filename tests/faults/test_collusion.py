"""Clients that agree on what they send: by hand, in rounds, and what they are refused."""

import math
from statistics import NormalDist

import pytest
import torch

from mnemos.errors import ConfigError
from mnemos.faults.collusion import Colluders, little
from mnemos.federation.federation import Federation
from mnemos.methods.exchange import TrainReply
from support.interrupt import assert_repeatable
from support.play import noting, play, small

KINDS = ["inner-product", "a-little", "min-max", "min-sum", "mimic"]


def update(client, *delta, buffers=(0.0,)):
    return TrainReply(
        client, 1, 10, 7, 0.5, torch.tensor(delta), torch.tensor(buffers), {"c": torch.tensor([1.0])}, {}
    )


def sent(honest, own=((9.0, 9.0),), memory=None, **options):
    """The one update that colluders send, and that they all do."""
    others = [update(client, *row, buffers=(float(client),)) for client, row in enumerate(honest)]
    mine = [update(100 + place, *row) for place, row in enumerate(own)]
    found = Colluders(**options).collude(mine, others, {} if memory is None else memory)
    assert [one.client for one in found] == [one.client for one in mine]
    assert all(torch.equal(one.delta, found[0].delta) for one in found)
    assert all(one.change is before.change for one, before in zip(found, mine, strict=True))
    return found[0].delta.tolist()


# by hand


ROWS = [(1.0, 0.0), (3.0, 0.0), (2.0, 3.0)]
"""Their mean is (2, 1); the variances are (1 + 1 + 0) / 3 and (1 + 1 + 4) / 3."""


def test_the_inner_product_is_turned_round():
    assert sent(ROWS, kind="inner-product") == [-2.0, -1.0]
    assert sent(ROWS, kind="inner-product", scale=0.5) == [-1.0, -0.5]


def test_a_little_below_the_mean():
    found = sent(ROWS, kind="a-little", scale=1.5)
    assert found == pytest.approx([2 - 1.5 * math.sqrt(2 / 3), 1 - 1.5 * math.sqrt(2)], rel=1e-6)


def test_how_little_is_enough():
    """Of 50 with 24 bad, s = 26 − 24 = 2 honest ones are needed for a majority, so 24 of 26 may be nearer to
    the mean: Φ(z) = 24/26. Of 25 with 5 bad, s = 8: Φ(z) = 12/20. Of 10 with one bad, 5 of 9 are needed,
    more than half: there is no such z above 0. Who has the majority has no limit."""
    assert little(50, 24) == pytest.approx(NormalDist().inv_cdf(24 / 26))
    assert little(50, 24) == pytest.approx(1.426, abs=1e-3)
    assert little(25, 5) == pytest.approx(0.2533, abs=1e-4)
    assert little(10, 1) == 0.0
    assert little(10, 6) == 4.0
    assert little(3, 3) == 0.0
    assert sent(ROWS, kind="a-little") == [2.0, 1.0]  # one of four: z = 0


@pytest.mark.parametrize("direction", ["unit", "std", "sign"])
def test_min_max_and_min_sum_on_a_line(direction):
    """Of 0, 1 and 5 the mean is 2, and the largest distance 5, so one may go down to 0, which is 5 from 5.
    Squared distances sum to 26, 17 and 41. Of 2 − g they sum to 3 g² + 14, which is 41 for g = 3: one may go
    down to −1. On a line each direction leads down."""
    rows = [(0.0,), (1.0,), (5.0,)]
    options = {"direction": direction, "own": [(7.0,), (8.0,)]}
    assert sent(rows, kind="min-max", **options) == pytest.approx([0.0], abs=1e-6)
    assert sent(rows, kind="min-sum", **options) == pytest.approx([-1.0], abs=1e-6)


def test_min_max_in_the_plane():
    """The gaps of the mean (2, 1) from the rows are (1, 1), (−1, 1) and (0, −2), the largest squared distance
    is 10, and p = −(2, 1) / √5. The third is what limits it: γ² + 2 γ · 2/√5 + 4 = 10."""
    gamma = -2 / math.sqrt(5) + math.sqrt(4 / 5 + 6)
    expected = [2 - 2 * gamma / math.sqrt(5), 1 - gamma / math.sqrt(5)]
    found = sent(ROWS, kind="min-max")
    assert found == pytest.approx(expected, rel=1e-6)
    away = [math.dist(found, row) for row in ROWS]
    assert max(away) == pytest.approx(math.sqrt(10), rel=1e-6)


@pytest.mark.parametrize("direction", ["unit", "std", "sign"])
@pytest.mark.parametrize("kind", ["min-max", "min-sum"])
def test_no_step_further_is_allowed(kind, direction):
    """Both conditions hold with equality, and what a bisection finds is the same."""
    generator = torch.Generator().manual_seed(3)
    rows = torch.randn(9, 6, generator=generator).double() + 0.5
    found = torch.tensor(sent(rows.float().tolist(), [[0.0] * 6], kind=kind, direction=direction)).double()
    apart = torch.cdist(rows, rows).square()

    def within(point):
        away = (rows - point).square().sum(1)
        return away.max() <= apart.max() if kind == "min-max" else away.sum() <= apart.sum(1).max()

    mean = rows.mean(0)
    p = {"unit": -mean / mean.norm(), "std": -rows.std(0, correction=0), "sign": -mean.sign()}[direction]
    low, high = 0.0, 1000.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if within(mean + middle * p) else (low, middle)
    torch.testing.assert_close(found, mean + low * p, rtol=1e-5, atol=1e-5)


def test_equal_updates_leave_no_room():
    assert sent([(1.0, 2.0)] * 3, kind="min-max") == [1.0, 2.0]
    assert sent([(0.0, 0.0)] * 3, kind="min-sum") == [0.0, 0.0]


def test_one_client_is_copied_over_and_over():
    """Updates differ along the first axis most, and client 2 is furthest there; once chosen it stays so.
    While it isn't there somebody else is copied, but not chosen for good."""
    memory = {}
    assert sent([(0.0, 1.0), (1.0, 0.0), (5.0, 0.5)], memory=memory, kind="mimic") == [5.0, 0.5]
    assert sent([(0.0, 1.0), (90.0, 0.0), (5.0, 0.5)], memory=memory, kind="mimic") == [5.0, 0.5]
    without = [update(client, *row) for client, row in ((0, (0.0, 1.0)), (1, (0.0, 0.0)), (5, (-7.0, 0.0)))]
    (copy,) = Colluders(kind="mimic").collude([update(9, 0.0, 0.0)], without, memory)
    assert copy.delta.tolist() == [-7.0, 0.0]
    assert int(memory["faults.collusion.mimic"]) == 2
    copied = Colluders(kind="mimic").collude([update(9, 0.0)], [update(4, 1.0, buffers=(3.0,))], {})
    assert copied[0].buffers.tolist() == [3.0]


def test_what_they_know():
    """Their own updates, (9, 9) and (7, 9), of which the mean is (8, 9); also if nobody else is there."""
    own = [(9.0, 9.0), (7.0, 9.0)]
    assert sent(ROWS, own, kind="inner-product", knows="colluders") == [-8.0, -9.0]
    assert sent([], own, kind="inner-product") == [-8.0, -9.0]
    assert sent(ROWS, own, kind="inner-product", knows="all") == [-2.0, -1.0]


def test_enormous_updates_are_no_trouble():
    rows = [(2.0**100, 0.0), (-(2.0**100), 1.0), (2.0**99, 2.0)]
    for kind in KINDS:
        assert all(map(math.isfinite, sent(rows, kind=kind)))


# in rounds


def experiment(kind="inner-product", **changes):
    faults = [{"name": "collusion", "kind": kind, "share": 0.25}]
    method = {"name": "fedavg", "weighting": "uniform"}
    return small(**{"method": method, "rounds": 4, "faults": faults, **changes})


def watched(description, count=None):
    """The federation after some rounds, and all updates that the server was sent."""
    seen = []
    return play(description, count, checks=(noting(seen),))[0], seen


@pytest.mark.parametrize("engine", ["serial", "threads", "vmap"])
def test_colluders_send_what_the_others_of_the_round_make_of_it(engine):
    """In the first round the honest ones send what they do in an honest run, and −ε times their mean is what
    the two colluders send; the model moves by (6 − 2 ε) / 8 of that mean."""
    faults = [{"name": "collusion", "share": 0.25, "scale": 0.5}]
    federation, seen = watched(experiment(faults=faults, engine=engine), 1)
    _, clean = watched(experiment(faults=[], engine=engine), 1)
    bad = set(Colluders(share=0.25).clients(8, 0).tolist())
    assert len(bad) == 2
    mean = torch.stack([one.delta for one in clean if one.client not in bad]).mean(0)
    for one, honest in zip(seen, clean, strict=True):
        expected = -0.5 * mean if one.client in bad else honest.delta
        torch.testing.assert_close(one.delta, expected)
    start = Federation(experiment()).server.model
    torch.testing.assert_close(federation.server.model, start + (6 - 1) / 8 * mean)


@pytest.mark.parametrize("kind", KINDS)
def test_collusion_is_the_same_on_every_engine_and_after_a_resume(kind, tmp_path):
    changes = {"method": "scaffold", "participation": 0.5}
    assert_repeatable(experiment(kind, rounds=4, **changes), tmp_path)


def test_whom_they_copy_is_remembered():
    federation, seen = watched(experiment("mimic"))
    bad = set(Colluders(share=0.25).clients(8, 0).tolist())
    target = int(federation.server.screens["faults.collusion.mimic"])
    assert target not in bad
    for number in range(1, 5):
        sent = {one.client: one.delta for one in seen if one.round == number}
        assert all(torch.equal(sent[client], sent[target]) for client in bad)


def test_a_diverged_client_is_of_no_use_to_them():
    """One honest client sends something infinite: it is rejected, and the colluders do without it."""
    faults = [{"name": "collusion", "share": 0.25}]
    federation = Federation(experiment(faults=faults))
    bad = set(Colluders(share=0.25).clients(8, 0).tolist())
    spoilt = min(set(range(8)) - bad)

    class Spoilt:
        def __init__(self, runner):
            self.plan, self.inner = runner.plan, runner

        def run(self, tasks):
            for one in self.inner.run(tasks):
                if one.client == spoilt:
                    one.delta[0] = math.inf
                yield one

    with federation.open() as runner:
        outcome = federation.advance(Spoilt(runner))
    federation.close()
    names = {record.client: record.name for record in outcome.records if record.name.startswith("rejected")}
    assert names == {spoilt: "rejected: not finite"}
    assert federation.server.model.isfinite().all()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"clock": {"name": "fedbuff", "buffer": 4}},
            "faults: found clients that know the updates of",
        ),
        (
            {"model": {"name": "mixed", "of": [{"model": {"name": "mlp", "hidden": [8]}}], "peers": True}},
            "faults: found collusion; it takes a server",
        ),
        (
            {"faults": [{"name": "attack", "kind": "nan"}, {"name": "collusion"}]},
            "faults: found attack and collusion, which are the same clients; take one",
        ),
    ],
)
def test_what_cannot_be_is_one_sentence(changes, words):
    with pytest.raises(ConfigError, match=words):
        Federation(experiment(**changes))


def test_wrong_options_are_one_sentence():
    with pytest.raises(ConfigError, match=r"faults\.0.kind: found 'ipm'"):
        experiment("ipm")
    with pytest.raises(ConfigError, match=r"faults\.0.knows: found 'nobody'"):
        experiment(faults=[{"name": "collusion", "knows": "nobody"}])
