"""Masks of dropout for a device: drawn on the host, ahead of the steps that need them, and sent together.

A mask is drawn when a layer asks for it, and a transfer for each would cost more than the layer. But nearly
every step asks for the same masks as the step before. So those of all steps to come are drawn as the last
step asked for them. The numbers are the same as without that: where a layer asks for something else, the
generator goes back to where it was before that mask.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from mnemos.common.devices import send

_BLOCK_BYTES = 64_000_000
"""Bytes of masks that are on the device at a time."""


class _Asked(NamedTuple):
    """What a layer asks for."""

    shape: tuple[int, ...]
    kept: float
    """The probability of a 1."""
    dtype: torch.dtype
    """The type that is drawn; what is sent has a byte a number."""


class _Ahead(NamedTuple):
    """A mask that is drawn and not asked for yet."""

    asked: _Asked
    before: Tensor
    """The generator's state before it was drawn."""
    mask: Tensor


class Masks:
    """The masks of a client's round, in the order in which layers ask for them."""

    def __init__(self, generator: torch.Generator, device: torch.device) -> None:
        self._generator, self._device = generator, device
        self._ahead: deque[_Ahead] = deque()
        self._asked: list[_Asked] = []
        """What the present step has asked for so far."""
        self._known: dict[str, tuple[int, list[_Asked]]] = {}
        """The last step's batch, and what it asked for, in each part of a round."""
        self._part, self._step = "", -1
        self._sizes: tuple[int, ...] = ()
        self._surprised = False
        """Whether a step of the present part asked for something else than was expected."""

    def begin(self, part: str, sizes: Sequence[int]) -> None:
        """Begin with a part of a round, whose steps have batches of these sizes.

        Its first step is expected to ask for what the last step of an earlier client's part did.
        """
        self._part, self._sizes, self._step = part, (*sizes,), -1
        self._asked, self._surprised = [], False

    def next_step(self) -> None:
        """Begin the next step."""
        if self._step >= 0:
            self._known[self._part] = self._sizes[self._step], self._asked
        self._step, self._asked = self._step + 1, []
        if not self._ahead and not self._surprised and self._part in self._known:
            self._draw_ahead(*self._known[self._part])

    def __call__(self, shape: Sequence[int], kept: float, dtype: torch.dtype) -> Tensor:
        """A mask of zeros and ones on the device, as booleans; a 1 has the probability `kept`."""
        asked = _Asked(tuple(shape), kept, dtype)
        self._asked.append(asked)
        if self._ahead:
            first = self._ahead.popleft()
            if first.asked == asked:
                return first.mask
            self.set_state(first.before)
            self._surprised = True
        return self._draw(asked).to(self._device)

    def get_state(self) -> Tensor:
        """The state of the generator before the next mask."""
        return self._ahead[0].before if self._ahead else self._generator.get_state()

    def set_state(self, state: Tensor) -> None:
        """Have the next masks come from another state of the generator."""
        self._ahead.clear()
        self._generator.set_state(state)

    def _draw(self, asked: _Asked) -> Tensor:
        mask = torch.empty(asked.shape, dtype=asked.dtype)
        return mask.bernoulli_(asked.kept, generator=self._generator).bool()

    def _draw_ahead(self, batch: int, step: list[_Asked]) -> None:
        """Draw the masks of the present step and of later ones, like those of a step with `batch` samples."""
        drawn: list[_Ahead] = []
        left = _BLOCK_BYTES
        for size in self._sizes[self._step :]:
            for asked in step:
                asked = asked._replace(shape=(asked.shape[0] * size // batch, *asked.shape[1:]))
                drawn.append(_Ahead(asked, self._generator.get_state(), self._draw(asked)))
                left -= drawn[-1].mask.numel()
            if left <= 0:
                break
        sent = send([entry.mask for entry in drawn], self._device)
        self._ahead.extend(entry._replace(mask=mask) for entry, mask in zip(drawn, sent, strict=True))
