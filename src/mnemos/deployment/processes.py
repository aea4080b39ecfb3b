"""Starting, waiting for and ending Flower's own processes, SuperLink and SuperNode."""

from __future__ import annotations

import errno
import http.client
import os
import secrets
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from mnemos.common.parent import end_with_parent
from mnemos.deployment.journal import foreign, log_file
from mnemos.deployment.keys import CA, OWNER_KEY, SERVER, SERVER_KEY
from mnemos.errors import ConfigError, MnemosError

_START = 60.0
"""Seconds that a process has to start."""
_END = 5.0
"""Seconds that a process has to end before it is killed."""
_REMEMBERED = 200
"""Lines of a process that are kept in memory."""
_OWN_PORTS = range(20_000, 32_000)
"""Ports below those that Linux, macOS and Windows give to connections, and above those of Ray's workers."""


class FlowerProcess:
    """A process of Flower, which ends when the process that started it ends.

    What it prints goes into its log, with dates and levels.
    """

    def __init__(
        self, command: list[str], folder: Path, log: Path, heard: Callable[[str], None] | None = None
    ) -> None:
        """`heard` is called with each line that the process prints, from another thread."""
        self.log, self.lines = log, deque[str](maxlen=_REMEMBERED)
        self._heard = heard
        environment = {
            "FLWR_TELEMETRY_ENABLED": "0",
            **os.environ,
            "FLWR_HOME": str(folder / "flower"),
            "PYTHONUNBUFFERED": "1",
        }
        program = Path(sys.executable).with_name(command[0])
        self._process = subprocess.Popen(  # nosec B603
            [str(program) if program.exists() else command[0], *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            preexec_fn=end_with_parent,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        """Write what the process prints into its log, until it ends."""
        assert self._process.stdout is not None
        with closing(log_file(self.log)) as file, self._process.stdout as output:
            for printed in output:
                record = foreign(printed.decode(errors="replace"))
                line = record.getMessage()
                if not line:
                    continue
                file.handle(record)
                self.lines.append(line)
                if self._heard is not None:
                    self._heard(line)

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process is running."""
        return self._process.poll() is None

    def last_words(self) -> str:
        """The last lines that the process has printed."""
        return " ".join(line.strip() for line in list(self.lines)[-6:])[-400:]

    def end(self) -> None:
        """End the process; kill it if it takes too long."""
        if self.running:
            self._process.terminate()
            try:
                self._process.wait(_END)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._reader.join(_END)


@contextmanager
def superlink(
    home: Path, address: tuple[str, int], secret: Path, plain: bool, heard: Callable[[str], None]
) -> Iterator[FlowerProcess]:
    """Start a SuperLink, whose state is kept in `home`, and yield it once it answers; end it afterwards.

    `address` is the host and the port where it listens; `heard` is called with each line that it prints.
    """
    host, port = address
    command = ["flower-superlink", "--isolation", "process", "--database", str(home / "superlink.db")]
    command += ["--host", host, "--port", str(port), "--superexec-auth-secret-file", str(secret)]
    command += ["--disable-runtime-dependency-installation"]
    if plain:
        command.append("--insecure")
    else:
        command += ["--ssl-certfile", str(home / SERVER), "--ssl-keyfile", str(home / SERVER_KEY)]
        command += ["--ssl-ca-certfile", str(home / CA), "--enable-supernode-auth"]
    process = FlowerProcess(command, home, home / "superlink.log", heard)
    try:
        _wait_for(process, local(host, port), None if plain else home / CA)
        yield process
    finally:
        process.end()


def supernode(server: str, keys: Path | None, port: int, secret: Path, folder: Path) -> FlowerProcess:
    """Start a SuperNode that keeps trying to connect to a SuperLink; without `keys`, in plain."""
    command = ["flower-supernode", "--superlink", server, "--isolation", "process", "--port", str(port)]
    command += ["--superexec-auth-secret-file", str(secret)]
    if keys is None:
        command.append("--insecure")
    else:
        command += ["--root-certificates", str(keys / CA)]
        command += ["--auth-supernode-private-key", str(keys / OWNER_KEY)]
    return FlowerProcess(command, folder, folder / "supernode.log")


def local(host: str, port: int) -> str:
    """The address at which a server that listens on `host` is reached from the same machine."""
    everywhere = "0.0.0.0"  # nosec B104
    here = {everywhere: "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{here}]:{port}" if ":" in here else f"{here}:{port}"


def new_secret(path: Path) -> bytes:
    """Write a new secret into a file that only this user can read; returns the secret."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(secrets.token_bytes(32))
    return path.read_bytes()


def free_port() -> int:
    """A port of this machine that is free.

    It is used a moment later. So it is none of those that the system hands out, which another program's
    connection could be given meanwhile; unless all others are taken.
    """
    for port in (*(_OWN_PORTS.start + secrets.randbelow(len(_OWN_PORTS)) for _ in range(50)), 0):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return int(probe.getsockname()[1])
    raise MnemosError("there is no free port on this machine")


def check_free(host: str, port: int) -> None:
    """Raise an error if this machine can't listen on a host and port."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise MnemosError(
                f"{host}:{port} is already in use; --port chooses another, --superlink uses that one"
            ) from None
        raise ConfigError(
            f"found {host}, port {port}; the server can't listen there ({error.strerror})", "host"
        ) from None


def _wait_for(process: FlowerProcess, address: str, certificate: Path | None) -> None:
    """Wait until a SuperLink answers; a MnemosError with the end of its log if it doesn't."""
    end = time.monotonic() + _START
    while time.monotonic() < end and process.running:
        if answers(address, certificate):
            return
        time.sleep(0.1)
    raise MnemosError(f"the SuperLink doesn't start; {process.log} says: {process.last_words()}")


def answers(address: str, certificate: Path | None) -> bool:
    """Whether a SuperLink answers at an address; without a `certificate`, over a plain connection.

    Raises an error if the server has another certificate, is no SuperLink, or uses TLS when it shouldn't or
    the other way round.
    """
    scheme = "http" if certificate is None else "https"
    if not address.rpartition(":")[2].isdecimal():
        raise ConfigError(f"found {address}; expected: HOST:PORT", "server")
    try:
        context = None if certificate is None else ssl.create_default_context(cafile=str(certificate))
    except ssl.SSLError:
        raise ConfigError(f"{certificate}: not a certificate") from None
    try:
        request = f"{scheme}://{address}/health"
        with urllib.request.urlopen(request, timeout=5, context=context):  # nosec B310
            return True
    except urllib.error.HTTPError as error:
        raise MnemosError(f"{address} is no SuperLink: it answers {error.code} {error.reason}") from None
    except http.client.InvalidURL:
        raise ConfigError(f"found {address}; expected: HOST:PORT", "server") from None
    except http.client.HTTPException:
        raise MnemosError(f"{address} doesn't accept a plain connection") from None
    except OSError as error:
        _check_tls(address, error, plain=certificate is None)
        return False


def _check_tls(address: str, error: OSError, *, plain: bool) -> None:
    """Raise a MnemosError if a connection failed because of TLS; return if the server can't be reached."""
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, ssl.SSLCertVerificationError):
        raise MnemosError(f"{address} isn't the expected server: {cause.verify_message}") from None
    if isinstance(cause, ssl.SSLError):
        raise MnemosError(f"{address} doesn't speak TLS") from None
    if isinstance(cause, ConnectionResetError) and plain:
        raise MnemosError(f"{address} doesn't accept a plain connection") from None
