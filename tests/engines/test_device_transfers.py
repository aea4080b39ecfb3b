"""How often something is sent to a device: once a round, whatever happens in its steps."""

from contextlib import closing

import pytest
import torch

from mnemos.data.load import load
from mnemos.engines.ray.worker import Data, Worker, as_text, own_of, shared_of
from mnemos.federation.federation import Federation
from mnemos.models.masks import Masks
from support import pretend
from support.lenets import BATCH, Noise, counted, lenet

pretend.install()
DEVICE = torch.device("pretend", 0)
DROPPING = "support.dropping:Dropping"
CLIENTS = 3


def few(engine, device="pretend", **changes):
    """An experiment with three clients that make three steps an epoch."""
    clients = {"name": "iid", "clients": CLIENTS, "validation": 0.0}
    return lenet(
        engine, device, **{"data": Noise(count=CLIENTS * BATCH * 3), "partition": clients, **changes}
    )


def model(experiment, rounds=2):
    """The model after some rounds."""
    with closing(Federation(experiment)) as federation, federation.open() as runner:
        for _ in range(rounds):
            federation.advance(runner)
        return federation.server.model.cpu()


# What steps need.

TORCH = {"name": "library", "path": "torch.optim:Adam"}
# PyTorch's own choice is `foreach` on a device, and a loop over the tensors on the CPU. NAdam's differ:
# √v / √b in the one, √(v / b) in the other. Where a gradient is nearly 0, a step makes much of the last bit.
NADAM = {"name": "library", "path": "torch.optim:NAdam", "options": {"foreach": True}}
STEPS = {
    "dropout": ({"model": DROPPING}, {}, 2),
    "dropout with uneven batches": ({"model": DROPPING}, {"batch": 9}, 2),
    "dropout twice a step": ({"model": DROPPING, "method": "moon"}, {}, 2),
    "torch.optim": ({}, {"optimizer": TORCH}, 1),
    "torch.optim, kept": ({}, {"optimizer": TORCH, "optimizer_state": "kept"}, 3),
    "torch.optim, several counters": ({}, {"optimizer": NADAM}, 1),
}
"""Other choices, those of local training, and transfers a client that they may need."""


@pytest.mark.parametrize(("changes", "local", "a_client"), STEPS.values(), ids=STEPS)
def test_transfers_do_not_grow_with_the_steps(changes, local, a_client):
    short, long = (
        counted(few("serial", **changes, local={"epochs": epochs, "batch": BATCH, **local}))
        for epochs in (1, 3)
    )
    assert short._replace(ops=0) == long._replace(ops=0)
    assert short.up + short.down <= a_client * CLIENTS + 8


def test_rates_that_differ_between_clients_are_sent_once():
    """Clients of unequal size are in different epochs at the same step, and so at different rates."""
    unequal = {"name": "quantity", "clients": CLIENTS, "validation": 0.0, "min_samples": BATCH}
    schedule = {"name": "step", "over": "epochs", "size": 1, "gamma": 0.5}
    short, long = (
        counted(
            few("vmap", partition=unequal, local={"epochs": epochs, "batch": BATCH, "schedule": schedule})
        )
        for epochs in (2, 4)
    )
    assert (short.up, short.down) == (long.up, long.down)


@pytest.mark.parametrize(("changes", "local", "_a_client"), STEPS.values(), ids=STEPS)
def test_the_same_bits_as_on_the_cpu_all_the_same(changes, local, _a_client):
    there, here = (
        model(few("serial", device, **changes, local={"epochs": 2, "batch": BATCH, **local}))
        for device in ("pretend", "cpu")
    )
    assert torch.equal(there, here)


@pytest.mark.parametrize("engine", ["serial", "vmap"])
def test_rmsgd_asks_for_one_number_a_layer_after_an_epoch(engine):
    """Ranks are found on the host: what is sent is one piece each way. It waits for each decomposition."""
    one, two = (
        counted(few(engine, local={"epochs": epochs, "batch": BATCH, "optimizer": "rmsgd"}))
        for epochs in (1, 2)
    )
    assert (two - one)._replace(ops=0) == pretend.Counts(up=CLIENTS, down=CLIENTS, scalars=4 * CLIENTS)


# Masks that are drawn ahead.


def drawing(device):
    masks = Masks(torch.Generator().manual_seed(0), device)
    masks.begin("steps", [4, 4, 4, 2])
    return masks


def test_masks_are_those_that_would_be_drawn_one_by_one():
    masks, plain = drawing(DEVICE), torch.Generator().manual_seed(0)

    def check(*shape, kept=0.5):
        expected = torch.empty(shape).bernoulli_(kept, generator=plain).bool()
        assert torch.equal(masks(shape, kept, torch.float32).cpu(), expected)

    with pretend.counting() as found:
        for size in (4, 4, 4, 2):
            masks.next_step()
            check(size, 30)
            check(size, 3, 1, kept=0.75)
    assert found().up == 3  # the first step's two, and those of all others
    masks.begin("steps", [4] * 5)
    with pretend.counting() as found:
        masks.next_step()
        check(4, 30)
        assert torch.equal(masks.get_state(), plain.get_state())
        check(5, 30)  # not what was expected
        masks.next_step()
        check(4, 30)
        check(4, 3, 1, kept=0.75)
        assert torch.equal(masks.get_state(), plain.get_state())
        mark = masks.get_state()
        check(4, 30)
        masks.set_state(mark)
        plain.set_state(mark)
        check(4, 30)
    assert found().up == 6  # all that was expected, and each of those after the surprise


def test_no_more_masks_are_drawn_ahead_than_fit(monkeypatch):
    monkeypatch.setattr("mnemos.models.masks._BLOCK_BYTES", 200)
    masks = drawing(DEVICE)
    with pretend.counting() as found:
        for size in (4, 4, 4, 2):
            masks.next_step()
            masks((size, 30), 0.5, torch.float32)
    assert found().up == 3  # the first, two, and the last


# A worker of a cluster.


class Here:
    """Data that is in this process."""

    def __init__(self, dataset):
        self._data = Data.of(dataset)

    def fetch(self):
        return self._data


@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
def test_a_worker_copies_a_rounds_model_once_to_its_device(method):
    """Each client after the first costs one transfer: its own samples' order, labels and state."""
    experiment = few("serial", "cpu", method=method)
    worker = Worker([], "pretend:0")
    worker._device = DEVICE
    worker.prepare(Here(load(experiment.data)), as_text(experiment.plan))
    with closing(Federation(experiment)) as federation, federation.open() as runner:
        requests = list(federation.requests(1, runner))
        layout = federation.layout
    shared = shared_of(requests[0], as_text(requests[0].plan), 1)
    ups, models = [], []
    for request in requests:
        own = own_of(request, requests[0])
        assert "model" not in own
        with pretend.counting() as found:
            worker.train(shared, own)
        ups.append(found().up)
        models.append(worker._mirror(worker_request(worker, own)).model.data_ptr())
    assert layout.size > 0
    assert len(set(models)) == 1
    received = len(requests[0].received)
    assert ups == [ups[-1] + 1 + received] + [ups[-1]] * (len(requests) - 1)
    assert ups[-1] == 1


def worker_request(worker, own):
    """The request that a worker has put together of its two parts."""
    from mnemos.client.messages import TrainRequest
    from mnemos.engines.ray.worker import SHARED, to_tensors

    common = {name: worker._shared[name] for name in SHARED}
    return TrainRequest(**{**common, **to_tensors(own)})
