"""What commands for studies share: reading a study from the command line, its table, and failed runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from mnemos.cli.options import split_devices, split_words
from mnemos.cli.output import run_facts
from mnemos.display.terminal import console
from mnemos.display.words import percent
from mnemos.errors import ConfigError
from mnemos.report.average import mean_of, std_of
from mnemos.studies.results import Results
from mnemos.studies.study import Study

Words = Annotated[
    list[str],
    typer.Argument(
        metavar="RECIPE [FIELD=VALUE]...",
        help="A YAML file with base, seeds, and variants, grid, list or random.",
    ),
]


def study_from(
    words: list[str], seeds: str | None, device: str | None = None
) -> tuple[Path, Callable[[], Study]]:
    """The path of the recipe, and what reads the study in it, with the changes of the command line."""
    recipe, changes = split_words(words)
    if device is not None:
        changes = {"engine.device": split_devices(device), **changes}
    if recipe is None:
        raise ConfigError(f"found '{words[0]}'; the first word must be a recipe")
    numbers = parse_seeds(seeds)
    return recipe, lambda: Study.read(recipe, changes, numbers)


def rows(results: Results) -> list[dict[str, Any]]:
    """The facts about each variant in a command's JSON object."""
    return [_row(results, variant) for variant in results.runs]


def failures(results: Results) -> list[dict[str, Any]]:
    """The facts about each run without a result in a command's JSON object."""
    return [
        {"variant": result.case.variant, "seed": result.case.experiment.seed, "message": result.message}
        for result in results.failed
    ]


def print_table(results: Results) -> None:
    """Print a row for each variant: mean, standard deviation, best and worst over its seeds."""
    last = max((result.case.experiment.evaluate.test_last for result in results), default=1)
    over = f" of the last {last} rounds" if last > 1 else ""
    table = Table("variant", f"test accuracy{over} (mean ± std)", "best", "worst", "seeds", box=None)
    for row in rows(results):
        best, worst = percent(row["best"]), percent(row["worst"])
        seeds = sum(result.case.variant == row["variant"] for result in results)
        table.add_row(Text(row["variant"]), _cell(row), best, worst, str(seeds))
    console.print(table)


def _row(results: Results, variant: str) -> dict[str, Any]:
    values = results.accuracies(variant)
    return {
        "variant": variant,
        "mean": mean_of(values) if values else None,
        "std": std_of(values),
        "best": max(values, default=None),
        "worst": min(values, default=None),
        "diverged": results.diverged(variant),
        "failed": len(results.of(variant, "failed", "interrupted", "paused")),
        "runs": [run_facts(run) for run in results.runs[variant]],
    }


def _cell(row: dict[str, Any]) -> str:
    """`93.2 ± 0.4 % (1 NC)`: a variant's accuracy, and how many of its runs have none."""
    counts = ((row["diverged"], "NC"), (row["failed"], "failed"))
    lost = ", ".join(f"{count} {word}" for count, word in counts if count)
    if row["mean"] is None:
        return "NC" if row["diverged"] and not row["failed"] else lost or "–"
    spread = f" ± {100 * row['std']:.1f}" if row["std"] is not None else ""
    return f"{100 * row['mean']:.1f}{spread} %" + (f" ({lost})" if lost else "")


def parse_seeds(text: str | None) -> tuple[int, ...] | None:
    """The seeds in a word such as `0,1,2`; None for None."""
    if text is None:
        return None
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        raise ConfigError(f"found '{text}'; expected whole numbers such as 0,1,2", "seeds") from None
