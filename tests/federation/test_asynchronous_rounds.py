"""Federations under clocks: what arrives is applied, nothing else changes."""

from functools import partial

import numpy as np
import pytest
import torch

import mnemos
from mnemos.engines.engine import Runner
from mnemos.errors import ConfigError
from mnemos.experiment.experiment import Experiment
from mnemos.experiment.overrides import parse_yaml
from mnemos.federation.federation import Federation
from mnemos.methods.method import methods
from mnemos.runs.execute import resume
from support.interrupt import Stop
from support.play import play as play_all

BASE = {
    "partition": {"name": "label-dirichlet", "clients": 8, "alpha": 0.5},
    "model": {"name": "mlp", "hidden": [8]},
    "local": {"batch": 16, "lr": 0.1},
    "participation": 0.5,
    "rounds": 6,
    "evaluate": {"every": 3, "test_last": 1},
    "engine": "serial",
}
SPEEDS = {"spread": 0.7, "jitter": 0.1, "stragglers": {"share": 0.2}}


def play(count=6, /, checks=(), spy=None, **changes):
    """A federation after some rounds, and what they left behind."""
    return play_all(Experiment.parse({**BASE, "rounds": count, **changes}), count, checks, spy)


def values(outcomes, name):
    """Of each round: the federation's number, or that of each client."""
    found = []
    for outcome in outcomes:
        records = [record for record in outcome.records if record.name == name]
        alone = [record.value for record in records if record.client is None]
        found.append(alone[0] if alone else {record.client: record.value for record in records})
    return found


def same(one, other):
    """Bit for bit: the model, its buffers, and what clients remember."""
    pairs = [(one.server.model, other.server.model), (one.server.buffers, other.server.buffers)]
    for client in range(8):
        assert (client in one.client_states) == (client in other.client_states)
        if client in one.client_states:
            pairs += zip(
                one.client_states[client].values(), other.client_states[client].values(), strict=True
            )
    return all(torch.equal(mine, theirs) for mine, theirs in pairs)


# without a clock, and with one that only looks on


def test_rounds_have_no_time():
    federation, outcomes = play(2)
    assert {record.name for o in outcomes for record in o.records}.isdisjoint({"time", "staleness"})
    assert {name.partition(".")[0] for name in federation.server.screens} == {"guard"}
    assert not federation.server.protocol


def test_a_synchronous_round_takes_as_long_as_its_slowest_client():
    """Clients 0 to 7 with times 1 to 8 and two steps each: 16 a round, if all are in it."""
    clock = {"name": "synchronous", "speeds": {"times": {k: k + 1 for k in range(8)}}}
    local = {**BASE["local"], "steps": 2}
    _, outcomes = play(3, clock=clock, local=local, participation=1.0)
    assert values(outcomes, "time") == [16, 32, 48]
    federation, outcomes = play(6, clock=clock, local=local)
    slowest = [2 * (federation.cohort(number).max() + 1) for number in range(1, 7)]
    assert values(outcomes, "time") == np.cumsum(slowest).tolist()


