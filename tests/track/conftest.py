"""Settings of services that tests must neither see nor change."""

import os
import sys

import pytest


@pytest.fixture(autouse=True, scope="session")
def _own_settings(_own_caches, tmp_path_factory):
    folder = tmp_path_factory.mktemp("services")
    for name in [*os.environ]:
        if name.startswith(("WANDB_", "MLFLOW_")):
            del os.environ[name]
    os.environ |= {name: str(folder) for name in ("WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR")}
    os.environ["NETRC"] = str(folder / "netrc")
    yield
    if "wandb" in sys.modules:
        sys.modules["wandb"].teardown()  # it has a process of its own


@pytest.fixture(scope="session")
def empty_store(_own_settings, tmp_path_factory):
    """A database with MLflow's tables: to make them takes seconds."""
    import mlflow  # not before the settings are ours

    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    mlflow.MlflowClient(tracking_uri=f"sqlite:///{path}").search_experiments()
    return path
