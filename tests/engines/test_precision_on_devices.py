"""bfloat16 on the pretend devices: their bits are the CPU's, and what lasts is float32.

The devices are registered in processes of their own, before the first backward pass there.
"""

import pytest
import torch

from mnemos.errors import ConfigError
from support import pretend
from support.play import play, small
from support.processes import LONG, forked

LOWER = {"steps": 2, "batch": 16, "lr": 0.1, "precision": "bf16"}
CASES = {
    "fedavg": {},
    "scaffold": {"method": {"name": "scaffold", "correction": {"name": "scaffold", "option": "I"}}},
    "moon": {"method": "moon"},
    "batch-norm": {"model": {"name": "mlp", "hidden": [8], "norm": "batch"}},
}


def _played(engine, device, precision, changes):
    """The model after two rounds on a device, on the host."""
    options = {"local": {**LOWER, "precision": precision}, "engine": {"name": engine, "device": device}}
    federation, _ = play(small(**{"rounds": 2, **options, **changes}))
    assert federation.server.model.device.type == device.partition(":")[0]
    assert not any(tensor.dtype == torch.bfloat16 for tensor in federation.server.tensors.values())
    return federation.server.model.cpu()


def _same_bits(engine):
    pretend.install()
    torch.set_num_threads(1)
    for changes in CASES.values():
        there = _played(engine, "pretend:0", "bf16", changes)
        assert torch.equal(there, _played(engine, "cpu", "bf16", changes))
        assert not torch.equal(there, _played(engine, "pretend:0", "float32", changes))


def _refused():
    pretend.install()
    with pytest.raises(
        ConfigError, match=r"found tf32, which the device pretend:0 doesn't have; allowed: float32, bf16"
    ):
        play(small(local={"precision": "tf32"}, engine={"name": "serial", "device": "pretend:0"}))


@pytest.mark.parametrize("engine", ["serial", "vmap"])
def test_the_bits_of_the_cpu(engine):
    """The same as on the CPU, and others than in float32: autocast is that of the device."""
    with forked(_same_bits, engine) as process:
        process.join(LONG)
        assert process.exitcode == 0


def test_they_have_no_tf32():
    with forked(_refused) as process:
        process.join(LONG)
        assert process.exitcode == 0
