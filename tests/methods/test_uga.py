"""UGA: closed forms on parabolas, and exact gradients through the steps of a network."""

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad

from mnemos.client.trainer import fresh_model
from mnemos.client.workload import LocalWorkload, order
from mnemos.errors import ConfigError
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from support.quadratic import digits, near, play

FIRST = {"name": "uga", "correction": {"name": "keep-trace", "order": "first"}}


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("method", [{"name": "uga"}, FIRST])
def test_the_closed_form_of_a_parabola(steps, method):
    """L(w) = ½ h (w − a)² and n steps of η take x − a to (1 − η h)ⁿ (x − a). So the loss at the end is
    ½ h (1 − η h)²ⁿ (x − a)² and its gradient in x is g = h (1 − η h)²ⁿ (x − a); the gradient at the last
    point is h (1 − η h)ⁿ (x − a). Two clients with one and three samples; η_g = 0.1; x = 0 at first.
    """
    h, a, shares, eta = [1.0, 2.0], [3.0, -1.0], [0.25, 0.75], 0.2
    found = play(method, {"steps": steps, "lr": eta}, h=h, a=a, samples=[1, 3], rounds=3)
    power = 2 * steps if method == {"name": "uga"} else steps
    x, expected = 0.0, []
    for _ in range(3):
        g = [p * hk * (1 - eta * hk) ** power * (x - ak) for p, hk, ak in zip(shares, h, a, strict=True)]
        x -= 0.1 * sum(g)
        expected.append(x)
    assert found.models == near(expected)


def test_weight_decay_is_part_of_a_step():
    """w ← w − η (h (w − a) + λ w) has J = 1 − η (h + λ); after two steps g = J² h (w₂ − a)."""
    h, a, eta, decay = 2.0, 3.0, 0.1, 0.5
    w = 0.0
    for _ in range(2):
        w -= eta * (h * (w - a) + decay * w)
    expected = -0.1 * (1 - eta * (h + decay)) ** 2 * h * (w - a)
    found = play({"name": "uga"}, {"steps": 2, "lr": eta, "weight_decay": decay}, h=[h], a=[a], rounds=1)
    assert found.models == near([expected])


def test_the_last_epoch_is_the_gradients():
    """Three epochs of one batch each: two steps are traced."""
    three = play({"name": "uga"}, {"epochs": 3, "lr": 0.2}, h=[1], a=[1.0], rounds=1)
    assert three.models == near([0.1 * (1 - 0.2) ** 4])


@pytest.mark.parametrize("norm", ["none", "group"])
def test_a_network_by_automatic_differentiation_of_the_whole_trace(norm):
    """The same gradient by keeping every step in one graph, as the paper describes it."""
    experiment = Experiment.parse(
        {
            "partition": {"name": "iid", "clients": 2},
            "model": {"name": "mlp", "hidden": [8], "norm": norm},
            "method": "uga",
            "local": {"steps": 3, "batch": 16, "lr": 0.3},
            "participation": 1.0,
            "rounds": 1,
            "engine": "serial",
        }
    )
    federation = Federation(experiment)
    start = federation.server.model.clone()
    with federation.open() as runner:
        updates = list(runner.run(federation.requests(1, runner)))
    federation.close()
    module = fresh_model(federation.plan, federation.dataset)
    split, (mean,), (std,) = federation.dataset.train, federation.dataset.mean, federation.dataset.std

    def loss(vector, indices):
        x = (split.samples[indices].float() - mean) / std
        return nn.functional.cross_entropy(
            functional_call(module, federation.layout.views(vector), (x,)), split.labels[indices]
        )

    for update in updates:
        samples = torch.from_numpy(federation.assignment.train(update.client))
        workload = LocalWorkload(samples, 16, 1, 3, 0.0, False)
        batches = torch.split(order(workload, (0, 1, update.client)), 16)[:3]

        def whole(vector, samples=samples, batches=batches):
            for batch in batches:
                vector = vector - 0.3 * grad(loss)(vector, samples[batch])
            return loss(vector, samples)

        expected = -grad(whole)(start)
        assert float((update.delta - expected).norm()) < 1e-4 * float(expected.norm())
        plain = -grad(loss)(start, samples)
        assert float((expected - plain).norm()) > 0.05 * float(expected.norm())  # the trace does matter


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_engines_agree(norm):
    changes = {"local": {"epochs": 3, "batch": 16, "lr": 0.1}, "model": {"name": "mlp", "norm": norm}}
    _, serial = digits("uga", 2, **changes)
    for engine in ("threads", {"name": "vmap", "chunk": 2}):
        _, other = digits("uga", 2, engine=engine, **changes)
        torch.testing.assert_close(other[-1], serial[-1], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"local": {"epochs": 1}}, "local.epochs: found 1"),
        ({"local": {"steps": 2, "optimizer": "adam"}}, "found adam; allowed: sgd without"),
        ({"local": {"steps": 2, "optimizer": {"name": "sgd", "momentum": 0.9}}}, "with momentum"),
        ({"local": {"steps": 2}, "terms": ["proximal"]}, "which proximal changes"),
    ],
)
def test_what_it_cannot_trace_is_refused(changes, words):
    terms = changes.pop("terms", [])
    with pytest.raises(ConfigError, match=words):
        Federation(Experiment.parse({"method": {"name": "uga", "terms": terms}, **changes}))
