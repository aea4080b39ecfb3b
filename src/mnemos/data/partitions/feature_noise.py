"""Clients whose features have different amounts of noise."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from mnemos.data.partition import Floats, partitions
from mnemos.data.partitions.iid import Iid


@partitions.register("feature-noise")
class FeatureNoise(Iid):
    """Equal shares of shuffled samples, with Gaussian noise on the features of standard deviation

        σ_i = noise · i / (K − 1),  i = 0 … K−1

    so that the first client's samples are clean and the last one's the noisiest (Li et al., "Federated
    Learning on Non-IID Data Silos", ICDE 2022: noise-based feature skew). The noise applies to normalised
    samples.
    """

    noise: float = Field(0.1, ge=0)
    """Standard deviation of the last client's noise; the others have less, in equal steps."""

    def noise_levels(self, clients: int) -> Floats | None:
        """σ_i of each client; a single client's is 0."""
        return np.asarray(self.noise * np.arange(clients) / max(clients - 1, 1), np.float64)
