"""Whether a file or folder that `--data` names has texts, by its columns, its files and the options given."""

from __future__ import annotations

import csv
from collections.abc import Collection
from pathlib import Path

_COLUMN = "text"
_OPTIONS = {f"data.{name}" for name in ("text", "words", "vocabulary", "length")}
_OTHERS = {"data.features", "data.image"}


def has_texts(path: Path, options: Collection[str]) -> bool:
    """Whether data is texts: options for texts are given, or a table has a column `text`, or files are .txt.

    `options` are the dotted names of the options on the command line. Columns that these name as features or
    images aren't texts.
    """
    if _OTHERS & set(options):
        return False
    if _OPTIONS & set(options):
        return True
    if path.is_dir():
        return any(path.glob("*/*.txt")) or any(path.glob("train/*/*.txt"))
    try:
        return _COLUMN in _columns(path)
    except Exception:  # what is wrong with the file is said where it is read
        return False


def _columns(path: Path) -> list[str]:
    suffix = path.suffix.lower()
    if suffix in {".jsonl", ".ndjson"}:
        return [_COLUMN]
    if suffix == ".parquet":
        import pyarrow.parquet as parquet  # slow to import

        return list(parquet.read_schema(path).names)
    if suffix not in {".csv", ".tsv"}:
        return []
    with path.open(newline="", encoding="utf-8-sig") as stream:
        header = next(csv.reader(stream, delimiter="\t" if suffix == ".tsv" else ","), [])
    return [name.strip() for name in header]
