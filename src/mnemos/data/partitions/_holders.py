"""Partitions as an array with the client of each sample: grouping it, and filling up clients with too few."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mnemos.data.partition import Ints
from mnemos.errors import ConfigError

_HOPELESS = 10
"""If m clients lack samples on average, about one draw in e^m leaves none short: above this m, tries end."""


def check_enough(clients: int, samples: int) -> None:
    """Refuse more clients than samples."""
    if clients > samples:
        raise ConfigError(
            f"found {clients}; the data set has {samples} training samples, "
            f"so at most {samples} clients can hold one each",
            "clients",
        )


def least(min_samples: int | None, clients: int, samples: int) -> int:
    """The least number of samples that every client gets.

    By default 10, but at most half of an equal share, which leaves room for skew, and at least one.
    """
    check_enough(clients, samples)
    each = samples // clients
    if min_samples is None:
        return max(1, min(10, each // 2))
    if min_samples > each:
        raise ConfigError(
            f"found {min_samples}; {samples} training samples over {clients} clients are at most {each} each",
            "min_samples",
        )
    return min_samples


def even_sizes(samples: int, clients: int) -> Ints:
    """Sizes [clients] that sum to the number of samples and differ by at most one, the larger ones first."""
    sizes = np.full(clients, samples // clients, np.int64)
    sizes[: samples % clients] += 1
    return sizes


def offsets(sizes: Ints) -> Ints:
    """The start of each client's run, and the end of the last one [clients + 1]."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])


def group(samples: Ints, holders: Ints, clients: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """(order, offsets) from the client of each sample; every client's samples are in random order."""
    mixed = rng.permutation(len(samples))
    order = samples[mixed[np.argsort(holders[mixed], kind="stable")]]
    return order, offsets(np.bincount(holders, minlength=clients))


def levelled(sizes: Ints, floor: int) -> Ints:
    """The sizes after moving samples, one by one, from the largest client to clients below the floor."""
    lacking = np.maximum(floor - sizes, 0)
    missing = int(lacking.sum())
    if not missing:
        return sizes
    # Taking from the largest repeatedly cuts all large clients down to one level, found by bisection.
    low, high = floor, int(sizes.max())
    while low < high:
        middle = (low + high + 1) // 2
        if int(np.maximum(sizes - middle, 0).sum()) >= missing:
            low = middle
        else:
            high = middle - 1
    given = np.maximum(sizes - low, 0)
    given[np.flatnonzero(given)[: int(given.sum()) - missing]] -= 1
    return np.asarray(sizes + lacking - given, np.int64)


def top_up(holders: Ints, clients: int, floor: int, rng: np.random.Generator) -> Ints:
    """The client of each sample after moving samples from the largest clients to those below the floor.

    Samples are expected class after class. They move in runs, so that a client with few labels keeps few; the
    start of the runs is random, so that no label moves more often than another.
    """
    sizes = np.bincount(holders, minlength=clients)
    change = levelled(sizes, floor) - sizes
    if not change.any():
        return holders
    turn = int(rng.integers(len(holders)))
    turned = np.roll(holders, turn)
    position = np.argsort(turned, kind="stable")
    rank = np.arange(len(holders)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    moved = position[rank >= np.repeat(sizes + np.minimum(change, 0), sizes)]
    turned[moved] = np.repeat(np.arange(clients), np.maximum(change, 0))
    return np.roll(turned, -turn)


def redraw(draw: Callable[[], Ints], clients: int, floor: int, tries: int, rng: np.random.Generator) -> Ints:
    """The client of each sample, drawn at most `tries` times until every client reaches the floor.

    The draw that lacks the fewest samples is kept, and its small clients are filled up.
    """
    best, fewest = np.empty(0, np.int64), -1
    for _ in range(tries):
        holders = draw()
        lacking = np.maximum(floor - np.bincount(holders, minlength=clients), 0)
        missing = int(lacking.sum())
        if fewest < 0 or missing < fewest:
            best, fewest = holders, missing
        if not missing or np.count_nonzero(lacking) > _HOPELESS:
            break
    return top_up(best, clients, floor, rng)
