"""`mnemos federate join`: connects an owner to a server, and answers its questions until it is ended."""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import httpx

from mnemos.common.devices import CPU, describe
from mnemos.common.files import locked
from mnemos.data.folder import locate
from mnemos.data.sources.text import SUFFIXES
from mnemos.deployment.apps import client_app
from mnemos.deployment.control import Control
from mnemos.deployment.holder import Holder
from mnemos.deployment.journal import Say, warn
from mnemos.deployment.keys import CA, OWNER_KEY, expiring, fingerprint, public_half
from mnemos.deployment.processes import FlowerProcess, answers, free_port, new_secret, supernode
from mnemos.deployment.runtime import Door, answer_forever
from mnemos.errors import ConfigError, DataError, MnemosError

_AGAIN = 5.0
"""Seconds before a node whose process has ended is started again."""
_PULSE = 10.0
"""Seconds between looks whether the server is there."""
_HELD = "again, because a client that was killed counts as connected for a minute"
HELD = 75.0
"""Seconds of trying to connect. For 60 seconds after a client was killed, a SuperLink takes it as connected,
and refuses another one with the same key."""


def join(server: str, holder: Holder, folder: Path, keys: Path | None, patience: float, say: Say) -> None:
    """Take part in a federation until the process is ended; without `keys`, over a plain connection.

    `patience` is how many seconds to wait for the server.
    """
    check(holder.path, keys)
    reach(server, keys, patience, say)
    announce(server, keys, partial(warn, say))
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / ".lock") as own:
        if not own:
            raise ConfigError(f"found {folder}, which another client is using; each needs its own", "folder")
        take_part(server, holder, folder, keys, say)


def take_part(server: str, holder: Holder, folder: Path, keys: Path | None, say: Say) -> None:
    """Run a SuperNode and answer its messages; start it again whenever it ends."""
    secret = folder / "node.secret"
    app = client_app(lambda _context: holder, say)
    end: float | None = None
    reason = ""
    while True:
        port = free_port()
        door = Door(f"127.0.0.1:{port}", new_secret(secret))
        node = supernode(server, keys, port, secret, folder)
        inside, pulse = False, _Pulse(server, keys, holder, say)

        def going(node: FlowerProcess = node, end: float | None = end, pulse: _Pulse = pulse) -> bool:
            """Whether to go on: until the node ends, or until `end` if it isn't connected by then."""
            nonlocal inside
            if not inside and _is_connected(node):
                inside = True
                holder.diary.note("connected", name=holder.name, server=server)
                where = "" if holder.device == CPU else f" on {holder.device} ({describe(holder.device)})"
                say(f"{holder.name} takes part with {holder.path}{where} at {server}; Ctrl-C ends it")
            if inside:
                pulse.look()
            return node.running and (inside or end is None or time.monotonic() < end)

        try:
            answer_forever(door, app, going, say)
        finally:
            node.end()
        if inside or _is_connected(node):
            end, reason = None, ""
            holder.diary.note("disconnected")
            warn(say, f"the connection to {server} is lost; trying again")
        else:
            reason = _reason(node) or reason or node.last_words()  # the last try may end before it has any
            stranger = _unknown(server, keys)
            why = f"{server} doesn't let {holder.name} in: {stranger or reason}"
            if end is not None and (stranger or time.monotonic() >= end):
                raise MnemosError(why)
            if end is None:
                end = time.monotonic() + HELD
                warn(say, f"{why}; trying {'once more' if stranger else _HELD}")
            holder.diary.note("refused", name=holder.name, server=server)
        time.sleep(_AGAIN)


class _Pulse:
    """Looks now and then whether the server answers: Flower's node waits for it without a word."""

    def __init__(self, server: str, keys: Path | None, holder: Holder, say: Say) -> None:
        self._server, self._holder, self._say = server, holder, say
        self._certificate = None if keys is None else keys / CA
        self._next, self._there = time.monotonic() + _PULSE, True

    def look(self) -> None:
        """Say it if the server has gone or come back since the last look."""
        if time.monotonic() < self._next:
            return
        try:
            there = answers(self._server, self._certificate)
        except MnemosError:
            there = False
        self._next = time.monotonic() + _PULSE
        if there != self._there:
            self._there = there
            self._holder.diary.note("connected" if there else "disconnected")
            if there:
                self._say(f"{self._server} answers again")
            else:
                warn(self._say, f"{self._server} no longer answers; waiting for it")


def _unknown(server: str, keys: Path | None) -> str:
    """A sentence if the server has no key like the owner's; empty if it has, or can't be asked."""
    if keys is None:
        return ""
    try:
        public = public_half(keys / OWNER_KEY)
        with closing(Control(server, (keys / CA).read_bytes())) as control:
            known = control.knows(public)
    except (OSError, httpx.HTTPError):
        return ""
    if known:
        return ""
    return (
        f"it doesn't know the key {keys / OWNER_KEY} ({fingerprint(public)}), whose public half has to be "
        "among the server's owners"
    )


def check(data: str, keys: Path | None) -> None:
    """Raise an error for data or keys that can't be used, before anything is started."""
    path = locate(data)
    if not (path.is_dir() or (path.suffix in (".npz", *SUFFIXES) and path.is_file())):
        raise DataError(f"{path} is neither an npz file nor a folder of images, nor a table of texts")
    for name in (OWNER_KEY, CA) if keys is not None else ():
        assert keys is not None
        if not (keys / name).is_file():
            raise ConfigError(f"{keys} has no file '{name}'; the server's operator hands it out", "keys")
    if keys is not None:
        public_half(keys / OWNER_KEY)  # Flower's own words about a key that it can't read are no help


def reach(server: str, keys: Path | None, patience: float, say: Say) -> None:
    """Wait until the server answers. The node itself would try for ever, and not say why."""
    end, told = time.monotonic() + patience, False
    while not answers(server, None if keys is None else keys / CA):
        if time.monotonic() > end:
            raise MnemosError(f"{server} can't be reached")
        if not told:
            say(f"waiting for {server}")
            told = True
        time.sleep(1.0)


def announce(server: str, keys: Path | None, warn: Callable[[str], None]) -> None:
    """Warn about certificates that expire soon: the server's own, and that of the federation's authority."""
    if keys is None:
        return
    found = {f"{keys / CA}, which identifies the server,": (keys / CA).read_bytes()}
    host, _, port = server.rpartition(":")
    with suppress(OSError, ValueError):  # `reach` says what is wrong with the server
        shown = ssl.get_server_certificate((host.strip("[]"), int(port)), timeout=5)
        found[f"the certificate of {server}"] = shown.encode()
    for name, certificate in found.items():
        if sentence := expiring(name, certificate):
            warn(sentence)


def _is_connected(node: FlowerProcess) -> bool:
    return any("SuperNode ID" in line for line in tuple(node.lines))


def _reason(node: FlowerProcess) -> str:
    """Why the server has refused the node, as the node says it; empty if it doesn't."""
    said = (re.search(r"\[code: \d+\] (.+?)\.?$", line) for line in tuple(node.lines))
    return next((found[1] for found in reversed([*said]) if found), "")
