"""`mnemos compare`: several variants and seeds, one table and one figure."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from mnemos.cli.options import Json, Out, Quiet, check_figure, split_words
from mnemos.cli.output import console, percent, print_json, run_facts, watch
from mnemos.errors import ConfigError
from mnemos.report.curves import draw_curves
from mnemos.runs.compare import Compared, Comparison, carry_out


def compare(
    words: Annotated[
        list[str],
        typer.Argument(metavar="RECIPE [FIELD=VALUE]...", help="A YAML file with base, variants, seeds."),
    ],
    seeds: Annotated[str | None, typer.Option(help="Seeds instead of the recipe's, such as 0,1,2.")] = None,
    out: Out = Path("runs"),
    figure: Annotated[Path | None, typer.Option(help="Where to draw the curves (png, pdf or svg).")] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run several variants of an experiment with several seeds; finished runs aren't run again."""
    recipe, changes = split_words(words)
    if recipe is None:
        raise ConfigError(f"found '{words[0]}'; the first word must be a recipe")
    if figure is not None:
        check_figure(figure)
    comparison = Comparison.read(recipe, changes, _seeds(seeds))
    compared = carry_out(comparison, out, lambda name, seed: watch(quiet, f"{name}, seed {seed}"))
    drawn = None
    if any(compared.accuracies(name) for name in compared.runs):
        drawn = draw_curves(compared.runs, figure or out / f"{recipe.stem}.png", title=recipe.stem)
    rows = [_row(compared, name) for name in compared.runs]
    if as_json:
        print_json({"status": "finished", "variants": rows, "figure": str(drawn) if drawn else None})
        return
    last = next(iter(compared.runs.values()))[0].experiment.evaluate.test_last
    over = f" of the last {last} rounds" if last > 1 else ""
    table = Table("variant", f"test accuracy{over} (mean ± std)", "best", "worst", "seeds", box=None)
    for row in rows:
        table.add_row(
            Text(row["variant"]),
            _cell(row),
            percent(row["best"]),
            percent(row["worst"]),
            str(len(row["runs"])),
        )
    console.print(table)
    if drawn:
        typer.echo(f"figure: {drawn}")
    typer.echo(f"files:  {out}")


def _row(compared: Compared, name: str) -> dict[str, Any]:
    values = compared.accuracies(name)
    return {
        "variant": name,
        "mean": statistics.fmean(values) if values else None,
        "std": statistics.stdev(values) if len(values) > 1 else None,
        "best": max(values, default=None),
        "worst": min(values, default=None),
        "diverged": compared.diverged(name),
        "runs": [run_facts(run) for run in compared.runs[name]],
    }


def _cell(row: dict[str, Any]) -> str:
    if row["mean"] is None:
        return "NC"
    spread = f" ± {100 * row['std']:.1f}" if row["std"] is not None else ""
    lost = f" ({row['diverged']} NC)" if row["diverged"] else ""
    return f"{100 * row['mean']:.1f}{spread} %{lost}"


def _seeds(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        raise ConfigError(f"found '{text}'; expected whole numbers such as 0,1,2", "seeds") from None
