"""How fast fractals are drawn: many at once, beside one point and one image after the other.

    python benchmarks/fractals.py [--images 2000] [--slow 20] [--size 32] [--repeats 3]

The straightforward way goes through an image's points one by one, and through images one by one; colours and
background are made by the same functions, of a single image. Its images are the same, bit for bit. All ways
run in turn, in one process; printed are medians and ratios. The last column is by the processor's time, which
other programs on the machine disturb less.
"""

from __future__ import annotations

import argparse
import statistics
import time
from bisect import bisect_right
from collections.abc import Callable
from unittest.mock import patch

import numpy as np

from mnemos.common.cores import cores
from mnemos.data.fractals import Fractals, chaos
from mnemos.data.fractals.chaos import STEPS, WARM_UP, _fixed_point
from mnemos.data.fractals.draws import Floats
from mnemos.data.fractals.images import Bytes


def play_one_by_one(maps: Floats, draws: Floats) -> tuple[Floats, Floats]:
    """The chaos game, point after point; the same results as `chaos.play`."""
    f = np.float32
    points = []
    for system, numbers in zip(maps, draws, strict=True):
        areas = np.abs(system[:, 0, 0] * system[:, 1, 1] - system[:, 0, 1] * system[:, 1, 0]).cumsum()
        limits = (areas / areas[-1])[:-1].tolist()
        rows = system.reshape(-1, 6)
        start = _fixed_point(system[None, 0])[:, 0]
        lanes = numbers.reshape(STEPS + WARM_UP, -1)
        for lane in lanes.T.tolist():
            x, y = start
            for step, number in enumerate(lane, -WARM_UP):
                a, b, c, d, e, g = rows[bisect_right(limits, number)]
                x, y = f(f(a * x) + f(b * y)) + c, f(f(d * x) + f(e * y)) + g
                if step >= 0:
                    points.append((x, y))
    shape = (len(maps), -1, STEPS)
    xs, ys = np.array(points, np.float32).T
    return xs.reshape(shape).transpose(2, 0, 1), ys.reshape(shape).transpose(2, 0, 1)


def straightforward(fractals: Fractals, count: int) -> Bytes:
    with patch.object(chaos, "play", play_one_by_one):
        return alone(fractals, count)


def alone(fractals: Fractals, count: int) -> Bytes:
    """Many points, but one image, at once."""
    keys = np.arange(count)
    return np.concatenate(
        [fractals.images(keys[one : one + 1] % fractals.classes, keys[one : one + 1]) for one in range(count)]
    )


def together(fractals: Fractals, count: int, workers: int = 1) -> Bytes:
    return fractals.images(np.arange(count) % fractals.classes, np.arange(count), workers)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--slow", type=int, default=20, help="images of the straightforward way")
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    fractals = Fractals(100, args.size)
    np.testing.assert_array_equal(straightforward(fractals, 3), together(fractals, 3))
    threads = cores()
    ways: dict[str, tuple[int, Callable[[], object]]] = {
        "straightforward": (args.slow, lambda: straightforward(fractals, args.slow)),
        "one image at once": (args.images // 10, lambda: alone(fractals, args.images // 10)),
        "many at once": (args.images, lambda: together(fractals, args.images)),
        f"on {threads} threads": (args.images, lambda: together(fractals, args.images, threads)),
        "scenes": (args.images // 2, lambda: fractals.scenes(np.arange(args.images // 2))),
    }
    rates: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(args.repeats):
        for name, (count, work) in ways.items():
            begin, used = time.perf_counter(), time.process_time()
            work()
            rates[name].append((count / (time.perf_counter() - begin), count / (time.process_time() - used)))
    base = statistics.median(rate for rate, _ in rates["straightforward"])
    print(f"{args.size}×{args.size}          images/s     ratio   images/s of processor time")
    for name, found in rates.items():
        rate, of_processor = (statistics.median(column) for column in zip(*found, strict=True))
        print(f"{name:18} {rate:8.0f} {rate / base:8.1f}   {of_processor:8.0f}")


if __name__ == "__main__":
    main()
