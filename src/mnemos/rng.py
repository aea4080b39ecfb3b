"""Randomness without global state.

Every draw comes from a generator derived from what it is for: `generator(seed, "batches", round, client)`.
The same key gives the same numbers on every engine, in every order, before and after a resume.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch


def derive(seed: int, purpose: str, *keys: int) -> int:
    """A 63-bit seed for one purpose, from a hash of the whole key (so no two keys are correlated)."""
    text = ":".join([str(seed), purpose, *map(str, keys)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def generator(seed: int, purpose: str, *keys: int) -> torch.Generator:
    """A torch generator for one purpose."""
    return torch.Generator().manual_seed(derive(seed, purpose, *keys))


def numpy_generator(seed: int, purpose: str, *keys: int) -> np.random.Generator:
    """A numpy generator for one purpose."""
    return np.random.default_rng(derive(seed, purpose, *keys))
