"""A round without a client's update has the bits of a run in which that update didn't arrive."""

import pytest
import torch

from mnemos.federation.federation import Federation
from mnemos.runs import execute
from mnemos.runs.replay import replaying
from mnemos.runs.why.what_if import WhatIf
from support.play import each_round, small

HALF = {"partition": {"name": "dirichlet", "clients": 8, "alpha": 0.5}, "participation": 0.5, "rounds": 3}
SETTINGS = {
    "fedavg": {},
    "scaffold": {"method": "scaffold"},
    "fednova": {"method": "fednova"},
    "feder": {"method": "feder"},
    "median": {"method": {"name": "fedavg", "rule": "median"}},
    "fedspace": {"method": "fedspace", "stream": {"name": "tasks", "tasks": 2}},
    "momentum": {"method": "fedavgm"},
    "mixed models": {"model": {"name": "mixed", "of": [{"model": "mlp"}, {"model": "logistic"}]}},
    "over-selection": {"clock": {"name": "synchronous", "over_selection": 0.5}},
    "drop-outs and retries": {"faults": [{"name": "drop-outs", "rate": 0.3}], "min_clients": 2},
    "meta step": {"method": "uga", "participation": 1.0},
}
ROUND = 3


def made(folder, **changes):
    return execute.start(small(**{**HALF, **changes}), folder)


def tensors(servers):
    return [tensor for server in servers for tensor in server.tensors.values()]


def same(one, other):
    return all(a.equal(b) for a, b in zip(tensors(one), tensors(other), strict=True))


@pytest.mark.parametrize("name", SETTINGS)
def test_leave_one_out_is_a_run_without_the_update(name, tmp_path):
    """For the first and the last client of round 3's cohort: the models and all that the server keeps."""
    changes = SETTINGS[name]
    run = made(tmp_path, **changes)
    with replaying(run) as replay:
        what_if = WhatIf(replay, ROUND)
        for client in (what_if.cohort[0], what_if.cohort[-1]):
            away = {"name": "absent", "who": [client], "first": ROUND, "last": ROUND}
            experiment = small(**{**HALF, **changes, "faults": [*changes.get("faults", []), away]})
            real = Federation(experiment)
            list(each_round(real, ROUND))
            found = what_if.without(client)
            for one, other in zip(found, real.servers, strict=True):
                assert torch.equal(one.model, other.model)
                assert torch.equal(one.buffers, other.buffers)
                assert all(torch.equal(one.state[key], other.state[key]) for key in other.state)
            assert not same(found, what_if.after)


def test_asynchronous(tmp_path):
    """A client that was away when it was sent the model has no update in the round in which it was due."""
    changes = {"clock": {"name": "asynchronous", "buffer": 2}}
    run = made(tmp_path, **changes)
    with replaying(run) as replay:
        what_if = WhatIf(replay, ROUND)
        client = what_if.cohort[0]
        sent = what_if.runner.known(client)
        version = sent.round if sent is not None else None
        found = what_if.without(client)
        rows = [row for row in run.records if row["name"] == "staleness" and row["round"] == ROUND]
        late = {row["client"]: int(row["value"]) for row in rows}[client]
        assert version in (None, ROUND - late)
        away = {"name": "absent", "who": [client], "first": ROUND - late, "last": ROUND - late}
        real = Federation(small(**{**HALF, **changes, "faults": [away]}))
        list(each_round(real, ROUND))
        assert torch.equal(found[0].model, real.servers[0].model)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_whole_cohort_and_nobody(name, tmp_path):
    """All updates give the round as it was, also after others were asked about; none gives the old model."""
    run = made(tmp_path, **SETTINGS[name])
    with replaying(run) as replay:
        what_if = WhatIf(replay, 2)
        what_if.without(what_if.cohort[0])
        what_if.among(what_if.cohort[:1])
        assert same(what_if.among(what_if.cohort), what_if.after)
        nobody = what_if.among([])
        assert all(one.model.equal(other.model) for one, other in zip(nobody, what_if.before, strict=True))
        replay.advance()  # which compares with what the run has recorded
        assert same(replay.federation.servers, what_if.after)


def test_by_hand(tmp_path):
    """Plain averages: without client k, the others' updates by their samples, from the model before."""
    run = made(tmp_path)
    with replaying(run) as replay:
        what_if = WhatIf(replay, 2)
        left = what_if.cohort[1:]
        (server,), replies = what_if.before, [what_if.runner.known(client) for client in left]
        total = sum(reply.samples for reply in replies)
        expected = server.model + sum(reply.samples / total * reply.delta for reply in replies)
        assert torch.allclose(what_if.without(what_if.cohort[0])[0].model, expected, atol=1e-6)


def test_the_only_client(tmp_path):
    """Without the only client of a cohort, another one is asked, as in a run."""
    run = made(tmp_path, participation=0.125)
    with replaying(run) as replay:
        what_if = WhatIf(replay, 2)
        (client,) = what_if.cohort
        away = {"name": "absent", "who": [client], "first": 2, "last": 2}
        real = Federation(small(**{**HALF, "participation": 0.125, "faults": [away]}))
        list(each_round(real, 2))
        assert torch.equal(what_if.without(client)[0].model, real.servers[0].model)
        assert what_if.among([])[0].model.equal(what_if.before[0].model)
