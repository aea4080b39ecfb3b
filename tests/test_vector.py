import copy

import pytest
import torch
from torch import nn

from mnemos.errors import ConfigError, DataError
from mnemos.vector import Bound, Kind, Layout, load_model, save_model


def model():
    return nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(2 * 2 * 2, 3)
    )


def test_layout_names_places_and_kinds():
    layout = Layout.of(model())
    assert [(slot.name, slot.start, slot.stop, slot.kind) for slot in layout.parameters] == [
        ("0.weight", 0, 18, Kind.CONV),
        ("0.bias", 18, 20, Kind.BIAS),
        ("1.weight", 20, 22, Kind.NORM),
        ("1.bias", 22, 24, Kind.NORM),
        ("4.weight", 24, 48, Kind.LINEAR),
        ("4.bias", 48, 51, Kind.BIAS),
    ]
    assert layout.size == 51
    assert layout.buffer_size == 2 + 2 + 1
    assert Layout.of(nn.Embedding(3, 2)).parameters[0].kind is Kind.EMBEDDING


def test_bound_tensors_are_views_of_the_vectors():
    bound = Bound(model())
    bound.parameters.fill_(0.5)
    bound.buffers.fill_(2.0)
    assert all(bool((p == 0.5).all()) for p in bound.module.parameters())
    assert bool((bound.module[1].running_var == 2.0).all())
    bound.module(torch.randn(4, 1, 4, 4)).sum().backward()
    flat = torch.cat([p.grad.flatten() for p in bound.module.parameters()])
    assert torch.equal(bound.gradients, flat)
    assert float(bound.gradients.abs().sum()) > 0


def test_a_step_on_the_vector_equals_a_step_of_torch_on_the_module():
    plain, x, y = model(), torch.randn(5, 1, 4, 4), torch.tensor([0, 1, 2, 0, 1])
    bound = Bound(copy.deepcopy(plain))
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.cross_entropy(plain(x), y).backward()
        optimizer.step()
        bound.gradients.zero_()
        nn.functional.cross_entropy(bound.module(x), y).backward()
        bound.parameters -= 0.1 * bound.gradients
    parameters, buffers = bound.layout.gather(plain.state_dict())
    torch.testing.assert_close(bound.parameters, parameters)
    torch.testing.assert_close(bound.buffers, buffers)
    assert float(bound.buffers[-1]) == 3  # batches counted, although as a float


def test_state_dict_and_safetensors_round_trip(tmp_path):
    source, target = model(), model()
    source(torch.randn(4, 1, 4, 4))
    layout = Layout.of(source)
    vectors = layout.gather(source.state_dict())
    save_model(tmp_path / "m.safetensors", source, *vectors)
    load_model(tmp_path / "m.safetensors", target)
    for name, tensor in source.state_dict().items():
        assert target.state_dict()[name].dtype == tensor.dtype
        assert torch.equal(target.state_dict()[name], tensor)


def test_expand_repeats_one_value_a_tensor():
    layout = Layout.of(nn.Linear(2, 1))
    assert layout.expand(torch.tensor([3.0, 5.0])).tolist() == [3.0, 3.0, 5.0]


def test_gradient_of_views_is_one_vector():
    layout = Layout.of(nn.Linear(2, 1))
    vector = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    views = layout.views(vector)
    (views["weight"].square().sum() + 4 * views["bias"].sum()).backward()
    assert vector.grad.tolist() == [2.0, 4.0, 4.0]


def test_tied_weights_stay_tied():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(2, 2, bias=False)
            self.b = nn.Linear(2, 2, bias=False)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.b(self.a(x))

    bound = Bound(Tied())
    assert bound.layout.size == 4
    bound.parameters.fill_(1.0)
    assert bound.module(torch.ones(1, 2)).tolist() == [[4.0, 4.0]]


def test_a_buffer_that_is_not_persistent_is_left_alone():
    class Scaled(nn.Linear):
        def __init__(self):
            super().__init__(2, 1)
            self.register_buffer("scale", torch.tensor(3.0), persistent=False)

    assert Layout.of(Scaled()).buffer_size == 0


def test_wrong_types_and_files_are_named(tmp_path):
    with pytest.raises(ConfigError, match=r"'weight' is torch\.float64"):
        Layout.of(nn.Linear(1, 1, dtype=torch.float64))
    path = tmp_path / "m.safetensors"
    path.write_bytes(b"not safetensors")
    with pytest.raises(DataError, match=r"m\.safetensors"):
        load_model(path, nn.Linear(1, 1))
    save_model(path, nn.Linear(2, 1), torch.zeros(3), torch.zeros(0))
    with pytest.raises(DataError, match=r"'weight' is \(1, 2\), expected \(1, 1\)"):
        load_model(path, nn.Linear(1, 1))
