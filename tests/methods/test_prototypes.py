"""Prototypes against numbers worked out by hand."""

import math

import pytest
import torch
from torch import nn

from mnemos.data.augment import normalise
from mnemos.errors import ConfigError
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from mnemos.methods.exchange import Aggregate, Batch, Client, Finished, Server
from mnemos.methods.head import Head
from mnemos.methods.terms.prototypes import Memory, Prototypes, memory
from mnemos.objectives.ce import CrossEntropy
from mnemos.optim.local import Local
from mnemos.vector import Layout

LAYOUT = Layout.of(nn.Linear(2, 4))
"""Four classes, features of two numbers."""
NONE = torch.zeros(0)


class Identity:
    """A net whose features are its input, and whose logits are 3 times the first feature for class 0."""

    def features(self, x):
        return x, x

    def head(self, features):
        return torch.cat([3 * features[:, :1], torch.zeros(len(features), 3)], 1)


def client(held, state=None, received=None, term=None, task=()):
    """One that trains on so many samples of each class, and is in a task of these classes."""
    state = state or (term or Prototypes()).client_state(LAYOUT)
    held = torch.tensor(held, dtype=torch.float32)
    present = (held > 0).float()
    present[list(task)] = 1
    return Client(NONE, received or {}, state, torch.ones(4), held, present)


def trained(term, who, *batches):
    """What a client uploads and remembers after its training, from the samples of some batches."""
    sums, count = {}, 0
    for x, labels in batches:
        found = term.data_pass(
            NONE, Identity(), CrossEntropy(), Batch(torch.tensor(x), torch.tensor(labels)), who
        )
        sums = {name: sums.get(name, 0) + value for name, value in found.items()}
        count += len(labels)
    means = {name: value / count for name, value in sums.items()}
    return term.upload(Finished(who, NONE, 1, ((1, 0.1),), Local(), means))


A = ([[1.0, 0.0], [3.0, 0.0]], [0, 0]), ([[0.0, 4.0]], [2])
"""Class 0: (1, 0) and (3, 0); class 2: (0, 4)."""
A_RADIUS = math.sqrt(0.5)


def test_prototypes_and_radius():
    """e₀ = (2, 0), with variances 2 and 0 (divided by 2 − 1): tr Σ₀ = 2. e₂ = (0, 4) is of one sample: 0.

    r² is the mean over both classes of tr Σ / d: ½ (2/2 + 0/2) = ½.
    """
    sent, kept = trained(Prototypes(), client([2, 0, 1, 0]), *A)
    assert kept["prototypes.vectors"].tolist() == [[2, 0], [0, 0], [0, 4], [0, 0]]
    assert kept["prototypes.known"].tolist() == [1, 0, 1, 0]
    assert float(kept["prototypes.radius"]) == pytest.approx(A_RADIUS)
    assert sent["prototypes.vectors"].tolist() == [[6, 0], [0, 0], [0, 12], [0, 0]]  # times 3 samples
    assert sent["prototypes.known"].tolist() == [3, 0, 3, 0]
    assert float(sent["prototypes.samples"]) == 3


def test_a_radius_of_a_thousandth_of_the_mean_by_hand():
    """Class 1 has features 5000 ± 1 and −3000 ± 1 in turn, four of each sign, in batches of 3, 3 and 2.

    All deviations are 1, so both variances are 8/7 and r = √(8/7). Squared lengths are 34 · 10⁶ + 2 on
    average, where float32 has steps of 4.
    """
    signs = [1, 1, -1, 1, -1, -1, -1, 1]
    samples = [[5000.0 + s, -3000.0 - s] for s in signs]
    batches = [(samples[a:b], [1] * (b - a)) for a, b in ((0, 3), (3, 6), (6, 8))]
    sent, kept = trained(Prototypes(), client([0, 8, 0, 0]), *batches)
    assert float(kept["prototypes.radius"]) == pytest.approx(math.sqrt(8 / 7), rel=1e-6)
    assert kept["prototypes.vectors"][1].tolist() == [5000, -3000]
    assert all(value.dtype == torch.float32 for value in (*sent.values(), *kept.values()))


