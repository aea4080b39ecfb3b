"""A module as a function of its vectors does what the module itself does."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import grad, vmap

from mnemos.models.features import features_and_logits
from mnemos.models.functional import Functional
from mnemos.models.model import build_model, models
from mnemos.vector import Layout

IMAGE = (1, 8, 8)


class Sharing(nn.Module):
    """One batch-norm that is used twice in a pass, and features that aren't a method."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(64, 8)
        self.norm = nn.BatchNorm1d(8)
        self.second = nn.Linear(8, 8)
        self.last = nn.Linear(8, 10)

    def forward(self, x):
        x = self.norm(self.first(x.flatten(1))).relu()
        return self.last(self.norm(self.second(x)).relu())


class Averaging(nn.Sequential):
    """Batch-norm whose running statistics are plain means over all batches, and one that keeps none."""

    def __init__(self):
        super().__init__(
            nn.Flatten(),
            nn.Linear(64, 8),
            nn.BatchNorm1d(8, momentum=None),
            nn.ReLU(),
            nn.BatchNorm1d(8, affine=False, track_running_stats=False),
            nn.Linear(8, 10),
        )


MODELS = {
    "mlp": {"name": "mlp", "hidden": [8]},
    "mlp-batch": {"name": "mlp", "hidden": [8, 6], "norm": "batch"},
    "mlp-layer": {"name": "mlp", "hidden": [8], "norm": "layer"},
    "logistic": "logistic",
    "cnn-batch": {"name": "cnn", "width": 0.125, "norm": "batch"},
    "cnn-group": {"name": "cnn", "width": 0.125, "norm": "group"},
    "sharing": "test_functional:Sharing",
    "averaging": "test_functional:Averaging",
}
NORMED = ["mlp-batch", "cnn-batch", "sharing", "averaging"]


@pytest.fixture
def x():
    return torch.randn(7, *IMAGE, generator=torch.Generator().manual_seed(3))


def build(case):
    """A module with statistics that aren't the initial ones, the function, and the module's vectors."""
    module = build_model(models.parse(MODELS[case]), IMAGE, 10, torch.Generator().manual_seed(1))
    with torch.no_grad():
        for number in range(2):
            module.train()(torch.randn(9, *IMAGE, generator=torch.Generator().manual_seed(number)) + number)
    functional = Functional(copy.deepcopy(module))
    return module, functional, Layout.of(module).gather(module.state_dict())


