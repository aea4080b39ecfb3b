"""What is known of recipes without PyTorch: names and titles, the folder of their files, rules of scaling."""

from __future__ import annotations

import re
from pathlib import Path

_SHARED = {"base", "paper"}
"""Files beside the recipes that are shared by them and are no recipes."""

RULES = (
    "Rounds are multiplied by S (at least 2, or one a task), and so are the rounds between validations and "
    "between tests and the last rounds that are tested (each at least 1), the rounds whose forgetting is "
    "measured, the rounds or epochs in which a learning-rate schedule falls, and the images of each fractal "
    "that a model starts from. "
    "ResNets' width is multiplied by √S (at least 1/8); LeNet keeps its width. "
    "Clients stay as they are down to S = 0.1; below, their number is multiplied by 10·S (at least 4; that "
    "of a partition power-law stays): the first ones take part with the samples they had among all, the "
    "others are left out. A cohort doesn't "
    "fall below 2, unless it is smaller in the paper. Learning rates, local epochs, patience and α stay."
)
"""The rules of scaling, for the command's help."""


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


def recipe_title(name: str) -> str:
    """The title of a recipe, read from its file's first line that has one, not from the whole of it."""
    with (recipes_folder() / f"{name}.yaml").open(encoding="utf-8") as lines:
        found = (line.removeprefix("title:").strip() for line in lines if line.startswith("title:"))
        return next(found, "").strip("\"'")


def _natural(name: str) -> list[tuple[int, str]]:
    """A key to sort names by, with which figure-10 comes after figure-9."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
