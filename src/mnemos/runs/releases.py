"""The released models of a private run, which ε counts: more than its rounds, if some were done again.

A round that is done again after a crash may get updates from other clients. Then it makes another model than
the one that owners were sent before the crash, and ε has to count both.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from pathlib import Path

from mnemos.common.files import write_atomically
from mnemos.errors import DataError, MnemosError
from mnemos.methods.exchange import Server
from mnemos.privacy.guarantee import Guarantee

_LINES = re.compile(rb"([1-9][0-9]{0,8} [0-9a-f]{32}\n)*")


class SpentError(MnemosError):
    """Releasing another model would exceed the privacy budget."""

    def __init__(self, sentence: str, epsilon: float) -> None:
        """`epsilon` is that of the models released so far."""
        super().__init__(sentence)
        self.epsilon = epsilon


class Releases:
    """A file with a line for each released model: its round and the model's digest.

    The line is on disk before the model is sent or saved anywhere.
    """

    def __init__(self, path: Path, guarantee: Guarantee) -> None:
        self._path, self._guarantee = path, guarantee
        content = path.read_bytes() if path.exists() else b""
        content = content[: content.rfind(b"\n") + 1]  # a model whose line is incomplete was not released
        if not _LINES.fullmatch(content):
            raise DataError(f"{path}: it is damaged, and ε can't be known without it")
        self._known = set(content.splitlines(keepends=True))
        self._times = Counter(int(line.split()[0]) for line in self._known)
        write_atomically(path, content, sync=True)

    @property
    def last(self) -> int:
        """The last round whose model was released; 0 before the first."""
        return max(self._times, default=0)

    def spend(self, round: int, server: Server) -> float:
        """Record that a round's model is released, and return ε including it.

        The same model released twice counts once. Raises SpentError if the budget doesn't allow the release.
        """
        digest = hashlib.blake2b(server.model.cpu().numpy().tobytes(), digest_size=16).hexdigest()
        line = f"{round} {digest}\n".encode()
        if line not in self._known:
            self._check(round)
            with self._path.open("ab") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
            self._known.add(line)
            self._times[round] += 1
        return self._epsilon(round, self._times)

    def _check(self, round: int) -> None:
        """Raise SpentError if another model of the round would exceed the budget."""
        budget, then = self._guarantee.options.budget, self._times + Counter([round])
        if budget is not None and self._epsilon(round, then) > budget:
            raise SpentError(
                f"{self._guarantee.budget} was used up by rounds that were done again: it allows no other "
                f"model of round {round}",
                self._epsilon(round - 1, self._times),
            )

    def _epsilon(self, round: int, times: Counter[int]) -> float:
        """ε after `round`, if the model of each round was released as often as `times` says."""
        again = [count for count in times.values() if count > 1]
        return self._guarantee.epsilon(max([round, *times]), again)
