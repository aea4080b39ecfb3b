"""Clients that vanish, and clients that only pretend."""

import math

import numpy as np
import pytest
import torch

from mnemos.engines.engine import Lost
from mnemos.engines.serial import SerialRunner
from mnemos.errors import ConfigError, PausedError
from mnemos.federation.federation import Federation
from support.interrupt import assert_repeatable
from support.play import each_round, noting, play, small


def named(outcome, name):
    return [record.client for record in outcome.records if record.name == name]


def test_who_vanishes_costs_nothing_but_its_update():
    """A round is that of the clients that are left: their mean, and no bytes of the others."""
    updates = []
    start = Federation(small()).server.model
    federation, (outcome,) = play(
        small(rounds=1, faults=[{"name": "drop-outs", "rate": 0.5}]), checks=(noting(updates),)
    )
    gone = named(outcome, "dropped")
    assert 0 < len(gone) < 8
    assert sorted(gone + [update.client for update in updates]) == list(range(8))
    assert set(gone).isdisjoint(named(outcome, "train_loss"))
    weights = torch.tensor([float(update.samples) for update in updates])
    mean = (torch.stack([update.delta for update in updates]) * weights[:, None]).sum(0) / weights.sum()
    torch.testing.assert_close(federation.server.model, start + mean)
    (sent,) = [record.value for record in outcome.records if record.name == "bytes_up"]
    assert sent == 4 * federation.layout.size * len(updates)
    assert not any(client in federation.client_states for client in gone)


@pytest.mark.parametrize("engine", ["serial", "threads", "vmap", "auto"])
def test_a_federation_in_which_all_vanish_pauses(engine):
    drops = {"name": "drop-outs", "rate": 1.0}
    federation = Federation(small(engine=engine, faults=[drops]))
    start = federation.server.model
    with federation.open() as runner, pytest.raises(PausedError, match=r"in 3 attempts .*: 24 dropped"):
        federation.advance(runner)
    federation.close()
    assert torch.equal(federation.server.model, start)
    assert federation.round == 0


@pytest.mark.parametrize("kind", ["unchanged", "noise", "replay"])
def test_what_a_free_rider_sends(kind):
    """By definition: nothing; noise of the size of the last change; or the last change, times the scale."""
    updates, models = [], []
    description = small(
        faults=[{"name": "free-riders", "share": 0.25, "kind": kind, "scale": 2.0}],
        method={"name": "fedavg", "weighting": "uniform"},
    )
    federation = Federation(description, checks=(noting(updates),))
    models.append(federation.server.model)
    for outcome in each_round(federation):
        models.append(federation.server.model)
        honest = set(named(outcome, "train_loss")) - {None}
    riders = set(range(8)) - honest
    assert len(riders) == 2
    assert [update.client for update in updates[:8]] == list(range(8))  # in the cohort's order
    for update in updates:
        if update.client in honest:
            continue
        change = models[update.round - 1] - models[max(update.round - 2, 0)]
        if kind == "unchanged":
            assert not update.delta.any()
        elif kind == "replay":
            torch.testing.assert_close(update.delta, 2 * change, rtol=1e-3, atol=1e-6)
        elif update.round > 1:
            assert float(update.delta.std()) == pytest.approx(
                2 * float(change.square().mean().sqrt()), rel=0.15
            )
            assert abs(float(torch.cosine_similarity(update.delta, change, dim=0))) < 0.2
    assert np.isfinite(outcome.loss)


def test_riders_are_the_same_on_every_engine_and_after_a_resume(tmp_path):
    faults = [
        {"name": "free-riders", "kind": "noise", "share": 0.25},
        {"name": "drop-outs", "rate": 0.2},
    ]
    description = small(faults=faults, rounds=4, screens=["free-riders"])
    assert_repeatable(description, tmp_path)


def test_all_methods_with_uploads_take_a_riders():
    for method in ("scaffold", "fednova", "feddyn", "moon"):
        federation, _ = play(small(method=method, faults=["free-riders"]))
        assert torch.isfinite(federation.server.model).all()


