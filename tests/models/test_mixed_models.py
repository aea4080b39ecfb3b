"""Several models as one: its weights, its predictions, and what can't be mixed."""

import pytest
import torch
from torch import nn

from mnemos.common.rng import generator
from mnemos.errors import ConfigError
from mnemos.models.mixed import Ensemble, mean_prediction
from mnemos.models.model import build_model, models
from mnemos.vector import Layout

SMALL = {"name": "mlp", "hidden": [5]}
LARGE = {"name": "mlp", "hidden": [7], "norm": "batch"}


def build(model):
    return build_model(models.parse(model), (1, 8, 8), 10, generator(3, "model"))


def test_a_branch_begins_as_it_would_alone_and_is_a_slice_of_the_vector():
    mixed = build({"name": "mixed", "of": [{"model": SMALL}, {"model": LARGE}, {"model": SMALL}]})
    layout = Layout.of(mixed)
    model, buffers = layout.gather(mixed.state_dict())
    alone = [build(one) for one in (SMALL, LARGE, SMALL)]
    vectors = [Layout.of(one).gather(one.state_dict()) for one in alone]
    assert torch.equal(model, torch.cat([parameters for parameters, _ in vectors]))
    assert torch.equal(buffers, torch.cat([statistics for _, statistics in vectors]))
    names = [
        slot.name for one in (0, 1, 2) for slot in Layout.of(alone[one]).under(f"branches.{one}").parameters
    ]
    assert [slot.name for slot in layout.parameters] == names


def test_the_ensemble_predicts_the_mean_of_probabilities_by_hand():
    """Odds of 3 : 1 and 1 : 1 are probabilities of (¾, ¼) and (½, ½), whose mean is (⅝, ⅜)."""
    logits = [torch.tensor([[3.0, 1.0]]).log() + 7, torch.zeros(1, 2)]
    assert mean_prediction(logits).exp().tolist() == [pytest.approx([5 / 8, 3 / 8])]

    class Fixed(nn.Module):
        def __init__(self, logits):
            super().__init__()
            self.logits = nn.Parameter(logits)

        def forward(self, x):
            return self.logits.expand(len(x), -1)

    said = Ensemble(map(Fixed, logits))(torch.zeros(4, 3))
    assert said.exp()[3].tolist() == pytest.approx([5 / 8, 3 / 8])


def test_predictions_that_are_all_but_certain_stay_finite():
    certain = torch.tensor([[200.0, 0.0]])
    assert mean_prediction([certain, certain]).isfinite().all()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "of"),
        ({"of": []}, "of"),
        ({"of": [{"model": SMALL}]}, "found one model; allowed: two or more, or one with peers"),
        (
            {"of": [{"model": SMALL}, {"model": {"name": "mixed", "of": [{"model": "mlp"}], "peers": True}}]},
            "found mixed models among the models",
        ),
        ({"of": [{"model": SMALL, "share": 0}, {"model": SMALL}]}, "of.0.share"),
        ({"of": [{"model": "mlpp"}, {"model": SMALL}]}, "did you mean 'mlp'"),
        ({"of": [{"model": SMALL}] * 2, "exchange": {"temperature": 0}}, "exchange.temperature"),
    ],
)
def test_what_cannot_be_mixed_is_said(options, words):
    with pytest.raises(ConfigError, match=words):
        models.parse({"name": "mixed", **options})


def test_a_branch_that_cannot_be_built_is_named():
    groups = {"name": "mlp", "hidden": [5], "norm": "group", "groups": 2}
    with pytest.raises(ConfigError, match=r"of\.1\.model\.groups: found 2; 5 channels can't be split"):
        build({"name": "mixed", "of": [{"model": SMALL}, {"model": groups}]})
