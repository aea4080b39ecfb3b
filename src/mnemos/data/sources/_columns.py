"""Arrays from columns of Arrow tables (images or features, labels, owners): Parquet, Hugging Face."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from mnemos.common.plain import parse_json
from mnemos.data.dataset import Dataset, Source
from mnemos.data.sources._arrays import Layout, SampleTable, build
from mnemos.data.sources._images import Decoder
from mnemos.data.sources._room import check_room
from mnemos.data.sources._tables import CHOOSE, sample_columns
from mnemos.errors import ConfigError, DataError

_IMAGE = "image"
Batches = Iterable[tuple[str, Any]]
"""Record batches of Arrow, each with the name of the file it comes from."""


class TableSource(Source):
    """A table with a column of labels, and a column of images or ordinary columns of numbers.

    An image is a compressed file (bytes, or Hugging Face's `{bytes, path}`) or nested lists of numbers; a
    plain list of numbers is a vector of features. Without such a column, each row is a vector of features:
    the numbers in its other columns.
    """

    image: str = _IMAGE
    """Column of the images."""
    features: tuple[str, ...] | None = Field(
        None, min_length=1, description="columns of numbers; if left out and there are no images, all others"
    )
    label: str = "label"
    """Column of the labels."""
    owner: str | None = None
    """Column that names each sample's natural owner, if there is one."""
    size: int | None = Field(None, ge=1, le=4096)
    """Width and height that compressed images are resized to; if left out, all must be equal already."""
    channels: Literal[1, 3] | None = None
    """Channels that compressed images are converted to; if left out, they keep theirs."""
    layout: Layout = "auto"
    """Order of the axes of images that are nested lists with channels."""
    test: float = Field(0.2, gt=0, lt=1)
    """Share of each class that is for testing, if there is no test part."""

    def columns(self, found: Iterable[str], where: str) -> list[str]:
        """The columns of a table that are read; raises an error for one that the table doesn't have."""
        names = list(found)
        taken = [self.label, *([self.owner] if self.owner is not None else [])]
        images = self.features is None and (self.image in names or self.image != _IMAGE)
        asked = (self.image,) if images else self.features
        # The owners may be the labels.
        return list(dict.fromkeys([*sample_columns(names, asked, taken, where), *taken]))

    def assemble(self, name: str, train: Batches, test: Batches | None, where: str) -> Dataset:
        """A data set from the batches of its parts."""
        decode = Decoder(self.channels, self.size)
        first, classes = self._table(train, decode, where)
        second = None if test is None else self._table(test, decode, where)[0]
        layout: Layout = "nchw" if decode.used else self.layout
        return build(name, (first, second), where=where, share=self.test, classes=classes, layout=layout)

    def _table(self, batches: Batches, decode: Decoder, where: str) -> tuple[SampleTable, list[str] | None]:
        """All batches as one table, and the names of the classes if the schema has them."""
        parts: list[list[NDArray[Any]]] = [[], [], []]
        classes: list[str] | None = None
        file, row, size = "", 0, 0
        for source, batch in batches:
            file, row = (file, row) if source == file else (source, 0)
            if not batch.num_rows:
                continue
            classes = classes or _class_names(batch.schema.metadata, self.label)
            for arrays, array in zip(parts, self._arrays(batch, decode, file, row), strict=False):
                arrays.append(array)
                size += array.nbytes
            check_room(size, where)
            row += batch.num_rows
        samples, labels, owners = parts
        if not samples:
            raise DataError(f"{where}: there are no rows")
        return SampleTable(
            _join(samples, where, self.image),
            _join(labels, where, self.label),
            _join(owners, where, self.owner) if self.owner else None,
        ), classes

    def _arrays(self, batch: Any, decode: Decoder, file: str, row: int) -> list[NDArray[Any]]:
        """Samples, labels and perhaps owners of a batch; `row` is the index of its first row in the file."""
        try:
            batch.validate(full=True)  # Arrow itself doesn't check the offsets in a file before it uses them
            plain = {
                column: _plain(batch.column(column), f"{file}: column '{column}'")
                for column in batch.schema.names
            }
            images = self.features is None and self.image in plain
            samples = (
                _images(plain[self.image], decode, file, row)
                if images
                else _features({name: plain[name] for name in self._feature_names(plain)}, file)
            )
            others = [name for name in (self.label, self.owner) if name is not None]
            return [samples, *(_scalars(plain[column], file, column) for column in others)]
        except (pyarrow().ArrowException, UnicodeDecodeError) as error:
            raise DataError(f"{file} is damaged ({first_line(error)})") from None

    def _feature_names(self, found: Iterable[str]) -> list[str]:
        return [
            name for name in self.features or found if self.features or name not in {self.label, self.owner}
        ]


def first_line(error: Exception) -> str:
    """The first line of an error's message, without the details that Arrow and others add below it."""
    return str(error).partition("\n")[0].rstrip(". ")


def pyarrow() -> Any:
    """The package pyarrow, which is an extra."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError:
        raise ConfigError(
            "this data source needs the package pyarrow, which Mnemos installs with its extra 'parquet'"
        ) from None
    return pyarrow


def _plain(column: Any, where: str) -> Any:
    """The column as one array without extension types, dictionaries and missing values."""
    pa = pyarrow()
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    if isinstance(column.type, pa.DictionaryType):
        column = column.dictionary_decode()
    if column.null_count:
        raise DataError(f"{where} has {column.null_count} missing values")
    return column


def _images(column: Any, decode: Decoder, file: str, row: int) -> NDArray[Any]:
    types = pyarrow().types
    kind = column.type
    if types.is_struct(kind) and "bytes" in [field.name for field in kind]:
        contents = column.field("bytes")
        if contents.null_count:
            raise DataError(f"{file} names images by path only, and their bytes are expected in the table")
        return _images(contents, decode, file, row)
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return np.stack([decode(bytes_, f"{file}: row {row + i}") for i, bytes_ in enumerate(_bytes(column))])
    if _is_list(kind):
        return _numbers(column, file)
    raise DataError(f"{file} has images of type {kind}, and bytes or lists of numbers are expected")


def _features(columns: dict[str, Any], file: str) -> NDArray[Any]:
    """Columns of numbers as vectors of features [rows, columns]."""
    for name, column in columns.items():
        if not _is_number(column.type):
            raise DataError(
                f"{file}: column '{name}' is of type {column.type}, and numbers are expected{CHOOSE}"
            )
    return np.stack([column.to_numpy(zero_copy_only=False) for column in columns.values()], axis=1)


def _bytes(column: Any) -> Iterator[bytes]:
    return (value.as_py() for value in column)


def _is_list(kind: Any) -> bool:
    types = pyarrow().types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _is_number(kind: Any) -> bool:
    types = pyarrow().types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def _numbers(column: Any, file: str) -> NDArray[Any]:
    """Nested lists of equal lengths as an array."""
    pa = pyarrow()
    shape = [len(column)]
    while _is_list(column.type):
        lengths = set(pa.compute.list_value_length(column).to_pylist())
        if len(lengths) != 1 or column.null_count:
            raise DataError(f"{file} has lists of different lengths, and equally many numbers are expected")
        shape.append(lengths.pop())
        column = column.flatten()
    kind = column.type
    if column.null_count or not _is_number(kind):
        what = "missing values" if column.null_count else f"lists of {kind}"
        raise DataError(f"{file} has {what}, and lists of numbers are expected")
    values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values.reshape(shape)


def _scalars(column: Any, file: str, name: str) -> NDArray[Any]:
    types = pyarrow().types
    kind = column.type
    if types.is_string(kind) or types.is_large_string(kind):
        return np.array(column.to_pylist(), dtype=np.str_)
    if _is_number(kind):
        values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
        return values
    raise DataError(f"{file}: column '{name}' is of type {kind}, and numbers or text are expected")


def _join(arrays: list[NDArray[Any]], where: str, column: str) -> NDArray[Any]:
    if len({(array.shape[1:], array.dtype.kind) for array in arrays}) > 1:
        raise DataError(f"{where}: column '{column}' changes its shape or type between rows")
    return np.concatenate(arrays)


def _class_names(metadata: dict[bytes, bytes] | None, label: str) -> list[str] | None:
    """The names of the classes, if the label column has them in its Hugging Face schema."""
    try:
        names = parse_json((metadata or {})[b"huggingface"])["info"]["features"][label]["names"]
    except (KeyError, TypeError, ValueError):
        return None
    return [str(name) for name in names] if isinstance(names, list) and names else None
