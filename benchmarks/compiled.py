"""What compiling the vectorised step of `vmap` would gain: seconds of the first round, and of later ones.

    python benchmarks/compiled.py [mlp] [lenet] [resnet] [unequal]

Clients train by `vmap`, as it is and with `torch.compile` around the gradient of all clients. In the first
three cases all make ten steps of 16 samples (`resnet`: three); in `unequal` they have from few to many
samples, so that the number of clients that still train shrinks step by step.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from contextlib import closing
from typing import Any

import torch
from torch import Tensor
from torch._dynamo.utils import counters
from torch.func import grad_and_value, vmap

from engine import Random
from mnemos.engines.rows import Rows
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from mnemos.methods.exchange import Batch, Client
from mnemos.methods.method import Method
from mnemos.models.functional import Functional

_IMAGES = Random(count=1280, shape=(3, 32, 32))
_EQUAL = {"name": "iid", "clients": 10, "validation": 0.0}
_UNEQUAL = {"name": "quantity", "clients": 10, "validation": 0.0, "min_samples": 9}
_MLP = {"name": "mlp", "hidden": [64]}
CASES: dict[str, dict[str, Any]] = {
    "mlp": {"model": _MLP, "partition": _EQUAL, "local": {"steps": 10, "batch": 16}},
    "lenet": {
        "data": _IMAGES,
        "model": "lenet",
        "partition": _EQUAL,
        "local": {"steps": 10, "batch": 16},
    },
    "resnet": {
        "data": _IMAGES,
        "model": {"name": "resnet18", "width": 0.125, "norm": "group"},
        "partition": {**_EQUAL, "clients": 4},
        "local": {"steps": 3, "batch": 16},
    },
    "unequal": {"model": _MLP, "partition": _UNEQUAL, "local": {"epochs": 1, "batch": 16}},
}
_REST = {
    "participation": 1.0,
    "evaluate": {"every": 100, "test_last": 0},
    "engine": {"name": "vmap", "device": "cpu"},
}


def _gradients(
    method: Method,
    functional: Functional,
    dims: Any,
    points: Tensor,
    buffers: Tensor,
    batch: Batch,
    client: Client,
) -> Any:
    """The gradients of all clients, as `Rows.gradient` takes them."""

    def loss_of(parameters: Tensor, buffers: Tensor, batch: Batch, client: Client) -> tuple[Tensor, Tensor]:
        with functional.masked(batch.mask):
            losses = method.batch_loss(functional.net(parameters, buffers), batch, client)
            return batch.mean(losses), functional.updated_buffers(buffers)

    rows = Batch(0, 0, None if batch.mask is None else 0, dict.fromkeys(batch.drawn, 0))  # type: ignore[arg-type]
    every = vmap(grad_and_value(loss_of, has_aux=True), in_dims=(0, 0, rows, dims))
    return every(points, buffers, batch, client)


def seconds(case: dict[str, Any], rounds: int = 6) -> list[float]:
    """How long each of some rounds takes."""
    took = []
    with closing(Federation(Experiment.parse({**_REST, **case}))) as federation, federation.open() as runner:
        requests = list(federation.requests(1, runner))
        for _ in range(rounds):
            begin = time.perf_counter()
            list(runner.run(requests))
            took.append(time.perf_counter() - begin)
    return took


def main() -> None:
    """Print a row for each case."""
    torch.set_num_threads(1)
    plain, compiled = Rows.gradient, torch.compile(_gradients, dynamic=False)
    warm: list[Method] = []

    def gradient(self: Rows, points: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        method = self.plan.method
        values = (method, self.functional, self._dims, points, self.buffers, batch, self._client)
        if not any(method is known for known in warm):
            _gradients(*values)  # it fills what is computed once, which can't be compiled
            warm.append(method)
        gradients, (losses, buffers) = compiled(*values)
        self.buffers.copy_(buffers)
        return gradients, losses

    for name in sys.argv[1:] or CASES:
        torch.compiler.reset()
        counters.clear()
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp()  # nothing of an earlier time
        eager = seconds(CASES[name])
        Rows.gradient = gradient  # type: ignore[method-assign]
        fast = seconds(CASES[name])
        Rows.gradient = plain  # type: ignore[method-assign]
        print(
            f"{name}: eager {statistics.median(eager[1:]):.3f} s a round; compiled "
            f"{statistics.median(fast[1:]):.3f} s, after {fast[0]:.0f} s for the first; "
            f"{counters['stats']['unique_graphs']} graphs",
            flush=True,
        )


if __name__ == "__main__":
    main()
