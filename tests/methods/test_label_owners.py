"""Label-owner averaging against numbers worked out by hand."""

import pytest
import torch
from torch import nn

from mnemos.errors import ConfigError
from mnemos.methods.exchange import Server, TrainReply
from mnemos.methods.presets.label_owners import LabelOwnerAveraging
from mnemos.vector import Layout
from support import quadratic
from support.bernoulli import bernoulli
from support.play import play


def update(client, samples, held, delta, layout):
    change = {"label-owners.held": torch.tensor(held)}
    return TrainReply(
        client, 1, samples, 1, 0.0, torch.full((layout.size,), delta), torch.zeros(0), change, {}
    )


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("by", "body", "rows"), [("samples", 2.0, [1, 2, 0]), ("uniform", 3.0, [1, 3, 0])])
def test_a_round_by_hand(by, body, rows, bias):
    """A body and a classifier of three rows. Client 0 moves all by 1, has 3 samples, of classes 0 and 1;
    client 1 moves all by 5 and has one sample of class 1.

    Body: (3 · 1 + 1 · 5) / 4 = 2, with equal weights 3. Row 0 is client 0's alone: 1. Row 1 is both's, as the
    body. Nobody has class 2: its row stays. So it is with the bias.
    """
    module = nn.Sequential(nn.Linear(1, 2), nn.Linear(2, 3, bias=bias))
    layout = Layout.of(module)
    method = LabelOwnerAveraging.parse({"weighting": {"name": "label-owners", "by": by}})
    fold = method.fold(layout)
    for one in (update(0, 3, [1.0, 1.0, 0.0], 1.0, layout), update(1, 1, [0.0, 1.0, 0.0], 5.0, layout)):
        fold.add(one, method.weighting.weigh(one, layout))
    server = method.server_step(Server(torch.zeros(layout.size), torch.zeros(0), {}), fold.result())
    found = layout.views(server.model)
    assert found["0.weight"].tolist() == [[body], [body]]
    assert found["0.bias"].tolist() == [body, body]
    assert found["1.weight"].tolist() == [[row, row] for row in rows]
    if bias:
        assert found["1.bias"].tolist() == rows


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("label-owners", [0.5, 0.5]),
        ({"name": "label-owners", "weighting": "samples"}, [0.375, 0.125]),
        ({"name": "label-owners", "loss": "ce"}, [0.5, 0.5]),
        ("fedavg", [0.25, -0.25]),
    ],
)
def test_a_federation_by_hand(method, expected):
    """Logits w = (a, b) on a constant input, from 0 with η = 1; a logit's gradient is p − 1 or p, p = ½.

    By masked cross-entropy client 0 moves a alone, by ½, and client 1 b alone. Each is its owner's: (½, ½).
    Averaged by samples it would be (¾ · ½, ¼ · ½).
    By plain cross-entropy client 0 goes to (½, −½) and client 1 to (−½, ½): the owners' rows are (½, ½),
    the means ¾ − ¼ of (½, −½).
    """
    server = bernoulli(method)
    play(server, 1)
    assert server.server.model.tolist() == pytest.approx(expected)


def test_a_row_nobody_of_the_cohort_holds_stays():
    """One client a round, by cross-entropy, which would move both rows."""
    server = bernoulli({"name": "label-owners", "loss": "ce"}, participation=0.5)
    (client,) = server.cohort(1).tolist()
    play(server, 1)
    expected = [0.5, 0.0] if client == 0 else [0.0, 0.5]
    assert server.server.model.tolist() == pytest.approx(expected)


def digits(method, partition, model=None):
    changes = {"partition": partition, **({"model": model} if model else {})}
    local = {"steps": 5, "batch": 16, "lr": 0.1}
    return quadratic.digits({"loss": "ce", **method}, 2, participation=1.0, local=local, **changes)[0]


def test_where_everyone_holds_every_class_it_is_fedavg():
    everyone = {"name": "iid", "clients": 4}
    found = digits({"name": "label-owners"}, everyone)
    labels = found.dataset.train.labels.numpy()
    assert all(len(set(labels[found.assignment.train(k)])) == 10 for k in range(4))
    average = digits({"name": "fedavg"}, everyone).server.model
    torch.testing.assert_close(found.server.model, average, rtol=1e-5, atol=1e-7)


def test_where_they_do_not_only_the_classifier_differs_from_fedavg():
    """After one round; later the clients train from different models."""
    skewed = {"name": "dirichlet", "clients": 4, "alpha": 0.1}
    found = digits({"name": "label-owners"}, skewed)
    after = {}
    for name in ("label-owners", "fedavg"):
        federation, _ = play(found.experiment.override({"method": {"name": name, "loss": "ce"}}), 1)
        after[name] = federation.layout.views(federation.server.model)
    for name in ("body.1.weight", "body.1.bias"):
        torch.testing.assert_close(after["label-owners"][name], after["fedavg"][name])
    for name in ("head.weight", "head.bias"):
        assert not torch.allclose(after["label-owners"][name], after["fedavg"][name], atol=1e-3)


class OnlyConvolution(nn.Module):
    """An image model without any linear layer."""

    def __init__(self, classes):
        super().__init__()
        self.layer = nn.Conv2d(1, classes, 8)

    def forward(self, x):
        return self.layer(x).flatten(1)


def test_a_model_without_a_linear_layer_is_refused():
    iid = {"name": "iid", "clients": 4}
    with pytest.raises(ConfigError) as caught:
        digits({"name": "label-owners"}, iid, "test_label_owners:OnlyConvolution")
    assert str(caught.value) == "method.weighting: the model has no linear layer to be its classifier"
    digits({"name": "fedavg"}, iid, "test_label_owners:OnlyConvolution")
