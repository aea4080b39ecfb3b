"""Rows of numbers, in memory or in a memory-mapped file, that grow in number as they are taken."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemos.common.devices import CPU
from mnemos.errors import DataError

_BLOCK_BYTES = 16_000_000
_BLOCK_ROWS = 256
"""Rows are made in blocks of about this size, and of no more rows."""
_UNREAD_BYTES = 256_000_000
"""Bytes of rows that stay on a device until they are read."""


class Rows:
    """Rows of the same width, and which of them are free."""

    def __init__(self, width: int) -> None:
        """`width`: the numbers in a row."""
        self.width = width
        self.path: Path | None = None
        """The file, which must not change once there are rows; None: they are in memory."""
        self._per_block = min(_BLOCK_ROWS, max(1, _BLOCK_BYTES // max(1, 4 * width)))
        self._blocks: list[NDArray[np.float32]] = []
        self._dirty: set[int] = set()
        self._free: list[int] = []
        self._unread: dict[int, Tensor] = {}
        """Rows that are still on a device."""

    def __len__(self) -> int:
        return len(self._blocks) * self._per_block

    def __getitem__(self, row: int) -> NDArray[np.float32]:
        """A view of a row, for reading."""
        found: NDArray[np.float32] = self._blocks[row // self._per_block][row % self._per_block]
        return found

    def write(self, row: int, parts: list[Tensor]) -> None:
        """Fill a row with some vectors, one after the other; those of a device are there after `fetch`."""
        self._dirty.add(row // self._per_block)
        self._unread.pop(row, None)
        if parts[0].device == CPU:
            place = torch.from_numpy(self[row])
            if len(parts) == 1:
                place.copy_(parts[0])
            else:
                torch.cat(parts, out=place)
            return
        self._unread[row] = torch.cat(parts)
        if len(self._unread) * 4 * self.width > _UNREAD_BYTES:
            self.fetch()

    def gather(self, rows: Sequence[int], out: NDArray[np.float32], where: Sequence[int]) -> None:
        """Copy some rows to the rows of `out` that `where` names."""
        for block, own in self._by_block(rows):
            out[np.asarray(where)[own]] = self._blocks[block][np.asarray(rows)[own] % self._per_block]

    def scatter(self, rows: Sequence[int], values: Tensor) -> None:
        """Fill some rows, which no device is about to fill, with the rows of a matrix of the host."""
        numbers = values.numpy()
        for block, own in self._by_block(rows):
            self._dirty.add(block)
            self._blocks[block][np.asarray(rows)[own] % self._per_block] = numbers[own]

    def _by_block(self, rows: Sequence[int]) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Each block that has some of the rows, and which of them."""
        blocks = np.asarray(rows) // self._per_block
        for block in np.unique(blocks).tolist():
            yield block, np.flatnonzero(blocks == block)

    def fetch(self) -> None:
        """Read what has been written from a device, all rows at once, as the program waits for each time."""
        if self._unread:
            values = torch.stack([*self._unread.values()]).cpu()
            for row, found in zip(self._unread, values, strict=True):
                torch.from_numpy(self[row]).copy_(found)
            self._unread = {}

    def take(self) -> int:
        """A row that was free."""
        if not self._free:
            before = len(self)
            self._grow()
            self._free = [*reversed(range(before, len(self)))]
        return self._free.pop()

    def free(self, rows: Iterable[int]) -> None:
        """Let rows be taken again."""
        for row in rows:
            self._free.append(row)
            self._unread.pop(row, None)

    def reopen(self, used: list[int]) -> None:
        """Take up the rows that are in the file: all but the used ones are free."""
        last = max(used, default=-1)
        if last >= 0 and self.path is not None:
            size = self.path.stat().st_size if self.path.is_file() else 0
            if size < (last + 1) * 4 * self.width:
                raise DataError(f"{self.path}: it is missing or too short: {size} bytes")
        self._blocks, self._free = [], []
        self.reserve(used)

    def reserve(self, rows: list[int]) -> list[int]:
        """Take these rows, as far as they are free; returns those, in order."""
        before = len(self)
        while len(self) <= max(rows, default=-1):
            self._grow()
        wanted, free = set(rows), [*self._free, *range(before, len(self))]
        self._free = [row for row in free if row not in wanted]
        return sorted(wanted.intersection(free))

    def sync(self) -> None:
        """Wait until what was written survives a loss of power."""
        for index in self._dirty:
            block = self._blocks[index]
            if isinstance(block, np.memmap):
                block.flush()
        self._dirty.clear()

    def _grow(self) -> None:
        shape = (self._per_block, self.width)
        if self.path is None:
            self._blocks.append(np.zeros(shape, np.float32))
            return
        size = self._per_block * 4 * self.width
        start = len(self._blocks) * size
        with self.path.open("ab") as file:
            file.truncate(max(file.tell(), start + size))
            # Room that isn't there must show now: writing into a map without any kills the process.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), start, size)
        self._blocks.append(np.memmap(self.path, np.float32, "r+", start, shape))
