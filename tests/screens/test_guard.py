"""The guard: verdicts by numbers worked out by hand, and federations in which one client is bad."""

from contextlib import closing
from dataclasses import replace

import pytest
import torch
from torch import nn

from mnemos.errors import ConfigError
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from mnemos.methods.exchange import Server, TrainReply
from mnemos.screens.guard import BoundsCheck, Guard
from mnemos.screens.statistics import Distance
from mnemos.vector import Layout
from support.play import play as play_all

NOTHING = torch.zeros(0)
FLAT = Layout.of(nn.Linear(1, 1))
NORM = Layout.of(nn.BatchNorm1d(2))
"""Buffers: two means, two variances, one counter."""
START = torch.tensor([0.0, 0.0, 1.0, 1.0, 0.0])


def updates(deltas, steps=None, buffers=None, change=None):
    count = len(deltas)
    each = zip(
        deltas, steps or [1] * count, buffers or [NOTHING] * count, change or [{}] * count, strict=True
    )
    return [
        TrainReply(10 + place, 1, 1, step, 0.0, torch.tensor(delta), found, beside, {})
        for place, (delta, step, found, beside) in enumerate(each)
    ]


def along(*lengths):
    """Updates in one direction."""
    return [[0.6 * length, 0.8 * length] for length in lengths]


def judge(found, memory=None, layout=FLAT, buffers=NOTHING, **options):
    check = BoundsCheck(Guard(**options), layout, statistics=True, continued=True)
    return check.judge(found, Server(torch.zeros(2), buffers, {}), {} if memory is None else memory)


@pytest.mark.parametrize(
    ("lengths", "shortened", "rejected"),
    [
        ([1, 2, 3, 4, 5], {}, []),
        ([1, 1, 1, 1, 10], {}, []),  # ten times the median is within the bounds
        ([1, 1, 1, 1, 20], {14: 0.5}, []),  # 10 / 20
        ([1, 1, 1, 1, 1001], {}, [14]),
        ([1, 1, 1, 1, 1e30], {}, [14]),
        ([0, 0, 0, 0, 7], {}, []),  # zeros don't count, and one value can't be compared
        ([1, 1, 20], {12: 0.5}, []),
        ([1, 20], {}, []),  # two can't tell which of them is unusual
        ([1, 2000], {}, [11]),  # unless one of them is absurd
        ([100.0], {}, []),  # the first of all is believed
        ([2000.0], {}, [10]),  # but not if the model is nothing beside it: it counts as √2 · 0.1 long
    ],
)
def test_lengths_are_compared_with_the_rounds_median(lengths, shortened, rejected):
    verdict = judge(updates(along(*map(float, lengths))))
    assert verdict.shortened == pytest.approx(shortened)
    assert verdict.rejected == dict.fromkeys(rejected, "norm")


def test_updates_that_are_nothing_beside_the_model_pass():
    """The model has the length 10⁴ · 5, and so 5 is harmless: 20 is 4 times that, and 60 is 12 times."""
    check = BoundsCheck(Guard(), FLAT, statistics=True, continued=True)
    server = Server(torch.tensor([3e4, 4e4]), NOTHING, {})
    assert check.judge(updates(along(1.0, 1.0, 1.0, 1.0, 20.0)), server, {}).shortened == {}
    shortened = check.judge(updates(along(1.0, 1.0, 1.0, 1.0, 60.0)), server, {}).shortened
    assert shortened == pytest.approx({14: 10 / 12})


def test_who_makes_more_steps_may_go_further():
    """The median is 1 for 1 step. 40 in 20 steps are 2 per step: within the bounds. 40 in 2 steps are 20 per
    step, twice what is allowed, and by length four times: the smaller counts, and it is halved."""
    lengths = along(1.0, 1.0, 1.0, 1.0, 40.0)
    assert judge(updates(lengths, steps=[1, 1, 1, 1, 20])).shortened == {}
    assert judge(updates(lengths, steps=[1, 1, 1, 1, 2])).shortened == pytest.approx({14: 0.5})


