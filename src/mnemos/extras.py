"""Packages that not everybody needs: they come with an extra of Mnemos."""

from __future__ import annotations

import importlib
from typing import Any

from mnemos.errors import ConfigError


def require(module: str, package: str, extra: str) -> Any:
    """A module of such a package; without it, a `ConfigError` that says what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"it needs the package {package} ({error}); the extra '{extra}' of Mnemos installs it"
        ) from None
