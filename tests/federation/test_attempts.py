"""Rounds with too few updates: repeated with others, then the run pauses and can be resumed."""

import math
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import mnemos
from mnemos.engines.engine import Lost
from mnemos.engines.serial import Serial, SerialRunner
from mnemos.errors import ConfigError, DivergedError, PausedError
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from mnemos.runs.execute import Silent, resume
from mnemos.runs.left_out import left_out
from support.bits import assert_same_bits


def experiment(**changes):
    return Experiment.parse(
        {
            "partition": {"name": "iid", "clients": 12},
            "model": {"name": "mlp", "hidden": [8]},
            "participation": 0.25,
            "local": {"steps": 2, "batch": 16, "lr": 0.1},
            "rounds": 3,
            "engine": "serial",
            **changes,
        }
    )


class Spoiling(SerialRunner):
    """An engine that makes something else of what some clients send."""

    spoil = staticmethod(lambda update: update)

    def run(self, cohort):
        return map(self.spoil, super().run(cohort))


def spoilt_by(federation, spoil):
    runner = Spoiling(federation.experiment.engine, federation.plan, federation.dataset)
    runner.spoil = spoil
    return runner


def names(outcome, word):
    return [(one.name, one.client) for one in outcome.records if one.name.startswith(word)]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"round": 7}, "of another round"),
        ({"client": 99}, "of another client"),
        ({"delta": torch.zeros(3)}, "wrong shape"),
        ({"samples": 10**9}, "wrong counts"),
        ({"loss": math.nan}, "not finite"),
        ({"loss": 1e308}, "not finite"),
    ],
)
def test_a_flawed_update_is_recorded_and_never_reaches_the_aggregate(changes, reason):
    """The round is that of the others, bit for bit: as if the client had vanished."""
    federation, other = Federation(experiment()), Federation(experiment())
    bad = int(federation.cohort(1)[1])
    outcome = federation.advance(
        spoilt_by(federation, lambda update: replace(update, **changes) if update.client == bad else update)
    )
    other.advance(spoilt_by(other, lambda update: Lost(bad, "gone") if update.client == bad else update))
    assert names(outcome, "rejected") == [(f"rejected: {reason}", bad)]
    assert torch.equal(federation.server.model, other.server.model)
    federation.close()
    other.close()


def test_an_answer_of_the_round_before_is_recognised():
    """A client that answers with its update of an older round, as one that was late does."""
    federation = Federation(experiment(participation=1.0))
    old = {}

    def again(update):
        return old.setdefault(update.client, update) if update.client == 4 else update

    runner = spoilt_by(federation, again)
    first, second = federation.advance(runner), federation.advance(runner)
    federation.close()
    assert names(first, "rejected") == []
    assert names(second, "rejected") == [("rejected: of another round", 4)]


def test_a_round_with_too_few_is_repeated_with_others():
    """Of the first cohort one client is left, of the second all: the round is theirs alone."""
    description = experiment(min_clients=2)
    federation = Federation(description)
    first = federation.cohort(1).tolist()
    asked = []

    def lose(update):
        asked.append(update.client)
        return Lost(update.client, "gone") if update.client in first[:2] else update

    outcome = federation.advance(spoilt_by(federation, lose))
    second = asked[3:]
    assert asked[:3] == first
    assert len(second) == 3
    assert set(second).isdisjoint(first)
    assert names(outcome, "dropped") == [("dropped: gone", client) for client in first[:2]]
    assert [one.value for one in outcome.records if one.name == "repeated"] == [1.0]
    trained = {one.client for one in outcome.records if one.name == "train_loss"} - {None}
    assert trained == set(second)
    (sent,) = [one.value for one in outcome.records if one.name == "bytes_up"]
    assert sent == 4 * federation.layout.size * 4  # also of the one that came for nothing
    alone = Federation(description)
    alone.population.cohort = lambda number: np.array(second)
    alone.advance(spoilt_by(alone, lambda update: update))
    assert torch.equal(alone.server.model, federation.server.model)
    federation.close()
    alone.close()


def test_when_everybody_was_tried_all_are_asked_again():
    """With all clients in a round there are no others; whoever was lost may be back."""
    federation = Federation(experiment(participation=1.0, min_clients=12))
    asked = []

    def lose_once(update):
        asked.append(update.client)
        return (
            Lost(update.client, "gone") if asked.count(update.client) == 1 and update.client == 5 else update
        )

    outcome = federation.advance(spoilt_by(federation, lose_once))
    federation.close()
    assert asked == [*range(12), *range(12)]
    assert names(outcome, "dropped") == [("dropped: gone", 5)]