def test_what_was_usual_in_earlier_rounds_still_is():
    """A round of length 1, then one of clients that have converged, 0.01, and one with something to learn.
    The usual length is 0.99 by then, so 5 passes; 20 is shortened to 10 · 0.99."""
    memory = {}
    judge(updates(along(1.0, 1.0, 1.0, 1.0, 1.0)), memory)
    assert memory["guard.usual.norm"] == pytest.approx(1)
    assert judge(updates(along(0.01, 0.01, 0.01, 0.01, 5.0)), memory).shortened == {}
    assert memory["guard.usual.norm"] == pytest.approx(0.99)
    shortened = judge(updates(along(0.01, 0.01, 0.01, 0.01, 20.0)), memory).shortened
    assert shortened == pytest.approx({14: 10 * 0.99**2 / 20})


def alone(length, client, memory):
    """The verdict on a round of one client."""
    (update,) = updates(along(length))
    return judge([replace(update, client=client)], memory)


def test_small_rounds_are_compared_with_recent_values():
    """One update per round: 1, 1, then 50, whose pool is (1, 1, 50). It is shortened, but remembered as it
    was: when most of the last ten clients send long ones, long is usual."""
    memory = {}
    for client in (1, 2):
        assert alone(1.0, client, memory).shortened == {}
    found = [alone(50.0, client, memory).shortened for client in (3, 4, 5, 6)]
    # Pools: (1 1 50), (1 1 50 50) whose lower median is 1, (1 1 50 50 50) with 50.
    assert [bool(one) for one in found] == [True, True, False, False]
    assert memory["guard.last.norm"].tolist() == [
        [client, pytest.approx(length)] for client, length in enumerate([1, 1, 50, 50, 50, 50], start=1)
    ]


def test_one_client_that_keeps_sending_doesnt_make_itself_usual():
    """Of client 3 the last value alone is remembered: the pool is (1, 1, 1e30) however often it comes."""
    memory = {}
    for client in (1, 2):
        alone(1.0, client, memory)
    for _ in range(20):
        assert alone(1e30, 3, memory).rejected == {3: "norm"}
    assert alone(1.0, 4, memory) == ({}, {})


def test_one_that_comes_first_is_not_believed_whatever_it_sends():
    """With nothing to compare, an update may have 1000 times the model's length, 1000 · √2 · 0.1. What is
    longer is rejected however often it comes, and doesn't make the next such one usual."""
    memory = {}
    for _ in range(3):
        assert alone(1e30, 3, memory).rejected == {3: "norm"}
    assert alone(1.0, 1, memory) == ({}, {})
    assert alone(1.0, 2, memory) == ({}, {})
    assert alone(1e30, 3, memory).rejected == {3: "norm"}


def test_of_the_first_client_neither_statistics_nor_uploads_are_believed_without_end():
    """10¹² times their spread is the end of what running means may be off, and 10¹² that of an upload."""

    def first(mean, upload):
        sent = torch.tensor([mean, 0.0, 1.0, 1.0, 1.0])
        found = updates(along(1.0), buffers=[sent], change=[{"m.c": torch.tensor([upload])}])
        return judge(found, layout=NORM, buffers=START).rejected

    assert first(900.0, 900.0) == {}
    assert first(1e11, 1e11) == {}
    assert first(1e38, 1.0) == {10: "batch-norm means"}
    assert first(1.0, 1e13) == {10: "m.c"}


def test_who_works_against_the_others_is_cut_to_the_usual_length():
    """Beside four updates of (1, 0), S = (4, 0) and the usual length is 1. (−4, 0) undoes 4/4 of S at a
    length of 4; (−2.1, 0) undoes 2.1/4, and 2.1 · 2.1/4 = 1.1; of (−1.9, 0) the length is below 2. (0, 4), at
    a right angle, undoes nothing. (−1, 3) has the length 3.16 and undoes 1/4: 0.79. Of four, nobody is
    judged."""
    others = [[1.0, 0.0]] * 4
    assert judge(updates([*others, [-4.0, 0.0]])).shortened == {14: 0.25}
    assert judge(updates([*others, [-2.1, 0.0]])).shortened == pytest.approx({14: 1 / 2.1})
    assert judge(updates([*others, [-1.9, 0.0]])).shortened == {}
    assert judge(updates([*others, [0.0, 4.0]])).shortened == {}
    assert judge(updates([*others, [-1.0, 3.0]])).shortened == {}
    assert judge(updates([*others[1:], [-4.0, 0.0]])).shortened == {}


