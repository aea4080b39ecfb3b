"""The same experiment on a device: the same bits as on the CPU, and few waits and transfers.

The device is the pretend accelerator of tests/support/pretend, whose operators are the CPU's.
"""

import gc
import math
import os
import signal
import sys
from contextlib import closing
from functools import cache
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch.func import functional_call, grad, vmap

import mnemos
from mnemos.client.trainer import fresh_model
from mnemos.common.devices import CPU, bytes_in, double, find_devices, free_memory, send
from mnemos.engines.devices import Mirror
from mnemos.engines.vmap import Vmap
from mnemos.errors import ConfigError, MnemosError
from mnemos.experiment.experiment import load_experiment
from mnemos.federation.federation import Federation
from mnemos.objectives.softmax import near_zero, nll
from mnemos.vector import Bound, square_distances, square_sum, square_sums
from support import pretend
from support.bits import assert_same_bits
from support.lenets import BATCH, CLIENTS, STEPS, Noise, counted, lenet
from support.processes import LONG, forked

sys.path.append(str(Path(__file__).parents[2] / "tools"))  # at the end: site.py there isn't Python's
from digests import generate
from digests_matrix import ROWS

pretend.install()
DEVICE, OTHER = (torch.device("pretend", index) for index in (0, 1))


# The same bits.

TWINS = ("threads/", "vmap/", "resumed/", "extended/", "auto/")
"""Rows that are others, carried out in another way."""
CASES = [name for name, row in ROWS.items() if not name.startswith(TWINS) and row.ends == "finished"]
OF_CLIENTS = (
    "method/",
    "loss/",
    "optimizer/",
    "local/",
    "model/",
    "augment",
    "combination/",
    "privacy/",
    "mixed",
)
"""What is trained in another way on `vmap`; the rest is the server's, and the same for both engines."""
BOTH = [
    (engine, name)
    for name in CASES
    for engine in ("serial", "vmap")
    if engine == "serial" or name.startswith(OF_CLIENTS)
]
UNEQUAL = {
    ("serial", "model/cnn/group"): "PyTorch's group norm takes channels-last images on the CPU alone",
}
"""What differs in its last bits, and why; `serial` on channels-last images."""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The files that the experiments of the net read."""
    folder = tmp_path_factory.mktemp("files")
    patch = pytest.MonkeyPatch()
    patch.setenv("MNEMOS_CACHE", str(folder / "cache"))
    patch.setenv("MNEMOS_SECRET", "devices " * 8)
    generate(folder, ROWS.values())
    yield folder
    patch.undo()


def filled(value, files):
    if isinstance(value, str):
        return value.replace("{files}", str(files))
    if isinstance(value, dict):
        return {key: filled(entry, files) for key, entry in value.items()}
    return [filled(entry, files) for entry in value] if isinstance(value, list) else value


def played(described, engine, device, rounds=2):
    """What two rounds leave: the server's tensors, all clients' states, and the records."""
    experiment = load_experiment({**described, "engine": {"name": engine, "device": device}})
    with closing(Federation(experiment)) as federation, federation.open() as runner:
        records = [federation.advance(runner).records for _ in range(min(rounds, experiment.rounds))]
        clients = range(federation.assignment.clients)
        states = {c: federation.client_states[c] for c in clients if c in federation.client_states}
        return federation.server.tensors, states, records


def tried(*words):
    """What two rounds leave, or why the experiment is refused: vmap can't run every model."""
    try:
        return played(*words)
    except MnemosError as refused:
        return str(refused)


def check_same(one, other):
    """That two rounds have left the same bits; norms that screens remember, to the last bits of a double."""
    (tensors, states, records), (theirs, their_states, their_records) = one, other
    assert tensors.keys() == theirs.keys()
    for name, tensor in tensors.items():
        found = theirs[name].cpu()
        if name.startswith("screens.") and tensor.dtype == torch.float64:
            # A sum of squares in double precision: numpy's on the CPU, PyTorch's on a device.
            assert torch.allclose(found, tensor.cpu(), rtol=1e-12, atol=0), name
        else:
            assert torch.equal(found.nan_to_num(), tensor.cpu().nan_to_num()), name
    assert states.keys() == their_states.keys()
    for client, state in states.items():
        assert all(torch.equal(state[name], their_states[client][name]) for name in state), client
    assert repr(records) == repr(their_records)