def test_a_retry_that_finds_no_client_to_ask_is_no_success():
    """With Poisson selection, a draw of the clients that are left can be empty; with this seed it is."""
    federation = Federation(experiment(selection="poisson", retries=1, seed=188))
    assert len(federation.cohort(1))
    assert not len(federation.population.others(1, 1, federation.cohort(1)))
    with pytest.raises(PausedError, match=r"round 1 came to too few updates in 2 attempts .* dropped: gone$"):
        federation.advance(spoilt_by(federation, lambda update: Lost(update.client, "gone")))
    assert federation.round == 0
    federation.close()


def test_a_round_whose_first_draw_is_empty_passes_without_an_update():
    federation = Federation(experiment(selection="poisson", retries=1))
    federation.population.cohort = lambda number: np.zeros(0, np.int64)
    first = federation.server.model
    federation.advance(spoilt_by(federation, lambda update: update))
    federation.close()
    assert federation.round == 1
    assert torch.equal(federation.server.model, first)


def test_a_substitute_trains_on_the_task_that_is_due():
    """All tasks last two rounds, and lazy clients move on when they are selected. In round 3 the cohort is
    lost, and the clients that are asked instead take their second task, as the cohort would have."""
    stream = {"name": "tasks", "tasks": 5, "spread": 0, "advance": "lazy"}
    federation = Federation(experiment(stream=stream, rounds=10, retries=1))
    flow, lost, seen = federation.flow, federation.cohort(3).tolist(), {}

    class Noting(Spoiling):
        def run(self, cohort):
            requests = list(cohort)
            seen.update({one.client: one for one in requests if one.round == 3})
            return super().run(requests)

    runner = Noting(federation.experiment.engine, federation.plan, federation.dataset)
    runner.spoil = lambda one: Lost(one.client, "gone") if one.round == 3 and one.client in lost else one
    for _ in range(3):
        federation.advance(runner)
    federation.close()
    assert len(seen) == 2 * len(lost)
    for client, request in seen.items():
        orders = federation.flow.timeline(np.array([client]))[0]
        second = next(task for task in orders if task != orders[0])
        assert set(federation.dataset.train.labels[request.samples].tolist()) <= set(flow.tasks[second])
        assert np.flatnonzero(request.present).tolist() == sorted(flow.tasks[second])
        assert request.met.sum() == 4
        assert flow.task(client, 3) == (second if client in lost else orders[0])


def test_states_of_a_lost_attempt_are_forgotten():
    """SCAFFOLD's control variates are those of the clients that count, as if nobody else had trained."""
    federation = Federation(experiment(min_clients=3, method="scaffold"))
    first = federation.cohort(1).tolist()
    federation.advance(
        spoilt_by(federation, lambda one: Lost(one.client, "gone") if one.client == first[2] else one)
    )
    federation.close()
    assert not any(client in federation.client_states for client in first)


def test_simulated_time_passes_in_attempts_that_are_given_up():
    clock = {"name": "synchronous", "speeds": {"spread": 0.5}}
    federation = Federation(experiment(min_clients=3, clock=clock))
    pace, first = federation.population.pace, federation.cohort(1).tolist()
    lost = spoilt_by(federation, lambda one: Lost(one.client, "gone") if one.client == first[0] else one)
    outcome = federation.advance(lost)
    federation.close()
    trained = [one.client for one in outcome.records if one.name == "train_loss" and one.client is not None]
    (time,) = [one.value for one in outcome.records if one.name == "time"]
    slowest = [max(pace.duration(client, 1) for client in several) for several in (first[1:], trained)]
    assert time == sum(slowest)


def test_updates_that_are_never_finite_are_divergence():
    federation = Federation(experiment())
    runner = spoilt_by(federation, lambda update: replace(update, delta=update.delta * math.inf))
    with pytest.raises(DivergedError, match="round 1: what clients send is not finite any more"):
        federation.advance(runner)
    federation.close()


@pytest.mark.parametrize(("astray", "error"), [(6, PausedError), (7, DivergedError)])
def test_it_takes_more_than_half_of_those_asked_to_diverge(astray, error):
    """All twelve are asked three times. From six comes nothing finite, from the others nothing at all: they
    may be away, and the six bad. Of seven, it is divergence."""
    federation = Federation(experiment(participation=1.0))

    def spoil(update):
        return replace(update, loss=math.nan) if update.client < astray else Lost(update.client, "gone")

    with pytest.raises(error, match="not finite"):
        federation.advance(spoilt_by(federation, spoil))
    federation.close()


