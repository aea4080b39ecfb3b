"""The process's connection to a Ray cluster: one that exists already, or a local one that is started."""

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

from mnemos.common.extras import require
from mnemos.errors import ConfigError

_ADDRESS = "RAY_ADDRESS"
"""Ray's own environment variable for the cluster to use."""
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",  # Ray sends no statistics
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # avoids a warning about accelerators, which aren't used
}
_REACH = 10.0
"""Seconds after which a machine counts as unreachable. Ray itself would try for minutes."""


class Connection:
    """A share of the process's connection to Ray; the last share that is closed ends the connection.

    A connection that the user's own code has made before is used, and never ended.
    """

    _users: ClassVar[int] = 0

    def __init__(self, address: str | None, cpus: int) -> None:
        """Connect to the cluster at `address` or `$RAY_ADDRESS`, or start a local one with `cpus` CPUs."""
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
        """Give up this share; the last one ends the connection, and the cluster if it was started here."""
        if self._ours:
            self._ours = False
            Connection._users -= 1
            if not Connection._users:
                with _calm():
                    self.ray.shutdown()
                _messages(self.ray, shown=True)


def library(*, local: bool) -> Any:
    """Import Ray with its settings, which it reads from the environment then.

    `local` says that a local cluster will be started.
    """
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    if local and "ray" not in sys.modules and "RAY_AUTH_MODE" not in os.environ:
        # Its ports are open to the network and let clients run code, so Ray must ask for this token.
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    try:
        return require("ray", "ray", "ray")
    except ConfigError as error:
        raise error.under("engine") from None


def _start(ray: Any, cpus: int) -> None:
    try:
        with _calm():
            ray.init("local", num_cpus=cpus, include_dashboard=False, **_silent())
    except Exception as error:  # Ray raises errors of any type, such as a plain one on a busy machine
        raise ConfigError(f"a local Ray cluster can't be started ({_first_line(error)})", "engine") from error


def _join(ray: Any, address: str) -> None:
    reach(address)
    try:
        with _calm():
            ray.init(address, **_silent())
    except Exception as error:  # of any type, as above
        raise _no_cluster(address, _first_line(error)) from None


def _messages(ray: Any, *, shown: bool) -> None:
    """Set whether Ray prints messages about dead workers on standard output; it has no public switch."""
    ray._private.worker._worker_logs_enabled = shown


def _silent() -> dict[str, Any]:
    return {"log_to_driver": False, "logging_level": logging.ERROR}


def reach(address: str) -> None:
    """Raise a ConfigError for the address of a machine or port that doesn't answer."""
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
    """Around calls of Ray: ignore warnings about files that it leaves open, and restore SIGTERM's handler."""
    main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if main:
            signal.signal(signal.SIGTERM, before)
