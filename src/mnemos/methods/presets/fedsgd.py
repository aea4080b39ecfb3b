"""FedSGD: distributed gradient descent (McMahan et al., 2017, arXiv 1602.05629)."""

from __future__ import annotations

import sys

from mnemos.errors import ConfigError
from mnemos.methods.method import methods
from mnemos.methods.presets.fedavg import FedAvg
from mnemos.optim.local import Local


@methods.register("fedsgd")
class FedSgd(FedAvg):
    """In each round, one gradient of all samples of each client: x ← x − η Σ nₖ ∇Lₖ(x) / Σ nₖ."""

    def training(self, local: Local) -> Local:
        """One step on one batch of all samples."""
        if local.epochs != 1 or local.steps not in {None, 1}:
            field = "epochs" if local.epochs != 1 else "steps"
            raise ConfigError(
                f"found {getattr(local, field)}, but fedsgd takes one full-batch step a round; allowed: 1",
                f"local.{field}",
            )
        return local.model_copy(update={"steps": 1, "batch": sys.maxsize, "fill": False})
