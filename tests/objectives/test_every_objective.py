"""What every loss must keep to, and what those share that leave absent classes alone."""

import math

import pytest
import torch
from torch import nn
from torch.func import grad_and_value, vmap

from mnemos.errors import ConfigError
from mnemos.experiment.experiment import Experiment
from mnemos.objectives.fedlc import LogitsCalibration
from mnemos.objectives.fedrs import RestrictedSoftmax
from mnemos.objectives.objective import objectives

every = pytest.mark.parametrize(
    "objective",
    [
        *(kind() for kind in objectives),
        LogitsCalibration(denominator="others"),
        LogitsCalibration(tau=0, missing=1e-30),
        RestrictedSoftmax(soft=True),
    ],
    ids=lambda objective: "-".join(str(value) for value in objective.dump().values()),
)


@pytest.mark.parametrize("name", ["wsm", "balanced", "tce", "masked-ce"])
def test_absent_classes_get_no_gradient_at_all(name):
    """Zero, not nearly zero, at the logits and at the weights and bias of a linear classifier.

    Class 1 and 3 are absent. The others get some, and so would the absent ones from cross-entropy.
    """
    torch.manual_seed(0)
    head, x = nn.Linear(6, 4), torch.randn(20, 6)
    labels, counts = torch.tensor([0, 2]).repeat(10), torch.tensor([30.0, 0.0, 1.0, 0.0])
    for loss, moved in ((name, [True, False, True, False]), ("ce", [True] * 4)):
        logits = head(x)
        losses = objectives[loss]()(logits, labels, counts)
        at = torch.autograd.grad(losses.mean(), (logits, head.weight, head.bias))
        assert [bool((part != 0).any()) for part in at[0].T] == moved
        assert [bool((row != 0).any()) for row in at[1]] == moved
        assert (at[2] != 0).tolist() == moved


@pytest.mark.parametrize("absent", [-1e4, 0.0, 1e4])
@pytest.mark.parametrize(("name", "value"), [("wsm", 1), ("balanced", 2), ("tce", 2)])
def test_an_absent_class_weighs_nothing(name, value, absent):
    """Logits (−10⁴, `absent`, −10⁴), counts (3, 0, 3): two held classes alike, one absent.

    tce and balanced are −log 1/2, wsm is −f_y + log(2 · exp(f_y)/2) = log 1; the gradient is (1, 0, 1)/2 less
    the one-hot label.
    """
    logits = torch.tensor([[-1e4, absent, -1e4]], requires_grad=True)
    loss = objectives[name]()(logits, torch.tensor([0]), torch.tensor([3.0, 0.0, 3.0])).sum()
    loss.backward()
    assert loss.item() == pytest.approx(math.log(value), abs=1e-6)
    assert logits.grad[0].tolist() == pytest.approx([-1 / 2, 0, 1 / 2], abs=1e-6)


@pytest.mark.parametrize("name", ["wsm", "balanced", "tce"])
def test_a_client_with_one_class_has_nothing_to_learn(name):
    """−f_y + log(1 · exp f_y) = 0 whatever the logits, so loss and gradient are exactly 0."""
    logits = (5 * torch.randn(40, 3, generator=torch.Generator().manual_seed(3))).requires_grad_()
    losses = objectives[name]()(logits, torch.full((40,), 1), torch.tensor([0.0, 12.0, 0.0]))
    losses.sum().backward()
    assert (losses == 0).all()
    assert (logits.grad == 0).all()


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("counts", [[3, 0, 2], [5, 0, 0], [1, 1, 1], [0, 0, 0]])
def test_values_and_gradients_stay_finite(objective, dtype, counts):
    """Logits of ±10⁴, labels inside and outside of what the client holds, and clients that hold nothing.

    The losses are float32, and those of the same logits in float32. No logit's gradient is larger than 1.
    """
    extremes = torch.tensor([-1e4, 0.0, 1e4], dtype=dtype)
    logits = torch.cartesian_prod(extremes, extremes, extremes).repeat_interleave(3, 0).requires_grad_()
    labels, counts = torch.arange(3).repeat(27), torch.tensor(counts, dtype=torch.float32)
    losses = objective(logits, labels, counts)
    assert losses.dtype == torch.float32
    assert losses.isfinite().all()
    assert torch.equal(losses, objective(logits.float(), labels, counts))
    losses.sum().backward()
    assert logits.grad.isfinite().all()
    assert logits.grad.abs().max() <= 1


@every
def test_clients_at_once_are_as_one_by_one(objective):
    """`vmap` over clients that hold all, some and one of the classes."""
    generator = torch.Generator().manual_seed(4)
    counts = torch.tensor([[5.0, 1.0, 20.0], [0.0, 7.0, 2.0], [9.0, 0.0, 0.0], [0.0, 0.0, 4.0]])
    labels = torch.multinomial(counts, 8, replacement=True, generator=generator)
    logits = 3 * torch.randn(4, 8, 3, generator=generator)
    of_one = grad_and_value(lambda logits, labels, counts: objective(logits, labels, counts).mean())
    gradients, losses = vmap(of_one)(logits, labels, counts)
    for k in range(4):
        gradient, loss = of_one(logits[k], labels[k], counts[k])
        assert torch.allclose(gradients[k], gradient, atol=1e-6)
        assert torch.allclose(losses[k], loss, atol=1e-6)


@pytest.mark.parametrize(
    ("loss", "sentence"),
    [
        ({"name": "fedlc", "tau": -1}, "method.loss.tau: found -1"),
        ({"name": "fedlc", "missing": 1e-50}, "method.loss.missing: found 1e-50"),
        ({"name": "fedlc", "denominator": "own"}, "method.loss.denominator: found 'own'; allowed: 'all' or"),
        ({"name": "fedrs", "alpha": 2}, "method.loss.alpha: found 2"),
        ({"name": "fedrs", "alpha": -0.5}, "method.loss.alpha: found -0.5"),
        ({"name": "fedrs", "soft": "very"}, "method.loss.soft: found 'very'; expected true or false"),
        (
            {"name": "wsm", "counting": "foo"},
            "method.loss.counting: found 'foo'; allowed: 'train', 'all' or 'tasks'",
        ),
        ({"name": "ce", "counting": "all"}, "method.loss.counting: unknown field"),
        ({"name": "tcee"}, "method.loss: there is no loss 'tcee'; did you mean 'tce'"),
    ],
)
def test_wrong_options_are_named(loss, sentence):
    with pytest.raises(ConfigError) as caught:
        Experiment.parse({"method": {"name": "fedavg", "loss": loss}})
    assert str(caught.value).startswith(sentence)
