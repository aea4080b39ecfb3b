"""What an owner's client tells its owner: what it was asked, how the model does on its data, and the end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from mnemos.common.files import write_atomically

FILE = "federation.json"


@dataclass
class Page:
    """What `federation.json` in a client's folder says."""

    name: str = ""
    server: str = ""
    state: str = "starting"
    """starting, connected, training, evaluating, refused or disconnected."""
    round: int = 0
    rounds: int = 0
    accuracy: float | None = None
    """Share of the owner's own samples that the server's model got right at its last evaluation."""
    run: str = ""
    """How the last run ended; empty while it goes on."""
    model: str = ""
    """Where the last run's final model is; empty if the server has given none."""
    written: str = ""


class Diary:
    """Says what a client was asked and did, and writes it down for `mnemos federate status`."""

    def __init__(self, folder: Path | None = None, say: Callable[[str], None] = print) -> None:
        """Without a `folder`, nothing is written or said: Flower starts a process for each message."""
        self._folder, self._say = folder, say
        self.page = Page()
        self._before = ""

    def note(self, state: str, **facts: str) -> None:
        """Note the client's state and other facts."""
        self.page.state = state
        for name, value in facts.items():
            setattr(self.page, name, value)
        self._write()

    def rounds(self, count: int) -> None:
        """Note how many rounds the run has."""
        self.page.rounds = count

    def asked(self, what: str, round: int = 0) -> None:
        """The server asks for something: `train`, `evaluate`, or a description of the data."""
        if round:
            self.page.round, self.page.run = round, ""
        self.note({"train": "training", "evaluate": "evaluating"}.get(what, self.page.state))

    def described(self, samples: int) -> None:
        """The server was told about the owner's data."""
        self._tell(
            f"the server asked for a description of the data: {samples} samples, their shape and classes"
        )

    def trained(self, samples: int, steps: int, loss: float, seconds: float) -> None:
        """The client has trained in a round."""
        where = f"round {self.page.round}" + (f"/{self.page.rounds}" if self.page.rounds else "")
        self._tell(
            f"{where}: trained on {samples} samples, {steps} steps in {seconds:.1f} s, loss {loss:.4g}"
        )
        self.note("connected")

    def evaluated(self, part: str, right: int, samples: int, *, clients_model: bool = False) -> None:
        """The client has evaluated the server's model, or one of some client, on its own samples."""
        self.note("connected")
        if not samples:
            return
        share = right / samples
        held = "test" if part == "test" else "validation"
        what = "a client's model after its training" if clients_model else "the model"
        if not clients_model:
            self.page.accuracy = share
        where = f"round {self.page.round}: " if self.page.round else ""  # it may have come in between
        self._tell(f"{where}evaluated {what}: {100 * share:.1f} % of {samples} own {held} samples right")
        self._write()

    def ended(self, status: str, rounds: int, model: Path | None) -> None:
        """The server says that its run has ended, and may have given its model."""
        self.page.model = "" if model is None else str(model)
        self.page.run = status
        self._before = ""
        self._tell(f"the run has ended: {status} after {rounds} rounds")
        if model is not None:
            self._tell(f"its model is in {model}; 'mnemos predict' uses it")
        self.note("connected")

    def _tell(self, sentence: str) -> None:
        """Say a sentence, unless it is the same as the one before."""
        if self._folder is not None and sentence != self._before:
            self._before = sentence
            self._say(sentence)

    def _write(self) -> None:
        if self._folder is None:
            return
        self.page.written = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        self._folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self._folder / FILE, json.dumps(asdict(self.page), indent=1).encode())
