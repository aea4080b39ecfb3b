"""Federations that promise something about their clients' data: what they do, refuse, record and end with."""

from __future__ import annotations

import math
from contextlib import suppress

import numpy as np
import pytest
import torch

from mnemos.client.messages import reply_from_bytes
from mnemos.client.trainer import train_message
from mnemos.common import rng
from mnemos.data.partition import Partition
from mnemos.engines.engine import Lost
from mnemos.engines.serial import SerialRunner
from mnemos.errors import ConfigError, PausedError
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from mnemos.privacy.gaussian import SECRET, clipped
from mnemos.runs.execute import resume, start
from mnemos.runs.run import Run
from mnemos.selection import Selection
from mnemos.vector import square_sum
from support.bits import assert_same_bits
from support.interrupt import Stop
from support.play import noting, play
from support.private import NOISE, private

CLIP = NOISE["clip"]


def experiment(privacy=NOISE, **changes):
    return private(changes, privacy=privacy)


def values(outcomes, name):
    found = [record.value for outcome in outcomes for record in outcome.records if record.name == name]
    return [value for value in found if not math.isnan(value)]


# --- what a round does --------------------------------------------------------------------------------


def test_a_round_by_hand():
    """x + 1/m (Σ Δₖ min(1, C / ‖Δₖ‖) + z C n): m = 4 are expected, whoever comes; Δₖ is what the same client
    sends without privacy."""
    private, plain = [], []
    federation, _ = play(experiment(rounds=1), checks=(noting(private),))
    play(experiment("none", rounds=1), checks=(noting(plain),))
    assert [one.client for one in private] == [one.client for one in plain]
    noise = rng.normal(federation.layout.size + 1, 0, "privacy", 1)[:-1]
    total = sum(clipped(one.delta, CLIP)[0] for one in plain)
    assert sum(math.sqrt(square_sum(one.delta)) > CLIP for one in plain) > 0
    assert all(math.sqrt(square_sum(one.delta)) <= CLIP for one in private)
    start = Federation(experiment()).server.model
    expected = start + (total + 2.0 * CLIP * noise) / 4
    torch.testing.assert_close(federation.server.model, expected)


def test_the_server_step_gets_the_noisy_mean():
    """A server that goes half of the way goes half of the way."""
    whole, _ = play(experiment(rounds=1))
    half, _ = play(experiment(rounds=1, **{"method.server": {"name": "sgd", "lr": 0.5}}))
    begin = Federation(experiment()).server.model
    torch.testing.assert_close(half.server.model - begin, (whole.server.model - begin) / 2)


ADAPTIVE = {**NOISE, "adaptive": {}, "noise": 0.5}
AT_CLIENTS = {**ADAPTIVE, "at": "clients"}


@pytest.mark.parametrize("privacy", [NOISE, ADAPTIVE, AT_CLIENTS], ids=["fixed", "adaptive", "at clients"])
def test_engines_agree_bit_for_bit(privacy):
    one, _ = play(experiment(privacy))
    other, _ = play(experiment(privacy, engine={"name": "threads", "workers": 2}))
    assert torch.equal(one.server.model, other.server.model)
    assert one.server.tensors.keys() == other.server.tensors.keys()
    assert all(torch.equal(value, other.server.tensors[name]) for name, value in one.server.tensors.items())
    vectorised, _ = play(experiment(privacy, engine="vmap"))
    torch.testing.assert_close(vectorised.server.model, one.server.model, atol=1e-4, rtol=1e-4)


class ByBytes(SerialRunner):
    """Clients in another place."""

    def run(self, cohort):
        for task in cohort:
            yield reply_from_bytes(train_message(task.to_bytes()))


def test_a_client_far_away_does_the_same():
    here, _ = play(experiment(AT_CLIENTS, rounds=2))
    there = Federation(experiment(AT_CLIENTS, rounds=2))
    with there.open() as runner:
        far = ByBytes(runner.engine, runner.plan, there.dataset)
        for _ in range(2):
            there.advance(far)
    there.close()
    assert torch.equal(here.server.model, there.server.model)


