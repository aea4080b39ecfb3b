"""FedReg against numbers worked out by hand, and against plain PyTorch."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mnemos.data.augment import normalise
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from mnemos.methods.exchange import Batch, Client
from mnemos.methods.presets.fedreg import Regularised, _without
from mnemos.models.functional import Functional
from mnemos.models.model import Classifier
from mnemos.objectives.ce import CrossEntropy

EMPTY = torch.zeros(0)


def linear(*rows):
    """A linear model with these rows, as a function."""
    weight = torch.tensor(rows)
    functional = Functional(nn.Linear(weight.shape[1], weight.shape[0], bias=False))
    return functional.net(weight.flatten(), EMPTY)


START = [[0.0, 1.0], [0.5, -0.3]]
GENERATED = {
    "up": [[[-0.2, 1.0], [0.7, -0.3]], [[-0.3, 1.0], [0.9, -0.3]], [[-0.3, 1.0], [1.0, -0.3]]],
    "down": [[[0.2, 0.8], [0.3, -0.1]], [[0.4, 0.6], [0.1, 0.1]], [[0.6, 0.4], [-0.1, 0.3]]],
}


@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize("way", ["up", "down"])
def test_generated_samples_by_hand(way, steps):
    """Rows (2, 1) and (1, 3), whose difference is (1, −2): a sample of class 0 has ∇ₓ CE = −q (1, −2).

    So x + η sign ∇ₓ CE is x + η (−1, 1) for class 0 and x + η (1, −1) for class 1, with η = 0.2, and within
    −0.3 to 1, the range of the batch. From x₀ = (0, 1) of class 0 and x₁ = (½, −0.3) of class 1:

    up:    x₀ = (−0.2, 1.2 → 1),  (−0.4 → −0.3, 1),  (−0.3, 1)
           x₁ = (0.7, −0.5 → −0.3),  (0.9, −0.3),  (1.1 → 1, −0.3)
    down:  x₀ = (0.2, 0.8),  (0.4, 0.6),  (0.6, 0.4)
           x₁ = (0.3, −0.1),  (0.1, 0.1),  (−0.1, 0.3)
    """
    net = linear([2.0, 1.0], [1.0, 3.0])
    batch = Batch(torch.tensor(START), torch.tensor([0, 1]))
    found = Regularised(generate=way, generate_steps=steps).generated(net, batch, 0.2)
    torch.testing.assert_close(found, torch.tensor(GENERATED[way][steps - 1]))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("norm", [False, True])
def test_samples_that_only_fill_a_batch_up_change_nothing(norm, seed):
    """Neither the gradients of the real ones (by way of batch-norm) nor the range of the batch."""
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6) if norm else nn.ReLU(), nn.Linear(6, 3))
    functional = Functional(module)
    vectors = functional.layout.gather(module.state_dict())
    x, labels = torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])
    x[0] *= 3  # the range of the batch is its own
    part = Regularised(generate_steps=8)
    alone = part.generated(functional.net(*vectors), Batch(x, labels), 0.3)
    # As an engine does it: the first sample stands in for those that are missing.
    more = torch.tensor([0, 1, 2, 3, 4, 0, 0, 0])
    mask = torch.tensor([1.0] * 5 + [0.0] * 3)
    with functional.masked(mask):
        filled = part.generated(functional.net(*vectors), Batch(x[more], labels[more], mask), 0.3)
    torch.testing.assert_close(filled[:5], alone)


@pytest.mark.parametrize(("gamma", "expected"), [(0.0, [1.0, 2.0]), (0.25, [2.0, 1.0]), (1.0, [5.0, -2.0])])
def test_the_point_of_the_gradient_by_hand(gamma, expected):
    """x = (1, 2), w = (5, −2): γ = ¼ of the way is (1 + 1, 2 − 1)."""
    client = Client(torch.tensor([1.0, 2.0]), {}, {}, torch.ones(2), torch.ones(2), torch.ones(2))
    assert Regularised(gamma=gamma).gradient_point(torch.tensor([5.0, -2.0]), client).tolist() == expected


@pytest.mark.parametrize(
    ("drift", "gradient", "expected"),
    [
        ([3.0, 1.0], [1.0, 1.0], [1.0, -1.0]),
        ([3.0, 1.0], [2.0, 2.0], [1.0, -1.0]),
        ([1.0, -1.0], [1.0, 0.0], [0.0, -1.0]),
        ([-3.0, 1.0], [1.0, 1.0], [-3.0, 1.0]),
        ([3.0, 1.0], [0.0, 0.0], [3.0, 1.0]),
    ],
)
def test_a_projection_by_hand(drift, gradient, expected):
    """a = max(0, ⟨d, g⟩ / ‖g‖²): ⟨(3, 1), (1, 1)⟩ / 2 = 2 leaves (3, 1) − 2 (1, 1) = (1, −1).

    The length of g doesn't matter; a drift that goes downhill stays, and so does one without a gradient.
    """
    assert _without(torch.tensor(drift), torch.tensor(gradient)).tolist() == expected


def test_what_follows_a_step_by_hand():
    """Two logits w ⋅ x of one number x = 2, received w = 0, class 0. One sample: the range pins it at 2.

    After the step w = (½, −¼), so d = (½, −¼) = ⅜ (1, −1) + ⅛ (1, 1). With p the probability of class 0 at
    the middle, which is above the received model's ½, g₁ = 2 (p − ½)(1, −1): d goes uphill, and all of d
    along (1, −1) is taken back. g₂ = 2 (p − 1)(1, −1) is orthogonal to what is left, w = (⅛, ⅛).
    """
    batch = Batch(torch.tensor([[2.0]]), torch.tensor([0]))
    client = Client(torch.zeros(2), {}, {}, torch.tensor([1.0, 0.0]), torch.ones(2), torch.ones(2))
    w = torch.tensor([0.5, -0.25])
    after = Regularised().after_step(w, linear([0.5], [-0.25]), CrossEntropy(), batch, client)
    assert after.tolist() == pytest.approx([0.125, 0.125])


def test_a_drift_the_other_way_by_hand():
    """As above, from w = 0 to d = (−½, −¼) = −⅛ (1, −1) − ⅜ (1, 1), away from class 0.

    At the middle p < ½: g₁ = 2 (p − ½)(1, −1) is along −(1, −1), as that part of d, which is taken back.
    """
    batch = Batch(torch.tensor([[2.0]]), torch.tensor([0]))
    client = Client(torch.zeros(2), {}, {}, torch.tensor([1.0, 0.0]), torch.ones(2), torch.ones(2))
    w = torch.tensor([-0.5, -0.25])
    after = Regularised().after_step(w, linear([-0.5], [-0.25]), CrossEntropy(), batch, client)
    assert after.tolist() == pytest.approx([-0.375, -0.375])


def generate(module, x, labels, step, steps):
    low, high = float(x.min()), float(x.max())
    for _ in range(steps):
        x = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(F.cross_entropy(module(x), labels), x)
        x = (x + step * slope.sign()).detach().clamp(low, high)
    return x


def slope_at(module, vector, x, target):
    nn.utils.vector_to_parameters(vector.clone(), module.parameters())
    module.zero_grad()
    F.cross_entropy(module(x), target).backward()
    return nn.utils.parameters_to_vector([p.grad for p in module.parameters()])


def mlp(vector):
    module = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU()), 8, 10)
    nn.utils.vector_to_parameters(vector.clone(), module.parameters())
    return module


def stepped(w, old, x, labels, steps):
    """(w after the projections, a₁, a₂), with modules and autograd."""
    module = mlp(old)
    pseudo = generate(module, x, labels, 0.1, steps)
    perturbed = generate(module, x, labels, 1e-3, steps)
    soft = module(pseudo).softmax(1).detach()
    middle, drift = 0.5 * w + 0.5 * old, w - old
    first = slope_at(module, middle, pseudo, soft)
    second = slope_at(module, middle, perturbed, labels)
    a1 = max(0.0, float(drift @ first / (first @ first)))
    a2 = max(0.0, float((drift - a1 * first) @ second / (second @ second)))
    return w - a1 * first - a2 * second, a1, a2


@pytest.mark.parametrize("uphill", [0.5, -0.5])
def test_what_follows_a_step_against_plain_pytorch(uphill):
    """A random drift that also goes up or down on the samples: both projections act, or the first alone."""
    generator = torch.Generator().manual_seed(1)
    x, labels = torch.randn(6, 64, generator=generator), torch.tensor([0, 1, 2, 3, 4, 5])
    functional = Functional(mlp(torch.zeros(610)))
    old = 0.3 * torch.randn(610, generator=generator)
    w = old + 0.1 * torch.randn(610, generator=generator)
    w = w + uphill * slope_at(mlp(old), old, x, labels)
    expected, a1, a2 = stepped(w, old, x, labels, steps=5)
    assert a1 > 0
    assert (a2 > 0) == (uphill > 0)
    client = Client(old, {}, {}, torch.ones(10), torch.ones(10), torch.ones(10))
    part = Regularised(generate_steps=5)
    found = part.after_step(w, functional.net(w, EMPTY), CrossEntropy(), Batch(x, labels), client)
    assert float((found - expected).norm()) < 1e-4 * float((expected - w).norm())


def test_a_clients_round_against_plain_pytorch():
    """Three full-batch steps with gradients at γ w + (1 − γ) x, each followed by the projections."""
    gamma, steps, lr = 0.4, 5, 0.2
    part = {"name": "fedreg", "gamma": gamma, "generate_steps": steps}
    federation = Federation(
        Experiment.parse(
            {
                "partition": {"name": "dirichlet", "clients": 30, "alpha": 0.5},
                "model": {"name": "mlp", "hidden": [8]},
                "method": {"name": "fedreg", "correction": part},
                "local": {"steps": 3, "batch": 1000, "lr": lr},
                "engine": "serial",
            }
        )
    )
    with federation.open() as runner:
        task = next(iter(federation.requests(1, runner)))
        (update,) = runner.run([task])
    federation.close()

    dataset = federation.dataset
    x = normalise(dataset.train.samples[task.samples], torch.tensor(dataset.mean), torch.tensor(dataset.std))
    labels = dataset.train.labels[task.samples]
    module, old = mlp(task.model), task.model
    w, free = old, old
    for _ in range(3):
        w = w - lr * slope_at(module, gamma * w + (1 - gamma) * old, x, labels)
        w, _, _ = stepped(w, old, x, labels, steps)
        free = free - lr * slope_at(module, free, x, labels)
    assert float((old + update.delta - w).norm()) < 1e-4 * float((w - old).norm())
    assert float((free - w).norm()) > 1e-2 * float((w - old).norm())
