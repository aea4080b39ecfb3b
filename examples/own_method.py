"""A method of your own: clients count by the square root of their number of samples.

Also on the command line, in this folder: `mnemos run --method own_method:RootFedAvg`.
"""

from __future__ import annotations

import argparse
from math import sqrt
from typing import Annotated

import mnemos
from mnemos.methods.exchange import TrainReply, Weight
from mnemos.methods.part import Single, Weighting, weightings
from mnemos.methods.presets.fedavg import FedAvg
from mnemos.vector import Layout


class RootOfSamples(Single):
    """αₖ ∝ √nₖ: large clients count less than in FedAvg, and more than in a plain mean."""

    def weigh(self, update: TrainReply, layout: Layout) -> Weight:
        """A client's weight, not yet normalised."""
        return Weight.of(sqrt(update.samples))


class RootFedAvg(FedAvg):
    """FedAvg with weights by the square root of the number of samples."""

    weighting: Annotated[Weighting, weightings] = RootOfSamples()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    for method in (FedAvg(), RootFedAvg()):
        run = mnemos.run(
            {
                "data": "digits",
                "partition": {"name": "label-dirichlet", "clients": 20},  # clients of unequal size
                "method": method,
                "rounds": rounds,
            }
        )
        print(f"{type(method).__name__:12} accuracy {run.accuracy:.3f}")