class LosesAll(SerialRunner):
    """Nobody is ever heard of."""

    def run(self, cohort):
        yield from (Lost(task.client, "timeout") for task in cohort)


@pytest.mark.parametrize("at", ["server", "clients"])
def test_a_round_without_anybody_is_a_round_of_noise(at):
    """As many rounds as others cost, and the same noise: N(0, (z C / m)²) in every parameter, P ± 5 √(2P)."""
    federation = Federation(experiment({**NOISE, "at": at}))
    before = federation.server.model
    with federation.open() as runner:
        outcome = federation.advance(LosesAll(runner.engine, runner.plan, federation.dataset))
    federation.close()
    moved, size = federation.server.model - before, federation.layout.size
    assert abs(square_sum(moved) / (2.0 * CLIP / 4) ** 2 - size) < 5 * math.sqrt(2 * size)
    assert values([outcome], "epsilon") == [federation.guarantee.epsilon(1)]


def test_cohorts_of_nobody_are_rounds_like_others():
    """One of eight on average: a third of the rounds has nobody."""
    forgetting = {"evaluate.forgetting": 1, "participation": 0.125, "rounds": 12}
    federation, outcomes = play(experiment(**forgetting))
    sizes = [len(federation.cohort(number)) for number in range(1, 13)]
    assert min(sizes) == 0
    assert max(sizes) > 1
    assert [math.isnan(outcome.loss) for outcome in outcomes] == [not size for size in sizes]
    assert len(values(outcomes, "epsilon")) == 12


def test_who_vanishes_or_is_rejected_counts_as_nothing():
    """The denominator stays: without the only client's update the model moves by noise alone."""

    def refuse(update, layout):
        return "not today" if update.client != 3 else None

    federation, _ = play(experiment(rounds=1, participation=1.0), checks=(refuse,))
    updates = []
    play(experiment(rounds=1, participation=1.0), checks=(noting(updates),))
    (third,) = [one.delta for one in updates if one.client == 3]
    noise = rng.normal(federation.layout.size + 1, 0, "privacy", 1)[:-1]
    begin = Federation(experiment()).server.model
    torch.testing.assert_close(federation.server.model, begin + (third + 2.0 * CLIP * noise) / 8)


def test_if_all_are_rejected_there_is_noise():
    federation, outcomes = play(experiment(rounds=2), checks=(lambda update, layout: "not today",))
    moved = 4 * (federation.server.model - Federation(experiment()).server.model)
    noise = sum(rng.normal(federation.layout.size + 1, 0, "privacy", number)[:-1] for number in (1, 2))
    torch.testing.assert_close(moved, 2.0 * CLIP * noise, atol=1e-6, rtol=1e-5)
    assert len(values(outcomes, "epsilon")) == 2


def test_a_round_is_never_repeated_with_others():
    """Whatever became of its clients; with more than one needed, the run pauses, and asks the same again."""
    gone = {"name": "drop-outs", "rate": 1.0}
    _, outcomes = play(experiment(rounds=2, faults=[gone], retries=5))
    assert not values(outcomes, "repeated")
    federation = Federation(experiment(participation=1.0, faults=[gone], min_clients=2))
    with federation.open() as runner:
        for _ in range(2):
            with pytest.raises(PausedError, match=r"round 1 came to too few updates .*: 8 dropped"):
                federation.advance(runner)
    federation.close()


def test_a_cohort_that_chance_made_small_is_enough(tmp_path):
    """Two on average: some rounds have one and some have nobody, none of whom is missing, and the run is the
    same as one that needs nobody."""
    few = {"participation": 0.25, "rounds": 12}
    run = start(experiment(**few, min_clients=2), tmp_path / "two")
    sizes = [len(Federation(experiment(**few)).cohort(number)) for number in range(1, 13)]
    assert {0, 1} < set(sizes)
    assert (run.status.status, run.status.rounds) == ("finished", 12)
    same = start(experiment(**few), tmp_path / "one")
    assert_same_bits([run, same])


