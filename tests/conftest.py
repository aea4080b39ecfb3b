"""What all tests share: one thread a process, no downloads, folders of their own, and their order."""

import gc
import os
import signal
from pathlib import Path

# Threads of OpenMP, here and in processes that tests start, sleep while they wait for each other. They would
# spin: on a busy machine one forward pass has taken two hundred times as many seconds of a processor.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # it is read once, when PyTorch is imported

import pytest
import torch

torch.set_num_threads(1)
# A shell that starts the tests in the background has them ignore Ctrl-C; the commands they start must not.
signal.signal(signal.SIGINT, signal.default_int_handler)
# No test cuts the power: what it has written need not be on the disk, which takes milliseconds each time.
os.fsync = os.fstat  # which complains of a closed file, too

FIRST = (
    "deployment/test_flower.py",
    "engines/test_ray.py",
    "engines/test_ray_devices.py",
    "studies/test_sweep_kill.py",
    "studies/test_together_kill.py",
    "packaging/test_wheel.py",
    "benchmarks/test_peers.py",
)
"""Files whose tests wait for other processes, or are long; other workers keep the cores busy meanwhile."""


def pytest_collection_modifyitems(items):
    """Put what waits or is long in front, file by file, so that short tests are left for the end."""
    here = Path(__file__).parent
    places = {here / name: place for place, name in enumerate(FIRST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


def pytest_collection_finish(session):
    """Leave what is imported by now to itself: else each collection of garbage looks through all of it.

    A runner on a device collects garbage when it closes, which took half the time of its tests.
    """
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def _own_caches(tmp_path_factory):
    folder = tmp_path_factory.mktemp("caches")
    before = dict(os.environ)
    os.environ |= {"MNEMOS_CACHE": str(folder), "MNEMOS_DATA": str(folder / "data"), "MNEMOS_OFFLINE": "1"}
    os.environ["MNEMOS_QUIET"] = "1"  # of `mnemos.run`; commands show their progress
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    yield
    os.environ.clear()
    os.environ |= before


@pytest.fixture
def forked_workers(monkeypatch):
    """Workers of studies are forked, as each would take seconds to import PyTorch."""
    from support.processes import Worker

    monkeypatch.setattr("mnemos.studies.pool.WorkerProcess", Worker)


@pytest.fixture
def tiny():
    """Changes that make the default experiment take a fraction of a second."""
    return {
        "partition": {"name": "dirichlet", "clients": 12, "alpha": 0.5},
        "model": {"name": "mlp", "hidden": [8]},
        "participation": 0.34,
        "rounds": 4,
        "evaluate": {"every": 2, "test_last": 2},
        "engine": "serial",
    }