def test_time_goes_by_epochs_too():
    federation, outcomes = play(1, clock="synchronous", local={"batch": 16, "epochs": 3})
    sizes = federation.assignment.train_sizes()[federation.cohort(1)]
    assert values(outcomes, "time") == [3 * max(-(-size // 16) for size in sizes.tolist())]


@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
def test_a_synchronous_clock_changes_nothing(method):
    plain, before = play(4, method=method)
    timed, after = play(4, method=method, clock={"name": "synchronous", "speeds": SPEEDS})
    assert same(timed, plain)
    assert all(set(one.records) <= set(other.records) for one, other in zip(before, after, strict=True))


def test_nobody_waits_for_a_client_that_vanishes():
    clock = {"name": "synchronous", "speeds": {"times": {k: k + 1 for k in range(8)}}}
    faults = [{"name": "drop-outs", "rate": 0.6}]
    _, outcomes = play(6, clock=clock, faults=faults, local={"steps": 1}, participation=1.0)
    heard = [set(losses) for losses in map(dict, _by_client(outcomes, "train_loss"))]
    expected = np.cumsum([max((k + 1 for k in clients), default=0) for clients in heard])
    assert values(outcomes, "time") == expected.tolist()
    assert any(7 not in clients for clients in heard)


def _by_client(outcomes, name):
    return [
        {r.client: r.value for r in o.records if r.name == name and r.client is not None} for o in outcomes
    ]


@pytest.mark.parametrize("peers", [False, True])
def test_mixed_models_have_one_time(peers):
    of = [{"model": {"name": "mlp", "hidden": [6]}}, {"model": {"name": "mlp", "hidden": [9]}}]
    model = {"name": "mixed", "of": of, "peers": peers}
    clock = {"name": "synchronous", "speeds": {"times": {k: k + 1 for k in range(8)}}}
    _, outcomes = play(3, clock=clock, model=model, local={"steps": 1}, participation=1.0)
    assert values(outcomes, "time") == [8, 16, 24]


# what an asynchronous federation does


def test_staleness_and_time_are_recorded():
    """Times 2, 3 and 7, as in test_traffic."""
    clock = {"name": "asynchronous", "speeds": {"times": {0: 2, 1: 3, 2: 7}}}
    partition = {"name": "iid", "clients": 3}
    federation, outcomes = play(8, clock=clock, partition=partition, local={"steps": 1}, participation=1.0)
    assert values(outcomes, "time") == [2, 3, 4, 6, 6, 7, 8, 9]
    assert values(outcomes, "staleness") == [{0: 0}, {1: 1}, {0: 1}, {1: 1}, {0: 1}, {2: 5}, {0: 1}, {1: 3}]
    # All three are sent the model at first, later those whose place is free: after each round, for the next.
    size = 4 * len(federation.server.model)
    assert values(outcomes, "bytes_down") == [3 * size] + [size] * 7
    assert values(outcomes, "bytes_up") == [size] * 8


SYNCHRONOUS = [
    {"method": "fedavg"},
    {"method": {"name": "scaffold", "loss": "wsm", "buffers": "local"}},
    {"method": "fedopt", "local": {"batch": 16, "optimizer_state": "kept", "optimizer": "adam", "lr": 0.01}},
]


@pytest.mark.parametrize("applies", ["change", "model"])
@pytest.mark.parametrize("changes", SYNCHRONOUS, ids=["fedavg", "scaffold", "fedopt"])
def test_synchronous_rounds_are_a_special_case(changes, applies):
    """Bit for bit: all clients in the buffer, whatever their speeds, with batch-norm's buffers too."""
    changes = {"model": {"name": "mlp", "hidden": [8], "norm": "batch"}, "participation": 1.0, **changes}
    clock = {"name": "asynchronous", "buffer": 8, "applies": applies, "speeds": SPEEDS}
    plain, before = play(4, **changes)
    waiting, after = play(4, clock=clock, **changes)
    assert same(waiting, plain)
    for name in ("train_loss", "validation_accuracy", "test_accuracy", "bytes_up", "bytes_down"):
        assert values(before, name) == values(after, name)


def test_synchronous_rounds_of_some_clients_are_a_special_case():
    """If all take the same time, the buffer is full when all are back."""
    local = {"batch": 16, "steps": 3, "lr": 0.1}
    plain, _ = play(5, local=local)
    waiting, outcomes = play(5, local=local, clock={"name": "asynchronous", "buffer": 4})
    assert same(waiting, plain)
    assert values(outcomes, "time") == [3, 6, 9, 12, 15]
    assert {late for of in values(outcomes, "staleness") for late in of.values()} == {0}


@pytest.mark.parametrize("clock", ["fedasync", {"name": "fedbuff", "buffer": 3}])
def test_the_engine_does_not_matter(clock):
    clock = {**({"name": clock} if isinstance(clock, str) else clock), "speeds": SPEEDS}
    one, first = play(9, clock=clock, method="scaffold")
    again, _ = play(9, clock=clock, method="scaffold")
    several, second = play(9, clock=clock, method="scaffold", engine={"name": "threads", "workers": 3})
    batched, third = play(9, clock=clock, method="scaffold", engine="vmap")
    assert same(again, one)
    assert same(several, one)
    assert [o.records for o in first] == [o.records for o in second]
    assert torch.allclose(batched.server.model, one.server.model, atol=1e-5)
    assert values(third, "staleness") == values(first, "staleness")
    other, _ = play(9, clock=clock, method="scaffold", seed=1)
    assert not torch.equal(other.server.model, one.server.model)


class Counting(Runner):
    """Writes down how large the cohorts are."""

    def __init__(self, sizes, runner):
        super().__init__(runner.engine, runner.plan)
        self.runner, self.sizes = runner, sizes

    def run(self, cohort):
        cohort = list(cohort)
        self.sizes.append(len(cohort))
        return self.runner.run(cohort)


def test_clients_are_computed_together_though_they_arrive_one_by_one():
    """Twelve updates of clients alike, four at a time: three cohorts of four."""
    sizes = []
    play(12, clock="fedasync", local={"steps": 1}, spy=partial(Counting, sizes))
    assert sizes == [4, 4, 4]


def test_stale_updates_have_their_way_with_batch_norm():
    """The server's statistics move by α s(τ), and stay those of a model that can be evaluated."""
    clock = {"name": "fedasync", "mixing": 0.25, "speeds": SPEEDS}
    model = {"name": "mlp", "hidden": [8], "norm": "batch"}
    federation, outcomes = play(20, clock=clock, model=model)
    assert torch.isfinite(federation.server.buffers).all()
    assert outcomes[-1].test.accuracy > 0.2


def test_clients_that_vanish_leave_their_place_to_others():
    faults = [{"name": "drop-outs", "rate": 0.4}]
    _, outcomes = play(20, clock="fedasync", faults=faults)
    dropped, used = _by_client(outcomes, "dropped"), _by_client(outcomes, "staleness")
    assert 3 < sum(map(len, dropped)) < 17
    assert all(len(gone) + len(came) == 1 for gone, came in zip(dropped, used, strict=True))
    federation, outcomes = play(3, clock="fedasync", faults=[{"name": "drop-outs", "rate": 1.0}])
    assert torch.equal(federation.server.model, Federation(federation.experiment).server.model)
    assert [outcome.round for outcome in outcomes] == [1, 2, 3]


def test_an_update_that_is_put_aside_leaves_the_model_as_it_is():
    checks = (lambda update, layout: "no" if update.round > 1 else None,)
    federation, outcomes = play(10, checks, clock="fedasync")
    rejected = [any(r.name == "rejected: no" for r in o.records) for o in outcomes]
    assert set(rejected) == {True, False}
    assert len(federation.client_states.index()[0]) == 0


def test_time_and_waiting_models_do_not_pile_up():
    federation, _ = play(30, clock={"name": "fedasync", "speeds": SPEEDS}, method="scaffold")
    names = list(federation.server.protocol)
    versions = {name.split(".")[1] for name in names if name.startswith("sent.")}
    waiting = {name.split(".")[1] for name in names if name.startswith("update.")}
    flying = {str(client) for client in federation.server.protocol["clients"].tolist()}
    assert len(flying) == 3  # the fourth place is given away when the next round begins
    assert len(versions) <= 3
    assert waiting <= flying


# with the rest


REFUSED = {"centralised", "fedcurv", "feddyn", "feder", "precision"}


@pytest.mark.parametrize("name", methods.names())
def test_every_method_works_or_is_refused(name):
    changes = {"method": name, "local": {"batch": 16, "steps": 1}}
    clock = {"name": "fedbuff", "buffer": 2, "speeds": SPEEDS}
    if name in REFUSED:
        with pytest.raises(ConfigError, match="clock"):
            play(1, clock=clock, **changes)
    else:
        federation, outcomes = play(3, clock=clock, **changes)
        assert torch.isfinite(federation.server.model).all()
        assert sum(map(len, values(outcomes, "staleness"))) == 6


def test_tasks_by_the_clock_go_by_the_servers_moves():
    """And what is discovered is what those who were sent a model have trained on."""
    stream = {"name": "tasks", "tasks": 5, "advance": "clock", "order": "natural", "spread": 0}
    federation, _ = play(10, clock="fedasync", stream=stream, partition={"name": "iid", "clients": 8})
    assert federation.flow.discovered(1).tolist() == [0]
    assert federation.flow.discovered(10).tolist() == [0, 1, 2, 3, 4]
    assert federation.cohort(1).tolist() == federation.population.schedule.cohort(1).tolist()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"model": {"name": "mixed", "of": [{"model": "mlp"}, {"model": "logistic"}]}}, "model: found mixed"),
        ({"stream": {"name": "tasks", "advance": "lazy"}}, "stream.advance: found lazy"),
        ({"method": "feder"}, "method.weighting: found effective-rank"),
        ({"method": {"name": "fedavg", "terms": ["curvature"]}}, "method: found curvature"),
        ({"method": "feddyn"}, "method: found feddyn"),
        ({"method": "fednova", "clock": "fedasync"}, "clock.applies: found model"),
        ({"method": "uga", "clock": "fedasync"}, "clock.applies: found model"),
        ({"method": "centralised"}, "clock: it times clients"),
        ({"method": "centralised", "clock": "synchronous"}, "clock: it times clients"),
        ({"screens": ["norms", "free-riders"]}, "screens: found free-riders, made for clients that are sent"),
        ({"faults": ["free-riders"]}, "faults: found free riders"),
        ({"evaluate": {"forgetting": 2}}, "evaluate.forgetting: found a measure"),
        ({"measures": ["task-forgetting"]}, "measures.task-forgetting: found a measure"),
        ({"clock": {"name": "fedbuff", "buffer": 9}}, "clock.buffer: found 9; allowed: at most 8"),
        ({"clock": {"name": "fedasync", "concurrency": 9}}, "clock.concurrency: found 9; allowed: at most 8"),
        ({"clock": {"name": "synchronous", "speeds": {"times": {8: 1}}}}, "clock.speeds.times: there is no"),
        ({"clock": {"name": "fedasync", "mixing": 0}}, "clock.mixing: found 0; allowed: > 0 and ≤ 1"),
        ({"clock": {"name": "fedasync", "buffer": 0}}, "clock.buffer: found 0; allowed: ≥ 1"),
        (
            {"clock": {"name": "fedasync", "staleness": "old"}},
            "clock.staleness: there is no staleness weight",
        ),
        ({"clock": {"name": "fedasync", "applies": "both"}}, "clock.applies: found 'both'; allowed"),
        ({"clock": "sundial"}, "clock: there is no clock 'sundial'"),
        ({"clock": {"speeds": {}}}, "clock.speeds: unknown field"),
    ],
)
def test_what_does_not_go_together(changes, sentence):
    with pytest.raises(ConfigError) as caught:
        Federation(Experiment.parse({**BASE, "clock": "asynchronous", **changes}))
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)


