"""scikit-learn's bundled handwritten digits: 1,797 images of 8×8, no download."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from mnemos.data.dataset import Dataset, Source, sources
from mnemos.data.sources._arrays import Table, build


@sources.register("digits")
class Digits(Source):
    """The test set of the UCI digits, as scikit-learn ships it; pixels keep their units, 0 to 16."""

    test: float = Field(0.2, gt=0, lt=1)
    """Share of each class that is for testing."""

    def load(self) -> Dataset:
        """All digits, with a test part split off."""
        from sklearn.datasets import load_digits  # slow to import, and only needed here

        digits = load_digits()
        whole = Table(digits.images.astype(np.uint8), digits.target)
        return build("digits", whole, None, where="digits", share=self.test)
