"""A page a claim: its setting, its effects seed by seed, its cells, and their curves and heat-maps."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from claim_figures import draw_curves, draw_maps
from claim_runs import CALIBRATION, Line, cells_of, recipe_of
from claim_table import NOTHING, answer, answer_elsewhere, markdown, signed, spent, whole
from mnemos.studies.reproduce.cell import RecipeCell
from verdicts import Claim, Decided, decide

_FORGETTING = "mean_forgetting"
_EFFECTS = ("effect", "verdict", "mean (95 % interval)", "seed by seed", "paper's effect", "runs")
_CELLS = ("cell", "accuracy", "forgetting", "seeds")


def page_of(claim: Claim, lines: Sequence[Line], folder: Path) -> str:
    """The page in Markdown; its figures go into the folder."""
    parts = decide(claim, lines)
    blocks = [
        f"# Claim {claim.number}: {claim.title}",
        f"{claim.source}. [All claims](../claims.md), [rules and calibration](plan.md).",
        f"**Verdict.** {whole(claim, parts)}",
        f"**Setting.** {claim.setting[0].upper()}{claim.setting[1:]}.",
        "## Effects",
        _effects(claim, parts),
        "An effect pairs runs of the same seed. There is no verdict before the last seed is in.",
    ]
    for recipe in dict.fromkeys(part.part.recipe for part in parts):
        blocks += _recipe(claim, recipe, lines, folder)
    if parts:
        blocks += ["## Run it", _commands(parts)]
        blocks.append(f"The runs above that are finished took {spent(parts):.1f} core hours.")
    made = "<!-- made by tools/claims.py report -->"
    return "\n\n".join(block.rstrip() for block in [*blocks, made]) + "\n"


def _effects(claim: Claim, parts: Sequence[Decided]) -> str:
    rows = []
    for decided in parts:
        verdict, effect, theirs, runs = answer(decided)
        seeds = ", ".join(signed(decided.part, value) for value in decided.values.values()) or NOTHING
        rows.append((decided.part.says, verdict, effect, seeds, theirs, runs))
    for one in claim.elsewhere:
        verdict, effect, theirs, runs = answer_elsewhere(one, "../")
        rows.append((one.says, verdict, effect, NOTHING, theirs, runs))
    return markdown(_EFFECTS, rows)


def _recipe(claim: Claim, recipe: str, lines: Sequence[Line], folder: Path) -> Iterator[str]:
    """What its runs of a recipe have come to."""
    cells = chosen(claim, recipe)
    mine = [line for line in lines if line["seed"] != CALIBRATION]
    yield f"## {recipe_of(recipe).title}"
    link = f"[{recipe}](../../../recipes/{recipe}.yaml)"
    yield f"Recipe: {link}. In points; mean ± standard deviation over seeds."
    if not any(f"{recipe}: {cell.name}" in line["cells"] for cell in cells for line in mine):
        yield "None of its runs is finished."
        return
    yield markdown(_CELLS, [_cell(recipe, cell, mine) for cell in cells])
    stem = f"claim-{claim.number}-{recipe.removeprefix('claims/')}"
    forgets = any(part.figure == _FORGETTING for part in claim.parts if part.recipe == recipe)
    curves = draw_curves(recipe, cells, mine, folder / f"{stem}.png", forgetting=forgets)
    if curves is not None:
        yield f"![{'Forgetting' if forgets else 'Test accuracy'} of `{recipe}`]({curves.name})"
    maps = draw_maps(recipe, cells, mine, folder / f"{stem}-maps.png")
    if maps is not None:
        yield f"![What clients forgot of each other's data in the last round of `{recipe}`]({maps.name})"


def chosen(claim: Claim, recipe: str) -> list[RecipeCell]:
    """The cells of a recipe that the claim's effects are made of, in the claim's order."""
    every = cells_of(recipe)
    parts = [part for part in claim.parts if part.recipe == recipe]
    patterns = dict.fromkeys(name for part in parts for name in (*part.contrast, *(part.widths or ())))
    found = [cell for name in patterns for cell in every if cell.name == name or fnmatchcase(cell.name, name)]
    return [*{cell.name: cell for cell in found}.values()]


def _cell(recipe: str, cell: RecipeCell, lines: Sequence[Line]) -> tuple[str, ...]:
    mine = [line for line in lines if f"{recipe}: {cell.name}" in line["cells"]]
    lost = sum(line.get("status") == "diverged" for line in mine)
    seeds = ", ".join(str(line["seed"]) for line in mine) or NOTHING
    accuracy, forgetting = (_spread(mine, name) for name in ("accuracy", _FORGETTING))
    return cell.name, accuracy, forgetting, seeds + (f" ({lost} diverged)" if lost else "")


def _spread(lines: Sequence[Line], figure: str) -> str:
    values = [100 * line["figures"][figure] for line in lines if figure in line["figures"]]
    if not values:
        return NOTHING
    mean = f"{statistics.fmean(values):.1f}".replace("-", "−")
    return f"{mean} ± {statistics.stdev(values):.1f}" if len(values) > 1 else mean


def _commands(parts: Sequence[Decided]) -> str:
    seeds: dict[str, dict[int, None]] = {}
    for one in parts:
        seeds.setdefault(one.part.recipe, {}).update(dict.fromkeys(one.part.seeds))
    words = [f"mnemos reproduce {name} --seeds {','.join(map(str, own))}" for name, own in seeds.items()]
    return "\n".join(["<!-- not run: hours -->", "```sh", *words, "```"])