class Far(nn.Module):
    """Features around 500, which differ from sample to sample by a thousandth of it."""

    def __init__(self, classes):
        super().__init__()
        self.body = nn.Linear(64, 5)
        self.head = nn.Linear(5, classes)
        with torch.no_grad():
            self.body.bias.fill_(500.0)

    def features(self, x):
        return self.body(x.flatten(1))

    def forward(self, x):
        return self.head(self.features(x))


@pytest.mark.parametrize("engine", ["serial", "vmap"])
def test_the_radius_of_a_client_that_has_trained(engine):
    """In float64, in two passes, from the features of the final model; batches of 7, the last one short."""
    settings = {
        "model": "test_prototypes:Far",
        "method": {"name": "fedavg", "terms": ["prototypes"]},
        "partition": {"name": "label-dirichlet", "clients": 10, "alpha": 1.0},
        "local": {"steps": 2, "batch": 7, "lr": 1e-6},
        "engine": engine,
    }
    federation = Federation(Experiment.parse(settings))
    with federation.open() as runner:
        tasks = list(federation.requests(1, runner))
        updates = list(runner.run(tasks))
    federation.close()
    data = federation.dataset
    for task, update in zip(tasks, updates, strict=True):
        weights = federation.layout.views(task.model + update.delta)
        x = normalise(data.train.samples[task.samples], torch.tensor(data.mean), torch.tensor(data.std))
        features = (x.flatten(1) @ weights["body.weight"].T + weights["body.bias"]).double()
        labels = data.train.labels[task.samples]
        spreads, known = [], labels.unique().tolist()
        for label in known:
            own = features[labels == label]
            torch.testing.assert_close(
                update.state["prototypes.vectors"][label].double(), own.mean(0), rtol=1e-6, atol=0
            )
            spreads.append(float(own.var(0).sum()) if len(own) > 1 else 0.0)
        expected = math.sqrt(sum(spreads) / len(known) / 5)
        assert expected < 2e-3 * 500
        assert float(update.state["prototypes.radius"]) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(("radius", "second"), [("round", 0.0), ("first", A_RADIUS)])
def test_what_a_client_remembers_of_other_tasks(radius, second):
    """In a second round it has one sample (5, 5) of class 3 alone: the others stay as they were."""
    term = Prototypes(radius=radius)
    _, kept = trained(term, client([2, 0, 1, 0]), *A)
    _, kept = trained(term, client([0, 0, 0, 1], kept), ([[5.0, 5.0]], [3]))
    assert kept["prototypes.vectors"].tolist() == [[2, 0], [0, 0], [0, 4], [5, 5]]
    assert kept["prototypes.known"].tolist() == [1, 0, 1, 1]
    assert float(kept["prototypes.radius"]) == pytest.approx(second)


def joined(term, server, *uploads):
    change = {name: torch.stack([sent[name] for sent, _ in uploads]).mean(0) for name in uploads[0][0]}
    return term.absorb(server, Aggregate(LAYOUT.zeros(), NONE, change, len(uploads))).state


def test_the_server_joins_prototypes():
    """A (3 samples) has e₀ = (2, 0), e₂ = (0, 4), r = √½; B (1 sample) has e₀ = (6, 0), r = 0.

    Class 0, of both: (3 · 2 + 1 · 6) / 4 = 3. Class 2, of A alone: (0, 4), not three quarters of it. Nobody
    has classes 1 and 3. r = ¾ √½.
    """
    term = Prototypes()
    server = Server(LAYOUT.zeros(), NONE, term.server_state(LAYOUT))
    a, b = trained(term, client([2, 0, 1, 0]), *A), trained(term, client([1, 0, 0, 0]), ([[6.0, 0.0]], [0]))
    state = joined(term, server, a, b)
    assert state["prototypes.vectors"].tolist() == [[3, 0], [0, 0], [0, 4], [0, 0]]
    assert state["prototypes.known"].tolist() == [1, 0, 1, 0]
    assert float(state["prototypes.radius"]) == pytest.approx(0.75 * A_RADIUS)


