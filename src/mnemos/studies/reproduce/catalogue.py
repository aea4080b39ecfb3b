"""Finding a recipe by its name or its file."""

from __future__ import annotations

from pathlib import Path

from mnemos.errors import ConfigError, did_you_mean
from mnemos.runs.trust import Trust, opened
from mnemos.studies.reproduce.names import recipe_names, recipes_folder
from mnemos.studies.reproduce.recipe import Recipe


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
