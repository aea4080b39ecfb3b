"""scikit-learn's bundled handwritten digits: 1,797 images of 8×8, no download."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
from pydantic import Field

from mnemos.data.dataset import Dataset, Source, sources
from mnemos.data.sources._arrays import SampleTable, build


@sources.register("digits")
class Digits(Source):
    """The test set of the UCI digits, as scikit-learn ships it; pixels keep their units, 0 to 16."""

    test: float = Field(0.2, gt=0, lt=1)
    """Share of each class that is for testing."""

    def load(self) -> Dataset:
        """All digits, with a test part split off."""
        rows = np.loadtxt(_file(), dtype=np.uint8, delimiter=",")
        whole = SampleTable(rows[:, :-1].reshape(-1, 8, 8), rows[:, -1].astype(np.int64))
        return build("digits", (whole, None), where="digits", share=self.test)


def _file() -> Path:
    """The file that `sklearn.datasets.load_digits` reads; importing sklearn takes longer than many runs."""
    spec = find_spec("sklearn")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz"
