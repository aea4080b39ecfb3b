"""A head for rotations, and its temperature."""

import pytest
import torch
import torch.nn.functional as F

import mnemos
from mnemos.errors import ConfigError
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from mnemos.methods.exchange import Batch, Client
from mnemos.methods.head import Head
from mnemos.methods.presets.fedavg import FedAvg

TURNED = Head(rotations=True)


class Linear:
    """A net of two logits… times four, on images of four pixels."""

    def __init__(self) -> None:
        self.weight = torch.arange(32.0).view(8, 4) / 10

    def __call__(self, x):
        return x.flatten(1) @ self.weight.T


def client(counts):
    return Client(torch.zeros(0), {}, {}, counts, torch.zeros(2), torch.zeros(2))


def test_a_batch_is_turned_by_quarters():
    """To the left: [[1, 2], [3, 4]], [[2, 4], [1, 3]], [[4, 3], [2, 1]], [[3, 1], [4, 2]]."""
    batch = Batch(torch.tensor([[[[1.0, 2], [3, 4]]]]), torch.tensor([5]), torch.tensor([1.0]))
    found = TURNED.turned(batch)
    pixels = [[1, 2, 3, 4], [2, 4, 1, 3], [4, 3, 2, 1], [3, 1, 4, 2]]
    assert found.x.flatten(1).tolist() == pixels
    assert found.labels.tolist() == [20, 21, 22, 23]
    assert found.mask.tolist() == [1, 1, 1, 1]
    assert TURNED.upright(batch).labels.tolist() == [20]
    assert Head().turned(batch) is batch
    assert Head().upright(batch) is batch


def test_many_clients_are_turned_like_each():
    batches = [Batch(torch.rand(3, 1, 4, 4), torch.tensor([2, 0, 1])) for _ in range(2)]
    together = Batch(
        *(torch.stack(column) for column in zip(*[(b.x, b.labels) for b in batches], strict=True))
    )
    found = TURNED.turned(together)
    for row, batch in enumerate(batches):
        alone = TURNED.turned(batch)
        assert torch.equal(found.x[row], alone.x)
        assert torch.equal(found.labels[row], alone.labels)


def test_classes_are_read_from_images_as_they_are():
    """The outputs of class y are 4y to 4y + 3, and the first of them speaks for it."""
    logits = torch.arange(12.0)[None]
    assert TURNED.read(logits).tolist() == [[0, 4, 8]]
    assert Head(rotations=True, temperature=0.5).read(logits).tolist() == [[0, 8, 16]]
    assert TURNED.per_output(torch.tensor([3, 0])).tolist() == [3, 3, 3, 3, 0, 0, 0, 0]


@pytest.mark.parametrize("temperature", [1.0, 0.1])
def test_the_loss_is_the_mean_over_turns(temperature):
    method = FedAvg(head=Head(rotations=True, temperature=temperature))
    net, x, labels = Linear(), torch.rand(2, 1, 2, 2), torch.tensor([1, 0])
    batch = method.head.turned(Batch(x, labels))
    found = batch.mean(method.batch_loss(net, batch, client(torch.ones(8))))
    by_turn = [
        F.cross_entropy(net(torch.rot90(x, turn, (2, 3))) / temperature, 4 * labels + turn)
        for turn in range(4)
    ]
    assert float(found) == pytest.approx(float(torch.stack(by_turn).mean()), rel=1e-5)


def small(**changes):
    settings = {
        "model": {"name": "mlp", "hidden": [8]},
        "partition": {"name": "iid", "clients": 3},
        "method": {"name": "fedavg", "head": {"rotations": True, "temperature": 0.5}},
        "local": {"steps": 2},
        "participation": 1.0,
        "rounds": 2,
        "engine": "serial",
    }
    return {**settings, **changes}


def test_a_trained_model_gives_classes(tmp_path):
    """What `run.model()` says of the test set is what the federation recorded."""
    run = mnemos.run(small(), out=tmp_path)
    dataset = Federation(run.experiment).dataset
    images = (dataset.test.samples.float() - torch.tensor(dataset.mean)) / torch.tensor(dataset.std)
    with torch.no_grad():
        logits = run.model()(images)
    assert logits.shape == (len(dataset.test), 10)
    accuracy = float((logits.argmax(1) == dataset.test.labels).double().mean())
    assert accuracy == pytest.approx(run.metrics.query("name == 'test_accuracy'").value.iloc[-1])
    loss = float(F.cross_entropy(logits, dataset.test.labels))
    assert loss == pytest.approx(run.metrics.query("name == 'test_loss'").value.iloc[-1], rel=1e-5)


def test_only_square_images_can_be_turned(tmp_path):
    import numpy as np

    rng = np.random.default_rng(0)
    x, y = rng.random((40, 3), dtype=np.float32), np.arange(40) % 2
    np.savez(tmp_path / "flat.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    description = small(data={"name": "npz", "path": str(tmp_path / "flat.npz")})
    with pytest.raises(ConfigError, match=r"method\.head\.rotations: .*rotations need square images"):
        Federation(Experiment.parse(description))
