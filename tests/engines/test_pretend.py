"""The pretend devices that tests run on: the CPU's bits, a GPU's refusals, and counts worked out by hand."""

import copy
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.utils.data import DataLoader, TensorDataset

from support import pretend
from support.pretend import Counts
from support.pretend.library import CompilerError, _compiled

pretend.install()  # before any test makes a backward pass, which starts PyTorch's threads for devices
ZERO, ONE = "pretend:0", "pretend:1"


def _lenet():
    torch.manual_seed(3)
    features = [
        nn.Conv2d(3, 6, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
    ]
    return nn.Sequential(*features, nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 10))


def _normed():
    torch.manual_seed(4)
    features = [nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(
        *features, nn.Conv2d(4, 4, 2), nn.LayerNorm([4, 2, 2]), nn.Flatten(), nn.Linear(16, 5)
    )


def _batch(size, side=32, classes=10):
    generator = torch.Generator().manual_seed(5)
    images = torch.randn(size, 3, side, side, generator=generator)
    return images, torch.randint(classes, (size,), generator=generator)


def _same(one, other):
    """Whether tensors of the CPU and of a device have the same bits, types and strides."""
    assert len(one) == len(other)
    for mine, theirs in zip(one, other, strict=True):
        assert (mine.device.type, theirs.device.type) == ("cpu", "pretend")
        assert mine.stride() == theirs.stride()
        assert mine.dtype == theirs.dtype
        assert torch.equal(mine, theirs.cpu())


# The same bits


def _trained(device, memory_format=torch.contiguous_format, net=None):
    net = copy.deepcopy(net or _lenet()).to(device, memory_format=memory_format)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    images, labels = (tensor.to(device) for tensor in _batch(8))
    images = images.contiguous(memory_format=memory_format)
    for _ in range(3):
        optimiser.zero_grad()
        F.cross_entropy(net(images), labels).backward()
        optimiser.step()
    return [value.detach() for p in net.parameters() for value in (p, p.grad)]


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_steps_give_the_bits_of_the_cpu(memory_format):
    _same(_trained("cpu", memory_format), _trained("pretend", memory_format))


def _gradients(device):
    net = _normed().to(device)
    images, labels = (tensor.to(device) for tensor in _batch(12, 8, 5))
    stacked = {name: torch.stack([p.detach()] * 6) for name, p in net.named_parameters()}

    def loss(parameters, images, labels):
        return F.cross_entropy(functional_call(net, parameters, (images,)), labels)

    return list(vmap(grad(loss))(stacked, images.unflatten(0, (6, 2)), labels.unflatten(0, (6, 2))).values())


def test_gradients_of_many_clients_give_the_bits_of_the_cpu():
    _same(_gradients("cpu"), _gradients("pretend"))


def _normalised(device):
    images = _batch(12, 6)[0].to(device).unflatten(0, (3, 4))
    weight = torch.linspace(1, 2, 9, device=device).reshape(3, 3)

    def loss(weight, images):
        return (F.batch_norm(images, None, None, weight, weight, training=True) ** 3).sum()

    return [vmap(grad(loss))(weight, images), vmap(loss)(weight, images)]


def test_batch_norm_of_many_clients_gives_the_bits_of_the_cpu():
    _same(_normalised("cpu"), _normalised("pretend"))


NUMBERS = torch.linspace(-2, 3, 24).reshape(4, 6).sin()
WHOLE = torch.tensor([3, 0, 3, 1])
IMAGES = torch.linspace(-1, 1, 96).cos().reshape(1, 6, 4, 4)

OPERATORS = {
    "svd": lambda x, _: torch.linalg.svd(x),
    "svdvals": lambda x, _: torch.linalg.svdvals(x),
    "eigh": lambda x, _: torch.linalg.eigh(x @ x.T),
    "sort": lambda x, _: x.sort(),
    "top": lambda x, _: x.topk(2),
    "median": lambda x, _: x.median(0),
    "bincount": lambda _, i: i.bincount(minlength=6),
    "unique": lambda _, i: i.unique(return_inverse=True, return_counts=True),
    "add at": lambda x, i: x.clone().index_add_(0, i, x),
    "scatter": lambda x, i: x.scatter(0, i.reshape(4, 1), x),
    "scatter-add": lambda x, i: x.scatter_add(0, i.reshape(4, 1), x),
    "gather": lambda x, i: x.gather(0, i.reshape(4, 1)),
    "repeat": lambda x, i: x.repeat_interleave(i, 0),
    "mask": lambda x, _: x[x > 0],
    "write": lambda x, i: x.index_put((i[:1],), x[1]),
    "embedding": lambda x, i: F.embedding(i, x),
    "classes": lambda _, i: F.one_hot(i, 5),
    "rot90": lambda x, _: torch.rot90(x, 1, (0, 1)),
    "flip": lambda x, _: x.flip(1),
    "roll": lambda x, _: x.roll(1, 0),
    "windows": lambda x, _: x.unfold(1, 3, 2),
    "triangle": lambda x, _: x.tril(),
    "split": lambda x, _: x.split([1, 3]),
    "double": lambda x, _: x.double() @ x.double().T,
    "bfloat16": lambda x, _: x.bfloat16() @ x.bfloat16().T,
    "bytes": lambda _, i: i.to(torch.uint8) + 250,
    "bools": lambda x, _: (x > 0) & (x < 0.5),
    "complex": lambda x, _: torch.view_as_real(torch.fft.fft(x).conj() * 2),
    "norms": lambda x, _: (x.norm(), x.norm(p=1, dim=0), x.std(), x.var(1)),
    "out": lambda x, _: torch.add(x, x, out=torch.empty(0, device=x.device)),
    "resized": lambda x, _: x.clone().resize_(5, 6).zero_(),
    "list": lambda x, i: torch._foreach_mul([x, i.float()], 0.3),
    "made": lambda x, _: (
        torch.arange(5, device=x.device),
        torch.eye(2, device=x.device),
        x.new_full((2,), 3),
    ),
}

IMAGE_OPERATORS = {
    "grid": lambda x: F.grid_sample(x, x[:, :2].movedim(1, 3), align_corners=False),
    "reflected": lambda x: F.pad(x, (1, 1, 2, 2), mode="reflect"),
    "padded": lambda x: F.pad(x, (1, 2)),
    "unfolded": lambda x: F.unfold(x, 3),
    "transposed": lambda x: F.conv_transpose2d(x, x[:, :, :2, :2].movedim(0, 1)),
    "depthwise": lambda x: F.conv2d(x, x.movedim(0, 1)[..., :2, :2], groups=6),
    "pooled": lambda x: F.max_pool2d(x, 2, return_indices=True),
    "averaged": lambda x: F.adaptive_avg_pool2d(x, 2),
    "enlarged": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "groups": lambda x: F.group_norm(x, 3),
}


def _listed(results):
    return results if isinstance(results, (tuple, list)) else [results]


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_give_the_bits_of_the_cpu(name):
    run = OPERATORS[name]
    _same(_listed(run(NUMBERS, WHOLE)), _listed(run(NUMBERS.to(ONE), WHOLE.to(ONE))))


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("name", IMAGE_OPERATORS)
def test_operators_on_images_give_the_bits_of_the_cpu(name, memory_format):
    run, images = IMAGE_OPERATORS[name], IMAGES.contiguous(memory_format=memory_format)
    _same(_listed(run(images)), _listed(run(images.to("pretend"))))


def test_views_share_memory_and_writes_reach_them():
    x = torch.zeros(2, 3, device="pretend")
    column, flat = x[:, 1], x.view(6)
    column += 1
    flat[0] = 5
    assert x.tolist() == [[5, 1, 0], [0, 1, 0]]
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.zeros(1, device="pretend").expand(4).add_(1)


def test_copies_of_modules_are_apart():
    net = nn.Linear(2, 2, bias=False).to(ONE)
    twin = copy.deepcopy(net)
    with torch.no_grad():
        net.weight.zero_()
    assert twin.weight.device == torch.device(ONE)
    assert twin.weight.count_nonzero() == 4


# What a GPU refuses


@pytest.mark.parametrize(
    "mixed",
    [
        lambda x: x + torch.ones(3),
        lambda x: torch.ones(2, 3).add_(x),
        lambda x: torch.ones(()).add_(x[0, 0]),
        lambda x: torch.ones(3, 2) @ x,
        lambda x: torch.cat([x, torch.ones(2, 3)]),
        lambda x: F.linear(x, torch.ones(4, 3)),
        lambda x: F.conv1d(x, torch.ones(2, 2, 1)),
        lambda x: x.index_select(0, torch.tensor(1)),
        lambda x: torch.ones(3)[x.long()],
        lambda x: x.to(ONE) + x,
        lambda x: torch.stack([x, x.to(ONE)]),
        lambda x: x[torch.tensor([0], device=ONE)],
    ],
)
def test_tensors_of_two_devices_are_refused(mixed):
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        mixed(torch.zeros(2, 3, device=ZERO))


def test_numpy_is_refused():
    with pytest.raises(TypeError, match="can't convert pretend:0 device type tensor to numpy"):
        torch.zeros(2, device="pretend").numpy()
    with pytest.raises(TypeError, match="can't convert pretend:0 device type tensor to numpy"):
        np.asarray(torch.zeros(2, device="pretend"))


@pytest.mark.parametrize(
    "draw",
    [
        lambda: torch.rand(3, device="pretend"),
        lambda: torch.randn(3, device="pretend", generator=torch.Generator()),
        lambda: torch.randperm(3, device="pretend"),
        lambda: torch.randint(3, (3,), device="pretend"),
        lambda: torch.zeros(3, device="pretend").bernoulli_(0.5),
        lambda: torch.multinomial(torch.ones(3, device="pretend"), 1),
        lambda: F.dropout(torch.ones(3, device="pretend")),
        lambda: nn.Linear(2, 2, device="pretend"),
        lambda: torch.Generator("pretend"),
    ],
)
def test_who_draws_on_a_device_is_told(draw):
    with pytest.raises(RuntimeError, match="generator"):
        draw()


def test_dropout_that_drops_nothing_draws_nothing():
    x = torch.ones(3, device="pretend")
    assert F.dropout(x, training=False).tolist() == F.dropout(x, 0.0).tolist() == [1, 1, 1]


# Counts

PROGRAMS = {
    # name: what is done with x = [[0, 1, 2], [3, 4, 5]] on the device, and what it costs
    "sent": (lambda x: torch.ones(3).to("pretend"), Counts(up=1)),
    "made in place": (lambda x: torch.zeros(3, device="pretend"), Counts(ops=1)),
    "room": (lambda x: torch.empty(3, device="pretend"), Counts()),
    "fetched": (lambda x: x.cpu(), Counts(down=1)),
    "listed": (lambda x: x.tolist(), Counts(down=1)),
    "moved": (lambda x: x.to(ONE), Counts(across=1)),
    "there already": (lambda x: x.to(ZERO), Counts()),
    "views": (lambda x: x.t().unsqueeze(0)[0, 1:].reshape(-1, 2).detach(), Counts()),
    "clone": (lambda x: x.clone(), Counts(ops=1)),
    "contiguous already": (lambda x: x.contiguous(), Counts()),
    "made contiguous": (lambda x: x.t().contiguous(), Counts(ops=1)),
    "type": (lambda x: x.double(), Counts(ops=1)),
    "one": (lambda x: x + 1, Counts(ops=1)),
    "two": (lambda x: (x + 1).sum(), Counts(ops=2)),
    "in place": (lambda x: x.mul_(2), Counts(ops=1)),
    "number of the host": (lambda x: x * torch.tensor(2.0), Counts(ops=1)),
    "choice of a number": (lambda x: torch.where(x.bool(), x, torch.tensor(1.0)), Counts(ops=2)),
    "fill a mask": (lambda x: x.masked_fill_(x.bool(), torch.tensor(1.0)), Counts(ops=2)),
    "fill a mask of a copy": (lambda x: x.masked_fill(x.bool(), 1.0), Counts(ops=3)),
    "list of tensors": (lambda x: torch._foreach_add_([x, x], 1), Counts(ops=1)),
    "convolution": (lambda x: F.conv1d(x, x.t().unsqueeze(2), x[0]), Counts(ops=1)),
    "item": (lambda x: x.sum().item(), Counts(ops=1, scalars=1)),
    "float": (lambda x: float(x[0, 0]), Counts(scalars=1)),
    "if": (lambda x: bool((x > 1).any()), Counts(ops=2, scalars=1)),
    "equal": (lambda x: torch.equal(x, x.clone()), Counts(ops=2, scalars=1)),
    "synchronised": (lambda x: torch.pretend.synchronize(), Counts(scalars=1)),
    "nonzero": (lambda x: x.nonzero(), Counts(ops=1, scalars=1)),
    "masked select": (lambda x: x.masked_select(x.bool()), Counts(ops=2, scalars=1)),
    "unique": (lambda x: x.unique(), Counts(ops=1, scalars=1)),
    "bincount": (lambda x: x[0].long().bincount(minlength=4), Counts(ops=2, scalars=1)),
    "repeat": (lambda x: x.repeat_interleave(x[0, :2].long(), 0), Counts(ops=3, scalars=1)),
    "repeat to a size": (
        lambda x: x.repeat_interleave(x[0, :2].long(), 0, output_size=1),
        Counts(ops=3),
    ),
    "repeat by a number": (lambda x: x.repeat_interleave(2, 0), Counts(ops=1)),
    "is in": (lambda x: torch.isin(x, x[0]), Counts(ops=1)),
    "singular values": (lambda x: torch.linalg.svdvals(x), Counts(ops=1, scalars=1)),
    "index of the device": (lambda x: x[x[0, :2].long()], Counts(ops=2)),
    "index of the host": (lambda x: x[torch.tensor([1, 0])], Counts(ops=1, up=1)),
    "list as index": (lambda x: x[[1, 0]], Counts(ops=1, up=1)),
    "slice": (lambda x: x[1:, ::2], Counts()),
    "mask of the device": (lambda x: x[x > 1], Counts(ops=2, scalars=1)),
    "mask of the host": (lambda x: x[torch.ones(2, 3) > 0], Counts(ops=1, up=2)),
    # PyTorch makes a tensor of 7.0 on the device first; on CUDA it has a way of its own, without that.
    "write to a mask": (lambda x: x.__setitem__(x > 1, 7.0), Counts(ops=3)),
    "write to an index": (lambda x: x.__setitem__((0, slice(1, 2)), 7.0), Counts(ops=2)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_counts_by_hand(name):
    program, expected = PROGRAMS[name]
    x = torch.arange(6.0).reshape(2, 3).to(ZERO)
    with pretend.counting() as counted:
        program(x)
    assert counted() == expected


def test_counts_of_a_step_by_hand():
    """Forward: product, sum. Backward: a one, its expansion times x. Step: one addition to a list."""
    x = torch.arange(3.0).to("pretend")
    weight = torch.zeros(3, device="pretend", requires_grad=True)
    optimiser = torch.optim.SGD([weight], lr=0.5)
    with pretend.counting() as counted:
        (weight * x).sum().backward()
        assert counted() == Counts(ops=4)
        optimiser.step()
    assert counted() == Counts(ops=5)
    assert weight.tolist() == [0, -0.5, -1]


# Memory


def test_memory_is_counted_until_it_is_given_back():
    before = pretend.allocated(1)
    x = torch.zeros(1000, device=ONE)
    assert pretend.allocated(1) - before == 4000
    view, double = x[10:], x.double()
    assert pretend.allocated(1) - before == 4000 + 8000
    del x, double
    assert pretend.allocated(1) - before == 4000
    view.resize_(2000)
    assert pretend.allocated(1) - before == 4 * (2000 + 10)
    del view
    assert pretend.allocated(1) == before
    assert pretend.allocated(0) == torch.pretend.memory_allocated(ZERO)


def test_peak_is_the_most_since_it_was_reset():
    pretend.reset_peak(0)
    before = pretend.peak(0)
    assert before == pretend.allocated(0)
    x = torch.zeros(250, device=ZERO)
    del x
    y = torch.zeros(100, device=ZERO)
    assert pretend.peak(0) - before == 1000
    pretend.reset_peak(0)
    assert pretend.peak(0) - before == 400 == y.nbytes


def test_more_than_the_limit_is_refused():
    x = torch.zeros(100, device=ZERO)
    with pretend.limit(pretend.allocated(0) + 1000, device=0):
        assert torch.pretend.mem_get_info(0)[0] == 1000
        refused = (
            r"pretend out of memory. Tried to allocate 1.00 MiB. Device 0 has a total capacity of .* free"
        )
        with pytest.raises(torch.OutOfMemoryError, match=refused):
            torch.empty(2**18, device=ZERO)
        with pytest.raises(torch.OutOfMemoryError):
            x.repeat(3)  # what an operator gives is measured when it is there
        with pytest.raises(torch.OutOfMemoryError):
            torch.zeros(300).to(ZERO)
        fits = x.repeat(2)
        assert torch.pretend.mem_get_info(0)[0] == 1000 - fits.nbytes
        torch.zeros(300, device=ONE)  # another device has its own
    assert x.repeat(3).shape == (300,)
    assert torch.pretend.mem_get_info(0)[0] > 1000


# Two devices, threads


def test_the_current_device_is_where_tensors_are_made():
    assert torch.pretend.device_count() == 2
    assert torch.zeros(1, device="pretend").device == torch.device(ZERO)
    with torch.pretend.device(1):
        assert torch.zeros(1, device="pretend").device == torch.device(ONE)
        assert torch.zeros(1).to("pretend").device == torch.device(ONE)
        assert torch.zeros(1, device=ZERO).add(1).device == torch.device(ZERO)
    assert torch.pretend.current_device() == 0
    with pytest.raises(RuntimeError, match="there is no device 2"):
        torch.zeros(1, device="pretend:2")


def test_threads_have_a_device_each():
    """Two threads take the same steps on a device each, at the same time."""
    together = threading.Barrier(2)
    expected, net = (
        _trained("cpu"),
        _lenet(),
    )  # whose weights are drawn from a generator that all threads share

    def work(index):
        torch.pretend.set_device(index)
        together.wait()
        results = [_trained("pretend", net=net) for _ in range(3)]
        assert torch.pretend.current_device() == index
        return results

    with pretend.counting() as counted_alone:
        _trained("pretend")
    with pretend.counting() as counted, ThreadPoolExecutor(2) as pool:
        both = list(pool.map(work, range(2)))
    assert counted() == Counts(*(6 * number for number in counted_alone()))
    for index, results in enumerate(both):
        for result in results:
            assert {tensor.device.index for tensor in result} == {index}
            _same(expected, result)


# Autocast


def test_autocast_computes_in_few_bits_what_is_fast_so():
    net, (images, labels) = _normed().to("pretend"), _batch(2, 8, 5)
    with torch.autocast("pretend", dtype=torch.bfloat16):
        logits = net(images.to("pretend"))
        loss = F.cross_entropy(logits, labels.to("pretend"))
        assert F.softmax(logits, 1).dtype == torch.float32
    loss.backward()
    assert (logits.dtype, loss.dtype, net[0].weight.grad.dtype) == (
        torch.bfloat16,
        torch.float32,
        torch.float32,
    )
    assert net(images.to("pretend")).dtype == torch.float32


def test_autocast_of_the_cpu_is_not_the_devices():
    x = torch.ones(2, 2, device="pretend")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (x @ x).dtype == torch.float32
        assert (x.cpu() @ x.cpu()).dtype == torch.bfloat16


# Tests on the CPU, in the same process


def test_the_cpu_is_as_it_was():
    torch.manual_seed(7)
    drawn = torch.rand(3)
    assert torch.equal(drawn, torch.rand(3, generator=torch.Generator().manual_seed(7)))
    with torch.random.fork_rng(devices=[]):
        torch.rand(2)
    assert torch.ones(2).pin_memory().is_pinned()
    assert not torch.ones(2).is_pinned()
    rows = TensorDataset(torch.arange(4.0))
    for workers in (0, 1):
        batches = DataLoader(rows, batch_size=2, num_workers=workers, pin_memory=True)
        assert [batch.tolist() for (batch,) in batches] == [[0, 1], [2, 3]]
    compiled = torch.compile(lambda x: (x * 2).sum(), backend="eager")
    assert compiled(torch.ones(3)).item() == 6


# The compiler


def _compilers(folder, text):
    path = folder / "compiler"
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(0o755)
    return str(path)


def test_without_a_compiler_one_sentence_says_so(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(CompilerError, match=r"there is no no-such-compiler: install g\+\+$"):
        _compiled()


def test_two_at_once_compile_once(monkeypatch, tmp_path):
    """The compiler says its version, or after half a second leaves a line and the file it was asked for."""
    log = tmp_path / "log"
    asked = f'while [ "$1" != -o ]; do shift; done; echo "$2" >> {log}; sleep 0.5; echo code > "$2"'
    monkeypatch.setenv("CXX", _compilers(tmp_path, f'if [ "$1" = --version ]; then echo 1; else {asked}; fi'))
    monkeypatch.setenv("MNEMOS_PRETEND_CACHE", str(tmp_path / "cache"))
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda _: _compiled(), range(2))
    assert one == other
    assert one.read_text() == "code\n"
    assert len(log.read_text().splitlines()) == 1


def test_what_does_not_compile_is_not_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", _compilers(tmp_path, '[ "$1" = --version ] || { echo no >&2; exit 1; }'))
    monkeypatch.setenv("MNEMOS_PRETEND_CACHE", str(tmp_path / "cache"))
    with pytest.raises(CompilerError, match="doesn't compile"):
        _compiled()
    assert not list((tmp_path / "cache").glob("*.so"))
