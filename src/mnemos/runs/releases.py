"""The models of a private run that somebody may have seen: more than its rounds, if some were done again.

A round that is done again after a crash may hear of other clients. Then it gives another model than the one
that owners were sent before the crash, and ε has to count both.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from pathlib import Path

from mnemos.errors import DataError, MnemosError
from mnemos.files import write_atomically
from mnemos.methods.exchange import Server
from mnemos.rounds.guarantee import Guarantee

_LINES = re.compile(rb"([1-9][0-9]{0,8} [0-9a-f]{32}\n)*")


class SpentError(MnemosError):
    """Another model would exceed the budget."""

    def __init__(self, sentence: str, epsilon: float) -> None:
        """`epsilon`: of the models so far."""
        super().__init__(sentence)
        self.epsilon = epsilon


class Releases:
    """A file with a line for each: its round, and what tells it from others. It is on disk before a model is
    anywhere else."""

    def __init__(self, path: Path, guarantee: Guarantee) -> None:
        self._path, self._guarantee = path, guarantee
        content = path.read_bytes() if path.exists() else b""
        content = content[: content.rfind(b"\n") + 1]  # what was being written then, nobody has seen
        if not _LINES.fullmatch(content):
            raise DataError(f"{path}: it is damaged, and ε can't be known without it")
        self._known = set(content.splitlines(keepends=True))
        self._times = Counter(int(line.split()[0]) for line in self._known)
        write_atomically(path, content, sync=True)

    @property
    def last(self) -> int:
        """The last round that was released."""
        return max(self._times, default=0)

    def spend(self, number: int, server: Server) -> float:
        """ε with a round's model, which may go out from now on; the same model twice is one release."""
        digest = hashlib.blake2b(server.model.numpy().tobytes(), digest_size=16).hexdigest()
        line = f"{number} {digest}\n".encode()
        if line not in self._known:
            self._check(number)
            with self._path.open("ab") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
            self._known.add(line)
            self._times[number] += 1
        return self._epsilon(number, self._times)

    def _check(self, number: int) -> None:
        budget, then = self._guarantee.options.budget, self._times + Counter([number])
        if budget is not None and self._epsilon(number, then) > budget:
            raise SpentError(
                f"{self._guarantee.budget} was used up by rounds that were done again: it allows no other "
                f"model of round {number}",
                self._epsilon(number - 1, self._times),
            )

    def _epsilon(self, number: int, times: Counter[int]) -> float:
        again = [count for count in times.values() if count > 1]
        return self._guarantee.epsilon(max([number, *times]), again)