@pytest.mark.parametrize(
    ("memory", "vectors", "known"),
    [
        ("keep", [[2.1, 0], [7, 7], [0, 4], [0, 0]], [1, 1, 1, 0]),
        ("round", [[2.1, 0], [0, 0], [0, 4], [0, 0]], [1, 0, 1, 0]),
    ],
)
def test_the_servers_memory(memory, vectors, known):
    """The server has e₀ = (2, 0) and e₁ = (7, 7). ē₀ = (3, 0), as above, so e₀ = 0.1 · 3 + 0.9 · 2 = 2.1.

    ē₂ is new and taken as it is. Class 1 was sent by nobody: it is kept, or forgotten as in released code.
    """
    term = Prototypes(memory=memory)
    state = {
        "prototypes.vectors": torch.tensor([[2.0, 0], [7, 7], [0, 0], [0, 0]]),
        "prototypes.known": torch.tensor([1.0, 1, 0, 0]),
        "prototypes.radius": torch.tensor(9.0),
    }
    a, b = trained(term, client([2, 0, 1, 0]), *A), trained(term, client([1, 0, 0, 0]), ([[6.0, 0.0]], [0]))
    after = joined(term, Server(LAYOUT.zeros(), NONE, state), a, b)
    assert after["prototypes.vectors"].tolist() == [pytest.approx(row) for row in vectors]
    assert after["prototypes.known"].tolist() == known
    assert float(after["prototypes.radius"]) == pytest.approx(0.75 * A_RADIUS)  # without β


def known(*classes):
    state = Prototypes().client_state(LAYOUT)
    for label in classes:
        state["prototypes.vectors"][label] = torch.tensor([label + 1.0, -1.0])
        state["prototypes.known"][label] = 1
    state["prototypes.radius"] = torch.tensor(0.5)
    return state


def test_pseudo_features():
    """Of classes 1 and 3, each for half of [0, 1): e₁ = (2, −1) and e₃ = (4, −1), moved by ½ noise."""
    found = Memory(*(known(1, 3)[f"prototypes.{name}"] for name in ("vectors", "known", "radius")))
    noise = torch.tensor([[0.0, 0], [2, 0], [0, 0], [0, 4]])
    features, classes = found.pseudo(found.known, torch.tensor([0.0, 0.4999, 0.5, 0.9999]), noise)
    assert classes.tolist() == [1, 1, 3, 3]
    assert features.tolist() == [[2, -1], [3, -1], [4, -1], [4, 1]]


@pytest.mark.parametrize("current", [False, True])
def test_classes_of_pseudo_features(current):
    """Without `current`, never those of its task (of 3 it has no samples); and every other one comes."""
    term, labels = Prototypes(current=current), []

    class Ear(Identity):
        def head(self, features):
            labels.extend(features[:, 0].round().int().sub(1).tolist())
            return super().head(features)

    state = known(0, 1, 2, 3)
    state["prototypes.radius"] = torch.zeros(())
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        batch = Batch(torch.zeros(1, 2), torch.tensor([1]), drawn=term.draw(64, LAYOUT, generator))
        term.losses(Ear(), batch, torch.zeros(1, 2), client([0, 5, 0, 0], state, task=(1, 3)))
    assert set(labels) == ({0, 1, 2, 3} if current else {0, 2})


def drawn(pick):
    return {"prototypes.pick": torch.tensor(pick), "prototypes.noise": torch.zeros(len(pick), 2)}


