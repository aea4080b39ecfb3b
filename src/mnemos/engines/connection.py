"""The process's connection to a Ray cluster: one that is there already, or one that is started for it."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from mnemos.errors import ConfigError
from mnemos.extras import require

_ADDRESS = "RAY_ADDRESS"
"""Ray's own environment variable for the cluster to use."""
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is reported to anyone
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # avoids a warning about accelerators, which aren't used
}
_REACH = 10.0
"""Seconds after which a machine counts as out of reach. Ray itself would try for minutes."""


class Connection:
    """A connection that all who ask share; one that somebody else has made is used, and left alone."""

    _users: ClassVar[int] = 0

    def __init__(self, address: str | None, cpus: int) -> None:
        """`cpus`: of the cluster that is started if no address is given, here or by `$RAY_ADDRESS`."""
        address = address or os.environ.get(_ADDRESS)
        self.ray = library(local=not address)
        self._ours = Connection._users > 0 or not self.ray.is_initialized()
        if not self.ray.is_initialized():
            if address:
                _join(self.ray, address)
            else:
                _start(self.ray, cpus)
            _messages(self.ray, shown=False)
        if self._ours:
            Connection._users += 1

    def close(self) -> None:
        """Let go of it; the last one to do so ends what was started."""
        if self._ours:
            self._ours = False
            Connection._users -= 1
            if not Connection._users:
                with _calm():
                    self.ray.shutdown()
                _messages(self.ray, shown=True)


def library(*, local: bool) -> Any:
    """Ray, which looks at its environment when it is imported; `local`: for a cluster of its own."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    if local and "ray" not in sys.modules and "RAY_AUTH_MODE" not in os.environ:
        # Its ports are open to the network, and whoever reaches them may run code: only with this token.
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    try:
        return require("ray", "ray", "ray")
    except ConfigError as error:
        raise error.under("engine") from None


def _start(ray: Any, cpus: int) -> None:
    try:
        with _calm():
            ray.init("local", num_cpus=cpus, include_dashboard=False, **_silent())
    except Exception as error:  # Ray raises what it likes: a plain one, if the machine is too busy
        raise ConfigError(f"a local Ray cluster can't be started ({_first_line(error)})", "engine") from error


def _join(ray: Any, address: str) -> None:
    _reach(address)
    try:
        with _calm():
            ray.init(address, **_silent())
    except Exception as error:  # again, of any kind
        raise _no_cluster(address, _first_line(error)) from None


def _messages(ray: Any, *, shown: bool) -> None:
    """Whether Ray prints on standard output that somebody has died: there is no public switch for that."""
    ray._private.worker._worker_logs_enabled = shown


def _silent() -> dict[str, Any]:
    return {"log_to_driver": False, "logging_level": logging.ERROR}


def _reach(address: str) -> None:
    """Refuse the address of a machine or port that doesn't answer."""
    if address == "auto":
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdecimal()):
        raise ConfigError(f"found '{address}'; allowed: auto, HOST:PORT, ray://HOST:PORT", "engine.address")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _REACH).close()
    except (OSError, OverflowError) as error:
        raise _no_cluster(address, str(error)) from None


def _no_cluster(address: str, reason: str) -> ConfigError:
    return ConfigError(f"there is no Ray cluster to be had at '{address}' ({reason})", "engine.address")


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


@contextmanager
def _calm() -> Iterator[None]:
    """Ray leaves files for the garbage collector to close, and takes over the signal to terminate."""
    main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if main:
            signal.signal(signal.SIGTERM, before)