@pytest.mark.parametrize(("engine", "name"), BOTH)
def test_the_same_bits_as_on_the_cpu(engine, name, files):
    described = filled(ROWS[name].experiment, files)
    expected, found = (tried(described, engine, device) for device in ("cpu", "pretend"))
    if isinstance(expected, str):
        assert found == expected
        return
    server = found[0]
    assert server["model"].device == server["buffers"].device == DEVICE
    if (engine, name) in UNEQUAL:
        assert torch.allclose(server["model"].cpu(), expected[0]["model"], atol=1e-5)
    else:
        check_same(expected, found)


def _killed(folder, described):
    pretend.install()
    torch.set_num_threads(1)

    class Kill:
        run = None

        def __getattr__(self, _name):
            return lambda *_: None

        def round(self, outcome):
            if outcome.round == 2:
                os.kill(os.getpid(), signal.SIGKILL)

    mnemos.run(described, out=folder, observer=Kill())


def test_a_run_that_is_killed_and_resumed(files, tmp_path):
    described = filled(ROWS["method/scaffold/wsm"].experiment, files)
    there = {**described, "engine": {"name": "serial", "device": "pretend:0"}}
    with forked(_killed, str(tmp_path / "killed"), there) as process:
        process.join(LONG)
    assert process.exitcode == -signal.SIGKILL
    (path,) = (tmp_path / "killed").iterdir()
    resumed = mnemos.resume(path)
    whole = mnemos.run({**described, "engine": {"name": "serial", "device": "cpu"}}, out=tmp_path / "whole")
    assert_same_bits([resumed, whole])
    assert resumed.engine.device == "pretend:0"


# Waits, transfers and kernels.

SCAFFOLD = {"method": {"name": "scaffold", "loss": "wsm"}}


@cache
def of_fedavg(engine, epochs):
    """What a round of FedAvg asks of the device; several tests compare it with something."""
    return counted(lenet(engine, epochs=epochs))


@pytest.mark.parametrize(
    ("changes", "a_client", "beside"),
    [
        # One transfer to the device for everything that is drawn; beside: losses, norms, finiteness.
        ({}, 1, 12),
        # The client's state goes with what is drawn; whether its change is plausible is one wait.
        (SCAFFOLD, 2, 14),
        # Of the prototypes three things are checked.
        ({"method": "fedspace", "stream": {"name": "tasks", "tasks": 2}}, 4, 40),
        # The server clips again.
        ({"privacy": {"name": "gaussian"}, "method": {"name": "fedavg", "weighting": "uniform"}}, 2, 12),
    ],
    ids=["fedavg", "scaffold-wsm", "fedspace", "dp"],
)
@pytest.mark.parametrize("engine", ["serial", "vmap"])
def test_waits_and_transfers_do_not_grow_with_the_steps(engine, changes, a_client, beside):
    short, long = (
        counted(lenet(engine, epochs=epochs, **changes)) if changes else of_fedavg(engine, epochs)
        for epochs in (1, 3)
    )
    assert short._replace(ops=0) == long._replace(ops=0)
    assert sum(short) - short.ops <= a_client * CLIENTS + beside


def own_loss(logits, labels):
    return lenet("serial").method.loss(logits, labels, None).mean()


def by_hand(device, loss_of=own_loss, corrected=False, ahead=False):
    """Kernels of a step of the best loop that we can write by hand, with the same loss or another one.

    `corrected`: with SCAFFOLD's two control variates. `ahead`: with batches that are there already, the
    gradient of the mean known, and losses that are read later.
    """
    module = fresh_model(lenet("serial").plan, Noise(count=8).load()).to(device)
    bound = Bound(module)
    tensors = [module.get_parameter(slot.name) for slot in bound.layout.parameters]
    images = torch.rand(BATCH * 2, 3, 32, 32).contiguous(memory_format=torch.channels_last).to(device)
    labels, total = torch.arange(BATCH * 2).remainder(10).to(device), torch.zeros((), device=device)
    own, shared = (torch.zeros_like(bound.parameters) for _ in range(2))
    weight = torch.ones((), device=device)

    def step(x, y):
        loss = loss_of(module(x), y)
        found = torch.autograd.grad(loss, tensors, weight if ahead else None)
        flat = torch.cat([gradient.reshape(-1) for gradient in found])
        if corrected:
            flat.sub_(own).add_(shared)
        bound.parameters.add_(flat, alpha=-0.05)
        if not ahead:
            total.add_(loss.detach() * BATCH)

    indices = torch.arange(BATCH).to(device)
    step(images[indices], labels[indices])
    here = images[:BATCH], labels[:BATCH]
    with pretend.counting() as found:
        step(*(here if ahead else (images[indices], labels[indices])))
    return found().ops


