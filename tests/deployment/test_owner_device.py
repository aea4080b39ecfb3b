"""Owners with a device of their own: they train and evaluate there, and answer with tensors of the host."""

import pytest
import torch

from mnemos.deployment import apps, holder
from mnemos.errors import ConfigError
from mnemos.experiment.experiment import Experiment
from support import pretend
from support.owners import folders, joined
from support.play import play

# Before any test makes a backward pass, of which PyTorch's threads for devices are started once and for all.
torch.set_num_threads(1)
pretend.install()


NORMED = {"name": "mlp", "hidden": [8], "norm": "batch"}
CASES = {
    "state": {"method": "scaffold"},
    "own statistics": {"model": NORMED, "method": {"name": "fedavg", "buffers": "local"}},
    "kept momentum": {
        "local": {"steps": 2, "optimizer": {"name": "sgd", "momentum": 0.9}, "optimizer_state": "kept"}
    },
    "accuracies": {
        "stream": {"name": "tasks", "tasks": 3},
        "evaluate": {"every": 2, "test_every": 2},
        "measures": ["class-accuracy", "continual", "personalised"],
    },
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
            "engine": "serial",
            **changes,
        }
    )


@pytest.mark.parametrize("case", CASES)
def test_owners_on_a_device_come_to_the_same_model(case, tmp_path):
    """The pretend device has the CPU's bits. What owners remember is of the host, too."""
    paths = folders(tmp_path)
    description = experiment(paths, **CASES[case])
    here, expected = play(joined(description, paths, tmp_path / "here")[0])
    with pretend.counting() as counted:
        there, found = play(joined(description, paths, tmp_path / "there", "pretend:1")[0])
    assert counted().ops > 100
    assert torch.equal(here.server.model, there.server.model)
    assert torch.equal(here.server.buffers, there.server.buffers)
    for one, other in zip(expected, found, strict=True):
        assert [r.value for r in one.records] == pytest.approx([r.value for r in other.records], nan_ok=True)


def test_an_owner_s_device_beats_the_plan_s(tmp_path, monkeypatch):
    seen = []

    class Trainer(holder.Trainer):
        def __init__(self, plan, dataset, device):
            seen.append((plan.arithmetic.device, str(device)))
            super().__init__(plan, dataset, device)

    monkeypatch.setattr(holder, "Trainer", Trainer)
    paths = folders(tmp_path)
    description = experiment(paths, rounds=1, evaluate={"every": 1})
    play(joined(description, paths, tmp_path / "there", "pretend:0")[0])
    assert set(seen) == {("pretend", "pretend:0")}


def test_a_node_of_flower_s_own_names_its_device(tmp_path):
    class Context:
        node_config = {"data": "a.npz", "device": "pretend:1"}  # noqa: RUF012

    assert apps.configured(Context()).device == torch.device("pretend:1")
    Context.node_config = {"data": "a.npz"}
    assert apps.configured(Context()).device == torch.device("cpu")
    Context.node_config = {"data": "a.npz", "device": "gpu"}
    with pytest.raises(ConfigError, match="node-config: device: there is no device 'gpu'; did you mean"):
        apps.configured(Context())
