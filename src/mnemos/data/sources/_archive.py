"""Files out of a downloaded tar archive."""

from __future__ import annotations

import gzip
import shutil
import tarfile
import zlib
from collections.abc import Collection
from pathlib import Path, PurePosixPath

from mnemos.data.folder import replacing
from mnemos.errors import DataError


def unpack(archive: Path, names: Collection[str], folder: Path) -> None:
    """Put the archive's regular files of these names into a folder, each whole or not at all.

    Only contents are taken: no path, link or permission of the archive reaches the disk.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                name = PurePosixPath(member.name).name
                content = tar.extractfile(member) if name in names and member.isreg() else None
                if content is not None:
                    with content, replacing(folder / name) as file:
                        shutil.copyfileobj(content, file, 1 << 20)
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{archive} is damaged ({error}); remove it to have it downloaded again") from None
    except OSError as error:
        raise DataError(f"{archive} can't be unpacked into {folder} ({error.strerror or error})") from None
