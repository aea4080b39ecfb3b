"""Learning metrics: how much of a layer's weights is more than noise, and how evenly it is spread."""

from mnemos.ranks.layers import layer_values
from mnemos.ranks.spectra import ranked

__all__ = ["layer_values", "ranked"]
