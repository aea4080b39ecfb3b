"""Each recipe runs end to end at the smallest scale: its table is filled, its figure is drawn."""

from __future__ import annotations

import csv
from itertools import cycle, islice
from pathlib import Path

import pytest

from mnemos.runs.execute import Silent
from mnemos.studies.pool import in_turn
from mnemos.studies.reproduce import scale
from mnemos.studies.reproduce.catalogue import find_recipe
from mnemos.studies.reproduce.cell import RecipeCell
from mnemos.studies.reproduce.names import recipe_names
from mnemos.studies.reproduce.reproduction import Reproduction
from support.papers_data import write_few_images

SMALLEST = 0.0002
"""Two rounds, four clients of which two train."""
WIDTH = 1 / 32
"""Of ResNets, where the smallest scale would have an eighth: convolutions take nearly all of the time."""

_LONG = ("42 iterations", "70 iterations", "all data each")
"""Columns that are like their neighbours, only longer; they are run where they have none."""


_FEW_IMAGES = ("feder/", "claims/ranks")
"""Recipes in which clients are few, and hold much."""
_TASKS = ("afcl/", "claims/bounds", "claims/continual", "claims/fractals")
_EPOCHS = ("wsm/", "tce/", "thesis/")
"""Recipes with ResNets and three local epochs, which are alike: one, unless a cell says otherwise."""


@pytest.fixture(scope="module")
def few_images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For recipes in which clients are few, and hold much."""
    return write_few_images(tmp_path_factory.mktemp("few-images"))


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "NARROWEST", WIDTH)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all: recipes have cells in common, which are run once."""
    return tmp_path_factory.mktemp("reproduce")


def few(cells: list[RecipeCell]) -> list[str]:
    """Three cells or so, from all over the recipe: a run takes half a second."""
    # A row's method is its last name; the names before are learning rates and norms.
    methods = list(dict.fromkeys(cell.row[-1] for cell in cells))
    every = list(dict.fromkeys(cell.column for cell in cells))
    columns = [column for column in every if column not in _LONG] or every
    number = max(len(methods), len(columns))
    pairs = list(zip(islice(cycle(methods), number), islice(cycle(columns), number), strict=True))
    step = -(-number // 3)
    known = {(cell.row[-1], cell.column): cell.name for cell in reversed(cells)}
    return [known[pair] for pair in pairs[::step] if pair in known]


def _with_fractals(cells: list[RecipeCell]) -> str:
    """FedSpace, or what starts from fractals where all rows are FedSpace's; FedAvg where nothing does."""
    names = ("FedSpace", "from fractals", "FedAvg")
    return next(cell.name for name in names for cell in cells if cell.row_name == name)


@pytest.mark.parametrize("name", recipe_names())
def test_it_runs_at_the_smallest_scale(
    name: str, runs: Path, papers_data: Path, few_images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name.startswith(_FEW_IMAGES):
        monkeypatch.setenv("MNEMOS_DATA", str(few_images))
    known, recipe = find_recipe(name)
    # A round of AFCL is of whole batches in four rotations, and there is one for each task at least: one cell
    # is enough, two tasks, and smaller batches. Before the first there is a model to be trained on fractals.
    if name.startswith(_TASKS):
        fractals = {"name": "fractals", "classes": 2, "images": 16, "batch": 16}
        stream = {"name": "tasks", "tasks": 2}
        smaller = {**recipe.changes, "local.batch": 16, "start": fractals, "stream": stream}
        recipe = recipe.model_copy(update={"changes": smaller})
    elif name.startswith(_EPOCHS):
        recipe = recipe.model_copy(update={"changes": {"local.epochs": 1, **recipe.changes}})
    chosen = [_with_fractals(recipe.of(SMALLEST))] if name.startswith(_TASKS) else few(recipe.of(SMALLEST))
    reproduction = Reproduction(known, recipe, runs, SMALLEST, (0,), tuple(chosen))
    results = in_turn(reproduction.cases(), runs, lambda case: Silent())
    assert all(result.status == "finished" for result in results)

    shown = reproduction.show()

    trains = type(recipe.show).trains
    drawn = type(recipe.show).name not in ("table", "rates")
    assert bool(results) == trains
    assert bool(shown.figures) == drawn
    assert all(path.stat().st_size > 5_000 for path in shown.figures)
    assert len(shown.sheet.rows) == len(shown.sheet.numbers) > 0
    assert all(len(row) == len(shown.sheet.header) for row in shown.sheet.rows)
    # Each cell that was run has a number, of which the last column counts the seeds.
    if "seeds" in shown.sheet.header:
        ours = {f"{row[0]}/{row[1]}": row[-1] for row in shown.sheet.rows}
        assert all(ours[cell] == "1" for cell in chosen)
    page = (reproduction.home / "README.md").read_text()
    assert recipe.item in page
    assert all(sentence in page for sentences in recipe.notes.values() for sentence in sentences)
    assert "rounds: " in page
    with (reproduction.home / "table.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(shown.sheet.numbers)


@pytest.mark.parametrize("name", [name for name in recipe_names() if name.startswith("claims/")])
def test_a_claims_small_setting_runs(name: str, runs: Path, papers_data: Path) -> None:
    """All that is small about it, but for fewer rounds of one step, narrower models and fewer fractals."""
    known, recipe = find_recipe(name)
    shorter = {
        **recipe.small,
        "rounds": 5,
        "local.steps": 1,
        "evaluate": {**recipe.small["evaluate"], "every": 5, "test_last": 1, "test_every": 2},
    }
    if isinstance(shorter.get("model"), dict):
        shorter["model"] = {**shorter["model"], "width": WIDTH}
    if "start" in shorter:
        shorter["start"] = {"name": "fractals", "classes": 2, "images": 16, "batch": 16}
    recipe = recipe.model_copy(update={"small": shorter})
    cells = recipe.of(None)
    chosen = _with_fractals(cells) if name.startswith(_TASKS) else cells[-1].name
    reproduction = Reproduction(known, recipe, runs, None, (0,), (chosen,))

    (result,) = in_turn(reproduction.cases(), runs, lambda case: Silent())

    assert result.status == "finished"
    reproduction.show()
    assert "In the small setting (" in (reproduction.home / "README.md").read_text()
