"""A cache of pre-trained encoders, each trained once, also if several processes need it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mnemos.data.folder import cache_folder
from mnemos.errors import DataError
from mnemos.models.encoder import Encoder, load_encoder, save_encoder
from mnemos.models.model import Model
from mnemos.pretrain.pretraining import Pretraining
from mnemos.pretrain.train import Tell, train


def obtain(options: Pretraining, model: Model, shape: tuple[int, ...], tell: Tell) -> Encoder:
    """The encoder from the cache, or trained now; if another process is training it, this one waits."""
    path = cache_folder() / "encoders" / f"{options.key(model, shape)}.safetensors"
    if (known := _kept(path)) is not None:
        return known
    with _alone(path.with_suffix(".lock"), tell):
        if (known := _kept(path)) is not None:  # made while this process waited
            return known
        encoder = train(options, model, shape, tell)
        with suppress(OSError):  # a cache that can't be written only costs time
            save_encoder(path, encoder)
        return encoder


def _kept(path: Path) -> Encoder | None:
    try:
        return load_encoder(path)
    except DataError:  # not there, or damaged: it is trained again
        return None


@contextmanager
def _alone(path: Path, tell: Tell) -> Iterator[None]:
    """Hold the lock of an encoder while it is trained; the system releases it when the process ends."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError:
        yield  # without a cache there is no lock
        return
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell(0, 1, "another process is training it; waiting")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