def test_one_who_sends_something_else_makes_it_a_pause():
    federation = Federation(experiment())
    odd = int(federation.cohort(1)[0])

    def spoil(update):
        return replace(update, round=9) if update.client == odd else replace(update, loss=math.nan)

    with pytest.raises(PausedError, match=r"8 rejected: not finite, 1 rejected: of another round"):
        federation.advance(spoilt_by(federation, spoil))
    federation.close()


@pytest.mark.parametrize("slots", [1, 4])
def test_an_asynchronous_federation_diverges_when_nothing_finite_comes(slots):
    """After as many updates as three cohorts would have, but ten at least."""
    clock = {"name": "fedasync", "concurrency": slots}
    federation = Federation(experiment(clock=clock, rounds=50))
    runner = spoilt_by(federation, lambda update: replace(update, loss=math.nan))
    for _ in range((12 if slots == 4 else 10) - 1):
        federation.advance(runner)
    with pytest.raises(DivergedError, match="not finite any more"):
        federation.advance(runner)
    federation.close()


@pytest.mark.parametrize(("astray", "ends"), [(1, False), (6, False), (7, True)])
def test_an_asynchronous_federation_waits_for_those_who_are_not_heard_of(astray, ends):
    """Of twelve under way at a time, all but some vanish; ten updates that aren't finite are due by then."""
    clock = {"name": "fedasync", "concurrency": 12}
    federation = Federation(experiment(clock=clock, retries=0))

    def spoil(update):
        return replace(update, loss=math.nan) if update.client < astray else Lost(update.client, "gone")

    runner, first = spoilt_by(federation, spoil), federation.server.model
    with pytest.raises(DivergedError) if ends else nullcontext():
        for _ in range(12 * 12):
            federation.advance(runner)
    federation.close()
    assert torch.equal(federation.server.model, first)
    assert dict(federation.server.protocol["spoilt"].tolist()).keys() == set(range(12))


@pytest.mark.parametrize("peers", [False, True])
def test_several_models(peers):
    """Peers and mixed models: the clients of all of them count, and are repeated together."""
    of = [{"model": {"name": "mlp", "hidden": [width]}, "share": 0.5} for width in (8, 6)]
    description = experiment(
        participation=0.5, min_clients=6, model={"name": "mixed", "of": of, "peers": peers}
    )
    federation = Federation(description)
    first, before = federation.cohort(1).tolist(), federation.server.model
    federation.checks = (lambda update, layout: "no" if update.client == first[3] else None,)
    with federation.open() as runner:
        outcome = federation.advance(runner)
    federation.close()
    assert names(outcome, "rejected") == [("rejected: no", first[3])]
    assert not torch.equal(federation.server.model, before)
    trained = {one.client for one in outcome.records if one.name == "train_loss"} - {None}
    assert trained == set(range(12)) - set(first)


class Flaky(Serial):
    """Loses every client of the second round as long as a file is there."""

    flag: str

    def open(self, plan, dataset, work):
        runner = Spoiling(self, plan, dataset)
        runner.spoil = self._lose
        return runner

    def _lose(self, update):
        gone = update.round == 2 and Path(self.flag).exists()
        return Lost(update.client, "gone") if gone else update


def test_a_run_pauses_and_ends_like_one_that_never_had_to(tmp_path):
    """Whoever was lost is back: nothing of the failed attempts is left in the run."""
    flag = tmp_path / "flag"
    description = experiment(engine={"name": "test_attempts:Flaky", "flag": str(flag)})
    whole = mnemos.run(description, out=tmp_path / "whole")
    flag.touch()
    observer = Silent()
    with pytest.raises(
        PausedError, match=r"round 2 came to too few updates in 3 attempts .*: 9 dropped: gone"
    ):
        mnemos.run(description, out=tmp_path / "part", observer=observer)
    run = observer.run
    assert (run.status.status, run.status.rounds, run.saved_rounds) == ("paused", 1, 1)
    assert not run.ended
    with pytest.raises(PausedError, match="in 6 attempts"):
        resume(run.path)
    flag.unlink()
    resumed = resume(run.path)
    assert resumed.status.status == "finished"
    for name in ("model.safetensors", "metrics.jsonl"):
        assert resumed.file(name).read_bytes() == whole.file(name).read_bytes()


