"""`mnemos federate serve`: starts or uses a SuperLink, and makes this process the server of a run on it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
from flwr.serverapp import Grid

from mnemos.common.files import locked
from mnemos.deployment.control import Control
from mnemos.deployment.init import write_app
from mnemos.deployment.keys import CA, OWNERS, SERVER, SERVER_KEY, expiring, public_keys
from mnemos.deployment.processes import answers, check_free, local, new_secret, superlink
from mnemos.deployment.runtime import Door, serving
from mnemos.errors import ConfigError, MnemosError

LOCK = ".serving"
"""The file in a federation's folder that is locked while its server runs."""


@dataclass(frozen=True)
class ServerSettings:
    """The address of a federation's server, and the files that it needs."""

    home: Path
    host: str
    port: int
    plain: bool = False
    running: str | None = None
    """The address of a SuperLink that is running already; None to start one."""
    secret: Path | None = None
    """The file with the secret of the running SuperLink."""
    heard: Callable[[str], None] = lambda _line: None
    """Called with each line that the SuperLink prints."""


def expected(settings: ServerSettings, owners: int | None) -> int:
    """The number of owners to wait for: `owners`, or all that have a key if it is None.

    Raises a ConfigError if a file is missing.
    """
    if settings.running is not None:
        _read_secret(settings)
    if settings.plain:
        if owners is None:
            raise ConfigError("without keys the number of owners isn't known; it has to be given", "owners")
        return owners
    for name in (CA, SERVER, SERVER_KEY) if settings.running is None else (CA,):
        if not (settings.home / name).is_file():
            raise ConfigError(
                f"{settings.home} has no file '{name}'; 'mnemos federate keys' makes it", "home"
            )
    count = len(public_keys(settings.home))
    if not count:
        raise ConfigError(
            f"{settings.home / OWNERS} has no public key; 'mnemos federate keys' makes some", "home"
        )
    if owners is not None and owners > count:
        raise ConfigError(f"found {owners}, and {settings.home / OWNERS} has the keys of {count}", "owners")
    return owners or count


def announce(home: Path, warn: Callable[[str], None]) -> None:
    """Warn about certificates in `home` that expire soon, and say how to make new ones."""
    hints = {
        SERVER: "'mnemos federate keys' with --host makes a new one, and owners keep theirs",
        CA: "then owners need new folders",
    }
    for name, hint in hints.items():
        if (home / name).is_file() and (sentence := expiring(str(home / name), (home / name).read_bytes())):
            warn(f"{sentence}; {hint}")


@contextmanager
def connected(settings: ServerSettings) -> Iterator[tuple[Grid, Mapping[int, str] | None]]:
    """Yield the grid of a new run, and the owners' names by node; None for the names without keys."""
    certificate = None if settings.plain else (settings.home / CA).read_bytes()
    with ExitStack() as stack:
        if settings.running is None:
            check_free(settings.host, settings.port)
            settings.home.mkdir(parents=True, exist_ok=True)
            if stack.enter_context(locked(settings.home / LOCK)) is None:
                raise ConfigError(f"found {settings.home}, which another server is using", "home")
            file = settings.home / "superlink.secret"
            secret = new_secret(file)
            where = settings.host, settings.port
            stack.enter_context(superlink(settings.home, where, file, settings.plain, settings.heard))
            address = local(settings.host, settings.port)
        else:
            address, secret = settings.running, _read_secret(settings)
            if not answers(address, None if settings.plain else settings.home / CA):
                raise MnemosError(f"{address} can't be reached")
        try:
            with closing(Control(address, certificate)) as control, tempfile.TemporaryDirectory() as folder:
                known = (
                    None
                    if settings.plain
                    else control.admit(public_keys(settings.home), settings.running is None)
                )
                if settings.running is None:
                    control.stop_all()
                write_app(Path(folder))
                run = control.start(Path(folder))
                try:
                    grid = stack.enter_context(serving(Door(address, secret, certificate), run))
                except BaseException:
                    with suppress(httpx.HTTPError):  # the run has no other server
                        control.stop(run)
                    raise
        except httpx.HTTPError as error:
            status = isinstance(error, httpx.HTTPStatusError) and error.response.status_code
            said = f"it answers {status}" if status else error
            raise MnemosError(f"{address} isn't a SuperLink of Flower 1.41 ({said})") from None
        yield grid, known


def _read_secret(settings: ServerSettings) -> bytes:
    if settings.secret is None:
        raise ConfigError(
            "a SuperLink that is running already has one in a file, which has to be named", "secret"
        )
    try:
        return settings.secret.read_bytes()
    except OSError as error:
        raise ConfigError(f"{settings.secret} can't be read ({error.strerror})", "secret") from None
