"""Packages that not everybody needs: they come with an extra of Mnemos."""

from __future__ import annotations

import importlib
from typing import Any

from mnemos.errors import ConfigError

_INSTALL = "in the project's folder, pip install --constraint constraints.txt --editable '.[{}]'"


def require(module: str, package: str, extra: str) -> Any:
    """A module of such a package; without it, a `ConfigError` that says what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise missing(package, extra, error) from None


def missing(package: str, extra: str, error: ImportError) -> ConfigError:
    """What to install. Not `mnemos[…]` by name: a registry may know something else by it."""
    return ConfigError(
        f"it needs the package {package} ({error}); the extra '{extra}' of Mnemos installs it: "
        f"{_INSTALL.format(extra)}"
    )
