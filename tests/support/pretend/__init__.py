"""A pretend accelerator: what claims to run on a GPU runs for real on a machine that has none.

    from support import pretend

    pretend.install()
    with pretend.counting() as counted:
        loss = model.to("pretend")(images.to("pretend")).sum().item()
    assert counted().scalars == 1

"pretend:0" and "pretend:1" are two devices whose memory is the host's and whose every operator is the CPU's,
so the same bits come out. They refuse what a GPU refuses: tensors of two devices in one operator, `.numpy()`,
more memory than there is. They have no random generator, and say so when something draws on them. `counts`
tells what a GPU would suffer from.

What they can't do: LSTM and GRU cells, and whatever isn't dense. Attention and `torch.linalg.lstsq` are put
together by device, and differ from the CPU's in the last bits. Backward passes run in a thread for each
device, which takes its number of threads from when it started: call `torch.set_num_threads` before the first
one, as the order of sums may depend on it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import c_int64
from typing import NamedTuple

import torch

from support.pretend import device as _device
from support.pretend.library import library

NAME = "pretend"


class Counts(NamedTuple):
    """What was asked of the devices."""

    ops: int = 0
    """Kernels: operators that are neither views, nor only make room."""
    up: int = 0
    """Transfers from the host to a device. Indices of the host for a tensor of a device are sent as well."""
    down: int = 0
    """Transfers from a device to the host."""
    across: int = 0
    """Transfers from one device to the other."""
    scalars: int = 0
    """Times at which the host waits: for a value, for the size of a result, or to be in step."""

    def __sub__(self, other: "Counts") -> "Counts":
        return Counts(*(mine - theirs for mine, theirs in zip(self, other, strict=True)))


def install() -> None:
    """Register the devices with PyTorch, once a process; the first time on a machine they are compiled.

    From then on `torch.accelerator` is this one, and a process that is forked after a backward pass, also one
    on the CPU, can't do another, as it is with a GPU.
    """
    if torch._C._get_privateuse1_backend_name() == NAME:
        return
    library()
    torch.utils.rename_privateuse1_backend(NAME)
    torch._register_device_module(NAME, _device)
    torch.utils.generate_methods_for_privateuse1_backend()


def counts() -> Counts:
    """What was asked of the devices since they were installed, by all threads."""
    numbers = (c_int64 * len(Counts._fields))()
    library().pretend_counts(numbers)
    return Counts(*numbers)


@contextmanager
def counting() -> Iterator[Callable[[], Counts]]:
    """A function that says what was asked of the devices within the block, so far or in the end."""
    before, in_all = counts(), None
    yield lambda: in_all or counts() - before
    in_all = counts() - before


@contextmanager
def limit(size: int, device: int = 0) -> Iterator[None]:
    """Within the block, the device has this many bytes, those that are in use now included.

    What doesn't fit raises `torch.OutOfMemoryError`. What a CPU's kernel needs for itself isn't counted.
    """
    before = library().pretend_limit(_device.index_of(device), size)
    try:
        yield
    finally:
        library().pretend_limit(_device.index_of(device), before)


allocated = _device.memory_allocated
peak = _device.max_memory_allocated
reset_peak = _device.reset_peak_memory_stats
