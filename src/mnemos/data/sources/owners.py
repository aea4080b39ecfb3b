"""Data of several owners, each with a file or a folder of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import torch
from pydantic import Field

from mnemos.common.registry import Options
from mnemos.data.dataset import Dataset, Source, Split, check, sources
from mnemos.data.folder import locate
from mnemos.data.owned import agree, arranged, describe
from mnemos.data.sources._arrays import Layout
from mnemos.data.sources.folder import Folder
from mnemos.data.sources.npz import Npz
from mnemos.data.sources.text import SharedTexts
from mnemos.errors import DataError


class ReadingOptions(Options):
    """How owners read their data."""

    classes: tuple[str, ...] | None = Field(
        None, min_length=1, description="names of all classes; if left out, those that any owner holds"
    )
    test: float = Field(0.2, gt=0, lt=1)
    """Share of each class that is for testing, if an owner has no test part."""
    size: int | None = Field(None, ge=1, le=4096)
    """Width and height that images in folders are resized to."""
    channels: Literal[1, 3] = 3
    """Channels that images in folders are converted to."""
    layout: Layout = "auto"
    """Order of the axes of images in npz files."""
    # Not written where it is None: runs of versions without this field keep their hashes.
    text: SharedTexts | None = Field(
        None,
        description="how texts are read, if that is what owners have",
        exclude_if=lambda text: text is None,
    )

    def own(self, path: str) -> Dataset:
        """The data set of one owner, with its own classes and scale."""
        if self.text is not None:
            return self.text.own(path, self.test)
        if Path(path).suffix == ".npz":
            return Npz(path=path, test=self.test, layout=self.layout).load()
        return Folder(path=path, size=self.size, channels=self.channels, test=self.test).load()


@sources.register("owners")
class Owners(ReadingOptions, Source):
    """One npz file, folder of images or table of texts per owner: the simulation of a real federation.

    In a real federation `paths` stays empty: each owner reads its own data by the other options.
    """

    paths: tuple[str, ...] = Field((), description="a file or a folder for each owner")

    @property
    def reading(self) -> ReadingOptions:
        """All options but `paths`, with the words themselves in place of a file of them."""
        options = {name: getattr(self, name) for name in ReadingOptions.model_fields}
        return ReadingOptions(**options | {"text": None if self.text is None else self.text.with_words()})

    @property
    def texts(self) -> bool:
        """Whether `text` says how texts are read."""
        return self.text is not None

    def load(self) -> Dataset:
        """The samples of all owners, one owner after the other."""
        if not self.paths:
            raise DataError(
                "data.paths is empty: in the laboratory it names an npz file or folder for each owner; a "
                "federation whose owners read their own data is started by 'mnemos federate serve'"
            )
        each = {str(locate(path)): self.own(path) for path in self.paths}
        agreement = agree({name: describe(dataset) for name, dataset in each.items()}, self.classes)
        parts = [arranged(dataset, agreement) for dataset in each.values()]
        train = _joined([part.train for part in parts])
        test = _joined([part.test for part in parts])
        scale, words = (agreement.mean, agreement.std), parts[0].vocabulary
        return check(Dataset("owners", train, test, agreement.classes, *scale, tuple(each), vocabulary=words))


def _joined(splits: list[Split]) -> Split:
    owners = np.repeat(np.arange(len(splits)), [len(split) for split in splits])
    return Split(
        torch.cat([split.samples for split in splits]),
        torch.cat([split.labels for split in splits]),
        torch.from_numpy(owners),
    )
