"""`mnemos tune`: the search of `mnemos advise` in a space of the user's own."""

from __future__ import annotations

from pathlib import Path

from mnemos.cli.advice import BudgetOption, Weight, search
from mnemos.cli.looking import needing_code
from mnemos.cli.options import Device, Json, Out, Quiet, Seeds
from mnemos.cli.trusting import Trusted
from mnemos.cli.variants import Words, study_from
from mnemos.studies.advise.budget import parse_budget
from mnemos.studies.advise.tuning import goal_of


def tune(
    words: Words,
    seeds: Seeds = None,
    device: Device = None,
    budget: BudgetOption = "20m",
    forgetting: Weight = 0.0,
    out: Out = Path("runs/tune"),
    trust: Trusted = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Search a study's space by successive halving: short pilots, then several seeds.

    The space is the study's grid, random fields, list or variants; the best are run with several seeds.
    Pilots are judged on validation data; test data isn't touched. What was done is kept in the folder: the
    same command continues, or repeats its answer.
    """
    seconds = parse_budget(budget)
    recipe, read = study_from(words, seeds, device)
    goal = goal_of(needing_code(recipe, read, trust), forgetting)
    search(goal, out, seconds, quiet=quiet, as_json=as_json)
