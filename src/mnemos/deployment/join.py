"""`mnemos federate join`: connects an owner to a server, and answers its questions until it is ended."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

from mnemos.common.devices import CPU, describe
from mnemos.common.files import locked
from mnemos.data.folder import locate
from mnemos.deployment.apps import client_app
from mnemos.deployment.holder import Holder
from mnemos.deployment.keys import CA, OWNER_KEY
from mnemos.deployment.processes import FlowerProcess, answers, free_port, new_secret, supernode
from mnemos.deployment.runtime import Door, answer_forever
from mnemos.errors import ConfigError, DataError, MnemosError

_AGAIN = 5.0
"""Seconds before a node whose process has ended is started again."""
HELD = 75.0
"""Seconds of trying to connect. For 60 seconds after a client was killed, a SuperLink takes it as connected,
and refuses another one with the same key."""


def join(
    server: str, holder: Holder, folder: Path, keys: Path | None, patience: float, say: Callable[[str], None]
) -> None:
    """Take part in a federation until the process is ended; without `keys`, over a plain connection.

    `patience` is how many seconds to wait for the server.
    """
    check(holder.path, keys)
    reach(server, keys, patience, say)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / ".lock") as own:
        if not own:
            raise ConfigError(f"found {folder}, which another client is using; each has its own", "folder")
        take_part(server, holder, folder, keys, say)


def take_part(
    server: str, holder: Holder, folder: Path, keys: Path | None, say: Callable[[str], None]
) -> None:
    """Run a SuperNode and answer its messages; start it again whenever it ends."""
    secret = folder / "node.secret"
    app = client_app(lambda _context: holder, say)
    end: float | None = None
    reason = ""
    while True:
        (folder / "supernode.log").unlink(missing_ok=True)
        port = free_port()
        door = Door(f"127.0.0.1:{port}", new_secret(secret))
        node = supernode(server, keys, port, secret, folder)
        inside = False

        def going(node: FlowerProcess = node, end: float | None = end) -> bool:
            """Whether to go on: until the node ends, or until `end` if it isn't connected by then."""
            nonlocal inside
            if not inside and _is_connected(node):
                inside = True
                where = "" if holder.device == CPU else f" on {holder.device} ({describe(holder.device)})"
                say(f"{holder.name} takes part with {holder.path}{where} at {server}; Ctrl-C ends it")
            return node.running and (inside or end is None or time.monotonic() < end)

        try:
            answer_forever(door, app, going, say)
        finally:
            node.end()
        if inside or _is_connected(node):
            end, reason = None, ""
            say(f"the connection to {server} is lost; trying again")
        else:
            reason = _reason(node) or reason or node.last_words()  # the last try may end before it has any
            why = f"{server} doesn't let {holder.name} in: {reason}"
            if end is None:
                end = time.monotonic() + HELD
                say(f"{why}; trying for {HELD:g} s, as it may take an earlier client to be there still")
            elif time.monotonic() >= end:
                raise MnemosError(why)
        time.sleep(_AGAIN)


def check(data: str, keys: Path | None) -> None:
    """Raise an error for data or keys that can't be used, before anything is started."""
    path = locate(data)
    if not (path.is_dir() or (path.suffix == ".npz" and path.is_file())):
        raise DataError(f"{path} is neither an npz file nor a folder of images")
    for name in (OWNER_KEY, CA) if keys is not None else ():
        assert keys is not None
        if not (keys / name).is_file():
            raise ConfigError(
                f"{keys} has no file '{name}'; it is what the server's side has handed out", "keys"
            )


def reach(server: str, keys: Path | None, patience: float, say: Callable[[str], None]) -> None:
    """Wait until the server answers. The node itself would try for ever, and not say why."""
    end, told = time.monotonic() + patience, False
    while not answers(server, None if keys is None else keys / CA):
        if time.monotonic() > end:
            raise MnemosError(f"{server} can't be reached")
        if not told:
            say(f"waiting for {server}")
            told = True
        time.sleep(1.0)


def _is_connected(node: FlowerProcess) -> bool:
    return "SuperNode ID" in node.log.read_text(errors="replace")


def _reason(node: FlowerProcess) -> str:
    """Why the server has refused the node, from the node's log; empty if it doesn't say."""
    said = re.findall(r"\[code: \d+\] (.+?)\.?$", node.log.read_text(errors="replace"), re.MULTILINE)
    return str(said[-1]) if said else ""
