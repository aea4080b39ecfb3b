"""Compare two losses on clients with few classes each: accuracy, forgetting, and a figure of curves."""

from __future__ import annotations

import argparse
from statistics import mean

import mnemos

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--rounds", type=int, default=10)
rounds = parser.parse_args().rounds

study = {
    "base": {
        "data": "digits",
        "partition": {"clients": 40, "alpha": 0.1, "validation": 0.3},
        "local": {"epochs": 3, "batch": 16, "lr": 0.2},
        "participation": 0.125,
        "rounds": rounds,
        "evaluate": {"forgetting": [rounds]},
    },
    "variants": {"cross-entropy": {"method.loss": "ce"}, "re-weighted softmax": {"method.loss": "wsm"}},
    "seeds": [0, 1, 2],
}
results = mnemos.compare(study)
for name, runs in results.runs.items():
    forgotten = mean(run.forgetting_matrix(rounds).mean for run in runs)
    print(f"{name:20} accuracy {mean(results.accuracies(name)):.3f}  forgotten {forgotten:.3f}")
