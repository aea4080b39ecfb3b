"""Randomness without global state.

Every draw comes from a generator derived from what it is for: `generator(seed, "batches", round, client)`.
The same key gives the same numbers on every engine, in every order, before and after a resume.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch

Seed = int | str
"""An experiment's seed, or a secret."""
_CHUNK = 1 << 20
"""How many numbers are drawn at a time, so that a large model's noise takes little memory beyond its own."""


def derive(seed: Seed, purpose: str, *keys: int) -> int:
    """A 63-bit seed for one purpose, from a hash of the whole key (so no two keys are correlated)."""
    text = _text(seed, purpose, *keys)
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1


def generator(seed: Seed, purpose: str, *keys: int) -> torch.Generator:
    """A torch generator for one purpose."""
    return torch.Generator().manual_seed(derive(seed, purpose, *keys))


def numpy_generator(seed: Seed, purpose: str, *keys: int) -> np.random.Generator:
    """A numpy generator for one purpose."""
    return np.random.default_rng(derive(seed, purpose, *keys))


def normal(count: int, seed: Seed, purpose: str, *keys: int) -> torch.Tensor:
    """Standard normal numbers [count] that can't be predicted without the seed, even from some of them.

    A torch generator uses 32 bits of its seed, which an attacker can enumerate. These numbers are uniform
    ones from SHAKE-256 of the whole key, through the inverse of the normal distribution function.
    """
    from scipy.special import ndtri  # slow to import, and only needed here

    drawn = np.empty(count, np.float32)
    for start in range(0, count, _CHUNK):
        chunk = drawn[start : start + _CHUNK]
        stream = hashlib.shake_256(_text(seed, purpose, *keys) + b"/%d" % start).digest(8 * len(chunk))
        uniform = ((np.frombuffer(stream, "<u8") >> 12) + 0.5) * 2.0**-52  # exact, and never 0 or 1
        chunk[:] = ndtri(uniform)
    return torch.from_numpy(drawn)


def _text(seed: Seed, purpose: str, *keys: int) -> bytes:
    return ":".join([str(seed), purpose, *map(str, keys)]).encode()
