"""Your own texts: a table with a column of texts, or a folder of text files per class."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from pydantic import Field

from mnemos.common.registry import Options
from mnemos.data.dataset import Dataset, Source, sources
from mnemos.data.folder import locate
from mnemos.data.sources._columns import first_line, pyarrow
from mnemos.data.sources._room import check_room
from mnemos.data.sources._tables import Rows, file_parts, joined, no_column, read_rows
from mnemos.data.sources._texts import Texts, Tokens, read_words, text_dataset
from mnemos.data.sources.folder import class_files, folder_parts, ordered
from mnemos.data.vocabulary import Vocabulary, check_words
from mnemos.errors import DataError

SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
"""The tables that are read."""


class TextOptions(Options):
    """How texts are read and become token ids."""

    text: str = Field("text", description="column of the texts")
    label: str = Field("label", description="column of the labels")
    owner: str | None = Field(
        None, description="column that names each text's natural owner, if there is one"
    )
    words: str | None = Field(
        None, min_length=1, description="file with the vocabulary, a word per line; else it is built"
    )
    vocabulary: int = Field(
        5000, ge=1, le=1_000_000, description="the most words: the most frequent of the training part"
    )
    length: int = Field(64, ge=1, le=10_000, description="the most words of a text that are kept: its first")
    delimiter: str | None = Field(None, min_length=1, max_length=1, description="what separates CSV cells")
    test: float = Field(0.2, gt=0, lt=1, description="share of each class for testing, without a test part")


class SharedTexts(Options):
    """How several owners read texts: by one vocabulary, which is given, as none may see the others' words."""

    words: str | tuple[str, ...] = Field(
        min_length=1, description="file with the vocabulary, a word per line; or the words themselves"
    )
    text: str = Field("text", description="column of the texts")
    label: str = Field("label", description="column of the labels")
    length: int = Field(64, ge=1, le=10_000, description="the words of a text that are kept: its first")

    def with_words(self) -> SharedTexts:
        """The same with the words of the file."""
        if not isinstance(self.words, str):
            return self
        return self.model_copy(update={"words": read_words(locate(self.words)).words})

    @property
    def vocabulary(self) -> Vocabulary:
        """The words that all owners use."""
        words = self.with_words().words
        assert not isinstance(words, str)
        return check_words(words, "data.text.words")

    def own(self, path: str, test: float) -> Dataset:
        """The data set of one owner; `test` is the share for testing, without a test part."""
        source = TextSource(path=path, text=self.text, label=self.label, length=self.length, test=test)
        return source.read(self.vocabulary)


@sources.register("text")
class TextSource(TextOptions, Source):
    """Texts in a CSV, JSON Lines or Parquet file, in a folder of them, or as files CLASS/*.txt in a folder.

    Words are runs of letters and digits in lower case. A folder may have the parts `train` and `test`: files
    of these names, or folders with the classes in them.
    """

    path: str = Field(min_length=1)
    """The file, or the folder of files."""

    @property
    def texts(self) -> bool:
        """Always."""
        return True

    def load(self) -> Dataset:
        """The rows of all files, in the order of the files' names."""
        return self.read(None if self.words is None else read_words(locate(self.words)))

    def read(self, words: Vocabulary | None) -> Dataset:
        """The data set with a given vocabulary, or with one that is built from its training part."""
        path = locate(self.path)
        tokens = Tokens(self.vocabulary, self.length, words)
        if path.is_dir() and not any(file for suffix in SUFFIXES for file in path.rglob(f"*{suffix}")):
            parts, classes = _folder(path)
            name = path.name
        else:
            train, test = file_parts(path, SUFFIXES, "CSV, JSON Lines or Parquet file")
            parts = (self._table(train), self._table(test) if test else None)
            classes, name = None, path.stem
        return text_dataset(name, parts, tokens, where=str(path), share=self.test, classes=classes)

    def _table(self, files: list[Path]) -> Texts:
        wanted = [self.text, self.label, *([self.owner] if self.owner is not None else [])]
        tables = [text_rows(file, wanted, self.delimiter) for file in files]
        return Texts(
            [text for rows in tables for text in rows.column(self.text)],
            joined([rows.names(self.label) for rows in tables]),
            None if self.owner is None else joined([rows.names(self.owner) for rows in tables]),
        )


def text_rows(file: Path, wanted: Sequence[str] = (), delimiter: str | None = None) -> Rows:
    """The rows of a table, with these columns at least; by default, with all of them."""
    if file.suffix.lower() == ".parquet":
        return _parquet(file, wanted)
    if file.suffix.lower() not in SUFFIXES:
        raise DataError(f"{file} is no table of texts; expected one of {', '.join(SUFFIXES)}")
    return read_rows(file, delimiter)


def _parquet(file: Path, wanted: Sequence[str]) -> Rows:
    """The columns of a Parquet file as text; its 'lines' are the numbers of its rows, from 1."""
    pa = pyarrow()
    try:
        with pa.parquet.ParquetFile(file, page_checksum_verification=True) as content:
            names = content.schema_arrow.names
            wanted = list(dict.fromkeys(wanted)) or names
            for name in wanted:
                if name not in names:
                    raise no_column(str(file), name, names)
            check_room(
                sum(content.metadata.row_group(i).total_byte_size for i in range(content.num_row_groups)),
                file,
            )
            table = content.read(wanted)
        table.validate(full=True)
        columns = {
            name: ["" if cell is None else str(cell) for cell in table[name].to_pylist()] for name in wanted
        }
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(f"{file} can't be read as Parquet ({first_line(error)})") from None
    if not table.num_rows:
        raise DataError(f"{file} has no rows")
    return Rows(file, columns, list(range(1, table.num_rows + 1)))


def _folder(path: Path) -> tuple[tuple[Texts, Texts | None], list[str]]:
    """The texts in a folder's files, and the names of its classes."""
    train, test = (
        None if part is None else class_files(part, {".txt"}, "text files", "<class>/<name>.txt")
        for part in folder_parts(path)
    )
    assert train is not None
    classes = ordered({*train, *(test or {})})
    tables = [None if part is None else _files(part, classes) for part in (train, test)]
    assert tables[0] is not None
    return (tables[0], tables[1]), classes


def _files(files: dict[str, list[Path]], classes: Sequence[str]) -> Texts:
    listed = [(label, file) for label, name in enumerate(classes) for file in files.get(name, [])]
    return Texts([read_text(file) for _, file in listed], np.array([label for label, _ in listed], np.int64))


def read_text(file: Path) -> str:
    """The text in a file, which must have one."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise DataError(f"{file} is not UTF-8 text") from None
    except OSError as error:
        raise DataError(f"{file} can't be read ({error.strerror or error})") from None
    if not text.strip():
        raise DataError(f"{file} is empty, and a text is expected")
    return text
