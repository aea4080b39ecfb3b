"""MOON against numbers worked out by hand, and against plain PyTorch."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import grad

from mnemos.data.augment import normalise
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from mnemos.methods.exchange import Batch, Client
from mnemos.methods.presets.moon import Contrastive
from mnemos.models.model import Classifier
from support.play import each_round, play

PREVIOUS, SEEN = "moon.previous", "moon.seen"


class Scale:
    """A model whose feature vector is the sample times the parameters, number by number."""

    def __init__(self, parameters):
        self.parameters = parameters

    def features(self, x):
        found = x * self.parameters
        return found, found

    def at(self, parameters):
        return Scale(parameters)


def contrast(z, start, previous, seen=1.0, **options):
    """The term's loss of one sample (1, 1), as a function of the model's features."""
    vector = torch.tensor
    state = {PREVIOUS: vector(previous), SEEN: vector(seen)}
    client = Client(vector(start), {}, state, torch.ones(2), torch.ones(2), torch.ones(2))
    batch = Batch(torch.ones(1, 2), torch.tensor([0]))
    return Contrastive(**options).losses(Scale(z), batch, z[None], client)[0]


@pytest.mark.parametrize(("mu", "temperature"), [(1.0, 0.5), (3.0, 0.5), (1.0, 0.25)])
def test_loss_and_gradient_by_hand(mu, temperature):
    """z = (1, 0), of the model received (1, 1), of the client's last one (0, 1): cosines 1/√2 and 0.

    L = μ · −log e^{1/(τ√2)} / (e^{1/(τ√2)} + e⁰) = μ log(1 + e^{−1/(τ√2)}).

    The gradient of cos(z, v) is v/(‖z‖‖v‖) − cos(z, v) z/‖z‖²: (0, 1/√2) for the model received, (0, 1) for
    the last one. So ∇L = μ σ(−1/(τ√2)) (1/τ) (0, 1 − 1/√2): z moves off (0, 1).
    """
    half = 1 / math.sqrt(2)
    z = torch.tensor([1.0, 0.0])
    options = {"mu": mu, "temperature": temperature}
    apart = math.exp(-half / temperature)
    loss = contrast(z, [1.0, 1.0], [0.0, 1.0], **options)
    assert float(loss) == pytest.approx(mu * math.log(1 + apart))
    slope = grad(lambda z: contrast(z, [1.0, 1.0], [0.0, 1.0], **options))(z)
    expected = mu * apart / (1 + apart) / temperature * (1 - half)
    assert slope.tolist() == pytest.approx([0.0, expected], abs=1e-6)


def test_a_client_without_a_last_model_has_a_constant_term():
    """The model received stands on both sides: μ log 2, whatever the features; what is stored isn't used."""
    z = torch.tensor([0.3, -2.0])
    loss = contrast(z, [1.0, 1.0], [0.0, 1.0], seen=0.0, mu=5.0)
    assert float(loss) == pytest.approx(5 * math.log(2))
    slope = grad(lambda z: contrast(z, [1.0, 1.0], [0.0, 1.0], seen=0.0, mu=5.0))(z)
    assert slope.tolist() == pytest.approx([0.0, 0.0], abs=1e-6)


def build(method, rounds, participation=1.0):
    return Federation(
        Experiment.parse(
            {
                "partition": {"name": "label-dirichlet", "clients": 5, "alpha": 0.5},
                "model": {"name": "mlp", "hidden": [8]},
                "method": method,
                "local": {"steps": 4, "batch": 16, "lr": 0.1},
                "participation": participation,
                "rounds": rounds,
                "evaluate": {"every": rounds, "test_last": 0},
                "engine": "serial",
            }
        )
    )


def digits(method, rounds):
    federation = build(method, rounds)
    play(federation, rounds)
    return federation


def test_the_first_round_is_fedavg_and_the_second_is_not():
    """The first round's term is a constant: its two gradients cancel but for rounding."""
    start = digits("fedavg", 1)
    change = float((start.server.model - Federation(start.experiment).server.model).norm())
    first = digits({"name": "moon", "mu": 5}, 1).server.model - start.server.model
    assert float(first.norm()) < 1e-5 * change
    second = digits({"name": "moon", "mu": 5}, 2).server.model - digits("fedavg", 2).server.model
    assert float(second.norm()) > 1e-2 * change


def test_without_weight_it_is_fedavg():
    assert torch.equal(digits({"name": "moon", "mu": 0}, 3).server.model, digits("fedavg", 3).server.model)


def mlp(vector):
    module = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU()), 8, 10)
    nn.utils.vector_to_parameters(vector.clone(), module.parameters())
    return module


def test_a_clients_second_round_against_plain_pytorch():
    """One full-batch step on CE − μ log e^{cos(z, z_glob)/τ} / (e^{cos(z, z_glob)/τ} + e^{cos(z, z_prev)/τ}),

    from a starting point whose features differ from the model received: after a first step of the same kind.
    z are the 8 numbers that go into the last layer.
    """
    mu, tau, lr = 2.0, 0.5, 0.1
    federation = digits({"name": "moon", "mu": mu, "temperature": tau}, 1)
    local = {"steps": 2, "batch": 2000, "lr": lr}
    again = Federation(federation.experiment.override({"local": local}))
    again.server, again.client_states = federation.server, federation.client_states
    with again.open() as runner:
        task = next(iter(again.requests(2, runner)))
        (update,) = runner.run([task])
    again.close()
    previous = federation.client_states[task.client][PREVIOUS]
    assert not torch.equal(previous, task.model)

    dataset = federation.dataset
    mean, std = torch.tensor(dataset.mean), torch.tensor(dataset.std)
    x = normalise(dataset.train.samples[task.samples], mean, std)
    labels = dataset.train.labels[task.samples]
    module, glob, prev = mlp(task.model), mlp(task.model), mlp(previous)
    for _ in range(2):
        module.zero_grad()
        z = module.features(x)
        near = torch.exp(F.cosine_similarity(z, glob.features(x).detach()) / tau)
        far = torch.exp(F.cosine_similarity(z, prev.features(x).detach()) / tau)
        loss = F.cross_entropy(module.head(z), labels) + mu * -torch.log(near / (near + far)).mean()
        loss.backward()
        with torch.no_grad():
            for parameter in module.parameters():
                parameter -= lr * parameter.grad
    end = nn.utils.parameters_to_vector(module.parameters()).detach()
    torch.testing.assert_close(task.model + update.delta, end, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(update.state[PREVIOUS], task.model + update.delta)
    assert float(update.state[SEEN]) == 1.0


def test_the_last_model_is_the_clients_own_however_long_ago():
    """Of two clients a round; who doesn't take part keeps the model of its last round."""
    federation = build("moon", 5, participation=0.4)
    kept, idle = {}, 0
    for _ in each_round(federation, 5):
        cohort = set(federation.cohort(federation.round).tolist())
        for client in cohort | set(kept):
            now = federation.client_states[client][PREVIOUS]
            if client not in cohort:
                assert torch.equal(now, kept[client])
                idle += 1
            kept[client] = now
    assert idle
    assert not torch.equal(*[kept[client] for client in sorted(kept)[:2]])
