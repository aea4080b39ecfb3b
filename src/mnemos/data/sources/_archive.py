"""Files from a downloaded tar archive."""

from __future__ import annotations

import gzip
import shutil
import tarfile
import zlib
from collections.abc import Collection
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from mnemos.errors import DataError

_MOST = 1 << 28
"""The largest size of a file in bytes; the largest published one has 154 million."""


def unpack(archive: Path, names: Collection[str], folder: Path) -> None:
    """Extract the regular files of these names from a gzipped tar archive into a folder, if it is intact.

    Only contents are extracted: no path, link or permission of the archive reaches the disk.
    """
    try:
        with TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as scratch:
            _extract(archive, names, Path(scratch))
            folder.mkdir(exist_ok=True)
            for file in Path(scratch).iterdir():
                file.replace(folder / file.name)
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{archive} is damaged ({error}); remove it to have it downloaded again") from None
    except OSError as error:
        raise DataError(f"{archive} can't be unpacked into {folder} ({error.strerror or error})") from None


def _extract(archive: Path, names: Collection[str], folder: Path) -> None:
    with gzip.open(archive) as stream:
        with tarfile.open(fileobj=stream, mode="r:") as tar:
            for member in tar:
                name = PurePosixPath(member.name).name
                if name in names and member.size > _MOST:
                    raise DataError(
                        f"{archive} holds {name} of {member.size:,} bytes; allowed: up to {_MOST:,}"
                    )
                content = tar.extractfile(member) if name in names and member.isreg() else None
                if content is not None:
                    with content, (folder / name).open("wb") as file:
                        shutil.copyfileobj(content, file, 1 << 20)
        # A tar archive ends before its gzip stream does, and the checksum comes last.
        while stream.read(1 << 20):
            pass
