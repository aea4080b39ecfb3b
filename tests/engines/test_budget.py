"""What a round costs, counted: calls of functions and operations on tensors, per client and per step.

Counts don't depend on how busy a machine is. Each figure was counted when it was last changed on purpose; a
change that costs 15 % more fails here, and whoever means it writes down the new figure.
"""

import sys
from contextlib import closing

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mnemos.common.cores import cores
from mnemos.data.dataset import Dataset, Source, Split
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation

MARGIN = 1.15
SAMPLES, BATCH = 32, 8
STEPS = SAMPLES // BATCH
# With all cores inside an operation, chunks are trained in this thread, which is the one that is counted.
ENGINES = {"serial": {"name": "serial"}, "vmap": {"name": "vmap", "intra_op": cores()}}


class Pixels(Source):
    """Random images of ten classes."""

    count: int

    def load(self):
        generator = torch.Generator().manual_seed(0)
        samples = torch.randint(256, (self.count, 1, 8, 8), generator=generator, dtype=torch.uint8)
        split = Split(samples, torch.randint(10, (self.count,), generator=generator))
        return Dataset("pixels", split, split, tuple("0123456789"), (127.5,), (127.5,))


class Operations(TorchDispatchMode):
    """Counts operations on tensors."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += 1
        return function(*args, **(kwargs or {}))


def counted(engine, method, clients, epochs):
    """(calls, operations) of the third round and the fourth."""
    experiment = Experiment.parse(
        {
            "data": Pixels(count=clients * SAMPLES),
            "partition": {"name": "iid", "clients": clients, "validation": 0.0},
            "model": {"name": "mlp", "hidden": [8]},
            "method": method,
            "participation": 1.0,
            "rounds": 10,
            "local": {"epochs": epochs, "batch": BATCH},
            "evaluate": {"every": 10, "test_last": 0},
            "engine": ENGINES[engine] | {"device": "cpu"},
        }
    )
    calls = 0

    def count(_frame, event, _argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    with closing(Federation(experiment)) as federation, federation.open() as runner:
        federation.advance(runner)  # what is worked out once is not counted
        federation.advance(runner)
        before = sys.getprofile()
        sys.setprofile(count)
        try:
            federation.advance(runner)
        finally:
            sys.setprofile(before)
        with Operations() as operations:
            federation.advance(runner)
    return calls, operations.count


@pytest.mark.parametrize(
    ("engine", "method", "per_client", "per_step"),
    [
        # On `vmap` a step is one of all clients together; on `serial` it is one client's.
        ("vmap", "fedavg", (21, 2), (182, 69)),
        ("vmap", "scaffold", (59, 30), (187, 71)),
        ("serial", "fedavg", (1514, 320), (213, 59)),
        ("serial", "scaffold", (1626, 364), (219, 61)),
    ],
)
def test_a_round_costs_no_more_than_it_did(engine, method, per_client, per_step):
    """From differences: of 40 clients beside 20, and of three epochs beside one."""
    few, many, long = (
        torch.tensor(counted(engine, method, clients, epochs), dtype=torch.float64)
        for clients, epochs in ((20, 1), (40, 1), (20, 3))
    )
    steps = 2 * STEPS * (1 if engine == "vmap" else 20)
    for found, budget in (((many - few) / 20, per_client), ((long - few) / steps, per_step)):
        assert (found <= MARGIN * torch.tensor(budget)).all(), f"{found.tolist()}, and it was {budget}"
