"""How many steps a client makes in a round: one formula, by hand and as its batches come."""

import numpy as np
import pytest
import torch

from mnemos.client.workload import LocalWorkload
from mnemos.optim.local import Local, round_steps


@pytest.mark.parametrize(
    ("epochs", "steps", "batch", "samples", "expected"),
    [(3, None, 4, 10, 9), (3, None, 4, 8, 6), (1, None, 64, 10, 1), (3, 5, 4, 10, 5), (3, 5, 4, 0, 0)],
)
def test_steps_by_hand(epochs, steps, batch, samples, expected):
    """Ten samples are ⌈10 / 4⌉ = 3 batches of 4, in three epochs 9 steps; `steps` takes their place."""
    assert Local(epochs=epochs, steps=steps, batch=batch).round_steps(samples) == expected


def test_a_workload_has_as_many_steps():
    for samples in range(1, 12):
        for fill in (False, True):
            local = Local(epochs=2, batch=4, fill=fill)
            todo = LocalWorkload(torch.arange(samples), 4, 2, None, 0.0, drop_single=False, fill=fill)
            assert todo.total == local.round_steps(samples)


def test_of_many_clients_and_of_a_mean():
    """1, 4 and 5 samples are 1, 1 and 2 batches of 4, 4/3 on average, and twice that in two epochs."""
    local = Local(epochs=2, batch=4)
    batches = local.batches(np.array([1, 4, 5]))
    assert batches.tolist() == [1, 1, 2]
    assert round_steps(None, local.epochs, float(batches.mean())) == 2 * float(batches.mean())
    assert round_steps(7, local.epochs, float(batches.mean())) == 7
