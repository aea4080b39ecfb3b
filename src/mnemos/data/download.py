"""Downloads: verified by checksum, complete or not at all, and none if `$MNEMOS_OFFLINE` is set."""

from __future__ import annotations

import hashlib
import http.client
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.progress import TransferSpeedColumn as SpeedColumn

from mnemos.common.files import replacing
from mnemos.errors import DataError
from mnemos.version import __version__

OFFLINE = "MNEMOS_OFFLINE"
"""Environment variable that forbids downloads."""

RETRIES = 2
_CHUNK = 1 << 18
_WORTH_ANOTHER_TRY = {408, 425, 429}


@dataclass(frozen=True)
class RemoteFile:
    """A published file: its address, and its MD5 or SHA-256 in hexadecimal."""

    url: str
    checksum: str

    @property
    def file(self) -> str:
        """The file's name, as in its address."""
        return self.url.rpartition("/")[2]


class _InterruptedError(Exception):
    """A failure of the network that may be temporary."""


def offline() -> bool:
    """Whether the user forbids downloads."""
    return os.environ.get(OFFLINE, "").strip().lower() not in {"", "0", "false", "no"}


def obtain(name: str, remotes: Iterable[RemoteFile], folder: Path, advice: str) -> None:
    """Download files into a folder; if one fails, the error names the data set and ends with the advice."""
    for remote in remotes:
        try:
            fetch(remote.url, remote.checksum, folder / remote.file)
        except DataError as error:
            raise DataError(f"{name}: {error}; {advice}") from None


def fetch(url: str, checksum: str, destination: Path, *, timeout: float = 30.0, pause: float = 1.0) -> Path:
    """Download a file; `checksum` is its MD5 (32 digits) or SHA-256 (64 digits).

    After a failure of the network it tries again, after `pause` and then twice `pause` seconds.
    """
    if offline():
        raise DataError(f"{url} is not downloaded because {OFFLINE} is set")
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        for attempt in range(RETRIES + 1):
            try:
                _download(url, checksum.lower(), destination, timeout)
                break
            except _InterruptedError as error:
                if attempt == RETRIES:
                    raise DataError(f"{url} can't be downloaded ({error})") from None
                time.sleep(pause * 2**attempt)
    except OSError as error:  # errors of the network are `_InterruptedError` here
        raise DataError(f"{destination} can't be written ({error.strerror or error})") from None
    return destination


def _download(url: str, checksum: str, destination: Path, timeout: float) -> None:
    digest = hashlib.new("md5" if len(checksum) == 32 else "sha256", usedforsecurity=False)
    received = 0
    with _open(url, timeout) as response, replacing(destination) as file:
        length = response.headers.get("Content-Length", "")
        size = int(length) if length.isdecimal() else None
        with _progress(url, size) as advance:
            while chunk := _read(response):
                file.write(chunk)
                digest.update(chunk)
                received += len(chunk)
                advance(len(chunk))
        if size is not None and received != size:
            raise _InterruptedError(f"the connection ended after {received} of {size} bytes")
        if digest.hexdigest() != checksum:
            raise DataError(
                f"{url} gave a file whose {digest.name.upper()} is {digest.hexdigest()}, "
                f"and {checksum} is expected"
            )


def _open(url: str, timeout: float) -> http.client.HTTPResponse:
    request = urllib.request.Request(url, headers={"User-Agent": f"mnemos/{__version__}"})
    try:
        # Addresses are constants in the sources of data sets, and the content is verified by checksum.
        response: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=timeout)  # nosec B310
    except urllib.error.HTTPError as error:
        answer = f"the server answered {error.code} {error.reason}"
        again = error.code >= 500 or error.code in _WORTH_ANOTHER_TRY
        error.close()
        if again:
            raise _InterruptedError(answer) from None
        raise DataError(f"{url} can't be downloaded ({answer})") from None
    except urllib.error.URLError as error:
        raise _InterruptedError(_reason(error.reason)) from None
    except (OSError, http.client.HTTPException) as error:
        raise _InterruptedError(_reason(error)) from None
    return response


def _read(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read(_CHUNK)
    except (OSError, http.client.HTTPException) as error:
        raise _InterruptedError(_reason(error)) from None


def _reason(error: object) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(text).strip().rstrip(".")


@contextmanager
def _progress(url: str, size: int | None) -> Iterator[Callable[[int], None]]:
    """A progress bar on a terminal, otherwise one line; both on the error stream."""
    if not sys.stderr.isatty():
        amount = f" ({size / 1e6:.1f} MB)" if size is not None else ""
        sys.stderr.write(f"downloading {url}{amount}\n")
        yield lambda _: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), SpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(url.rpartition("/")[2], total=size)
        yield lambda count: bar.advance(task, count)
