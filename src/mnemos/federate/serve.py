"""A SuperLink, and a run on it whose server this process is."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
from flwr.serverapp import Grid

from mnemos.errors import ConfigError, MnemosError
from mnemos.federate.init import write_app
from mnemos.federate.keys import CA, OWNERS, SERVER, SERVER_KEY, public_keys
from mnemos.federate.processes import answers, check_free, local, new_secret, superlink
from mnemos.federate.runtime import Control, Door, serving


@dataclass(frozen=True)
class Place:
    """Where a federation's server is, or is to be."""

    home: Path
    host: str
    port: int
    plain: bool = False
    running: str | None = None
    """The address of a SuperLink that is running already."""
    secret: Path | None = None
    """What that one's executors have to know."""


def expected(place: Place, owners: int | None) -> int:
    """How many owners are to join, if nothing is missing: all that may, if it isn't said."""
    if place.running is not None:
        _read_secret(place)
    if place.plain:
        if owners is None:
            raise ConfigError("without keys nobody knows how many there are; it has to be said", "owners")
        return owners
    for name in (CA, SERVER, SERVER_KEY) if place.running is None else (CA,):
        if not (place.home / name).is_file():
            raise ConfigError(f"{place.home} has no file '{name}'; 'mnemos federate keys' makes it", "home")
    count = len(public_keys(place.home))
    if not count:
        raise ConfigError(
            f"{place.home / OWNERS} has nobody's public key; 'mnemos federate keys' makes some", "home"
        )
    if owners is not None and owners > count:
        raise ConfigError(f"found {owners}, and {place.home / OWNERS} has the keys of {count}", "owners")
    return owners or count


@contextmanager
def connected(place: Place) -> Iterator[tuple[Grid, Mapping[int, str] | None]]:
    """The grid of a new run; and who is at which node, where keys tell it."""
    certificate = None if place.plain else (place.home / CA).read_bytes()
    with ExitStack() as stack:
        if place.running is None:
            check_free(place.host, place.port)
            place.home.mkdir(parents=True, exist_ok=True)
            file = place.home / "superlink.secret"
            secret = new_secret(file)
            stack.enter_context(superlink(place.home, place.host, place.port, file, place.plain))
            address = local(place.host, place.port)
        else:
            address, secret = place.running, _read_secret(place)
            if not answers(address, None if place.plain else place.home / CA):
                raise MnemosError(f"{address} can't be reached")
        try:
            with closing(Control(address, certificate)) as control, tempfile.TemporaryDirectory() as folder:
                known = None if place.plain else control.admit(public_keys(place.home), place.running is None)
                if place.running is None:
                    control.stop_all()
                write_app(Path(folder))
                run = control.start(Path(folder))
                try:
                    grid = stack.enter_context(serving(Door(address, secret, certificate), run))
                except BaseException:
                    with suppress(httpx.HTTPError):  # nobody else will serve it
                        control.stop(run)
                    raise
        except httpx.HTTPError as error:
            status = isinstance(error, httpx.HTTPStatusError) and error.response.status_code
            said = f"it answers {status}" if status else error
            raise MnemosError(f"{address} isn't a SuperLink of Flower 1.41 ({said})") from None
        yield grid, known


def _read_secret(place: Place) -> bytes:
    if place.secret is None:
        raise ConfigError(
            "a SuperLink that is running already has one in a file, which has to be named", "secret"
        )
    try:
        return place.secret.read_bytes()
    except OSError as error:
        raise ConfigError(f"{place.secret} can't be read ({error.strerror})", "secret") from None
