"""The names of the recipes that Mnemos brings, and the folder of their files; imports no PyTorch."""

from __future__ import annotations

import re
from pathlib import Path

_SHARED = {"base", "paper"}
"""Files beside the recipes that are shared by them and are no recipes."""


def recipes_folder() -> Path:
    """The folder of recipes: inside the installed package, or `recipes` of a working copy."""
    package = Path(__file__).parents[2]
    installed = package / "recipes"
    return installed if installed.is_dir() else package.parents[1] / "recipes"


def recipe_names() -> list[str]:
    """The names of all recipes, such as `tce/figure-2`, paper by paper and in the order of their numbers."""
    folder = recipes_folder()
    files = [path for path in folder.glob("*/*.yaml") if path.stem not in _SHARED]
    return sorted((f"{path.parent.name}/{path.stem}" for path in files), key=_natural)


def _natural(name: str) -> list[tuple[int, str]]:
    """A key to sort names by, with which figure-10 comes after figure-9."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
