"""Every built-in model: sizes worked out by hand, shapes, gradients, and cohorts under vmap."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad, vmap

from mnemos.common.rng import generator
from mnemos.common.shapes import TokenShape
from mnemos.errors import ConfigError
from mnemos.models.model import Classifier, build_model, models

IMAGE = (3, 16, 16)
NARROW: list[dict[str, Any]] = [
    {"name": "logistic"},
    {"name": "mlp", "hidden": [6, 4]},
    {"name": "mlp", "hidden": [6, 4], "norm": "group"},
    {"name": "mlp", "hidden": [6, 4], "norm": "layer"},
    {"name": "mlp", "hidden": [6, 4], "norm": "batch"},
    {"name": "lenet", "width": 0.5},
    *(
        {"name": "cnn", "width": 0.1, "norm": norm}
        for norm in ("none", "group", "layer", "instance", "batch")
    ),
    *(
        {"name": "resnet18", "width": 0.05, "norm": norm}
        for norm in ("none", "group", "layer", "instance", "batch", "mixed")
    ),
    {"name": "resnet10", "width": 0.05, "norm": "batch"},
    {"name": "resnet34", "width": 0.03, "norm": "group"},
]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads that wait for each other over tiny tensors take longer than the work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def label(config: dict[str, Any]) -> str:
    return f"{config['name']}-{config.get('norm', 'default')}"


def build(config: dict[str, Any] | str, shape: tuple[int, ...] = IMAGE, classes: int = 10) -> nn.Module:
    return build_model(models.parse(config), shape, classes, generator(0, "model"))


def size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def batch(shape: tuple[int, ...] = IMAGE) -> tuple[torch.Tensor, torch.Tensor]:
    draws = generator(1, "batch")
    return torch.randn(4, *shape, generator=draws), torch.randint(10, (4,), generator=draws)


def test_names() -> None:
    assert models.names() == [
        "cnn", "lenet", "logistic", "mixed", "mlp", "resnet10", "resnet18", "resnet34", "text", "text-cnn",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("config", "shape", "classes", "parameters"),
    [
        # 3·6·25+6, 6·16·25+16, 400·120+120, 120·84+84, 84·10+10
        ("lenet", (3, 32, 32), 10, 456 + 2416 + 48120 + 10164 + 850),
        # 28 → 24 → 12 → 8 → 4: 256 features
        ("lenet", (1, 28, 28), 62, 156 + 2416 + 30840 + 10164 + 5270),
        # channels 3, 8; hidden 60, 42; one pixel left
        ({"name": "lenet", "width": 0.5}, (3, 16, 16), 10, 228 + 608 + 540 + 2562 + 430),
        ("logistic", (3, 4, 4), 7, 48 * 7 + 7),
        ("logistic", (20,), 2, 42),
        ("mlp", (1, 8, 8), 10, 64 * 200 + 200 + 200 * 10 + 10),
        ({"name": "mlp", "hidden": [5, 4], "norm": "layer"}, (3,), 2, 20 + 10 + 24 + 8 + 10),
        ({"name": "mlp", "hidden": []}, (3,), 2, 8),
        # 1·32·9+32, 32·64·9+64, (64·2·2)·128+128, 128·10+10
        ("cnn", (1, 8, 8), 10, 320 + 18496 + 32896 + 1290),
        # no biases under a norm: 288 + 64, 18432 + 128
        ({"name": "cnn", "norm": "group"}, (1, 8, 8), 10, 352 + 18560 + 32896 + 1290),
    ],
)
def test_parameter_counts(config: Any, shape: tuple[int, ...], classes: int, parameters: int) -> None:
    assert size(build(config, shape, classes)) == parameters


def test_resnet_parameter_counts() -> None:
    shape = (3, 32, 32)
    plain = size(models.parse("resnet18").build(shape, 10))
    assert plain == 11_173_962
    # Stem 64; per stage 4 convolutions; shortcuts 128, 256, 512.
    biases = 64 + 4 * (64 + 128 + 256 + 512) + (128 + 256 + 512)
    assert size(models.parse({"name": "resnet18", "conv_bias": True}).build(shape, 10)) == plain + biases
    # Norms have twice as many parameters as the biases which replace them.
    assert size(models.parse({"name": "resnet18", "norm": "none"}).build(shape, 10)) == plain - biases
    for norm in ("group", "layer", "instance", "mixed"):
        assert size(models.parse({"name": "resnet18", "norm": norm}).build(shape, 10)) == plain
    # Half of each stage's blocks are gone: 2 · 9c² in convolutions and 4c in norms, for every c.
    gone = sum(18 * c * c + 4 * c for c in (64, 128, 256, 512))
    assert size(models.parse("resnet10").build(shape, 10)) == plain - gone
    assert size(models.parse("resnet34").build(shape, 10)) == 21_282_122


@pytest.mark.parametrize("config", NARROW, ids=label)
def test_forward_and_backward(config: dict[str, Any]) -> None:
    module = build(config).double()
    images, labels = batch()
    images = images.double()
    assert isinstance(module, Classifier)
    logits = module(images)
    assert logits.shape == (4, 10)
    assert module.features(images).shape == (4, module.feature_dim)
    loss = F.cross_entropy(logits, labels)
    loss.backward()
    assert torch.isfinite(loss)
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name


@pytest.mark.parametrize(
    "config", [config for config in NARROW if config.get("norm") not in ("batch", "mixed")], ids=label
)
def test_a_cohort_under_vmap_has_the_gradients_of_its_members(config: dict[str, Any]) -> None:
    module = build(config).double()
    draws = generator(2, "cohort")
    clients = 3
    images = torch.randn(clients, 2, *IMAGE, generator=draws).double()
    labels = torch.randint(10, (clients, 2), generator=draws)
    stacked = {
        name: torch.stack([p.detach() + 0.01 * torch.randn(p.shape, generator=draws) for _ in range(clients)])
        for name, p in module.named_parameters()
    }

    def loss(parameters: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(functional_call(module, parameters, (x,)), y)

    together = vmap(grad(loss))(stacked, images, labels)
    for client in range(clients):
        own = {name: value[client] for name, value in stacked.items()}
        alone = grad(loss)(own, images[client], labels[client])
        for name, value in alone.items():
            torch.testing.assert_close(together[name][client], value, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("config", "shape"),
    [
        ({"name": "lenet"}, (1, 28, 28)),
        ({"name": "lenet"}, (3, 17, 23)),
        ({"name": "cnn", "width": 0.2}, (1, 8, 8)),
        ({"name": "cnn", "width": 0.2}, (3, 64, 64)),
        ({"name": "cnn", "width": 0.2}, (2, 9, 14)),
        ({"name": "resnet18", "width": 0.05}, (1, 8, 8)),
        ({"name": "resnet18", "width": 0.05, "norm": "instance"}, (1, 9, 8)),
        ({"name": "resnet18", "width": 0.05, "norm": "mixed"}, (5, 28, 20)),
        ({"name": "mlp"}, (13,)),
        ({"name": "logistic"}, (13,)),
    ],
    ids=lambda value: value["name"] if isinstance(value, dict) else "x".join(map(str, value)),
)
def test_sample_shapes(config: dict[str, Any], shape: tuple[int, ...]) -> None:
    assert build(config, shape, 3)(torch.zeros(5, *shape)).shape == (5, 3)


def test_widths_are_multiples_of_the_groups() -> None:
    module = models.parse({"name": "resnet18", "width": 0.1, "norm": "group", "groups": 4}).build(IMAGE, 10)
    channels = {layer.num_channels for layer in module.modules() if isinstance(layer, nn.GroupNorm)}
    assert channels == {8, 12, 24, 52}  # 6.4, 12.8, 25.6, 51.2
    assert {layer.num_groups for layer in module.modules() if isinstance(layer, nn.GroupNorm)} == {4}


def test_tiny_widths_keep_a_channel() -> None:
    assert build({"name": "resnet18", "width": 0.001, "norm": "layer"})(torch.zeros(2, *IMAGE)).shape == (
        2,
        10,
    )
    assert build({"name": "lenet", "width": 0.001})(torch.zeros(2, *IMAGE)).shape == (2, 10)


def test_mixed_norms_are_where_the_thesis_has_them() -> None:
    module = models.parse({"name": "resnet18", "width": 0.1, "norm": "mixed"}).build(IMAGE, 10)
    norms = [
        (name, type(layer).__name__)
        for name, layer in module.named_modules()
        if isinstance(layer, nn.BatchNorm2d | nn.GroupNorm)
    ]
    assert norms[0] == ("body.1", "BatchNorm2d")  # the stem
    blocks = norms[1:]
    assert all(kind == "BatchNorm2d" for name, kind in blocks if name.endswith("residual.1"))
    assert all(kind == "GroupNorm" for name, kind in blocks if name.endswith("residual.4"))
    assert [kind for name, kind in blocks if "shortcut" in name] == ["GroupNorm"] * 3
    assert len(blocks) == 8 + 8 + 3


def test_the_head_comes_last() -> None:
    for part in models:
        if part.name == "mixed":
            continue  # it has a head a branch
        shape = (3, 32, 32) if part.takes_numbers else TokenShape((8,), ids=5)
        names = [name for name, _ in part().build(shape, 10).named_parameters()]
        assert names[-2:] == ["head.weight", "head.bias"]


def test_lenet_is_the_same_function_with_relu_before_pooling() -> None:
    module = build("lenet", (1, 28, 28))
    images, _ = batch((1, 28, 28))
    body = module.body
    x = F.max_pool2d(F.relu(body[0](images)), 2)
    x = F.max_pool2d(F.relu(body[3](x)), 2).flatten(1)
    x = F.relu(body[9](F.relu(body[7](x))))
    assert torch.equal(module(images), module.head(x))


@pytest.mark.parametrize(
    ("config", "shape", "words"),
    [
        ("lenet", (1, 8, 8), "it takes images of at least 16×16; the data's are 8×8"),
        ("resnet18", (3, 7, 32), "at least 8×8; the data's are 7×32"),
        ("cnn", (20,), r"the data's samples have shape \(20,\)"),
        ({"name": "resnet18", "norm": "instance"}, (3, 8, 8), "norm: found 'instance'"),
        ({"name": "mlp", "hidden": [25], "norm": "group"}, (4,), "groups: found 2; 25 channels"),
        ({"name": "mlp", "hidden": [2], "norm": "group"}, (4,), "groups: .* constant"),
    ],
)
def test_shapes_that_a_model_cannot_take(config: Any, shape: tuple[int, ...], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        build(config, shape)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"name": "lenett"}, "did you mean 'lenet'"),
        ({"name": "resnet18", "norm": "bach"}, "norm: found 'bach'"),
        ({"name": "mlp", "norm": "instance"}, "norm: found 'instance'"),
        ({"name": "mlp", "hidden": [0]}, "hidden.0"),
        ({"name": "lenet", "width": 0}, "width: found 0; allowed: > 0"),
        ({"name": "lenet", "norm": "batch"}, "norm: unknown field"),
    ],
)
def test_wrong_options(config: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        models.parse(config)


@pytest.mark.parametrize("config", NARROW, ids=label)
def test_parts_dump_and_parse(config: dict[str, Any]) -> None:
    part = models.parse(config)
    assert models.parse(part.dump()) == part
    assert part.dump().items() >= config.items()