def reweighted(device):
    """WSM's gradient by PyTorch's fused cross-entropy, from shares that are worked out once."""
    shares = torch.rand(10).log_softmax(0).to(device)
    return lambda logits, labels: F.cross_entropy(logits + shares, labels)


def by_hand_at_once(device):
    """The same for ten clients at once, by `vmap` over the parts of one matrix, with PyTorch's own loss."""
    module = fresh_model(lenet("serial").plan, Noise(count=8).load()).to(device)
    bound = Bound(module)
    matrix = bound.parameters.detach().expand(10, -1).clone()
    slots = bound.layout.parameters
    parts = torch.split(matrix, [slot.size for slot in slots], 1)
    tensors = {slot.name: part.view(10, *slot.shape) for slot, part in zip(slots, parts, strict=True)}
    images, labels = torch.rand(80, 3, 32, 32).to(device), torch.arange(80).remainder(10).to(device)
    total = torch.zeros(10, device=device)

    def loss_of(tensors, x, y):
        loss = F.cross_entropy(functional_call(module, tensors, (x,)), y)
        return loss, loss

    def step(indices):
        gradients, losses = vmap(grad(loss_of, has_aux=True))(tensors, images[indices], labels[indices])
        matrix.add_(torch.cat([gradients[name].reshape(10, -1) for name in tensors], 1), alpha=-0.05)
        total.add_(losses * BATCH)

    indices = torch.arange(80).view(10, 8).to(device)
    step(indices)
    with pretend.counting() as found:
        step(indices)
    return found().ops


def kernels_a_step(engine, **changes):
    """What three epochs ask for more than two is one epoch of three steps, for each client or for all."""
    if changes:
        short, long = (counted(lenet(engine, epochs=epochs, **changes)).ops for epochs in (2, 3))
    else:
        short, long = (of_fedavg(engine, epochs).ops for epochs in (2, 3))
    return (long - short) / (STEPS * (CLIENTS if engine == "serial" else 1))


@pytest.mark.parametrize(
    ("engine", "hand"),
    [("serial", lambda device: by_hand(device, F.cross_entropy)), ("vmap", by_hand_at_once)],
    ids=["serial", "vmap"],
)
def test_kernels_of_a_step_beside_the_best_loop_by_hand(engine, hand):
    """On `serial` the loss has 10 more, to have the CPU's bits; what isn't done in every step saves 5."""
    assert kernels_a_step(engine) <= 1.15 * hand(DEVICE)


def test_only_the_loss_has_more_kernels_than_a_loop_that_does_nothing_else_in_a_step():
    """The fused loss has 4 for 14, that of WSM 5 for 17; there is nothing else between them."""
    assert kernels_a_step("serial") - by_hand(DEVICE, F.cross_entropy, ahead=True) <= 10
    fused = by_hand(DEVICE, reweighted(DEVICE), corrected=True, ahead=True)
    assert kernels_a_step("serial", **SCAFFOLD) - fused <= 12


@pytest.mark.parametrize("added", [None, torch.arange(10).float().log().clamp_min(-1e30)])
@pytest.mark.parametrize("size", [1.0, 30.0, 1e4])
def test_a_loss_on_a_device_has_the_bits_of_the_cpu(size, added):
    """And fewer kernels than the same formula has by PyTorch's own functions."""
    logits = size * torch.randn(50, 10, generator=torch.Generator().manual_seed(0))
    labels, weights = torch.arange(50) % 10, torch.rand(50, generator=torch.Generator().manual_seed(1))

    def found(device):
        scores = logits.to(device).requires_grad_()
        losses = nll(near_zero(scores), labels.to(device), None if added is None else added.to(device))
        (gradient,) = torch.autograd.grad(losses, scores, weights.to(device))
        return losses.detach().cpu(), gradient.cpu()

    expected = found(CPU)
    with pretend.counting() as there:
        losses, gradient = found(DEVICE)
    assert torch.equal(losses, expected[0])
    assert torch.equal(gradient, expected[1])
    assert there().ops <= 15 + 2 * (added is not None)  # one is the gradient's negative, for the first time


