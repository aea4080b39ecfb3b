"""Train on arrays of your own, with their owners as clients, and write a report page."""

from __future__ import annotations

import argparse

import numpy as np

import mnemos

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--rounds", type=int, default=10)
rounds = parser.parse_args().rounds

# Two measurements of each patient; three hospitals that see different patients.
rng = np.random.default_rng(0)
centres = np.array([[0.0, 0.0], [2.5, 0.5], [1.0, 3.0]])
hospitals = {"Alder": (0.7, 0.2, 0.1), "Birch": (0.1, 0.8, 0.1), "Cedar": (0.1, 0.2, 0.7)}
labels = np.concatenate([rng.choice(3, size=200, p=shares) for shares in hospitals.values()])
owners = np.repeat(list(hospitals), 200)
samples = rng.normal(centres[labels], 0.8)
mnemos.write_npz("patients.npz", (samples, labels), owners=owners)

run = mnemos.run(
    {
        "data": {"name": "npz", "path": "patients.npz"},
        "partition": {"name": "natural", "validation": 0.2},  # each owner is a client
        "model": {"name": "mlp", "hidden": [16]},
        "local": {"epochs": 3, "batch": 16, "lr": 0.1},
        "participation": 1,
        "rounds": rounds,
    }
)
print(f"test accuracy {run.accuracy:.3f}")
print(f"a page to look at: mnemos report {run.path}")
