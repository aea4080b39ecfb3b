"""An owner's side: reads its own data, and answers a federation's questions until it is told to end."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

from mnemos.data.folder import locate
from mnemos.errors import ConfigError, DataError, MnemosError
from mnemos.federate.apps import client_app
from mnemos.federate.holder import Holder
from mnemos.federate.keys import CA, OWNER_KEY
from mnemos.federate.processes import Process, answers, free_port, new_secret, supernode
from mnemos.federate.runtime import Door, answer_forever
from mnemos.files import locked

_AGAIN = 5.0
"""Seconds before a node that has gone is started again."""
_HELD = 75.0
"""Seconds of trying to get in: for 60 a SuperLink takes a client that was killed to be there still."""


def join(
    server: str, holder: Holder, folder: Path, keys: Path | None, patience: float, say: Callable[[str], None]
) -> None:
    """Take part in what a server asks for; without keys in plain."""
    check(holder.path, keys)
    _reach(server, keys, patience, say)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / ".lock") as own:
        if not own:
            raise ConfigError(f"found {folder}, which another client is using; each has its own", "folder")
        _take_part(server, holder, folder, keys, say)


def _take_part(
    server: str, holder: Holder, folder: Path, keys: Path | None, say: Callable[[str], None]
) -> None:
    secret = folder / "node.secret"
    app = client_app(lambda _context: holder, say)
    end: float | None = None
    while True:
        (folder / "supernode.log").unlink(missing_ok=True)
        port = free_port()
        door = Door(f"127.0.0.1:{port}", new_secret(secret))
        node = supernode(server, keys, port, secret, folder)
        inside = False

        def going(node: Process = node, end: float | None = end) -> bool:
            """Once it is let in, a node may wait for its server as long as it likes."""
            nonlocal inside
            if not inside and _is_connected(node):
                inside = True
                say(f"{holder.name} takes part with {holder.path} at {server}; Ctrl-C ends it")
            return node.running and (inside or end is None or time.monotonic() < end)

        try:
            answer_forever(door, app, going, say)
        finally:
            node.end()
        if inside or _is_connected(node):
            end = None
            say(f"the connection to {server} is lost; trying again")
        else:
            why = f"{server} doesn't let {holder.name} in: {_why(node)}"
            if end is None:
                end = time.monotonic() + _HELD
                say(f"{why}; trying for {_HELD:g} s, as it may take an earlier client to be there still")
            elif time.monotonic() >= end:
                raise MnemosError(why)
        time.sleep(_AGAIN)


def check(data: str, keys: Path | None) -> None:
    """Refuse what can't work before anything is started."""
    path = locate(data)
    if not (path.is_dir() or (path.suffix == ".npz" and path.is_file())):
        raise DataError(f"{path} is neither an npz file nor a folder of images")
    for name in (OWNER_KEY, CA) if keys is not None else ():
        assert keys is not None
        if not (keys / name).is_file():
            raise ConfigError(
                f"{keys} has no file '{name}'; it is what the server's side has handed out", "keys"
            )


def _reach(server: str, keys: Path | None, patience: float, say: Callable[[str], None]) -> None:
    """Wait until the server is there: the node itself would try for ever, and not say why."""
    end, told = time.monotonic() + patience, False
    while not answers(server, None if keys is None else keys / CA):
        if time.monotonic() > end:
            raise MnemosError(f"{server} can't be reached")
        if not told:
            say(f"waiting for {server}")
            told = True
        time.sleep(1.0)


def _is_connected(node: Process) -> bool:
    return "SuperNode ID" in node.log.read_text(errors="replace")


def _why(node: Process) -> str:
    """What the node says of its end, without the rest."""
    said = re.findall(r"\[code: \d+\] (.+?)\.?$", node.log.read_text(errors="replace"), re.MULTILINE)
    return said[-1] if said else node.last_words()