# Memory.


def test_chunks_are_halved_when_a_device_has_no_memory_left():
    """The result is that of the smaller chunk from the start, and the chunk is remembered."""
    # In large batches nearly all memory is the activations of the clients that train at once. The threads of
    # autograd give memory back a moment late, so that a limit needs some room on both sides.
    wide = {"epochs": 1, "batch": BATCH * STEPS}
    greedy = lenet("vmap", options={"memory": 100.0}, local=wide)
    gc.collect()  # of what other tests have left
    with closing(Federation(greedy)) as federation, federation.open() as runner:
        before = pretend.allocated(0)
        pretend.reset_peak(0)
        federation.advance(runner)
        needed = pretend.peak(0) - before
    del federation, runner
    gc.collect()
    with closing(Federation(greedy)) as federation, federation.open() as runner:
        assert runner.engine.chunk > CLIENTS
        with pretend.limit(pretend.allocated(0) + int(0.7 * needed)):
            losses = [federation.advance(runner).loss for _ in range(2)]
        chunk, model = runner.engine.chunk, federation.server.model
        assert chunk == CLIENTS // 2
    with (
        closing(Federation(lenet("vmap", options={"chunk": chunk}, local=wide))) as federation,
        federation.open() as runner,
    ):
        assert [federation.advance(runner).loss for _ in range(2)] == losses
        assert torch.equal(federation.server.model, model)


def test_a_device_without_room_for_one_client_is_a_sentence():
    with (
        closing(Federation(lenet("vmap", options={"chunk": 1}))) as federation,
        federation.open() as runner,
        pretend.limit(pretend.allocated(0) + 100_000),
        pytest.raises(MnemosError, match=r"no memory left .* for a single client"),
    ):
        federation.advance(runner)


def test_as_many_clients_at_once_as_fit_into_what_is_free():
    free = 8_000_000
    with (
        closing(Federation(lenet("vmap"))) as federation,
        pretend.limit(pretend.allocated(0) + free),
        federation.open() as runner,
    ):
        assert 0 < free_memory(DEVICE) <= free
        chunk = runner.engine.chunk
    assert 1 <= chunk < CLIENTS
    with closing(Federation(lenet("vmap"))) as federation, federation.open() as runner:
        assert runner.engine.chunk > CLIENTS


@pytest.mark.parametrize("engine", ["serial", "vmap"])
def test_a_data_set_that_does_not_fit_stays_on_the_host(engine):
    """Each client's samples are sent when it trains; the bits are the same."""
    with closing(Federation(lenet(engine, "cpu"))) as federation, federation.open() as runner:
        federation.advance(runner)
        expected = federation.server.model
    gc.collect()
    with closing(Federation(lenet(engine))) as federation:
        samples = federation.dataset.train.samples
        federation.dataset.train._copies.clear()  # of other tests
        with pretend.limit(pretend.allocated(0) + 3 * samples.numel() // 2):
            there = federation.dataset.train.on(DEVICE)
            assert (there.samples.device, there.labels.device) == (CPU, DEVICE)
        with federation.open() as runner:
            federation.advance(runner)
        assert torch.equal(federation.server.model.cpu(), expected)
        federation.dataset.train._copies.clear()


# Two devices.


@pytest.mark.parametrize(("engine", "options"), [("serial", {}), ("vmap", {"chunk": 3})])
@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
def test_two_devices_give_the_model_of_one(engine, options, method):
    models = []
    for device in ("pretend:0", ["pretend:0", "pretend:1"]):
        experiment = lenet(engine, device, options=options, method=method)
        with (
            closing(Federation(experiment)) as federation,
            federation.open() as runner,
            pretend.counting() as found,
        ):
            cohorts = [[record.client for record in federation.advance(runner).records] for _ in range(2)]
        models.append((federation.server.model.cpu(), cohorts))
    assert torch.equal(models[0][0], models[1][0])
    assert models[0][1] == models[1][1]  # the updates came in the same order
    assert found().across > 0


def test_what_all_clients_are_sent_is_copied_once_to_another_device():
    with closing(Federation(lenet("serial"))) as federation, federation.open() as runner:
        requests = list(federation.requests(1, runner))
    mirror = Mirror(OTHER)
    with pretend.counting() as found:
        copies = [mirror(request) for request in requests]
    assert found().across == 1
    assert {copy.model.device for copy in copies} == {OTHER}
    assert len({id(copy.model) for copy in copies}) == 1


def test_auto_records_what_its_choice_has_found(tmp_path, monkeypatch):
    monkeypatch.setenv("MNEMOS_CACHE", str(tmp_path))
    remembered = Vmap(device="pretend:0")
    monkeypatch.setattr("mnemos.engines.auto.recall_engine", lambda _key: remembered)
    with closing(Federation(lenet("auto"))) as federation, federation.open() as runner:
        federation.advance(runner)
        assert runner.engine.device == "pretend:0"
        assert runner.engine.chunk > CLIENTS


# The helpers.


def test_names_of_devices():
    assert find_devices("cpu") == (CPU,)
    assert find_devices("auto") == (CPU,)  # no other kind than CUDA's, Intel's and Apple's is taken unasked
    assert find_devices("pretend") == (DEVICE,)
    assert find_devices(["pretend:1", "pretend:0"]) == (OTHER, DEVICE)


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ("cuda", "; there is cpu, pretend:0, pretend:1"),
        ("pretend:2", "there is no device 'pretend:2'; there is cpu"),
        ("gpu", "there is no device 'gpu'; did you mean 'cuda'? there is cpu"),
        ("cpuu", "there is no device 'cpuu'; did you mean 'cpu'? there is cpu"),
        ([], "found no device; allowed: auto, or the names of devices"),
        (["pretend", "pretend:0"], "a device is there twice"),
        (["cpu", "pretend"], "the CPU can't be one of several devices"),
    ],
)
def test_devices_that_are_not_there(names, says):
    with pytest.raises(ConfigError) as error:
        find_devices(names)
    assert str(error.value).startswith("engine.device: ")
    assert says in str(error.value)


