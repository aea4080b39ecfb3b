"""Filled batches: the same on every engine, and no heavier in the aggregate."""

from __future__ import annotations

import pytest
import torch

from mnemos.errors import ConfigError
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from support.play import play


def trained(tiny, engine, **local):
    """The model after two rounds, and the updates' sample counts and steps in the second."""
    changes = {**tiny, "engine": engine, "local": {"batch": 16, "lr": 0.1, "fill": True, **local}}
    federation = Federation(Experiment.parse(changes))
    seen = []
    federation.checks = (lambda update, layout: seen.append((update.client, update.samples, update.steps)),)
    with federation.open() as runner:
        federation.advance(runner)
        seen.clear()
        federation.advance(runner)
    federation.close()
    return federation, seen


@pytest.mark.parametrize("local", [{}, {"epochs": 3}, {"steps": 5}], ids=str)
def test_engines_agree(tiny, local):
    serial, seen = trained(tiny, "serial", **local)
    threads, _ = trained(tiny, "threads", **local)
    together, also = trained(tiny, "vmap", **local)
    assert torch.equal(serial.server.model, threads.server.model)
    assert torch.allclose(serial.server.model, together.server.model, atol=1e-5)
    assert sorted(seen) == sorted(also)


def test_a_client_counts_by_the_samples_it_has(tiny):
    federation, seen = trained(tiny, "serial")
    for client, samples, steps in seen:
        own = len(federation.assignment.train(client))
        assert samples == own
        assert steps == -(-own // 16)
    plain, _ = trained(tiny, "serial", fill=False)
    assert not torch.equal(plain.server.model, federation.server.model)


def test_clients_with_one_sample_can_have_batch_norm(tiny):
    changes = {
        **tiny,
        "partition": {"name": "iid", "clients": 1400, "validation": 0},
        "participation": 0.003,
        "model": {"name": "mlp", "hidden": [8], "norm": "batch"},
    }
    with pytest.raises(ConfigError, match=r"has one training sample .* local.fill=true"):
        Federation(Experiment.parse(changes))
    federation, _ = play(Experiment.parse({**changes, "local": {"batch": 4, "fill": True}}), 1)
    assert bool(torch.isfinite(federation.server.model).all())


def test_fedsgd_has_one_batch_of_everything_whatever_is_filled(tiny):
    changes = {**tiny, "method": "fedsgd"}
    models = []
    for fill in (False, True):
        federation, _ = play(Experiment.parse({**changes, "local": {"fill": fill}}), 1)
        models.append(federation.server.model)
    assert torch.equal(*models)
