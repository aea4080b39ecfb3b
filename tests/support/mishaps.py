"""A part by which a client's round goes wrong, wherever it runs."""

import os
import signal
import time
from typing import Literal

from mnemos.methods.part import Term


class Mishap(Term):
    """Befalls the client that trains on so many samples of each class."""

    held: tuple[int, ...]
    kind: Literal["death", "error", "sleep"]

    def correct(self, gradient, parameters, client):
        if tuple(client.held.int().tolist()) == self.held:
            match self.kind:
                case "death":
                    os.kill(os.getpid(), signal.SIGKILL)
                case "error":
                    raise ZeroDivisionError("no way")
                case "sleep":
                    time.sleep(3600)
        return gradient
