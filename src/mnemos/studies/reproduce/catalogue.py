"""The recipes that Mnemos brings: where their files are, and how they are found by name."""

from __future__ import annotations

import re
from pathlib import Path

from mnemos.errors import ConfigError, did_you_mean
from mnemos.runs.trust import Trust, opened
from mnemos.studies.reproduce.recipe import Recipe

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


def find_recipe(name: str, *, trust: Trust = False) -> tuple[str, Recipe]:
    """Find a recipe by its name or by the path of its file. Returns the name for its results, and the recipe.

    A file may come from another person: code that it names is imported only if this user has run it before,
    or trusts it.
    """
    if name.endswith((".yaml", ".yml")):
        path = Path(name)
        return path.stem, opened(name, lambda: Recipe.read(path), trust)
    names = recipe_names()
    if name not in names:
        of_paper = [known for known in names if known.startswith(f"{name}/")]
        if of_paper:
            raise ConfigError(f"'{name}' has several recipes: {', '.join(of_paper)}")
        hint = did_you_mean(name, names)
        raise ConfigError(f"there is no recipe '{name}'; {hint}'mnemos reproduce --list' shows all")
    return name, Recipe.read(recipes_folder() / f"{name}.yaml")


def _natural(name: str) -> list[tuple[int, str]]:
    """A key to sort names by, with which figure-10 comes after figure-9."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
