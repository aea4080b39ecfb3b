"""Workers of a Ray cluster on devices: where they are placed, and that they give the bits of one process.

The cluster has one GPU by its word alone. The pretend devices are registered by Ray's hook for new workers,
and the driver has none.
"""

import os
import sys
from contextlib import closing

import pytest
import torch

import mnemos
from mnemos.data.load import load
from mnemos.engines.engine import Work
from mnemos.engines.ray.connection import _calm, _silent, library
from mnemos.engines.ray.crew import Needs
from mnemos.engines.ray.ray_engine import Ray
from mnemos.errors import ConfigError
from mnemos.federation.federation import Federation
from mnemos.runs.execute import Silent
from support import pretend
from support.play import play, small

HALF = {"gpus": 0.5, "cpus": 0.5, "device": "pretend:0"}


@pytest.fixture(scope="module", autouse=True)
def ray():
    """A cluster of two CPUs and a GPU that isn't there."""
    package = library(local=True)
    path = os.pathsep.join(filter(None, sys.path))
    surroundings = {"worker_process_setup_hook": pretend.install, "env_vars": {"PYTHONPATH": path}}
    with _calm():
        package.init(
            "local", num_cpus=2, num_gpus=1, include_dashboard=False, runtime_env=surroundings, **_silent()
        )
    yield package
    with _calm():
        package.shutdown()


def _opened(**changes):
    plain = small()
    return Ray(**{**HALF, **changes}).open(plain.plan, load(plain.data), Work(8, 3))


@pytest.fixture(scope="module")
def runner(ray):
    """As many workers as there is room for, of three."""
    with _opened(workers=3) as opened:
        yield opened


CASES = {
    "kept state": {
        "method": {"name": "scaffold", "correction": {"name": "scaffold", "option": "I"}},
        "local": {"steps": 2, "batch": 16, "optimizer": "adam", "optimizer_state": "kept", "lr": 0.01},
    },
    "own buffers": {
        "model": {"name": "mlp", "hidden": [8], "norm": "batch"},
        "method": {"name": "fedavg", "buffers": "local"},
    },
    "bfloat16": {"local": {"steps": 2, "batch": 16, "lr": 0.1, "precision": "bf16"}},
}


def test_a_gpu_has_room_for_two_halves(runner, ray):
    """The third worker isn't started: it would wait for ever."""
    assert len(runner.crew.members) == 2
    assert all(member.ready for member in runner.crew.members)
    assert ray.available_resources().get("GPU", 0) == 0


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES)
def test_the_same_bits_as_serial_on_the_cpu(runner, changes):
    """Updates come back as tensors of the host, where the driver's model stays."""
    assert runner.plan.arithmetic.device == "pretend"
    assert runner.engine.home.type == "cpu"
    expected, outcomes = play(small(**changes))
    with closing(Federation(small(**changes))) as federation:
        found = [federation.advance(runner) for _ in range(federation.experiment.rounds)]
    assert federation.server.model.device.type == "cpu"
    assert torch.equal(federation.server.model, expected.server.model)
    for name, value in expected.server.tensors.items():
        assert torch.equal(federation.server.tensors[name], value), name
    assert [outcome.records for outcome in found] == [outcome.records for outcome in outcomes]


def test_more_gpus_than_a_machine_has_are_refused(runner):
    with pytest.raises(
        ConfigError, match=r"engine\.gpus: found 2; no machine of the cluster has as many GPUs"
    ):
        _opened(gpus=2)
    with pytest.raises(
        ConfigError, match=r"engine\.cpus: found 64; no machine of the cluster has as many CPUs"
    ):
        _opened(cpus=64, gpus=0)


def test_a_device_that_workers_do_not_have_is_refused(runner):
    with pytest.raises(
        ConfigError, match=r"engine\.device: there is no device 'cuda:3'.*; there is cpu, .*\(at a worker\)$"
    ):
        _opened(cpus=0.25, gpus=0, device="cuda:3", workers=1)


def test_without_a_gpu_of_its_own_a_worker_uses_the_cpu(runner):
    with _opened(cpus=0.25, gpus=0, device="auto", workers=1) as opened:
        assert opened.plan.arithmetic.device == "cpu"


class Warnings(Silent):
    """Remembers the warnings."""

    def __init__(self):
        super().__init__()
        self.said = []

    def warned(self, sentence):
        self.said.append(sentence)


@pytest.mark.parametrize("device", [None, "pretend:0"])
def test_a_run_goes_on_with_devices_that_the_driver_does_not_have(ray, tmp_path, monkeypatch, device):
    monkeypatch.setattr("mnemos.common.devices._count", lambda _kind: 0)
    quarter = {"name": "ray", "workers": 1, "cpus": 0.25, "gpus": 0, "device": "pretend:0"}
    run = mnemos.run(small(engine=quarter, rounds=1), out=tmp_path)
    assert run.devices == [("pretend",)]
    heard = Warnings()
    mnemos.resume(run.path, rounds=2, device=device, observer=heard)
    assert heard.said == []  # the device is the same
    assert run.engine.device == "pretend:0"
    # Those that the workers don't have are refused by them.
    with pytest.raises(ConfigError, match=r"there is no device 'pretend:9'; .*\(at a worker\)$"):
        mnemos.resume(run.path, rounds=3, device="pretend:9")


@pytest.mark.parametrize(
    ("cpus", "gpus", "resources", "room"),
    [
        (1.0, 0.0, {"CPU": 4, "GPU": 1}, 4),
        (1.0, 0.25, {"CPU": 8, "GPU": 1}, 4),
        (1.0, 0.25, {"CPU": 3, "GPU": 1}, 3),
        (1.0, 0.7, {"CPU": 8, "GPU": 2}, 2),
        (1.0, 0.1, {"CPU": 99, "GPU": 1}, 10),
        (1.0, 2.0, {"CPU": 8, "GPU": 5}, 2),
        (1.0, 0.5, {"CPU": 8}, 0),
    ],
)
def test_room_by_hand(cpus, gpus, resources, room):
    assert Needs(cpus, gpus, "auto", exact=False).fitting(resources) == room


def test_more_than_one_gpu_is_a_whole_number():
    with pytest.raises(ConfigError, match=r"engine\.gpus: found 1\.5; allowed: 0 to 1, or a whole number"):
        small(engine={"name": "ray", "gpus": 1.5})
