"""What all tests share: one thread a process, no downloads, caches of their own."""

import os
import signal

import pytest
import torch

torch.set_num_threads(1)
# A shell that starts the tests in the background has them ignore Ctrl-C; the commands they start must not.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def _own_caches(tmp_path_factory):
    folder = tmp_path_factory.mktemp("caches")
    before = dict(os.environ)
    os.environ |= {"MNEMOS_CACHE": str(folder), "MNEMOS_DATA": str(folder / "data"), "MNEMOS_OFFLINE": "1"}
    yield
    os.environ.clear()
    os.environ |= before


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
