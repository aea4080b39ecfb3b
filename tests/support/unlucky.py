"""Losses that end badly, for workers to import."""

import os
import signal
from pathlib import Path

from mnemos.objectives.ce import CrossEntropy


class Raises(CrossEntropy):
    """A bug in a user's own code."""

    def __call__(self, logits, labels, counts):
        raise RuntimeError("out of luck")


class KillsOnce(CrossEntropy):
    """A process that the system kills for want of memory; with a mark on disk, it has been killed already."""

    mark: str

    def __call__(self, logits, labels, counts):
        if not Path(self.mark).exists():
            Path(self.mark).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(logits, labels, counts)