@pytest.mark.parametrize("build", ["cuda", "hip"])
def test_a_build_of_pytorch_that_has_no_such_devices_is_named(build, monkeypatch):
    """A card isn't seen by a PyTorch that was built for the CPU, and its user can't tell why."""
    for name in ("cuda", "hip"):
        monkeypatch.setattr(torch.version, name, None)
    missing = "there is no device 'cuda:7'"
    with pytest.raises(ConfigError, match=f"{missing}, which this PyTorch was built without; there is cpu"):
        find_devices("cuda:7")
    monkeypatch.setattr(torch.version, build, "1.0")
    with pytest.raises(ConfigError, match=f"{missing}; there is cpu"):
        find_devices("cuda:7")


def test_everything_is_sent_in_one_piece():
    shared = torch.arange(3)
    there = torch.ones(2).to(DEVICE)
    values = ({"a": torch.rand(2, 3), "b": shared}, [shared, torch.tensor(True), there], None, "text", 1.5)
    with pretend.counting() as found:
        sent = send(values, DEVICE)
    assert found().up == 1
    assert sent[0]["b"] is sent[1][0]  # what is one tensor stays one
    assert sent[1][2] is there
    assert sent[2:] == (None, "text", 1.5)
    assert torch.equal(sent[0]["a"].cpu(), values[0]["a"])
    assert bool(sent[1][1].cpu())
    assert bytes_in(values) == 4 * 6 + 8 * 3 + 8 * 3 + 1 + 4 * 2


def test_norms_on_a_device():
    rows = torch.randn(5, 1000, generator=torch.Generator().manual_seed(0))
    assert math.isclose(square_sum(rows[0].to(DEVICE)), square_sum(rows[0]), rel_tol=1e-14)
    assert torch.allclose(square_sums(rows.to(DEVICE)), square_sums(rows), rtol=1e-14)
    assert torch.allclose(square_distances(rows.to(DEVICE)), square_distances(rows), rtol=1e-14)
    assert double(rows.to(DEVICE)).dtype == torch.float64


def test_exact_asks_for_deterministic_algorithms_while_it_runs():
    experiment = lenet("serial", options={"exact": True})
    assert experiment.engine.arithmetic().deterministic
    with closing(Federation(experiment)) as federation:
        with federation.open():
            assert torch.are_deterministic_algorithms_enabled()
        assert not torch.are_deterministic_algorithms_enabled()
    assert not lenet("serial", "cpu").engine.arithmetic().deterministic
