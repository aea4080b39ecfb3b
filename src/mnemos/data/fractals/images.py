"""Images of fractals; each depends only on seed, class and index."""

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
"""Images from this index on are for testing; training never uses them."""
MOST = 5
"""The largest number of fractals in a scene."""

_POINTS = 4
"""Points per pixel: twice as many as in published work on large images, where missing points show less."""
_LANES = 4096
"""Chains that are computed at once: enough to outweigh a call's overhead, few enough for a cache."""

Bytes = NDArray[np.uint8]
Ground = Literal["clouds", "black"]
_K = TypeVar("_K")
_R = TypeVar("_R")


@dataclass(frozen=True)
class Fractals:
    """Classes of fractals, one system per class, and their images."""

    classes: int
    size: int = 32
    """Pixels per side."""
    seed: int = 0
    transforms: tuple[int, int] = (2, 4)
    """The fewest and the most maps of a system."""
    channels: Literal[1, 3] = 3
    """3: colours, 1: their luminance."""
    background: Ground = "clouds"
    """The background of the fractals."""

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
        """The fractals of these images without colours [B, size, size]: 0 is empty, 1 has most points."""

        def render(keys: Sequence[tuple[int, int]]) -> Floats:
            draws = Draws(self.seed, "fractal", keys, _draws_for(self.size))
            return self._shades([label for label, _ in keys], self.size, draws)

        keys = list(zip(labels.tolist(), indices.tolist(), strict=True))
        return np.concatenate(_in_parts(render, keys, self._at_once(self.size), 1))

    def scenes(self, indices: Ints, workers: int = 1) -> tuple[Bytes, Floats]:
        """Images of one to five smaller fractals each, and which classes they contain [B, classes]."""
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
        sizes = 1 + (draws.take(1) * MOST).astype(np.int64)
        drawn = draws.take(4 * MOST).reshape(-1, MOST, 4)
        result = self._ground(draws)
        used = np.arange(MOST) < sizes
        images, order = np.nonzero(used)
        label, side, *centre = drawn[used].T
        labels = (label * self.classes).astype(np.int64)
        keys = [(scenes[image], index) for image, index in np.argwhere(used).tolist()]
        own = Draws(self.seed, "fractal in a scene", keys, _draws_for(half) + PAINT)
        shades = self._shades(labels.tolist(), half, own)
        shades = view.place(shades, between(side, 0.15, 0.6) * size, np.stack(centre, 1) * size, size)
        colours = paint(shades, own)
        for index in range(MOST):
            rows = order == index
            result[images[rows]] = lay_over(shades[rows], colours[rows], result[images[rows]])
        present = np.zeros((len(scenes), self.classes), np.float32)
        present[images, labels] = 1
        return self._bytes(result, draws), present

    def _shades(self, labels: Sequence[int], size: int, draws: Draws) -> Floats:
        """One fractal per image, without colours."""
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
    """The results of `work` on all keys, `at_once` of them at a time, by `workers` threads."""
    parts = [keys[start : start + at_once] for start in range(0, len(keys), at_once)]
    if min(workers, len(parts)) < 2:
        return [work(part) for part in parts]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(work, parts))
