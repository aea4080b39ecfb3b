"""Optional packages, which the extras of Mnemos install."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from mnemos.errors import ConfigError

EXTRAS = {
    "parquet": ("pyarrow",),
    "huggingface": ("datasets", "pyarrow"),
    "ray": ("ray",),
    "flower": ("flwr",),
    "track": ("tensorboard", "mlflow-skinny", "sqlalchemy", "alembic", "wandb"),
    "optim": ("pytorch-optimizer",),
    "dp": ("dp-accounting",),
    "tune": ("optuna",),
    "onnx": ("onnx", "onnxscript"),
}
"""The extras of pyproject.toml that users need, and the packages of each."""


DISTRIBUTION = "mnemos-fl"
"""What packages are called that are built from this project; `mnemos` in the registry is another package."""


def install_line(extra: str = "") -> str:
    """What installs an extra, or Mnemos alone, for the way in which Mnemos was installed here."""
    if (Path(__file__).parents[3] / "pyproject.toml").is_file():  # a working copy
        what = f"'.[{extra}]'" if extra else "."
        return f"in the project's folder, pip install --constraint constraints.txt --editable {what}"
    return f"pip install '{DISTRIBUTION}[{extra}]'" if extra else f"pip install {DISTRIBUTION}"


def require(module: str, package: str, extra: str) -> Any:
    """A module of an optional package, or a `ConfigError` that says what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise missing(package, extra, error) from None


def missing(package: str, extra: str, error: ImportError) -> ConfigError:
    """The error that says what to install."""
    return ConfigError(
        f"it needs the package {package} ({error}); the extra '{extra}' of Mnemos installs it: "
        f"{install_line(extra)}"
    )
