"""Optional packages, which the extras of Mnemos install."""

from __future__ import annotations

import importlib
from typing import Any

from mnemos.errors import ConfigError

_INSTALL = "in the project's folder, pip install --constraint constraints.txt --editable '.[{}]'"


def require(module: str, package: str, extra: str) -> Any:
    """A module of an optional package, or a `ConfigError` that says what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise missing(package, extra, error) from None


def missing(package: str, extra: str, error: ImportError) -> ConfigError:
    """The error that says what to install, from the project's folder: on PyPI the name may be taken."""
    return ConfigError(
        f"it needs the package {package} ({error}); the extra '{extra}' of Mnemos installs it: "
        f"{_INSTALL.format(extra)}"
    )
