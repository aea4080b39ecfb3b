"""Pools of threads that compute: the same bits whichever thread does the work, and from the first operation.

Two habits of PyTorch on a CPU stand in the way, and show on a busy machine only:

* MKL looks for the fastest kernel of a function such as `log` or `tanh` when it is first called. Where two
  threads make that first call at the same time, one of them may be given a less exact kernel for once
  (https://github.com/pytorch/pytorch/issues/188792).
* A thread takes over the process' number of intra-op threads in its first operation, whatever it has been
  told before. One that is told to use a single thread, and then waits for work, would use as many as the main
  thread.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache

import torch

FUNCTIONS = (
    *(torch.sin, torch.cos, torch.tan, torch.asin, torch.acos, torch.atan),
    *(torch.sinh, torch.cosh, torch.tanh, torch.erf, torch.erfc, torch.erfinv, torch.lgamma),
    *(torch.exp, torch.exp2, torch.expm1, torch.log, torch.log10, torch.log1p, torch.log2),
    *(torch.sqrt, torch.rsqrt, torch.ceil, torch.floor, torch.round, torch.trunc),
)
"""What PyTorch may leave to MKL's vector mathematics."""


@cache
def settle_kernels() -> None:
    """Have MKL choose its kernels in this thread, before others call them; once a process."""
    for dtype in (torch.float32, torch.float64):
        half = torch.full((1,), 0.5, dtype=dtype)
        for function in FUNCTIONS:
            function(half)


def compute_pool(workers: int, name: str) -> ThreadPoolExecutor:
    """Threads for tensor operations, which use one intra-op thread each."""
    settle_kernels()
    return ThreadPoolExecutor(workers, name, initializer=_use_one_thread)


def _use_one_thread() -> None:
    torch.get_num_threads()  # the first operation, as far as the process' number is concerned
    torch.set_num_threads(1)
