"""Hugging Face data sets: a folder written by `save_to_disk`, or a name on the hub."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from mnemos.common.plain import parse_json
from mnemos.data.dataset import Dataset, sources
from mnemos.data.download import OFFLINE, offline
from mnemos.data.folder import locate
from mnemos.data.sources._columns import Batches, TableSource, first_line, pyarrow
from mnemos.errors import ConfigError, DataError, allowed

_ROWS = 1024


@sources.register("huggingface")
class HuggingFace(TableSource):
    """A data set of Hugging Face, from a folder or from the hub.

    A folder (`path`) is read directly; a name on the hub (`repo`) needs the package `datasets`.
    """

    path: str | None = Field(None, min_length=1)
    """Folder of a data set that is on disk."""
    repo: str | None = Field(None, min_length=1)
    """Name of a data set on the hub, such as `uoft-cs/cifar10`."""
    subset: str | None = None
    """Configuration of a data set on the hub that has several."""
    revision: str | None = None
    """Commit, tag or branch on the hub; a commit guarantees that the data stay the same."""
    train_split: str = "train"
    """Split for training."""
    test_split: str | None = "test"
    """Set to null to split a test part off the training part."""

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if (self.path is None) == (self.repo is None):
            raise ValueError("give either 'path', a folder, or 'repo', a name on the hub")
        return self

    @property
    def title(self) -> str:
        """The name of the folder, or the name on the hub without its owner."""
        return super().title if self.repo is None else self.repo.rpartition("/")[2]

    def load(self) -> Dataset:
        """The data set from the folder or from the hub."""
        pyarrow()
        if self.repo is not None:
            return self._from_hub(self.repo)
        folder = locate(self.path or "")
        if (folder / "dataset_dict.json").is_file():
            parts = [self._split_folder(folder, split) for split in self._splits()]
        elif (folder / "state.json").is_file():
            parts = [folder]  # one split, saved by itself
        else:
            raise DataError(
                f"{folder} has neither dataset_dict.json nor state.json, and a folder written by "
                "save_to_disk of Hugging Face's datasets is expected"
            )
        batches = [self._saved(part) for part in parts]
        return self.assemble(folder.name, batches[0], batches[1] if len(batches) > 1 else None, str(folder))

    def _splits(self) -> list[str]:
        return [self.train_split, *([self.test_split] if self.test_split is not None else [])]

    def _split_folder(self, folder: Path, split: str) -> Path:
        found = _json(folder / "dataset_dict.json").get("splits")
        splits = [str(name) for name in found] if isinstance(found, list) else []
        if split not in splits:
            raise DataError(f"{folder} has no split '{split}'; {allowed(splits)}")
        return folder / split

    def _saved(self, folder: Path) -> Iterator[tuple[str, Any]]:
        """The batches of one saved split, from the Arrow streams that its state lists."""
        pa = pyarrow()
        state = _json(folder / "state.json")
        if state.get("_indices_data_files"):
            raise DataError(
                f"{folder} was saved with a selection of rows; save it with datasets 2.0 or later"
            )
        for file in _data_files(state, folder):
            try:
                with pa.memory_map(str(file)) as content, pa.ipc.open_stream(content) as stream:
                    columns = self.columns(stream.schema.names, str(file))
                    for batch in stream:
                        yield str(file), batch.select(columns)
            except (pa.ArrowException, OSError, ValueError) as error:
                raise DataError(f"{file} can't be read as an Arrow stream ({first_line(error)})") from None

    def _from_hub(self, repo: str) -> Dataset:
        if offline():
            raise DataError(
                f"the data set '{repo}' is not downloaded because {OFFLINE} is set; save it with "
                "save_to_disk and give the folder as 'path'"
            )
        try:
            import datasets
        except ImportError:
            raise ConfigError(
                "a name on the hub needs Hugging Face's package: pip install datasets"
            ) from None
        parts: list[Batches] = []
        for split in self._splits():
            try:
                part = datasets.load_dataset(repo, self.subset, split=split, revision=self.revision)
            except (OSError, ValueError, RuntimeError) as error:
                raise DataError(
                    f"the data set '{repo}' can't be loaded from the hub ({first_line(error)})"
                ) from None
            columns = self.columns(part.column_names, f"'{repo}'")
            rows = part.select_columns(columns).with_format("arrow").iter(_ROWS)
            parts.append((f"'{repo}', split {split}", table) for table in rows)
        return self.assemble(repo, parts[0], parts[1] if len(parts) > 1 else None, f"'{repo}'")


def _json(file: Path) -> dict[str, Any]:
    try:
        content = parse_json(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{file} is not JSON ({error})") from None
    except OSError as error:
        raise DataError(f"{file} can't be read ({error.strerror or error})") from None
    if not isinstance(content, dict):
        raise DataError(f"{file} holds a {type(content).__name__}, and a mapping is expected")
    return content


def _data_files(state: dict[str, Any], folder: Path) -> list[Path]:
    entries = state.get("_data_files")
    listed = entries if isinstance(entries, list) else []
    found = [entry.get("filename") for entry in listed if isinstance(entry, dict)]
    names = [name for name in found if isinstance(name, str) and name]
    if not names or len(names) != len(found):
        raise DataError(f"{folder / 'state.json'} lists no files under '_data_files'")
    return [folder / Path(name).name for name in names]