def test_one_that_is_too_long_doesnt_make_the_others_look_opposed():
    """Before directions are compared, (−500, 0) is taken at ten times the usual length: it undoes 10/4 of S,
    and is cut to 1 / 500. The others look opposed to S then, but they are not long."""
    assert judge(updates([*[[1.0, 0.0]] * 4, [-500.0, 0.0]])).shortened == pytest.approx({14: 1 / 500})


def test_what_comes_beside_the_model_may_be_a_hundred_times_as_large():
    """`most`² = 100 times the median, 1. What isn't a floating-point number isn't compared."""

    def says(*sizes):
        return [{"m.c": torch.tensor([0.6, 0.8]) * size, "m.n": torch.tensor(7)} for size in sizes]

    lengths = along(*[1.0] * 5)
    assert judge(updates(lengths, change=says(1, 1, 1, 1, 100))).rejected == {}
    assert judge(updates(lengths, change=says(1, 1, 1, 1, 101))).rejected == {14: "m.c"}
    assert judge(updates(lengths, change=says(1, 1, 1, 1, 101)), most=11.0).rejected == {}


def test_distances_of_statistics_are_in_units_of_their_own_spread():
    """The server has means (0, 0), variances (4, 0) and has counted 10 batches. The layer's mean variance is
    2: units are √(4 + 0.02 + 1e-5) and √(0.02 + 1e-5) of the two means, and their squares of the variances.
    Six more batches in three steps are 2 per step."""
    server = torch.tensor([0.0, 0.0, 4.0, 0.0, 10.0])
    first, second = 4.02001, 0.02001
    clients = [
        torch.tensor([3 * first**0.5, 0.0, 4.0 + 2 * first, 0.0, 16.0]),
        torch.tensor([0.0, -5 * second**0.5, 4.0, 7 * second, 10.0]),
    ]
    steps = torch.tensor([3.0, 3.0], dtype=torch.float64)
    apart = Distance(NORM, counters=True)(clients, steps, server)
    assert {kind: values.tolist() for kind, values in apart.items()} == {
        "batch-norm means": pytest.approx([3, 5]),
        "batch-norm variances": pytest.approx([2, 7]),
        "batch-norm counters": pytest.approx([2, 0]),
    }
    assert "batch-norm counters" not in Distance(NORM, counters=False)(clients, steps, server)


def test_buffers_that_are_no_batch_norms_have_the_servers_root_mean_square_as_unit():
    """√((9 + 16 + 0 + 0) / 4) = 2.5; where the server has zeros, 1."""

    class Other(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(4))
            self.register_buffer("none", torch.zeros(1))

    server = torch.tensor([3.0, 4.0, 0.0, 0.0, 0.0])
    distance = Distance(Layout.of(Other()), counters=True)
    one = torch.ones(1, dtype=torch.float64)
    assert distance([torch.tensor([3.0, 9.0, 0.0, 0.0, 0.0])], one, server) == {"buffers": 2}
    assert distance([torch.tensor([3.0, 4.0, 0.0, 0.0, -7.0])], one, server) == {"buffers": 7}


@pytest.mark.parametrize(
    ("mean", "found"),
    [(0.9, {}), (1.1, {14: "batch-norm means"}), (1e38, {14: "batch-norm means"})],
)
def test_statistics_are_rejected_above_their_spread_and_ten_times_the_usual(mean, found):
    """All others are 0.05 away: ten times as far is 0.5, but what is within one unit, √1.01001, passes."""
    buffers = [torch.tensor([0.05, 0.0, 1.0, 1.0, 1.0])] * 4 + [torch.tensor([mean, 0.0, 1.0, 1.0, 1.0])]
    lengths = along(*[1.0] * 5)
    assert judge(updates(lengths, buffers=buffers), layout=NORM, buffers=START).rejected == found


