"""A run that waits at a known place, so that what happens to it there happens at no other moment."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from mnemos.measures.measure import Measure, Moment, Record
from support.processes import LONG


class Gate(Measure):
    """Measures nothing. At the end of a round, before it is saved, it waits until there is a file `open`.

    Its own file there, `reached-…`, has the number of its process.
    """

    remote: ClassVar[bool] = True

    at: int
    folder: str

    def due(self, round: int, last: int) -> bool:
        return round == self.at

    def records(self, moment: Moment) -> Iterator[Record]:
        if moment.round == self.at:
            (Path(self.folder) / f"reached-{os.getpid()}").touch()
            end = time.monotonic() + LONG
            while not (Path(self.folder) / "open").exists():
                assert time.monotonic() < end, "nobody has opened the gate"
                time.sleep(0.05)
        return iter(())
