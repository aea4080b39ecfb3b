"""Arrays in numpy's npz format: `x_train`, `y_train` and perhaps a test part, owners, names of classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from mnemos.data.dataset import Dataset, Source, sources
from mnemos.data.folder import locate
from mnemos.data.sources._arrays import Layout, SampleTable, as_text, build
from mnemos.data.sources._store import read_arrays, write_arrays
from mnemos.errors import DataError

Arrays = dict[str, NDArray[Any]]


@sources.register("npz")
class Npz(Source):
    """Your own arrays: images [N, H, W], [N, H, W, C] or [N, C, H, W], or features [N, D].

    The file has `x_train` and `y_train` (or `x` and `y`), and may have `x_test` and `y_test`,
    `owners_train` (or `owners`) and `owners_test`, and `classes`, the names of the labels 0, 1, ….
    """

    path: str = Field(min_length=1)
    """The file."""
    test: float = Field(0.2, gt=0, lt=1)
    """Share of each class that is for testing, if the file has no test part."""
    layout: Layout = "auto"
    """Order of the axes of images with channels."""

    def load(self) -> Dataset:
        """The file's arrays as a data set."""
        path = locate(self.path)
        arrays = read_arrays(path)
        names = ("x_train", "y_train") if "x_train" in arrays or "y_train" in arrays else ("x", "y")
        train = _table(arrays, *names, ("owners_train", "owners"), path)
        testing = "x_test" in arrays or "y_test" in arrays
        test = _table(arrays, "x_test", "y_test", ("owners_test",), path) if testing else None
        return build(
            path.stem, (train, test),
            where=str(path), share=self.test, classes=_class_names(arrays, path), layout=self.layout,
        )  # fmt: skip


def write_npz(
    path: str | Path,
    train: tuple[ArrayLike, ArrayLike],
    test: tuple[ArrayLike, ArrayLike] | None = None,
    owners: ArrayLike | None = None,
    classes: ArrayLike | None = None,
) -> Path:
    """Write (samples, labels) as a file for the source `npz`; `owners` has one entry per training sample."""
    arrays = {"x_train": train[0], "y_train": train[1]}
    if test is not None:
        arrays |= {"x_test": test[0], "y_test": test[1]}
    if owners is not None:
        arrays["owners_train"] = owners
    if classes is not None:
        arrays["classes"] = classes
    try:
        write_arrays(Path(path), arrays)
    except OSError as error:
        raise DataError(f"{path} can't be written ({error.strerror or error})") from None
    return Path(path)


def _table(arrays: Arrays, samples: str, labels: str, owners: tuple[str, ...], path: Path) -> SampleTable:
    for name in (samples, labels):
        if name not in arrays:
            raise DataError(
                f"{path} has no array '{name}'; found {', '.join(sorted(arrays)) or 'none'}, "
                "expected x_train and y_train (with x_test and y_test, if known) or x and y"
            )
    return SampleTable(
        arrays[samples], arrays[labels], next((arrays[name] for name in owners if name in arrays), None)
    )


def _class_names(arrays: Arrays, path: Path) -> list[str] | None:
    classes = arrays.get("classes")
    if classes is None:
        return None
    names = as_text(classes, str(path), "classes")
    if names.ndim != 1:
        raise DataError(f"{path}: 'classes' has the shape {names.shape}, and a list of names is expected")
    return [str(name) for name in names.tolist()]
