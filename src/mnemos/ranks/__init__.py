"""Learning metrics of layers, from their singular values with and without noise."""

from mnemos.ranks.layers import layer_values
from mnemos.ranks.spectra import ranked

__all__ = ["layer_values", "ranked"]
