"""Ranks as measures of a run."""

import math

import pytest
import torch
from torch import nn

from mnemos.errors import ConfigError
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from mnemos.ranks import layer_values
from mnemos.ranks.layers import network_value
from mnemos.ranks.spectra import ranked
from mnemos.vector import Layout


def play(measures, rounds=4, model=None, **changes):
    """The federation after some rounds on digits, and the records of each round."""
    federation = Federation(
        Experiment.parse(
            {
                "model": model or {"name": "cnn"},
                "partition": {"clients": 3},
                "participation": 1.0,
                "rounds": rounds,
                "evaluate": {"every": rounds},
                "measures": measures,
                "engine": "serial",
                **changes,
            }
        )
    )
    with federation.open() as runner:
        found = [federation.advance(runner).records for _ in range(rounds)]
    federation.close()
    return federation, found


def named(records, name):
    return [record for record in records if record.name == name]


def test_every_second_round_each_layer_and_the_network():
    federation, rounds = play([{"name": "effective-rank", "every": 2, "noisy": True}])
    layers = [slot.name for slot in ranked(federation.layout)]
    counts = [len(named(records, "effective_rank_noisy")) for records in rounds]
    assert counts == [0, len(layers), 0, len(layers)]
    last = {record.layer: record.value for record in named(rounds[-1], "effective_rank_noisy")}
    assert list(last) == layers
    first = federation.layout.views(federation.server.model)[layers[0]]
    values = [torch.linalg.svdvals(matrix.flatten(1).double()) for matrix in (first, first.transpose(0, 1))]
    entropies = [float(-(v / v.sum() * (v / v.sum()).log()).sum()) for v in values]
    assert last[layers[0]] == pytest.approx(sum(entropies) / 2, rel=1e-6)
    (network,) = named(rounds[-1], "effective_rank_noisy_network")
    assert network.layer is None
    assert math.isfinite(network.value)


def test_by_default_at_evaluations():
    _, rounds = play(["stable-rank", "knowledge-gain"], rounds=3)
    for name in ("stable_rank", "knowledge_gain"):
        assert [bool(named(records, name)) for records in rounds] == [False, False, True]


def test_the_clients_models_too():
    federation, rounds = play([{"name": "rank", "every": 1, "clients": True}], rounds=1)
    found = named(rounds[0], "rank")
    layers = ranked(federation.layout)
    assert {record.model for record in found} == {None, 0, 1, 2}
    assert len(found) == 4 * len(layers)
    own = [record.value for record in found if record.model is None]
    assert own == layer_values(federation.server.model[None], federation.layout, "rank")[0].tolist()


def test_linear_layers_only_if_asked_for():
    federation, plain = play([{"name": "effective-rank"}], rounds=1)
    _, with_linear = play([{"name": "effective-rank", "linear": True}], rounds=1)
    more = {r.layer for r in named(with_linear[0], "effective_rank")}
    less = {r.layer for r in named(plain[0], "effective_rank")}
    assert less < more
    kinds = {slot.name: slot.kind for slot in federation.layout.parameters}
    assert {kinds[name] for name in more - less} == {"linear"}


def test_a_model_without_convolutions_has_nothing_to_measure():
    model = {"name": "mlp", "hidden": [4]}
    with pytest.raises(ConfigError, match=r"measures.effective-rank: the model has no layer .* linear=true"):
        play(["effective-rank"], rounds=1, model=model)
    _, rounds = play([{"name": "effective-rank", "linear": True}], rounds=1, model=model)
    assert len(named(rounds[0], "effective_rank")) == 2


def test_clients_models_need_rounds():
    with pytest.raises(ConfigError, match=r"measures.0: clients: true measures in the rounds of 'every'"):
        play([{"name": "rank", "clients": True}])


def test_the_weighted_mean_counts_the_layers_that_are_shown():
    layout = Layout.of(nn.Sequential(nn.Conv2d(2, 3, 3), nn.Linear(4, 5)))
    values = torch.tensor([[[1.0, 1.0], [3.0, 3.0]]], dtype=torch.float64)
    assert float(network_value(values[:, :1], layout, "weighted")) == 1
    assert float(network_value(values, layout, "weighted", linear=True)) == pytest.approx((2 + 12) / 6)