def test_clients_are_away_in_several_ways():
    """Client 1 in rounds 1 and 2, clients 1 and 4 in round 3: four of five, then three of five train."""
    away = [{"name": "absent", "who": [1], "last": 2}, {"name": "absent", "who": [1, 4], "first": 3}]
    _, outcomes = play(small(partition={"name": "iid", "clients": 5}, faults=away))
    trained = [
        {record.client for record in outcome.records if record.name == "train_loss"} - {None}
        for outcome in outcomes
    ]
    assert trained == [{0, 2, 3, 4}, {0, 2, 3, 4}, {0, 2, 3}]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"faults": [{"name": "drop-outs", "rate": 0}]}, "faults.0.rate: found 0"),
        ({"faults": ["free-rider"]}, "did you mean 'free-riders'"),
        ({"faults": ["free-riders", "free-riders"]}, "each fault can be named once"),
        ({"screens": ["free-riders", "free-riders"]}, "each screen can be named once"),
        ({"faults": ["free-riders"], "method": "fedcurv"}, "faults: curvature passes over"),
        ({"faults": ["free-riders"], "method": "centralised"}, "faults: they are clients'"),
    ],
)
def test_wrong_faults_are_one_sentence(changes, words):
    with pytest.raises(ConfigError, match=words):
        Federation(small(**changes))


def test_a_federation_whose_updates_are_all_refused_pauses():
    with pytest.raises(
        PausedError, match=r"round 1 came to too few updates in 3 attempts .*: 24 rejected: no"
    ):
        play(small(), checks=(lambda update, layout: "no",))


class Losing(SerialRunner):
    """Loses what some clients have computed."""

    gone = (1, 4)

    def run(self, cohort):
        for update in super().run(cohort):
            yield Lost(update.client, "worker died") if update.client in self.gone else update


@pytest.mark.parametrize("clock", ["rounds", "fedbuff"])
def test_what_an_engine_has_lost_is_recorded_with_the_reason(clock):
    """Beside clients that only pretend to train, and those that vanish: the round is the others'."""
    description = small(
        rounds=1,
        clock={"name": clock, "buffer": 8} if clock == "fedbuff" else clock,
        faults=[{"name": "drop-outs", "rate": 0.3}],
    )
    federation = Federation(description)
    runner = Losing(description.engine, federation.plan, federation.dataset)
    outcome = federation.advance(runner)
    federation.close()
    vanished = named(outcome, "dropped")
    assert vanished
    assert set(vanished).isdisjoint(Losing.gone)
    assert named(outcome, "dropped: worker died") == [1, 4]
    trained = set(named(outcome, "train_loss")) - {None}
    assert trained == set(range(8)) - {1, 4, *vanished}


def test_riders_that_agree_on_a_low_rank():
    """Both riders' first layers are rank 2 but for a tenth of noise: the third singular value is far below
    the second. They point the same way, cos = 1 / (1 + 0.1²) on average; the size is that of the last change.
    The screen that knows riders by ranks and directions lets them pass."""
    updates, models = [], []
    riders = {"name": "free-riders", "share": 0.25, "kind": "low-rank", "rank": 2}
    federation = Federation(small(faults=[riders], screens=["free-riders"]), checks=(noting(updates),))
    with federation.open() as runner:
        for _ in range(3):
            models.append(federation.server.model)
            outcome = federation.advance(runner)
            assert not [record for record in outcome.records if record.name.startswith("rejected")]
    federation.close()
    honest = set(named(outcome, "train_loss"))
    last = models[2] - models[1]
    one, other = (update.delta for update in updates if update.round == 3 and update.client not in honest)
    size = last.square().mean().sqrt() * math.sqrt(1 + 0.1**2)
    assert float(one.square().mean().sqrt()) == pytest.approx(float(size), rel=0.3)
    assert float(torch.cosine_similarity(one, other, 0)) == pytest.approx(1 / 1.01, abs=0.01)
    slot = federation.layout.parameters[0]
    values = torch.linalg.svdvals(one[slot.start : slot.stop].view(slot.shape))
    assert values[2] < 0.2 * values[1]