@pytest.mark.parametrize("temperature", [1.0, 0.1])
def test_the_loss(temperature):
    """ê = e₀ = (1, −1) has logits (3, 0, 0, 0), so CE = log(e³ + 3) − 3; ê = e₂ = (3, −1) has (9, 0, 0, 0)
    and the label 2: log(e⁹ + 3). λ times their mean, all logits by the temperature.
    """
    term = Prototypes(weight=0.5).within(Head(temperature=temperature))
    batch = Batch(torch.zeros(2, 2), torch.tensor([1, 1]), drawn=drawn([0.0, 0.9]))
    found = term.losses(Identity(), batch, torch.zeros(2, 2), client([0, 2, 0, 0], known(0, 1, 2)))
    t = temperature
    first = math.log1p(3 * math.exp(-3 / t))
    second = 9 / t + math.log1p(3 * math.exp(-9 / t))
    assert float(found) == pytest.approx(0.5 * (first + second) / 2, rel=1e-5)


def test_with_a_rotation_head_labels_are_of_upright_images():
    """Two classes with four outputs each: class 1 is output 4, whose logit is 0 beside 3 · 2 of output 0."""

    class Eight(Identity):
        def head(self, features):
            return torch.cat([3 * features[:, :1], torch.zeros(len(features), 7)], 1)

    layout = Layout.of(nn.Linear(2, 8))
    term = Prototypes(weight=1.0).within(Head(rotations=True))
    state = term.client_state(layout)
    assert state["prototypes.vectors"].shape == (2, 2)
    state["prototypes.vectors"][1], state["prototypes.known"][1] = torch.tensor([2.0, 0.0]), 1.0
    who = Client(NONE, {}, state, torch.ones(8), torch.tensor([4.0, 0.0]), torch.tensor([1.0, 0.0]))
    batch = Batch(torch.zeros(4, 2), torch.tensor([0, 1, 2, 3]), drawn=drawn([0.3]))
    found = term.losses(Eight(), batch, torch.zeros(4, 2), who)
    assert float(found) == pytest.approx(math.log(math.exp(6) + 7), rel=1e-6)


def test_nothing_known_is_no_loss():
    term = Prototypes()
    batch = Batch(torch.zeros(1, 2), torch.tensor([1]), drawn=drawn([0.3]))
    assert float(term.losses(Identity(), batch, torch.zeros(1, 2), client([0, 2, 0, 0]))) == 0
    # Neither is it one if there are only the classes that the client trains on.
    assert float(term.losses(Identity(), batch, torch.zeros(1, 2), client([0, 2, 0, 0], known(1)))) == 0


def test_shared_prototypes_come_before_own_ones():
    """Once the server knows any class, its prototypes and its radius are used, and only those."""
    own, empty, shared = known(0, 1), Prototypes().server_state(LAYOUT), known(2)
    shared["prototypes.radius"] = torch.tensor(7.0)
    assert memory(client([1, 0, 0, 0], own)).known.tolist() == [1, 1, 0, 0]
    assert memory(client([1, 0, 0, 0], own, empty)).known.tolist() == [1, 1, 0, 0]
    found = memory(client([1, 0, 0, 0], own, shared))
    assert found.known.tolist() == [0, 0, 1, 0]
    assert found.vectors[2].tolist() == [3, -1]
    assert float(found.radius) == 7


def test_what_is_sent():
    """Nothing, and nothing is received, if prototypes stay with their clients."""
    term = Prototypes(aggregate=False)
    sent, kept = trained(term, client([2, 0, 1, 0]), *A)
    assert sent == {}
    assert kept["prototypes.known"].tolist() == [1, 0, 1, 0]
    assert term.server_state(LAYOUT) == {}
    assert term.broadcast({}) == {}


def test_a_classifier_alone_has_no_features():
    with pytest.raises(ConfigError, match=r"method\.terms: the model is nothing but a classifier"):
        Federation(
            Experiment.parse({"model": "logistic", "method": {"name": "fedavg", "terms": ["prototypes"]}})
        )
