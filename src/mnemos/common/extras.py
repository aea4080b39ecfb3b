"""Optional packages, which the extras of Mnemos install."""

from __future__ import annotations

import importlib
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
}
"""The extras of pyproject.toml that users need, and the packages of each."""


def install_line(extra: str = "") -> str:
    """What installs an extra, or Mnemos alone, from the project's folder: on PyPI the name may be taken."""
    what = f"'.[{extra}]'" if extra else "."
    return f"in the project's folder, pip install --constraint constraints.txt --editable {what}"


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
