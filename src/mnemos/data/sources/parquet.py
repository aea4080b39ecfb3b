"""Apache Parquet files, as Hugging Face and data lakes keep them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import Field

from mnemos.data.dataset import Dataset, sources
from mnemos.data.folder import locate
from mnemos.data.sources._columns import Batches, TableSource, first_line, pyarrow
from mnemos.data.sources._tables import file_parts
from mnemos.errors import DataError

_ROWS = 1024


@sources.register("parquet")
class Parquet(TableSource):
    """A Parquet file, or a folder of them, with the parts `train*` and `test*` by their names."""

    path: str = Field(min_length=1)
    """The file or folder."""

    def load(self) -> Dataset:
        """The rows of all files, in the order of the files' names."""
        pyarrow()
        path = locate(self.path)
        train, test = file_parts(path, [".parquet"], "Parquet file")
        return self.assemble(path.stem, self._rows(train), self._rows(test) if test else None, str(path))

    def _rows(self, files: list[Path]) -> Batches:
        return (pair for file in files for pair in self._batches(file))

    def _batches(self, file: Path) -> Iterator[tuple[str, Any]]:
        pa = pyarrow()
        try:
            with pa.parquet.ParquetFile(file, page_checksum_verification=True) as content:
                columns = self.columns(content.schema_arrow.names, str(file))
                for batch in content.iter_batches(_ROWS, columns=columns):
                    yield str(file), batch
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DataError(f"{file} can't be read as Parquet ({first_line(error)})") from None
