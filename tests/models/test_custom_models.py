"""A user's own modules, named by import path."""

from __future__ import annotations

import copy
import pickle
from typing import Annotated, Any

import pytest
import torch
from pydantic import BaseModel
from torch import Tensor, nn

from mnemos.common.rng import generator
from mnemos.errors import ConfigError
from mnemos.models.dropout import Dropout
from mnemos.models.model import Custom, Model, build_model, models

SHAPE = (3, 8, 8)


class Both(nn.Module):
    """Takes everything."""

    def __init__(self, shape: tuple[int, ...], classes: int, hidden: int = 7) -> None:
        super().__init__()
        size = shape[0] * shape[1] * shape[2]
        self.net = nn.Sequential(
            nn.Flatten(), nn.Linear(size, hidden), nn.ReLU(), nn.Dropout(0.3), nn.Linear(hidden, classes)
        )
        self.scale = nn.Parameter(torch.randn(classes))
        nn.init.constant_(self.net[1].bias, 0.25)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x) * self.scale


class Fixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Conv2d(3, 10, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.pool(x)).flatten(1)


def factory(classes: int, *, depth: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), *(nn.Linear(192, 192) for _ in range(depth)), nn.Linear(192, classes))


def lazy(classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(classes))


def not_a_module() -> int:
    return 3


def broken() -> nn.Module:
    raise RuntimeError("out of luck\nand more")


def wrong_output() -> nn.Module:
    return nn.Flatten()


def pair() -> nn.Module:
    return nn.RNN(8, 10)


class OwnPart(Model):
    """A user's own part, with checked options."""

    hidden: int = 4

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(192, self.hidden), nn.Linear(self.hidden, classes))


class Holder(BaseModel):
    model: Annotated[Model, models]


something = 3


def path(name: str) -> str:
    return f"{__name__}:{name}"


def build(config: Any, seed: int = 0) -> nn.Module:
    return build_model(models.parse(config), SHAPE, 10, generator(seed, "model"))


@pytest.mark.parametrize(
    "config",
    [
        {"name": path("Both")},
        {"name": path("Both"), "options": {"hidden": 5}},
        {"name": path("Fixed")},
        {"name": path("factory"), "options": {"depth": 2}},
        {"name": path("lazy")},
        {"name": path("OwnPart"), "hidden": 3},
    ],
    ids=str,
)
def test_building(config: dict[str, Any]) -> None:
    before = torch.get_rng_state()
    module = build(config)
    assert torch.equal(before, torch.get_rng_state())
    assert module.training
    assert module(torch.randn(4, *SHAPE)).shape == (4, 10)
    again, other = build(config), build(config, seed=1)
    assert all(torch.equal(a, b) for a, b in zip(module.parameters(), again.parameters(), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(module.parameters(), other.parameters(), strict=True))


def test_own_initialisation_is_kept_and_dropout_is_ours() -> None:
    module = build({"name": path("Both"), "options": {"hidden": 5}})
    assert torch.equal(module.net[1].bias, torch.full((5,), 0.25))
    assert isinstance(module.net[3], Dropout)
    assert module.net[3].p == 0.3


def test_round_trip() -> None:
    config = {"name": path("Both"), "options": {"hidden": 5}}
    part = models.parse(config)
    assert isinstance(part, Custom)
    assert part.dump() == config
    assert models.parse(part.dump()) == part
    assert models.parse(part) is part
    assert models.parse({"name": path("Both")}) != part
    assert models.parse({"name": path("factory"), "options": {"hidden": 5}}) != part
    assert pickle.loads(pickle.dumps(part)) == part
    assert copy.deepcopy(part) == part
    assert path("Both") not in models.names()


def test_as_a_field_of_an_experiment() -> None:
    config = {"model": {"name": path("Both"), "options": {"hidden": 5}}}
    assert Holder.model_validate(config).model_dump() == config
    assert Holder.model_validate({"model": "lenet"}).model_dump() == {
        "model": {"name": "lenet", "width": 1.0}
    }


def test_a_name_alone_is_enough() -> None:
    assert models.parse(path("Fixed")).dump() == {"name": path("Fixed"), "options": {}}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (path("Missing"), "has no 'Missing'"),
        ("no.such.package:Net", "can't be imported"),
        (path("something"), "neither a torch.nn.Module nor a function"),
        (path("Holder"), "neither a torch.nn.Module nor a function"),
        ({"name": path("Both"), "hidden": 5}, "hidden: unknown field"),
        ({"name": path("Both"), "options": {"hiden": 5}}, "options: .* unexpected keyword argument 'hiden'"),
        (path("factory"), "options: .* missing a required .*'depth'"),
        (path("not_a_module"), "gives int, not a torch.nn.Module"),
        (path("broken"), "can't be built: out of luck"),
        (path("wrong_output"), r"for 2 samples and 10 classes it gives \(2, 192\), not \(2, 10\)"),
        (path("pair"), "can't take a batch"),
        ({"name": path("factory"), "options": {"depth": 0, "classes": 9}}, r"gives \(2, 9\), not \(2, 10\)"),
    ],
    ids=str,
)
def test_mistakes_are_one_sentence(config: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        build(config)
    assert "\n" not in str(caught.value)


def test_the_check_leaves_modes_as_they_were() -> None:
    part = models.parse(path("Both"))
    module = build_model(part, SHAPE, 10, generator(0, "model"))
    assert all(layer.training for layer in module.modules())