def test_if_one_of_a_small_cohort_is_lost_the_run_pauses():
    """Two are wanted, and the only one that was drawn isn't heard of."""
    federation = Federation(experiment(participation=0.25, rounds=12, min_clients=2))
    number = next(number for number in range(1, 13) if len(federation.cohort(number)) == 1)
    federation.round = number - 1
    with federation.open() as runner:
        lost = LosesAll(runner.engine, runner.plan, federation.dataset)
        with pytest.raises(PausedError, match=f"round {number} came to too few .*: 1 dropped: timeout"):
            federation.advance(lost)
        federation.advance(runner)
    federation.close()
    assert federation.round == number


def test_drop_outs_are_drawn_anew_when_a_paused_run_goes_on(tmp_path):
    """Of the same clients: whoever is heard of was in the round from the start. However it is interrupted,
    a round is the first try that came to enough."""
    drops = {"faults": [{"name": "drop-outs", "rate": 0.5}], "min_clients": 3, "selection": "uniform"}
    patient, outcomes, pauses = Federation(experiment(**drops)), [], 0
    with patient.open() as runner:
        while patient.round < 3:
            try:
                outcomes.append(patient.advance(runner))
            except PausedError:
                pauses += 1
                assert pauses < 100
    patient.close()
    assert pauses > 1
    for outcome in outcomes:
        asked = {one.client for one in outcome.records if one.name in ("train_loss", "dropped")} - {None}
        assert asked == set(patient.cohort(outcome.round).tolist())
        assert sum(one.name == "dropped" for one in outcome.records) <= 1
    observer, seen = Stop(99), 0
    with pytest.raises(PausedError):
        start(experiment(**drops), tmp_path, observer)
    while observer.run.status.status == "paused":
        seen += 1
        assert seen <= pauses
        with suppress(PausedError):
            resume(observer.run.path)
    assert (observer.run.status.status, seen) == ("finished", pauses)
    found = observer.run.model().state_dict()
    expected = patient.layout.state_dict(patient.server.model, patient.server.buffers)
    assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_free_riders_are_clipped_like_others():
    updates = []
    riders = {"name": "free-riders", "share": 1.0, "kind": "noise", "scale": 1e6}
    play(experiment(rounds=2, faults=[riders]), checks=(noting(updates),))
    assert updates
    assert all(math.sqrt(square_sum(one.delta)) <= CLIP for one in updates)


def test_a_secret_changes_noise_and_cohorts_and_can_be_used_again(monkeypatch):
    known, _ = play(experiment())
    models, cohorts = [], []
    for secret in ("a" * 32, "b" * 32, "a" * 32):
        monkeypatch.setenv(SECRET, secret)
        federation, _ = play(experiment({**NOISE, "secret": True}))
        models.append(federation.server.model)
        cohorts.append([federation.cohort(number).tolist() for number in range(1, 9)])
    assert torch.equal(models[0], models[2])
    assert cohorts[0] == cohorts[2]
    assert len({tuple(model.tolist()) for model in (known.server.model, *models)}) == 3
    assert cohorts[0] != cohorts[1]
    monkeypatch.delenv(SECRET)
    with pytest.raises(ConfigError, match=r"privacy.secret: .* isn't set"):
        Federation(experiment({**NOISE, "secret": True}))


# --- what is refused ----------------------------------------------------------------------------------


class Odd(Selection):
    """The first ones."""

    def select(self, eligible, count, rng):
        return np.arange(count)


ELSEWHERE = {
    "name": "elsewhere",
    "shape": [64],
    "kind": "float32",
    "classes": ["0", "1"],
    "mean": [0.0] * 64,
    "std": [1.0] * 64,
    "owners": [{"owner": name, "train": 10} for name in "abcdefgh"],
}


