"""A federation whose owners are asked in the same process: all but Flower."""

import pytest
import torch
from owners import folders, joined

from mnemos.experiment import Experiment
from mnemos.federation import Federation

CASES = {
    "fedavg": {},
    "scaffold": {"method": "scaffold"},
    "wsm": {"method": {"name": "fedavg", "loss": "wsm"}},
    "fedcurv": {"method": "fedcurv"},
    "batch-norm": {"model": {"name": "mlp", "hidden": [8], "norm": "batch"}},
    "own statistics": {
        "model": {"name": "mlp", "hidden": [8], "norm": "batch"},
        "method": {"name": "fedavg", "buffers": "local"},
    },
    "kept momentum": {
        "local": {"steps": 2, "optimizer": {"name": "sgd", "momentum": 0.9}, "optimizer_state": "kept"}
    },
    "tasks": {"stream": {"name": "tasks", "tasks": 3}, "method": {"name": "fedavg", "loss": "task-ce"}},
}


def experiment(paths, **changes):
    return Experiment.parse(
        {
            "data": {"name": "owners", "paths": [str(path) for path in paths]},
            "partition": {"name": "natural", "validation": 0.2},
            "model": {"name": "mlp", "hidden": [8]},
            "participation": 0.7,
            "local": {"steps": 2, "batch": 16, "lr": 0.1},
            "rounds": 4,
            "evaluate": {"every": 2, "forgetting": [2]},
            "measures": ["client-accuracy"],
            "engine": "serial",
            **changes,
        }
    )


def play(description, rounds=4):
    federation = Federation(description)
    with federation.open() as runner:
        outcomes = [federation.advance(runner) for _ in range(rounds)]
    federation.close()
    return federation, outcomes


@pytest.mark.parametrize("case", CASES)
def test_owners_come_to_the_same_model_bit_for_bit(case, tmp_path):
    """And to the same records, but for what only labels could tell."""
    paths = folders(tmp_path)
    description = experiment(paths, **CASES[case])
    here, expected = play(description)
    there, found = play(joined(description, paths, tmp_path)[0])
    assert torch.equal(here.server.model, there.server.model)
    assert torch.equal(here.server.buffers, there.server.buffers)
    for one, other in zip(expected, found, strict=True):
        wanted = [record for record in one.records if record.cls is None]
        assert [(r.name, r.client, r.model, r.round) for r in other.records] == [
            (r.name, r.client, r.model, r.round) for r in wanted
        ]
        assert [r.value for r in other.records] == pytest.approx([r.value for r in wanted])