def test_statistics_of_a_small_round_have_wider_bounds():
    """Three rounds of one client each, 0.05 from the server's, then one that is 9 or 11 units away: 180 and
    220 times as far, above 10 · 10 both, but only the second is above 10 units. If two move that far
    together, it is usual. A round of three has the narrow bounds."""
    unit = 1.01001**0.5

    def moved(mean, client):
        (update,) = updates(along(1.0), buffers=[torch.tensor([mean * unit, 0.0, 1.0, 1.0, 1.0])])
        return [replace(update, client=client)]

    for mean, found in ((9.0, {}), (11.0, {4: "batch-norm means"})):
        memory = {}
        for client in (1, 2, 3):
            judge(moved(0.05, client), memory, layout=NORM, buffers=START)
        assert judge(moved(mean, 4), memory, layout=NORM, buffers=START).rejected == found
    two = updates(along(1.0, 1.0), buffers=[torch.tensor([11 * unit, 0.0, 1.0, 1.0, 1.0])] * 2)
    assert judge(two, memory, layout=NORM, buffers=START).rejected == {}
    three = [torch.tensor([mean, 0.0, 1.0, 1.0, 1.0]) for mean in (0.05, 0.05, 9.0)]
    lengths = along(1.0, 1.0, 1.0)
    found = judge(updates(lengths, buffers=three), layout=NORM, buffers=START).rejected
    assert found == {12: "batch-norm means"}


def test_statistics_that_all_move_are_usual():
    """In the first round everybody's mean is far from 0, where batch-norm begins."""
    buffers = [torch.tensor([float(mean), 0.0, 1.0, 1.0, 1.0]) for mean in (30, 40, 50, 60, 300)]
    lengths = along(*[1.0] * 5)
    assert judge(updates(lengths, buffers=buffers), layout=NORM, buffers=START).rejected == {}


def test_a_round_that_comes_to_nothing_is_learnt_from():
    """One client per round, and from the second round on all updates are 10⁶ times as long: they are rejected
    until most of the remembered ones are. An asynchronous server would wait for ever otherwise."""
    federation = Federation(
        Experiment.parse({**BASE, "clock": {"name": "fedasync", "concurrency": 1}, "rounds": 12})
    )
    noted = []
    with closing(federation), federation.open() as runner:
        run = runner.run
        runner.run = lambda tasks: (
            replace(update, delta=update.delta * (1e6 if federation.round > 1 else 1))
            for update in run(tasks)
        )
        for _ in range(5):
            records = federation.advance(runner).records
            noted.append([one.name for one in records if one.name.startswith(("rejected", "short"))])
    # Pools: (1), (1 1), then (1 1 L): rejected; (1 1 L L): rejected; (1 1 L L L): usual.
    assert noted == [[], [], ["rejected: norm"], ["rejected: norm"], []]


BASE = {
    "data": "digits",
    "partition": {"name": "dirichlet", "clients": 10, "alpha": 1.0},
    "participation": 1.0,
    "model": {"name": "mlp", "hidden": [12]},
    "local": {"steps": 4, "lr": 0.1},
    "rounds": 3,
    "evaluate": {"every": 3},
    "engine": "serial",
}
BATCH_NORM = {"name": "mlp", "hidden": [12], "norm": "batch"}


def play(**changes):
    """The server after all rounds, and what was noted of clients."""
    federation, outcomes = play_all(Experiment.parse({**BASE, **changes}), BASE["rounds"])
    names = (record.name for outcome in outcomes for record in outcome.records)
    return federation, [name for name in names if name.startswith(("rejected", "short"))]


