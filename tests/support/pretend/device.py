"""`torch.pretend`: what PyTorch and programs ask a device's module, with the names of `torch.cuda`."""

from typing import Self

import torch

from support.pretend.library import library

Where = torch.device | str | int | None
"""A device: itself, its name or number, or None for the current one."""


def index_of(where: Where = None) -> int:
    """The number of a device; `ValueError` if there is none."""
    if isinstance(where, str):
        where = torch.device(where)
    if isinstance(where, torch.device):
        if where.type != "pretend":
            raise ValueError(f"{where} isn't a pretend device")
        where = where.index
    if where is None:
        return current_device()
    if not 0 <= where < device_count():
        raise ValueError(f"there is no device pretend:{where}, only 0 to {device_count() - 1}")
    return where


def is_available() -> bool:
    """Whether there are devices: yes."""
    return True


def is_initialized() -> bool:
    """Whether they can be used already: yes."""
    return True


def device_count() -> int:
    """How many devices there are."""
    return library().pretend_devices()


def current_device() -> int:
    """The number of this thread's device."""
    return library().pretend_current()


def set_device(where: Where) -> None:
    """Choose this thread's device."""
    library().pretend_set_current(index_of(where))


class device:  # noqa: N801 — its name in torch.cuda
    """For a while, another device is this thread's; a negative number or None changes nothing."""

    def __init__(self, where: Where) -> None:
        nothing = where is None or (isinstance(where, int) and where < 0)
        self.idx = -1 if nothing else index_of(where)
        self.prev_idx = -1

    def __enter__(self) -> Self:
        self.prev_idx = current_device()
        if self.idx >= 0:
            set_device(self.idx)
        return self

    def __exit__(self, *_: object) -> None:
        set_device(self.prev_idx)


def get_device_name(where: Where = None) -> str:
    """What the device is called."""
    return f"Pretend accelerator {index_of(where)}"


def synchronize(where: Where = None) -> None:
    """Wait until a device has done its work, which counts."""
    index_of(where)
    library().pretend_wait()


def current_stream(where: Where = None) -> torch.Stream:
    """The only stream of a device."""
    return torch.Stream(device=torch.device("pretend", index_of(where)))


Stream = torch.Stream
Event = torch.Event


def memory_allocated(where: Where = None) -> int:
    """Bytes that a device's tensors take now."""
    return library().pretend_allocated(index_of(where))


def max_memory_allocated(where: Where = None) -> int:
    """The most bytes that a device's tensors took at once, since `reset_peak_memory_stats`."""
    return library().pretend_peak(index_of(where))


memory_reserved, max_memory_reserved = memory_allocated, max_memory_allocated


def reset_peak_memory_stats(where: Where = None) -> None:
    """Have `max_memory_allocated` begin anew."""
    library().pretend_reset_peak(index_of(where))


def mem_get_info(where: Where = None) -> tuple[int, int]:
    """Bytes of a device that are free, and that it has: as many as the host, if there is no limit."""
    index = index_of(where)
    total = library().pretend_total(index)
    return max(0, total - memory_allocated(index)), total


def empty_cache() -> None:
    """Give back what is kept for later: nothing is."""


def ipc_collect() -> None:
    """Give back what other processes used: nothing is shared."""


def manual_seed(seed: int) -> None:
    """There is no generator to seed, which is no error: `torch.manual_seed` seeds those of all devices."""


manual_seed_all = manual_seed


def get_rng_state(where: Where = None) -> torch.Tensor:
    """The state of no generator, which is empty."""
    return torch.empty(0, dtype=torch.uint8)


def set_rng_state(state: torch.Tensor, where: Where = None) -> None:
    """Take back the state of no generator."""


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The types of autocast."""
    return [torch.bfloat16, torch.float16]


def is_bf16_supported() -> bool:
    """Whether bfloat16 can be used: yes."""
    return True


def _is_in_bad_fork() -> bool:
    return False