class Halves(Partition):
    """Half of the clients have one half of the classes."""

    def assign(self, labels, owners, rng):
        order = np.argsort(labels, kind="stable")
        return order, np.linspace(0, len(labels), self.clients + 1).astype(np.int64)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"method.weighting": "samples"},
            "method.weighting: found samples, .* with privacy: uniform",
        ),
        ({"method.weighting": "label-owners"}, "method.weighting: found label-owners"),
        ({"method.rule": "median"}, "method.rule: found median, .* allowed with privacy: mean"),
        ({"method.server": "gma"}, "method.server: found gma, which has a mean of its own"),
        ({"method.server": "fednova"}, "method.server: found fednova, which has a mean of its own"),
        ({"method.correction": "scaffold"}, "method: found scaffold, with which a client also sends "),
        ({"method.terms": ["curvature"]}, "method: found curvature, with which a client also sends "),
        ({"method.name": "centralised"}, "method: found centralised, which has no clients"),
        (
            {"model.norm": "batch"},
            "method.buffers: found average: .* allowed with privacy: leave-out, server, or a model without",
        ),
        ({"clock": "fedasync", "selection": "uniform"}, "clock: found fedasync, .* rounds, synchronous"),
        ({"screens": ["free-riders"]}, "screens: found some, which compare clients"),
        (
            {"model": {"name": "mixed", "of": [{"model": "mlp"}, {"model": "logistic"}]}},
            "model: found mixed; privacy is for one model",
        ),
        ({"selection": "test_guarantee:Odd"}, "selection: found test_guarantee:Odd, .* poisson, uniform"),
        (
            {
                "partition": {"name": "test_guarantee:Halves", "clients": 8},
                "stream": {"name": "tasks", "tasks": 2, "order": "same"},
            },
            "stream: who can be selected depends on which samples",
        ),
        ({"privacy.budget": 0.1}, r"privacy.budget: found 0.1, which allows no round: the first costs ε = 1"),
        (
            {"privacy.noise": None, "privacy.budget": 1e6},
            r"privacy.budget: found 1e\+06; allowed with noise: null, which takes 0.01 .* to 1.66e\+04",
        ),
        (
            {"stream": {"name": "tasks", "tasks": 2}, "privacy.budget": 2.2},
            "privacy.budget: .*, allows 2 of 3 rounds, and the stream tasks is laid out over all of them",
        ),
        ({"privacy.adaptive": {"noise": 0.5}}, "privacy.adaptive.noise: found 0.5"),
        (
            {"data": ELSEWHERE, "partition": "natural", "engine": "flower"},
            "privacy.secret: found false: .* allowed in a federation: true",
        ),
        (
            {
                "data": ELSEWHERE,
                "partition": "natural",
                "engine": "flower",
                "privacy.secret": True,
                "evaluate.forgetting": 1,
            },
            "evaluate.forgetting: found some, for which owners would be sent each other's models",
        ),
        (
            {
                "data": ELSEWHERE,
                "partition": "natural",
                "engine": "flower",
                "privacy.secret": True,
                "measures": ["task-forgetting"],
            },
            "measures: found task-forgetting, for which owners would be sent each other's models",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_would_break_the_promise_is_refused(changes, sentence):
    with pytest.raises(ConfigError, match=sentence):
        Federation(experiment(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"selection": "uniform"},
        {"method.name": "fedprox", "method.weighting": "uniform"},
        {"method.name": "feddyn", "method.weighting": "uniform"},
        {"method.server": "adam"},
        {"method.meta": {"samples": 20}},
        {"stream": "drift"},
        {"clock": "synchronous"},
        {"model.norm": "batch", "method.buffers": "leave-out"},
    ],
    ids=str,
)
def test_what_keeps_it_is_not(changes):
    federation, outcomes = play(experiment(rounds=1, **changes))
    assert bool(federation.server.model.isfinite().all())
    assert len(values(outcomes, "epsilon")) == 1


def test_poisson_cohorts_have_no_place_under_an_asynchronous_clock():
    with pytest.raises(ConfigError, match="selection: found poisson"):
        Federation(experiment("none", clock="fedbuff"))


def test_a_delta_that_is_too_large_is_warned_of():
    assert not Federation(experiment()).warnings
    (sentence,) = Federation(experiment({**NOISE, "delta": 0.2})).warnings
    assert sentence.startswith("privacy.delta: 0.2 isn't below 1 / 8, the number of clients")


