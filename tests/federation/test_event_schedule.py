"""Who trains when under an asynchronous clock; nothing is trained here."""

import numpy as np
import pytest

from mnemos.clocks.asynchronous import AsynchronousClock
from mnemos.clocks.event_schedule import EventSchedule, Standing
from mnemos.clocks.pace import Pace
from mnemos.common import rng
from mnemos.data.partitions.iid import Iid
from mnemos.data.stream import Setting
from mnemos.data.streams.static import Static
from mnemos.optim.local import Local
from mnemos.selection import UniformSelection


def traffic(clients, clock, *, slots=None, seed=0):
    """Of clients with one local step each, so that a round takes a client its time per step."""
    labels = np.zeros(10 * clients, np.int64)
    dealt = Iid(clients=clients).split(labels, None, rng.numpy_generator(seed, "partition"))
    flow = Static().open(Setting(dealt, labels, 1, 100, seed, lambda eligible, number: np.zeros(0, np.int64)))
    options = AsynchronousClock.parse(clock)
    pace = Pace(options.speeds, flow, Local(steps=1), seed)
    return EventSchedule(options, slots or options.concurrency or clients, pace, UniformSelection())


def turns(found, count):
    standing, told = Standing(), []
    for number in range(1, count + 1):
        told.append(found.turn(number, standing))
        standing = told[-1].after
    return told


def story(told):
    """(time, client, staleness) of every arrival."""
    return [
        (turn.after.time, flight.client, number - flight.version)
        for number, turn in enumerate(told)
        for flight in turn.arrived
    ]


def test_three_clients_by_hand():
    """Times 2, 3 and 7; v counts the moves of the server.

    0: all three are sent v0, and are due at 2, 3 and 7.
    2: client 0 arrives, sent v0 at v0: τ = 0. It is sent v1, due at 4.
    3: client 1, sent v0 at v1: τ = 1. It is sent v2, due at 6.
    4: client 0, sent v1 at v2: τ = 1. It is sent v3, due at 6.
    6: client 1, who left before client 0, sent v2 at v3: τ = 1. It is sent v4, due at 9.
    6: client 0, sent v3 at v4: τ = 1. It is sent v5, due at 8.
    7: client 2, sent v0 at v5: τ = 5. It is sent v6, due at 14.
    8: client 0, sent v5 at v6: τ = 1. It is sent v7, due at 10.
    9: client 1, sent v4 at v7: τ = 3.
    """
    found = traffic(3, {"speeds": {"times": {0: 2, 1: 3, 2: 7}}})
    assert story(turns(found, 8)) == [
        (2, 0, 0),
        (3, 1, 1),
        (4, 0, 1),
        (6, 1, 1),
        (6, 0, 1),
        (7, 2, 5),
        (8, 0, 1),
        (9, 1, 3),
    ]


def test_a_buffer_of_two_by_hand():
    """The same clients. A client whose update waits in the buffer isn't sent the same model again.

    2: client 0 arrives and waits. 3: client 1; the server moves, and both are sent v1, due at 5 and 6.
    5: client 0 (τ = 0) waits. 6: client 1 (τ = 0); both are sent v2, due at 8 and 9.
    7: client 2 (sent v0: τ = 2) waits. 8: client 0 (τ = 0); both are sent v3, due at 15 and 10.
    9: client 1 (sent v2: τ = 1) waits. 10: client 0 (τ = 0).
    """
    found = traffic(3, {"buffer": 2, "speeds": {"times": {0: 2, 1: 3, 2: 7}}})
    told = turns(found, 4)
    assert [turn.after.time for turn in told] == [3, 6, 8, 10]
    arrived = [{client: late for _, client, late in story(told) if _ == turn.after.time} for turn in told]
    assert arrived == [{0: 0, 1: 0}, {0: 0, 1: 0}, {0: 0, 2: 2}, {0: 0, 1: 1}]


def test_free_slots_go_to_others_before_the_buffer_is_full():
    """One at a time, a buffer of three, all times 1: three different clients one after the other."""
    first, second = turns(traffic(5, {"buffer": 3, "concurrency": 1}), 2)
    assert [flight.due for flight in first.started] == [1, 2, 3]
    assert len({flight.client for flight in first.started}) == 3
    assert {flight.version for flight in first.started} == {0}
    assert [flight.due for flight in second.arrived] == [4, 5, 6]


def test_a_straggler_does_not_slow_the_others():
    """Whenever the others arrive, they do so whether client 4 is one of them or ten times slower."""
    times = {0: 1.0, 1: 1.3, 2: 1.7, 3: 2.1, 4: 1.9}

    def others(slow, until=60.0):
        found = traffic(5, {"speeds": {"times": {**times, 4: times[4] * slow}}})
        told = story(turns(found, 300))
        assert told[-1][0] > until
        return [(client, time) for time, client, _ in told if client != 4 and time <= until]

    assert len(others(1)) == sum(int(60 / times[client] + 1e-9) for client in range(4))
    assert sorted(others(1)) == sorted(others(10))


def test_a_straggler_keeps_one_slot_busy_and_no_more():
    """Twenty clients of time 1, four at a time: 4 arrive in each unit of time, 3 if the straggler is away."""
    found = traffic(20, {"speeds": {"times": {7: 10}}}, slots=4)
    told = turns(found, 400)
    ordinary = [round(turn.after.time) for turn in told for flight in turn.arrived if flight.client != 7]
    away = {
        moment
        for turn in told
        for flight in turn.started
        if flight.client == 7
        for moment in range(round(flight.due) - 9, round(flight.due) + 1)
    }
    assert away
    for moment in range(1, max(ordinary)):
        assert ordinary.count(moment) == (3 if moment in away else 4)


@pytest.mark.parametrize(("slots", "buffer"), [(1, 1), (4, 1), (4, 3), (5, 5), (3, 7), (9, 9)])
def test_rules_that_always_hold(slots, buffer):
    for seed in range(2):
        clock = {"buffer": buffer, "concurrency": slots, "speeds": {"spread": 0.8, "jitter": 0.3}}
        told = turns(traffic(9, clock, seed=seed), 40)
        before, past = Standing(), set()
        for number, turn in enumerate(told, 1):
            assert (
                turn == traffic(9, clock, seed=seed).turn(number, before) or number > 3
            )  # nothing else matters
            assert len(turn.arrived) == buffer
            assert len({flight.client for flight in turn.arrived}) == buffer
            assert len(turn.after.in_flight) <= slots
            assert {*before.in_flight, *turn.started} == {*turn.arrived, *turn.after.in_flight}
            flying = [flight.client for flight in turn.after.in_flight]
            assert len(set(flying)) == len(flying)
            sent = {(flight.client, flight.version) for flight in turn.started}
            assert {version for _, version in sent} <= {number - 1}
            assert not sent & past  # two rounds of a client never share their random draws
            past |= sent
            assert turn.after.time == max(flight.due for flight in turn.arrived) > before.time
            assert all(flight.due >= turn.after.time for flight in turn.after.in_flight)
            before = turn.after


def test_a_turns_cohort_is_who_is_sent_a_model():
    found = traffic(9, {"buffer": 2, "concurrency": 4, "speeds": {"spread": 0.8}})
    expected = [[flight.client for flight in turn.started] for turn in turns(found, 20)]
    assert [found.cohort(number).tolist() for number in range(1, 21)] == expected
    assert found.cohort(3).tolist() == expected[2]
    assert found.cohort(3).dtype == np.int64