def test_attempts_failed_attempts_belong_to_their_round(tmp_path):
    """Round 2 has failed. Without its checkpoint the run falls back to before round 1, which has as many
    attempts as ever; round 2 then goes on with its own count."""
    flag = tmp_path / "flag"
    flag.touch()
    description = experiment(engine={"name": "test_attempts:Flaky", "flag": str(flag)})
    observer = Silent()
    with pytest.raises(PausedError, match="in 3 attempts"):
        mnemos.run(description, out=tmp_path, observer=observer)
    run = observer.run
    assert run.failed_attempts == (3, 2)
    federation = Federation(description)
    federation.retries.failed_attempts, federation.retries.failed_round = run.failed_attempts
    assert [len(list(federation.retries.attempts(number))) for number in (1, 2, 3)] == [3, 6, 3]
    federation.close()
    for path in run.file("checkpoints").glob("*"):
        path.unlink()
    with pytest.raises(PausedError, match="round 2 came to too few updates in 6 attempts"):
        resume(run.path)


class Stopping(Silent):
    """Looks at the status of a run as it goes on, and then interrupts it."""

    def started(self, run, experiment, round):
        super().started(run, experiment, round)
        self.seen = run.read_json("status.json")
        raise KeyboardInterrupt


def _interrupt(federation, runner):
    raise KeyboardInterrupt


def test_every_status_keeps_the_attempts_failed_attempts(tmp_path, monkeypatch):
    """That of a run that goes on, of one whose process was killed, and of one that was interrupted."""
    flag = tmp_path / "flag"
    flag.touch()
    description = experiment(engine={"name": "test_attempts:Flaky", "flag": str(flag)})
    observer = Silent()
    with pytest.raises(PausedError):
        mnemos.run(description, out=tmp_path, observer=observer)
    run, stopping = observer.run, Stopping()
    with pytest.raises(KeyboardInterrupt):
        resume(run.path, observer=stopping)
    assert (stopping.seen["status"], stopping.seen["failed_attempts"]) == ("running", 3)
    assert (run.status.status, run.failed_attempts) == ("interrupted", (3, 2))
    with monkeypatch.context() as patch:
        patch.setattr(Federation, "advance", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            resume(run.path)
    assert run.read_json("status.json")["status"] == "interrupted"
    assert run.failed_attempts == (3, 2)
    with pytest.raises(PausedError, match="in 6 attempts"):
        resume(run.path)
    flag.unlink()
    assert resume(run.path).status.status == "finished"


def test_the_status_of_an_earlier_version_counts_for_the_next_round(tmp_path):
    flag = tmp_path / "flag"
    flag.touch()
    observer = Silent()
    with pytest.raises(PausedError):
        mnemos.run(
            experiment(engine={"name": "test_attempts:Flaky", "flag": str(flag)}),
            out=tmp_path,
            observer=observer,
        )
    status = observer.run.read_json("status.json")
    del status["failed_round"]
    observer.run.write_json("status.json", status)
    assert observer.run.failed_attempts == (3, 2)


def test_a_simulated_run_goes_on_as_one_with_more_patience_would(tmp_path):
    """Drop-outs are drawn anew for each attempt, and a resume goes on with the attempts."""
    drops = {"faults": [{"name": "drop-outs", "rate": 0.5}], "min_clients": 3, "rounds": 2}
    patient = mnemos.run(experiment(**drops, retries=500), out=tmp_path / "patient")
    description = experiment(**drops, retries=3)
    observer = Silent()
    pauses = 0
    try:
        mnemos.run(description, out=tmp_path / "part", observer=observer)
    except PausedError:
        pauses = 1
    while observer.run.status.status == "paused":
        try:
            resume(observer.run.path)
        except PausedError:
            pauses += 1
    assert pauses > 0
    assert_same_bits([observer.run, patient])
    found = left_out(patient.records)
    assert found.repeated > 3
    assert found.reasons["dropped"] > found.repeated
    assert found.rounds == 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"min_clients": 4}, "min_clients: found 4, and a round has 3 clients"),
        ({"min_clients": 0}, "min_clients: found 0"),
        ({"min_clients": 2, "clock": "fedasync"}, "min_clients: found 2; an asynchronous server"),
        ({"retries": -1}, "retries: found -1"),
    ],
)
def test_what_can_not_be_is_one_sentence(changes, words):
    with pytest.raises(ConfigError, match=words):
        Federation(experiment(**changes))