# --- ε, the budget, and resuming ----------------------------------------------------------------------


def test_epsilon_is_recorded_after_every_round():
    federation, outcomes = play(experiment())
    expected = [federation.guarantee.accountant.epsilon(number) for number in (1, 2, 3)]
    assert values(outcomes, "epsilon") == expected
    assert values(outcomes, "clip") == [CLIP] * 3
    plain, without = play(experiment("none"))
    assert plain.guarantee is None
    assert not values(without, "epsilon")


def test_a_run_ends_when_its_budget_is_used_up(tmp_path):
    """With the last round it allows, tested, and with the same numbers as a run of so many rounds."""
    schedule = {"local.schedule": "cosine"}
    run = start(experiment({**NOISE, "budget": 2.4}, rounds=50, **schedule), tmp_path / "budget")
    status = run.status
    assert 1 < status.rounds < 10
    assert (status.status, run.ended) == ("finished", True)
    assert status.message == f"the privacy budget, ε = 2.4 at δ = 1e-05, allows {status.rounds} of 50 rounds"
    guarantee = Federation(experiment(rounds=50)).guarantee
    assert run.epsilon == guarantee.epsilon(status.rounds) <= 2.4 < guarantee.epsilon(status.rounds + 1)
    facts = run.read_json("privacy.json")
    assert (facts["delta"], facts["noise"], facts["rounds"]) == (1e-5, 2.0, status.rounds)
    same = start(experiment(rounds=status.rounds, **schedule), tmp_path / "same")
    assert run.file("metrics.jsonl").read_bytes() == same.file("metrics.jsonl").read_bytes()
    assert run.accuracy == same.accuracy is not None
    assert resume(run.path, rounds=60).status.rounds == status.rounds


def test_the_budget_s_word_comes_before_the_first_round():
    (sentence,) = Federation(experiment({**NOISE, "budget": 2.4}, rounds=50)).warnings
    assert sentence.startswith("the privacy budget, ε = 2.4 at δ = 1e-05, allows ")
    assert not Federation(experiment({**NOISE, "budget": 2.4}, rounds=2)).warnings


def test_noise_that_is_left_to_the_budget(tmp_path):
    wanted = {"name": "gaussian", "noise": None, "budget": 2.0}
    run = start(experiment(wanted, rounds=2), tmp_path)
    assert run.status.message == ""
    assert run.status.rounds == 2
    assert 1.98 < run.epsilon <= 2.0
    assert run.read_json("privacy.json")["noise"] > 1
    with pytest.raises(ConfigError, match="rounds: found 4; the noise is made to last for the run's 2"):
        resume(run.path, rounds=4)
    assert resume(run.path, rounds=2).status.rounds == 2


@pytest.mark.parametrize("privacy", [ADAPTIVE, AT_CLIENTS], ids=["server", "clients"])
def test_an_interrupted_run_ends_like_one_that_wasn_t(privacy, tmp_path):
    whole = start(experiment(privacy, rounds=4), tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        start(experiment(privacy, rounds=4), tmp_path / "broken", Stop(2))
    (path,) = (tmp_path / "broken").iterdir()
    again = resume(path)
    assert again.status == whole.status
    for name in ("metrics.jsonl", "model.safetensors", "privacy.json"):
        assert again.file(name).read_bytes() == whole.file(name).read_bytes()
    clips = whole.metrics[whole.metrics["name"] == "clip"]["value"].tolist()
    assert len(set(clips)) == 4


def test_an_experiment_with_privacy_survives_yaml():
    described = experiment(AT_CLIENTS)
    assert Experiment.parse(described.model_dump(mode="json")) == described
    assert described.plan.privacy == described.privacy


def test_runs_without_a_promise_have_no_epsilon(tmp_path):
    run: Run = start(experiment("none", rounds=1), tmp_path)
    assert run.epsilon is None
    assert not run.file("privacy.json").exists()