# on disk


def test_a_clock_is_written_and_read_again():
    clock = {"name": "fedbuff", "speeds": {"times": {3: 10}, "stragglers": {}}, "staleness": "hinge"}
    experiment = Experiment.parse({**BASE, "clock": clock})
    assert experiment.clock.speeds.times == {3: 10.0}
    assert Experiment.parse(parse_yaml(experiment.to_yaml())) == experiment
    assert experiment.override({"seed": 1}).clock == experiment.clock
    assert experiment.override({"clock.speeds.times.4": 2}).clock.speeds.times == {3: 10.0, 4: 2.0}


@pytest.mark.parametrize(
    ("clock", "engine"),
    [("fedasync", "vmap"), ("fedasync", "serial"), ("fedbuff", "vmap"), ("synchronous", "serial")],
)
def test_an_interrupted_run_ends_like_one_that_was_not(clock, engine, tmp_path):
    """Bit for bit, wherever it stops: with nobody, some or all of those under way computed."""
    options = {"name": clock, "speeds": SPEEDS, **({"buffer": 3} if clock == "fedbuff" else {})}
    description = {
        **BASE,
        "rounds": 7,
        "model": {"name": "mlp", "hidden": [8], "norm": "batch"},
        "method": {"name": "scaffold", "buffers": "local"},
        "clock": options,
        "engine": engine,
    }
    whole = mnemos.run(description, out=tmp_path / "whole")
    for stop in (1, 3):
        folder = tmp_path / str(stop)
        with pytest.raises(KeyboardInterrupt):
            mnemos.run(description, out=folder, observer=Stop(after=stop))
        (path,) = folder.iterdir()
        run = resume(path)
        for name in ("metrics.jsonl", "model.safetensors"):
            assert run.file(name).read_bytes() == whole.file(name).read_bytes()
