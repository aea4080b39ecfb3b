"""How far a client's batch-norm statistics, and its other buffers, lie from the server's."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mnemos.vector import Layout

_FLOOR = 0.01
"""Share of a layer's mean variance that is added to each channel's, so that no channel's unit is 0."""
_EPSILON = 1e-5
"""Added to variances, as batch-norm itself does."""


class Distance:
    """The largest distance of a client's buffer entries from the server's, in units of their own spread.

    Running means are measured in standard deviations, |m − m₀| / √v₀, running variances by |v − v₀| / v₀,
    counters of batches in local steps, and other buffers in units of the root mean square of the server's.
    """

    def __init__(self, layout: Layout, *, counters: bool) -> None:
        """`counters`: whether counters are compared, which requires that clients start from the server's."""
        slots = {slot.name: slot for slot in layout.buffers}
        means: list[Tensor] = []
        variances: list[Tensor] = []
        layers: list[Tensor] = []
        counts: list[Tensor] = []
        self._others: list[slice] = []
        for name, slot in slots.items():
            owner, dot, leaf = name.rpartition(".")
            where = torch.arange(slot.start, slot.stop)
            variance = slots.get(f"{owner}{dot}running_var")
            if leaf == "running_mean" and variance is not None:
                layers.append(torch.full((slot.size,), len(means)))
                means.append(where)
                variances.append(torch.arange(variance.start, variance.stop))
            elif not slot.dtype.is_floating_point:
                counts += [where] if counters else []
            elif leaf != "running_var":
                self._others.append(slice(slot.start, slot.stop))
        self._means, self._variances, self._layer, self._counts = map(
            _joined, (means, variances, layers, counts)
        )
        self._sizes = torch.bincount(self._layer).double()

    def __call__(self, buffers: Sequence[Tensor], steps: Tensor, server: Tensor) -> dict[str, Tensor]:
        """One number per client [K] for each kind of buffers, from clients' buffers and local steps [K]."""
        # Buffers are small beside a model, and a few dozen operations aren't worth a device's while.
        server = server.cpu().double()
        difference = torch.stack(list(buffers)).cpu().double() - server
        variances = server[self._variances].clamp_min(0)
        layers = torch.zeros_like(self._sizes).index_add_(0, self._layer, variances) / self._sizes
        spread = variances + _FLOOR * layers[self._layer] + _EPSILON
        others = [difference[:, :0]]
        for where in self._others:
            unit = server[where].square().mean().sqrt()
            others.append(difference[:, where] / torch.where(unit > 0, unit, 1.0))
        scaled = {
            "batch-norm means": difference[:, self._means] / spread.sqrt(),
            "batch-norm variances": difference[:, self._variances] / spread,
            "batch-norm counters": difference[:, self._counts] / steps[:, None],
            "buffers": torch.cat(others, dim=1),
        }
        return {kind: entries.abs().amax(1) for kind, entries in scaled.items() if entries.shape[1]}


def _joined(indices: list[Tensor]) -> Tensor:
    return torch.cat([torch.zeros(0, dtype=torch.int64), *indices])
