"""Encoders: what belongs to one, what is put where, and what is refused in which words."""

import json
import struct

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from mnemos.errors import ConfigError, DataError
from mnemos.models.encoder import (
    Encoder,
    body_of,
    digest,
    head_of,
    load_encoder,
    place,
    save_encoder,
)
from mnemos.models.model import build_model, models

SHAPE = (3, 16, 16)


def built(part, seed=0, classes=5):
    return build_model(models.parse(part), SHAPE, classes, torch.Generator().manual_seed(seed))


def encoder_of(module, **about):
    body = body_of(module.state_dict(), head_of(module, SHAPE))
    return Encoder({name: tensor.clone() for name, tensor in body.items()}, about, "it")


class Plain(nn.Module):
    """The head is the last linear layer that is used, not the last that is defined."""

    def __init__(self, shape, classes):
        super().__init__()
        self.top = nn.Linear(7, classes)
        self.bottom = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 7))

    def forward(self, x):
        return self.top(self.bottom(x))


class Frozen(Plain):
    """It has a tensor that training doesn't change."""

    def __init__(self, shape, classes):
        super().__init__(shape, classes)
        self.register_buffer("mask", torch.tensor([1, 0, 1]))


@pytest.mark.parametrize("name", ["resnet10", "lenet", "cnn", "mlp"])
def test_the_head_of_our_models(name):
    assert head_of(built(name), SHAPE) == "head"


def test_the_head_of_any_module():
    module = Plain(SHAPE, 5)
    assert head_of(module, SHAPE) == "top"
    assert module.training  # as it was
    with pytest.raises(ConfigError, match="neither a head nor a linear layer"):
        head_of(nn.Conv2d(3, 5, 16), SHAPE)


def test_all_but_the_head_is_taken_over():
    """Also the statistics of batch-norm and their counters; another number of classes doesn't matter."""
    part = {"name": "resnet10", "width": 0.125}
    trained, model = built(part, seed=1, classes=9), built(part)
    trained.train()(torch.randn(4, *SHAPE, generator=torch.Generator().manual_seed(0)))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    place(encoder_of(trained), model, SHAPE)
    heads = {name for name in before if name.startswith("head.")}
    assert heads == {"head.weight", "head.bias"}
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name] if name in heads else trained.state_dict()[name]), name
    changed = {name for name in before if not torch.equal(before[name], model.state_dict()[name])}
    assert {"body.0.weight", "body.1.running_mean", "body.1.num_batches_tracked"} <= changed


def test_a_whole_models_file_will_do():
    trained, model = built("mlp", seed=1), built("mlp")
    head = model.head.weight.clone()
    place(Encoder(dict(trained.state_dict()), {}), model, SHAPE)
    assert torch.equal(model.body[1].weight, trained.body[1].weight)
    assert torch.equal(model.head.weight, head)


def test_what_does_not_fit_is_named():
    narrow = encoder_of(
        built({"name": "resnet10", "width": 0.125}), model={"name": "resnet10", "width": 0.125}
    )
    wrong = "tensor 'body.0.weight' is .8, 3, 3, 3., and the model's is .16, 3, 3, 3. .it is of resnet10 with"
    with pytest.raises(ConfigError, match=wrong):
        place(narrow, built({"name": "resnet10", "width": 0.25}), SHAPE)
    with pytest.raises(ConfigError, match=r"it has no tensor 'body\.1\.weight', and the model has"):
        place(encoder_of(built("cnn")), built("mlp"), SHAPE)
    more = encoder_of(built("mlp"))
    more.tensors["body.9.weight"] = torch.zeros(1)
    with pytest.raises(ConfigError, match=r"has a tensor 'body\.9\.weight', and the model has none"):
        place(more, built("mlp"), SHAPE)
    broken = encoder_of(built("mlp"))
    broken.tensors["body.1.bias"][0] = torch.nan
    with pytest.raises(ConfigError, match=r"'body\.1\.bias' has values that are not finite"):
        place(broken, built("mlp"), SHAPE)
    with pytest.raises(ConfigError, match="nothing but a head"):
        place(encoder_of(built("mlp")), built("logistic"), SHAPE)


def test_a_constant_must_be_the_same():
    """Clients make it anew from the model, so the encoder's would be lost."""
    one, other = Frozen(SHAPE, 5), Frozen(SHAPE, 5)
    place(encoder_of(one), other, SHAPE)
    one.mask[0] = 7
    with pytest.raises(ConfigError, match="'mask' differs from the model's, and training never changes it"):
        place(encoder_of(one), other, SHAPE)


def test_a_file_says_what_it_is(tmp_path):
    encoder = encoder_of(built("cnn"), model={"name": "cnn"}, accuracy=0.5)
    path = tmp_path / "new" / "encoder.safetensors"
    save_encoder(path, encoder)
    again = load_encoder(path)
    assert (again.about, again.accuracy, again.source) == (encoder.about, 0.5, str(path))
    assert again.digest == encoder.digest
    assert again.tensors.keys() == encoder.tensors.keys()
    # Anyone can read the header: eight bytes of length, then JSON.
    data = path.read_bytes()
    header = json.loads(data[8 : 8 + struct.unpack("<Q", data[:8])[0]])
    assert json.loads(header["__metadata__"]["mnemos.encoder"]) == encoder.about


def test_the_digest_is_of_names_types_shapes_and_values():
    one = {"a": torch.tensor([[1.0, 2.0]]), "b": torch.tensor(3)}
    assert digest(one) == digest({"b": one["b"], "a": one["a"].clone()})
    others = [
        {"a": one["a"].T, "b": one["b"]},
        {"a": one["a"] + 1e-6, "b": one["b"]},
        {"c": one["a"], "b": one["b"]},
        {"a": one["a"].double(), "b": one["b"]},
    ]
    assert digest(one) not in {digest(other) for other in others}


def test_files_that_are_none(tmp_path):
    with pytest.raises(DataError, match=r"nothing.safetensors doesn't exist"):
        load_encoder(tmp_path / "nothing.safetensors")
    (tmp_path / "text").write_text("no safetensors")
    with pytest.raises(DataError, match="can't be read as safetensors"):
        load_encoder(tmp_path / "text")
    with pytest.raises(DataError, match="is a folder, and a safetensors file with an encoder is expected"):
        load_encoder(tmp_path)
    save_file({"x": torch.zeros(1)}, tmp_path / "other", {"mnemos.encoder": "no JSON"})
    with pytest.raises(DataError, match="can't be read as safetensors"):
        load_encoder(tmp_path / "other")


@pytest.mark.parametrize(
    ("about", "doubted"),
    [
        ({"accuracy": 0.019, "options": {"labels": "single", "classes": 100}}, True),
        ({"accuracy": 0.02, "options": {"labels": "single", "classes": 100}}, False),
        ({"accuracy": 0.001, "options": {"labels": "multi", "classes": 100}}, False),  # of several an image
        ({"accuracy": "low", "options": {"labels": "single", "classes": 100}}, False),  # someone else's words
        ({}, False),
    ],
)
def test_one_that_has_learned_nothing_is_doubted(about, doubted):
    assert bool(Encoder({}, about).doubt) == doubted