def near(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", MODELS)
@pytest.mark.parametrize("evaluating", [False, True])
def test_logits_and_features_are_the_modules_own(case, evaluating, x):
    module, functional, vectors = build(case)
    net = functional.net(*vectors)
    if evaluating:
        module.eval()
        with functional.training(False):
            logits, (features, same) = net(x), net.features(x)
    else:
        logits, (features, same) = net(x), net.features(x)
    near(logits, module(x))
    near(same, logits)
    near(features, features_and_logits(module, x)[0])
    assert functional.module.training


@pytest.mark.parametrize("case", NORMED)
def test_training_and_evaluation_differ_where_there_is_batch_norm(case, x):
    """Otherwise the test above couldn't tell one mode from the other."""
    _, functional, vectors = build(case)
    net = functional.net(*vectors)
    training = net(x)
    with functional.training(False):
        assert not torch.allclose(net(x), training, atol=1e-2)


@pytest.mark.parametrize("case", NORMED)
def test_statistics_after_a_pass_are_pytorchs_own(case, x):
    """Running mean, unbiased running variance and the counter, also of a layer that is used twice."""
    module, functional, (parameters, buffers) = build(case)
    before = buffers.clone()
    with functional.masked(None):
        functional.net(parameters, buffers)(x)
        after = functional.updated_buffers(buffers)
    module(x)
    near(after, Layout.of(module).gather(module.state_dict())[1])
    assert torch.equal(buffers, before)
    assert not torch.allclose(after, before)


@pytest.mark.parametrize("case", NORMED)
def test_masked_samples_play_no_part(case, x):
    module, functional, (parameters, buffers) = build(case)
    filled = torch.cat([x, 100 + torch.randn(4, *IMAGE)])
    mask = torch.tensor([1.0] * 7 + [0.0] * 4)
    with functional.masked(mask):
        logits = functional.net(parameters, buffers)(filled)[:7]
        after = functional.updated_buffers(buffers)
    near(logits, module(x))
    near(after, Layout.of(module).gather(module.state_dict())[1])


@pytest.mark.parametrize("case", NORMED)
@pytest.mark.parametrize("order", ["before", "after", "both"])
def test_passes_at_other_parameters_leave_the_statistics_alone(case, order, x):
    """Nothing of them is in the updated buffers, and they give what the module with them gives."""
    module, functional, (parameters, buffers) = build(case)
    other = parameters + 0.1 * torch.randn(len(parameters), generator=torch.Generator().manual_seed(5))
    net = functional.net(parameters, buffers)
    with functional.masked(None):
        if order != "after":
            net.at(other)(x + 1)
        net(x)
        if order != "before":
            elsewhere = net.at(other)(x + 1)
            features, same = net.at(other).features(x + 1)
        after = functional.updated_buffers(buffers)
    changed = copy.deepcopy(module)
    module(x)
    near(after, Layout.of(module).gather(module.state_dict())[1])
    if order != "before":
        nn.utils.vector_to_parameters(other, changed.parameters())
        near(elsewhere, changed(x + 1))
        near(same, elsewhere)
        near(features, features_and_logits(changed, x + 1)[0])


def test_what_was_measured_is_forgotten_after_masked(x):
    _, functional, (parameters, buffers) = build("mlp-batch")
    with functional.masked(None):
        functional.net(parameters, buffers)(x)
    assert torch.equal(functional.updated_buffers(buffers), buffers)
    with functional.masked(None):
        assert torch.equal(functional.updated_buffers(buffers), buffers)


@pytest.mark.parametrize("case", MODELS)
@pytest.mark.parametrize("evaluating", [False, True])
def test_gradients_are_autograds(case, evaluating, x):
    module, functional, (parameters, buffers) = build(case)
    labels = torch.tensor([0, 1, 2, 3, 4, 5, 6])

    def loss(parameters):
        return F.cross_entropy(functional.net(parameters, buffers).at(parameters)(x), labels)

    if evaluating:
        module.eval()
        with functional.training(False):
            found = grad(loss)(parameters)
    else:
        found = grad(loss)(parameters)
    F.cross_entropy(module(x), labels).backward()
    near(found, nn.utils.parameters_to_vector([p.grad for p in module.parameters()]))


@pytest.mark.parametrize("case", ["mlp-batch", "cnn-batch", "averaging"])
def test_many_models_at_once_are_each_by_itself(case, x):
    """Parameters, statistics, samples and masks of three clients as rows, by `vmap`."""
    _, functional, (parameters, buffers) = build(case)
    generator = torch.Generator().manual_seed(7)
    many = parameters + 0.1 * torch.randn(3, len(parameters), generator=generator)
    statistics = buffers + 0.1 * torch.rand(3, len(buffers), generator=generator)
    inputs = torch.randn(3, 7, *IMAGE, generator=generator)
    masks = torch.tensor([[1.0] * 7, [1.0] * 5 + [0.0] * 2, [1.0] * 2 + [0.0] * 5])

    def step(parameters, buffers, x, mask):
        with functional.masked(mask):
            logits = functional.net(parameters, buffers)(x)
            return logits, functional.updated_buffers(buffers)

    logits, after = vmap(step)(many, statistics, inputs, masks)
    for row in range(3):
        alone, own = step(many[row], statistics[row], inputs[row], masks[row])
        near(logits[row], alone)
        near(after[row], own)
        real = int(masks[row].sum())
        short, same = step(many[row], statistics[row], inputs[row][:real], None)
        near(logits[row][:real], short)
        near(after[row], same)
