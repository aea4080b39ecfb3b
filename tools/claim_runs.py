"""Finished runs of the recipes `claims/*` as lines of JSON, and the rates that calibration runs choose."""

from __future__ import annotations

import json
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

import mnemos
from mnemos.common.files import write_atomically
from mnemos.errors import DataError
from mnemos.experiment.experiment import Experiment
from mnemos.report.average import mean_of
from mnemos.runs.forgetting_matrix import ForgettingMatrix, measured_rounds, read_matrix
from mnemos.runs.run import Run
from mnemos.runs.store import overall
from mnemos.studies.reproduce.catalogue import find_recipe
from mnemos.studies.reproduce.cell import RecipeCell
from mnemos.studies.reproduce.names import recipe_names
from mnemos.studies.reproduce.recipe import Recipe

RESULTS = Path(__file__).parents[1] / "docs" / "results"
FOLDER = RESULTS / "claims"
LINES = FOLDER / "runs.jsonl"
RECORD = "record.jsonl"
"""In a folder of runs: hash, commit and processor seconds of each attempt at a run."""
CALIBRATION = 100
"""The seed that chooses settings, and is in no comparison."""
_CURVES = ("test_accuracy", "validation_accuracy", "forgetting")
"""Metrics of which every measured round is kept."""

_LARGEST = 10
"""Clients in a matrix that is kept."""

Line = dict[str, Any]


def figures(run: Run) -> dict[str, float]:
    """A run's numbers: the last value of each metric of the federation, and forgetting's mean over rounds."""
    rows = overall(run.metrics).dropna(subset=["value"])
    last = rows.groupby("name")["value"].last()
    found = {str(name): round(float(value), 6) for name, value in last.items() if not _is_cost(str(name))}
    forgetting = rows[rows["name"] == "forgetting"]["value"]
    if len(forgetting):
        found["mean_forgetting"] = round(mean_of([float(value) for value in forgetting]), 6)
    if {"personalised_test_accuracy", "plain_test_accuracy"} <= found.keys():
        found["personal_gain"] = found["personalised_test_accuracy"] - found["plain_test_accuracy"]
    if run.accuracy is not None:
        found["accuracy"] = round(run.accuracy, 6)
    return found


def _is_cost(name: str) -> bool:
    return name.startswith(("bytes_", "train_loss"))


def curves(run: Run) -> dict[str, list[list[float]]]:
    """Accuracy and forgetting over rounds."""
    metrics = run.metrics
    found = {}
    for name in _CURVES:
        rows = overall(metrics, name).dropna(subset=["value"])
        found[name] = [
            [int(at), round(float(value), 4)]
            for at, value in rows[["round", "value"]].itertuples(index=False)
        ]
    return {name: curve for name, curve in found.items() if curve}


def matrix(run: Run) -> dict[str, Any] | None:
    """The accuracies of the last round whose forgetting was measured, if a map of them can be read."""
    metrics = run.metrics
    rounds = measured_rounds(metrics)
    if not rounds:
        return None
    with suppress(DataError):
        found = read_matrix(metrics, rounds[-1])
        if 1 < len(found.after) <= _LARGEST:
            return {
                "round": rounds[-1],
                "clients": found.after.index.tolist(),
                "data": found.after.columns.tolist(),  # of clients that have dropped out as well
                "before": found.before.round(3).tolist(),
                "after": found.after.round(3).to_numpy().tolist(),
            }
    return None


def as_matrix(kept: dict[str, Any]) -> ForgettingMatrix:
    """A line's matrix as it was."""
    clients = kept["clients"]
    data = pd.Index(kept.get("data", clients), name="data")
    after = pd.DataFrame(kept["after"], pd.Index(clients, name="model"), data)
    return ForgettingMatrix(pd.Series(kept["before"], after.columns), after)


@cache
def recipe_of(name: str) -> Recipe:
    """A recipe, read once."""
    return find_recipe(name)[1]


@cache
def cells_of(recipe: str) -> tuple[RecipeCell, ...]:
    """All cells of a recipe in its small setting."""
    return tuple(recipe_of(recipe).of(None))


