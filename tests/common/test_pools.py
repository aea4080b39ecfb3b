"""Threads that compute keep to one intra-op thread, and to the kernels that MKL has settled on."""

import pytest
import torch

from mnemos.client.trainer import intra_op
from mnemos.common.pools import FUNCTIONS, compute_pool, settle_kernels


def test_a_thread_that_waited_for_its_first_operation_still_uses_one():
    with compute_pool(1, "test") as pool:
        pool.submit(int).result()  # the thread is there, and has not touched a tensor
        with intra_op(2):  # which PyTorch would have it take over
            assert pool.submit(torch.get_num_threads).result() == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_settling_the_kernels_changes_no_result(dtype):
    values = torch.linspace(0.01, 0.99, 1000, dtype=dtype)
    before = [function(values) for function in FUNCTIONS]
    settle_kernels.cache_clear()
    settle_kernels()
    after = [function(values) for function in FUNCTIONS]
    assert all(map(torch.equal, before, after))
