"""Who takes part in a federation: which owners are there, awaited, dropped or refused, and why.

The server keeps it in `federation.json` in its folder, and in `owners.json` in the run's directory, where
`mnemos federate status` and the report's page find it.
"""

from __future__ import annotations

import ast
import json
import re
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from mnemos.common.files import write_atomically
from mnemos.deployment.journal import Journal
from mnemos.deployment.keys import fingerprint
from mnemos.deployment.watcher import Watcher

FILE, RUN_FILE = "federation.json", "owners.json"

Presence = Literal["awaited", "here", "gone", "dropped", "refused"]

_REFUSED = re.compile(r"activate-node\].* public key: (b'.*'), exception: (.*)$")


@dataclass
class OwnerState:
    """What the server knows about an owner."""

    state: Presence = "awaited"
    why: str = ""
    """Why it is dropped, refused or gone; empty for the others."""
    since: str = ""
    answered: int = 0
    """Rounds in which it has trained."""
    dropped: int = 0
    """Rounds that went on without it, though it was asked."""
    rejected: int = 0
    """Rounds in which its update was put aside."""


@dataclass
class Standing:
    """What `federation.json` says: the state of the server and of each owner."""

    server: dict[str, Any] = field(default_factory=dict)
    owners: dict[str, OwnerState] = field(default_factory=dict)
    strangers: dict[str, str] = field(default_factory=dict)
    """Keys that were refused, by their fingerprint, with the last time."""


class Roster(Watcher):
    """Keeps track of owners, says what changes, and writes it down."""

    def __init__(self, home: Path, say: Journal, keys: Mapping[str, bytes] | None = None) -> None:
        """`keys` are the owners' public keys by name, if owners have keys."""
        self._home, self._say, self._keys = home, say, dict(keys or {})
        self._lock = threading.Lock()  # a SuperLink's lines are read by another thread
        self._run: Path | None = None
        self._said: set[str] = set()
        self._round = 0
        self.standing = Standing(owners={name: OwnerState(since=_now()) for name in self._keys})

    def server(self, run: Path | None = None, **facts: Any) -> None:
        """Note facts about the server: its address, what it does, its run and its round."""
        with self._lock:
            self._run = run or self._run
            self._round = facts.get("round", self._round)
            self.standing.server |= {**facts, "written": _now()}
            if run is not None:
                self.standing.server["run"] = str(run)
            self._write()

    def members(self, names: Iterable[str]) -> None:
        """Note the names of the run's owners: any other is of no interest from now on."""
        wanted = set(names)
        with self._lock:
            for name in wanted - self.standing.owners.keys():
                self.standing.owners[name] = OwnerState(since=_now())
            for name in self.standing.owners.keys() - wanted - self._keys.keys():
                del self.standing.owners[name]
            self._write()

    def joined(self, name: str) -> None:
        """An owner has joined with data that fit."""
        self._set(name, "here")

    def refused(self, name: str, sentence: str) -> None:
        """An owner can't take part; the sentence says why."""
        self._set(name, "refused", sentence)

    def rejected(self, name: str, why: str) -> None:
        """An owner's update was put aside."""
        self._say.warn(f"round {self._round + 1} continues without the update of {name}: {why}")
        with self._lock:
            self.standing.owners.setdefault(name, OwnerState(since=_now())).rejected += 1
            self._write()

    def present(self, names: Collection[str]) -> None:
        """Compare the owners that are connected now with those that were before."""
        now = set(names)
        for name, known in list(self.standing.owners.items()):
            if known.state in ("here", "dropped") and name not in now:
                self._set(name, "gone", "its connection is lost")
                self._say.warn(f"{name} is gone: its connection is lost")
            elif known.state == "gone" and name in now:
                self._set(name, "here")
                self._say(f"{name} is back")

    def answered(self, name: str) -> None:
        """An owner has trained in the round that goes on."""
        self.standing.owners.setdefault(name, OwnerState()).answered += 1
        if self.standing.owners[name].state == "dropped":
            self._say(f"{name} takes part again")
        self._set(name, "here")

    def dropped(self, name: str, why: str) -> None:
        """The round that goes on has to do without an owner."""
        known = self.standing.owners.setdefault(name, OwnerState())
        known.dropped += 1
        self._say.warn(f"round {self._round + 1} continues without {name}: {why}")
        self._set(name, "gone" if known.state == "gone" else "dropped", why)

    def heard(self, line: str) -> None:
        """Read a line that the SuperLink has printed: who was refused, and why."""
        found = _REFUSED.search(line)
        if found is None:
            return
        try:
            key = ast.literal_eval(found[1])
        except (ValueError, SyntaxError):
            return
        names = [name for name, known in self._keys.items() if known == key]
        if names:
            sentence = (
                f"a second client with the key of {names[0]} isn't admitted while the first is connected; "
                "one that was killed counts as connected for a minute"
            )
        else:
            mark = fingerprint(key)
            sentence = (
                f"refused: a client with an unknown key ({mark}); its public half isn't in "
                f"{self._home / 'owners'}"
            )
            with self._lock:
                self.standing.strangers[mark] = _now()
                self._write()
        if sentence not in self._said:
            self._said.add(sentence)
            self._say.warn(sentence)
        else:
            self._say.note(sentence)

    @property
    def awaited(self) -> list[str]:
        """The names of the owners that haven't come yet."""
        return sorted(name for name, owner in self.standing.owners.items() if owner.state == "awaited")

    def _set(self, name: str, state: Presence, why: str = "") -> bool:
        """Note an owner's state; returns whether it is another than before."""
        with self._lock:
            known = self.standing.owners.setdefault(name, OwnerState(since=_now()))
            changed = known.state != state
            if changed:
                known.since = _now()
            known.state, known.why = state, why
            self._write()
            return changed

    def _write(self) -> None:
        content = json.dumps(asdict(self.standing), indent=1).encode()
        self._home.mkdir(parents=True, exist_ok=True)
        write_atomically(self._home / FILE, content)
        if self._run is not None and self._run.is_dir():
            write_atomically(self._run / RUN_FILE, content)


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")
