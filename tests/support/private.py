"""A small experiment that promises something about its clients' data; each comes, or not, by chance."""

from collections.abc import Mapping

from mnemos.experiment.experiment import Experiment, load_experiment

NOISE = {"name": "gaussian", "clip": 0.1, "noise": 2.0}
"""Much, so that a round costs little ε."""

_PRIVATE = {
    "partition": {"name": "iid", "clients": 8},
    "model": {"name": "mlp", "hidden": [8]},
    "method": {"name": "fedavg", "weighting": "uniform"},
    "participation": 0.5,
    "selection": "poisson",
    "local": {"steps": 2, "batch": 16, "lr": 0.1},
    "rounds": 3,
    "evaluate": {"every": 1, "patience": 0},
    "engine": "serial",
    "privacy": NOISE,
}


def private(changes: Mapping[str, object], **fields: object) -> Experiment:
    """The experiment with other `fields`, and then with changes by dotted names."""
    return load_experiment({**_PRIVATE, **fields}, changes)
