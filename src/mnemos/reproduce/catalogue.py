"""Where recipes are, and which there are."""

from __future__ import annotations

import re
from pathlib import Path

from mnemos.errors import ConfigError, did_you_mean
from mnemos.reproduce.recipe import Recipe

_SHARED = {"base", "paper"}
"""Files beside recipes that are none."""


def recipes_folder() -> Path:
    """Inside the installed package; in a working copy, the folder `recipes` of the repository."""
    package = Path(__file__).parents[1]
    installed = package / "recipes"
    return installed if installed.is_dir() else package.parents[1] / "recipes"


def recipe_names() -> list[str]:
    """`tce/figure-2` and so on, paper by paper, in the order of their numbers."""
    folder = recipes_folder()
    files = [path for path in folder.glob("*/*.yaml") if path.stem not in _SHARED]
    return sorted((f"{path.parent.name}/{path.stem}" for path in files), key=_natural)


def find_recipe(name: str) -> tuple[str, Recipe]:
    """A recipe by its name or by the path to its file, and the name its results get."""
    if name.endswith((".yaml", ".yml")):
        path = Path(name)
        return path.stem, Recipe.read(path)
    names = recipe_names()
    if name not in names:
        mine = [one for one in names if one.startswith(f"{name}/")]
        if mine:
            raise ConfigError(f"'{name}' has several recipes: {', '.join(mine)}")
        hint = did_you_mean(name, names)
        raise ConfigError(f"there is no recipe '{name}'; {hint}'mnemos reproduce --list' shows all")
    return name, Recipe.read(recipes_folder() / f"{name}.yaml")


def _natural(name: str) -> list[tuple[int, str]]:
    """figure-10 comes after figure-9."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