@pytest.mark.parametrize(
    ("fault", "note", "changes"),
    [
        ({"kind": "coordinate"}, "rejected: norm", {}),
        ({"kind": "scaled"}, "rejected: norm", {}),
        ({"kind": "scaled", "scale": 50}, "shortened", {}),
        ({"kind": "sign-flip", "scale": 30}, "shortened", {}),
        ({"kind": "means"}, "rejected: batch-norm means", {"model": BATCH_NORM}),
        ({"kind": "means", "scale": 1e38}, "rejected: batch-norm means", {"model": BATCH_NORM}),
        ({"kind": "variances"}, "rejected: batch-norm variances", {"model": BATCH_NORM}),
        ({"kind": "beside"}, "rejected: not plausible", {"method": "scaffold"}),
        (
            {"kind": "beside"},
            "rejected: scaffold.c",
            {"method": {"name": "scaffold", "correction": {"name": "scaffold", "option": "I"}}},
        ),
        ({"kind": "coordinate"}, "rejected: norm", {"method": "fednova"}),
        ({"kind": "beside"}, "rejected: fedcurv.", {"method": "fedcurv"}),
    ],
)
def test_one_bad_client_is_noticed_in_every_round(fault, note, changes):
    federation, noted = play(faults=[{"name": "attack", "share": 0.1, **fault}], **changes)
    assert len(noted) == BASE["rounds"]
    assert all(name.startswith(note) for name in noted)
    assert federation.server.model.isfinite().all()
    assert federation.server.buffers.abs().max() < 100 if len(federation.server.buffers) else True


@pytest.mark.parametrize("engine", ["serial", "threads", "vmap"])
@pytest.mark.parametrize(
    "changes",
    [{}, {"model": BATCH_NORM, "method": {"name": "fedavg", "loss": "wsm"}}, {"method": "scaffold"}],
)
def test_honest_clients_get_the_same_bits_with_and_without_it(changes, engine):
    guarded, noted = play(engine=engine, **changes)
    plain, _ = play(engine=engine, guard={"enabled": False}, **changes)
    assert noted == []
    assert torch.equal(guarded.server.model, plain.server.model)
    assert torch.equal(guarded.server.buffers, plain.server.buffers)
    assert {name for name in guarded.server.screens if name.startswith("guard.")}
    assert not {name for name in plain.server.screens if name.startswith("guard.")}


def test_large_cohorts_are_judged_in_parts(monkeypatch):
    """With room for 8 updates at a time, a cohort of 10 has two parts; the second remembers the first."""
    whole, _ = play()
    monkeypatch.setattr("mnemos.federation.screening._TOGETHER", 1)
    parts, noted = play(faults=[{"name": "attack", "share": 0.1, "kind": "coordinate"}])
    assert noted == ["rejected: norm"] * 3
    honest, noted = play()
    assert noted == []
    assert torch.equal(honest.server.model, whole.server.model)
    assert parts.server.model.isfinite().all()


def test_without_it_one_client_ends_the_run_and_that_is_warned_of():
    federation = Federation(Experiment.parse({**BASE, "guard": {"enabled": False}}))
    assert any("guard.enabled" in sentence for sentence in federation.warnings)
    assert not any("guard" in sentence for sentence in Federation(Experiment.parse(BASE)).warnings)


def test_an_update_of_an_owner_with_two_neighbours_is_judged_from_the_first_round_on():
    """Three clients are enough to tell which of them is unusual."""
    _, noted = play(
        partition={"name": "dirichlet", "clients": 3, "alpha": 1.0},
        faults=[{"name": "attack", "share": 0.1, "kind": "coordinate"}],
    )
    assert noted == ["rejected: norm"] * 3


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({"most": 1}, "guard.most: found 1; allowed: ≥ 2 and ≤ 1000"),
        ({"off": True}, "guard.off: unknown field; allowed: enabled, most"),
    ],
)
def test_wrong_options_get_a_sentence(value, sentence):
    with pytest.raises(ConfigError) as error:
        Experiment.parse({"guard": value})
    assert str(error.value) == sentence
