"""Writing the folder of a federation: Flower's app, an experiment, and a guide."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from mnemos.errors import ConfigError

_FILES = {
    "pyproject.toml": "pyproject.toml",
    "federation_app/__init__.py": "package.py",
    "federation_app/server.py": "server.py",
    "federation_app/client.py": "client.py",
}
_SERVICES = {
    "deploy/mnemos-server.service": "server.service",
    "deploy/mnemos-owner.service": "owner.service",
    "Containerfile": "Containerfile",
    "compose.yaml": "compose.yaml",
    ".dockerignore": "dockerignore",
}
"""Files for those who run a federation under systemd or in containers."""


def write_app(folder: Path) -> None:
    """Write Flower's app, which says which code its server and its clients run."""
    _write(folder, _FILES)


def write_federation(folder: Path) -> None:
    """Write the app, an experiment to begin with, a guide, and files for systemd and containers."""
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} isn't empty; a federation needs its own folder")
    _write(folder, {**_FILES, **_SERVICES, "experiment.yaml": "experiment.yaml", "README.md": "README.md"})
    (folder / "data").mkdir()


def _write(folder: Path, names: dict[str, str]) -> None:
    templates = files("mnemos.deployment") / "templates"
    for name, template in names.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text((templates / template).read_text())
