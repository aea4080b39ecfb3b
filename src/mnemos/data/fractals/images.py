"""Images of fractals, each a function of seed, class and index alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from mnemos.data.fractals import background, chaos, view
from mnemos.data.fractals.colour import BLUR, PAINT, blur, grey, lay_over, paint
from mnemos.data.fractals.draws import Draws, Floats, Ints, between
from mnemos.data.fractals.systems import System, draw_system

HELD_OUT = 1 << 40
"""Images from this index on are for testing: no training ever gets there."""
MOST = 5
"""Fractals in a scene, at most."""

_POINTS = 4
"""Points a pixel: twice as many as in published work on large images, where a miss shows less."""
_LANES = 4096
"""Chains that are followed at once: enough for an operation to be worth its call, few enough for a cache."""

Bytes = NDArray[np.uint8]
Ground = Literal["clouds", "black"]
_K = TypeVar("_K")
_R = TypeVar("_R")


@dataclass(frozen=True)
class Fractals:
    """Classes of fractals, one system each, and their images."""

    classes: int
    size: int = 32
    """Pixels a side."""
    seed: int = 0
    transforms: tuple[int, int] = (2, 4)
    """The fewest and the most maps of a system."""
    channels: Literal[1, 3] = 3
    """Colours, or their luminance."""
    background: Ground = "clouds"
    """What is behind the fractals."""

    @cached_property
    def systems(self) -> tuple[System, ...]:
        """The system of each class."""
        return tuple(draw_system(self.seed, label, self.transforms) for label in range(self.classes))

    def images(self, labels: Ints, indices: Ints, workers: int = 1) -> Bytes:
        """Images [B, channels, size, size] of one fractal each, by class and index."""
        keys = list(zip(labels.tolist(), indices.tolist(), strict=True))
        parts = _in_parts(self._render, keys, self._at_once(self.size), workers)
        return np.concatenate([self._nothing, *parts])

    def shades(self, labels: Ints, indices: Ints) -> Floats:
        """The fractals of these images alone [B, size, size]: 0 is nothing, 1 where most points are."""

        def render(keys: Sequence[tuple[int, int]]) -> Floats:
            draws = Draws(self.seed, "fractal", keys, _draws_for(self.size))
            return self._shades([label for label, _ in keys], self.size, draws)

        keys = list(zip(labels.tolist(), indices.tolist(), strict=True))
        return np.concatenate(_in_parts(render, keys, self._at_once(self.size), 1))

    def scenes(self, indices: Ints, workers: int = 1) -> tuple[Bytes, Floats]:
        """Images of one to five smaller fractals each, and which classes are there [B, classes]."""
        at_once = max(1, 2 * self._at_once(self.size // 2) // (1 + MOST))
        parts = _in_parts(self._compose, indices.tolist(), at_once, workers)
        present = np.zeros((0, self.classes), np.float32)
        return (
            np.concatenate([self._nothing, *(images for images, _ in parts)]),
            np.concatenate([present, *(labels for _, labels in parts)]),
        )

    @property
    def _nothing(self) -> Bytes:
        return np.zeros((0, self.channels, self.size, self.size), np.uint8)

    def _render(self, keys: Sequence[tuple[int, int]]) -> Bytes:
        rest = PAINT + background.draws_for(self.size) + BLUR
        draws = Draws(self.seed, "fractal", keys, _draws_for(self.size) + rest)
        shades = self._shades([label for label, _ in keys], self.size, draws)
        colours = paint(shades, draws)
        return self._bytes(lay_over(shades, colours, self._ground(draws)), draws)

    def _compose(self, scenes: Sequence[int]) -> tuple[Bytes, Floats]:
        size, half = self.size, self.size // 2
        count = 1 + 4 * MOST + background.draws_for(size) + BLUR
        draws = Draws(self.seed, "fractal scene", [(scene,) for scene in scenes], count)
        numbers = 1 + (draws.take(1) * MOST).astype(np.int64)
        asked = draws.take(4 * MOST).reshape(-1, MOST, 4)
        result = self._ground(draws)
        there = np.arange(MOST) < numbers
        images, order = np.nonzero(there)
        label, side, *centre = asked[there].T
        labels = (label * self.classes).astype(np.int64)
        keys = [(scenes[image], number) for image, number in np.argwhere(there).tolist()]
        own = Draws(self.seed, "fractal in a scene", keys, _draws_for(half) + PAINT)
        shades = self._shades(labels.tolist(), half, own)
        shades = view.place(shades, between(side, 0.15, 0.6) * size, np.stack(centre, 1) * size, size)
        colours = paint(shades, own)
        for number in range(MOST):
            which = order == number
            result[images[which]] = lay_over(shades[which], colours[which], result[images[which]])
        present = np.zeros((len(scenes), self.classes), np.float32)
        present[images, labels] = 1
        return self._bytes(result, draws), present

    def _shades(self, labels: Sequence[int], size: int, draws: Draws) -> Floats:
        """A fractal an image, without colours."""
        systems = chaos.stack([self.systems[label] for label in labels])
        maps = chaos.jitter(*systems, draws.take(chaos.JITTER))
        xs, ys = chaos.play(maps, draws.take(chaos.draws_for(_points(size))))
        low, extent = view.box(xs, ys, draws.take(view.BOX))
        return view.flip(view.shades(xs, ys, low, extent, size), draws.take(view.FLIP))

    def _ground(self, draws: Draws) -> Floats:
        if self.background == "clouds":
            return background.clouds(self.size, draws)
        count = len(draws.take(background.draws_for(self.size)))
        return np.zeros((count, 3, self.size, self.size), np.float32)

    def _bytes(self, images: Floats, draws: Draws) -> Bytes:
        done = (blur(images, draws) * 255 + 0.5).astype(np.uint8)
        return done if self.channels == 3 else grey(done)

    def _at_once(self, size: int) -> int:
        return max(1, _LANES // chaos.chains(_points(size)))


def _points(size: int) -> int:
    return _POINTS * size * size


def _draws_for(size: int) -> int:
    return chaos.JITTER + chaos.draws_for(_points(size)) + view.BOX + view.FLIP


def _in_parts(work: Callable[[Sequence[_K]], _R], keys: Sequence[_K], at_once: int, workers: int) -> list[_R]:
    """The work on all keys, so many at once, by so many threads."""
    parts = [keys[start : start + at_once] for start in range(0, len(keys), at_once)]
    if min(workers, len(parts)) < 2:
        return [work(part) for part in parts]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(work, parts))
