"""How figures look."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from mnemos.errors import ConfigError

COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#5D5D5D", "#B8A100"]
"""Distinguishable for people who can't tell red from green (after Okabe and Ito, 2008)."""


def plain(name: str, most: int = 60) -> str:
    """A name as a label: matplotlib reads $ as mathematics and hides what starts with an underscore."""
    short = name if len(name) <= most else name[: most - 1] + "…"
    return (" " if short.startswith("_") else "") + short.replace("$", r"\$")


def save(figure: Figure, path: Path) -> Path:
    """Write a figure; the suffix (png, pdf, svg) says how."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=160)
    except OSError as error:
        raise ConfigError(f"{path}: the figure can't be written ({error.strerror})") from None
    return path