def labels() -> dict[str, list[str]]:
    """Cells of all recipes of claims, as `claims/rates: row/column`, by their experiment's hash at seed 0."""
    found: dict[str, list[str]] = defaultdict(list)
    for name in recipe_names():
        if name.startswith("claims/"):
            for cell in cells_of(name):
                found[_key(cell.experiment)].append(f"{name}: {cell.name}")
    return found


def _key(experiment: Experiment) -> str:
    return experiment.model_copy(update={"seed": 0}).hash()


def collect(folder: Path, record: Path | None, lines: Path = LINES) -> tuple[int, int]:
    """Add the finished runs of a folder; the number of lines added, and of all."""
    known = {line["hash"]: line for line in read_lines(lines)}
    costs = _costs(record if record or not (folder / RECORD).exists() else folder / RECORD)
    cells = labels()
    before = len(known)
    for path in sorted(folder.glob("*/experiment.yaml")):
        run = Run(path.parent)
        if not run.ended:
            continue
        experiment = run.experiment
        name = experiment.hash()
        mine = cells.get(_key(experiment))
        if mine is None:
            continue
        cost = costs.get(name, {})
        status = run.status
        known[name] = {
            "cells": mine,
            "hash": name,
            "seed": experiment.seed,
            "commit": cost.get("commit") or known.get(name, {}).get("commit") or commit(),
            "status": status.status,
            "rounds": status.rounds,
            "seconds": cost.get("seconds") or _seconds(run),
            "figures": figures(run),
            "curves": curves(run),
        }
        if (kept := matrix(run)) is not None:
            known[name]["matrix"] = kept
    ordered = sorted(known.values(), key=lambda line: (line["cells"], line["seed"]))
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in ordered)
    write_atomically(lines, text.encode())
    return len(known) - before, len(known)


def read_lines(path: Path = LINES) -> list[Line]:
    """All runs that have been collected."""
    return [json.loads(text) for text in path.read_text().splitlines()] if path.exists() else []


def _costs(record: Path | None) -> dict[str, dict[str, Any]]:
    """Processor seconds and the commit by hash, from lines of JSON that whoever ran them has written."""
    found: dict[str, dict[str, Any]] = {}
    for text in record.read_text().splitlines() if record else ():
        entry = json.loads(text)
        seconds = found.get(entry["hash"], {}).get("seconds", 0) + entry["cpu_seconds"]
        found[entry["hash"]] = {"seconds": round(seconds, 1), "commit": entry["commit"]}
    return found


def _seconds(run: Run) -> float:
    lines = run.file("timing.jsonl").read_text().splitlines()
    return round(sum(float(json.loads(line)["seconds"]) for line in lines), 1)


@cache
def commit() -> str:
    """The newest commit that changed sources or recipes; a plus follows if they have been changed since."""
    paths = ("--", ":/src", ":/recipes")
    found = _git("log", "-1", "--abbrev=7", "--format=%h", *paths)
    return found + ("+" if _git("status", "--porcelain", *paths) else "")


def _git(*words: str) -> str:
    """What git says where the sources are that are run."""
    where = Path(mnemos.__file__).parent
    return subprocess.run(
        ["git", *words], capture_output=True, text=True, cwd=where, check=True
    ).stdout.strip()


def best_rates(recipe: str, lines: Sequence[Line], seed: int = CALIBRATION) -> dict[str, tuple[float, float]]:
    """The best rate of each group of cells that differ in their rate alone, and its validation accuracy.

    Cells are named without their rate. Validation accuracy is the mean of its last three measurements, as a
    single round's varies much.
    """
    found: dict[str, tuple[float, float]] = {}
    names = {f"{recipe}: {cell.name}": cell for cell in cells_of(recipe)}
    for line in lines:
        curve = line.get("curves", {}).get("validation_accuracy")
        for cell in [names[name] for name in line["cells"] if name in names]:
            if line["seed"] != seed or line["status"] != "finished" or not curve:
                continue
            rate = cell.experiment.local.lr
            others = [part for part in cell.row if part != f"lr {rate:g}"]
            group = f"{', '.join(others)}/{cell.column}"
            accuracy = mean_of([value for _, value in curve[-3:]])
            if group not in found or accuracy > found[group][1]:
                found[group] = (rate, accuracy)
    return found
