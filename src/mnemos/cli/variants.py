"""What the commands of many runs share: a study on the command line, its table, and what failed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from mnemos.cli.options import split_words
from mnemos.cli.output import console, percent, run_facts
from mnemos.errors import ConfigError
from mnemos.report.average import mean_of, std_of
from mnemos.runs.results import Results
from mnemos.runs.study import Study

Words = Annotated[
    list[str],
    typer.Argument(
        metavar="RECIPE [FIELD=VALUE]...",
        help="A YAML file with base, seeds, and variants, grid, list or random.",
    ),
]
Seeds = Annotated[str | None, typer.Option(help="Seeds instead of the recipe's, such as 0,1,2.")]


def read_study(words: list[str], seeds: str | None) -> tuple[Path, Study]:
    """The recipe and the study in it, with the changes of the command line."""
    recipe, changes = split_words(words)
    if recipe is None:
        raise ConfigError(f"found '{words[0]}'; the first word must be a recipe")
    return recipe, Study.read(recipe, changes, parse_seeds(seeds))


def rows(results: Results) -> list[dict[str, Any]]:
    """What a script wants to know about each variant."""
    return [_row(results, variant) for variant in results.runs]


def failures(results: Results) -> list[dict[str, Any]]:
    """What a script wants to know about each run that came to no result."""
    return [
        {"variant": one.case.variant, "seed": one.case.experiment.seed, "message": one.message}
        for one in results.failed
    ]


def print_table(results: Results) -> None:
    """The variants with mean, spread, best and worst."""
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
    counts = ((row["diverged"], "NC"), (row["failed"], "failed"))
    lost = ", ".join(f"{count} {word}" for count, word in counts if count)
    if row["mean"] is None:
        return "NC" if row["diverged"] and not row["failed"] else lost or "–"
    spread = f" ± {100 * row['std']:.1f}" if row["std"] is not None else ""
    return f"{100 * row['mean']:.1f}{spread} %" + (f" ({lost})" if lost else "")


def parse_seeds(text: str | None) -> tuple[int, ...] | None:
    """Seeds from a word such as 0,1,2."""
    if text is None:
        return None
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        raise ConfigError(f"found '{text}'; expected whole numbers such as 0,1,2", "seeds") from None
