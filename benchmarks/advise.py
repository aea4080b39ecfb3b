"""How good the advice of `mnemos advise` is, on federations that its default space was not designed on.

    python benchmarks/advise.py --out runs/advise-test [--only 0 1 2]
    python benchmarks/advise.py --out runs/advise-test --tables

For each federation: the test accuracy of every candidate of a full grid (methods × losses × rates of the
default space, without norms), as the mean over `TESTED` seeds; the advice, from validation data and other
seeds; and the regret of a choice, which is the grid's best minus the choice's, in points. Beside the advisor:
always FedAvg, always FedAvg with WSM (both with the experiment's own rate), and random search that trains as
many rounds as the advisor and takes the best by validation accuracy, as the mean over `DRAWS` draws. That one
sees the validation accuracy of the first tested seed itself, which favours it a little.

The advisor has no limit of time here, so the result doesn't depend on the machine's load. Each run is an
ordinary one and isn't run again: the script can be ended and started at any time. A federation's result is a
line of results.jsonl.
"""

from __future__ import annotations

import argparse
import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn import datasets

import mnemos
from mnemos.experiment.experiment import Experiment, load_experiment
from mnemos.runs.execute import Silent
from mnemos.runs.run import Run, runs_in
from mnemos.runs.store import overall_values
from mnemos.studies.advise.advice import advise
from mnemos.studies.advise.search import SearchGoal
from mnemos.studies.advise.space import default_space
from mnemos.studies.perform import perform

TESTED = (101, 102)
"""Seeds of the grid; the search has seed 0, and its finalists 1, 2 and 3."""
DRAWS = 200
BASE: dict[str, Any] = {
    "model": {"name": "mlp", "hidden": [32]},
    "partition": {"name": "dirichlet", "clients": 20, "validation": 0.2},
    "local": {"epochs": 2, "batch": 16},
    "rounds": 18,
    "engine": "serial",
    "evaluate": {"every": 18, "test_last": 1},
}
TASKS = {"name": "tasks", "tasks": 2}
FEDERATIONS: tuple[tuple[str, float, float, Any], ...] = (
    ("digits", 0.05, 0.1, "static"),
    ("digits", 0.3, 0.2, "static"),
    ("digits", 1.0, 0.5, "static"),
    ("digits", 0.3, 0.2, TASKS),
    ("cancer", 0.1, 0.1, "static"),
    ("cancer", 0.5, 0.2, "static"),
    ("cancer", 0.1, 0.5, "static"),
    ("wine", 0.5, 0.2, "static"),
    ("wine", 0.1, 0.5, "static"),
    ("clusters", 0.05, 0.2, "static"),
    ("clusters", 0.3, 0.1, "static"),
    ("clusters", 1.0, 0.5, "static"),
    ("clusters", 0.3, 0.2, TASKS),
)
"""(data, α, participation, stream) of each."""


def title(federation: tuple[str, float, float, Any]) -> str:
    data, alpha, share, stream = federation
    return f"{data}, α = {alpha:g}, {100 * share:.0f} %" + (", 2 tasks" if stream == TASKS else "")


def source(name: str, folder: Path) -> Any:
    """A data source: the digits, or a table of scikit-learn's, scaled, as a file."""
    if name == "digits":
        return "digits"
    path = folder / f"{name}.npz"
    if not path.exists():
        if name == "clusters":
            x, y = datasets.make_classification(
                2000, 20, n_informative=10, n_classes=8, n_clusters_per_class=2, random_state=0
            )
        else:
            bunch = datasets.load_breast_cancer() if name == "cancer" else datasets.load_wine()
            x, y = bunch.data, bunch.target
        x = (x - x.mean(axis=0)) / x.std(axis=0)
        mnemos.write_npz(path, (x.astype(np.float32), y))
    return {"name": "npz", "path": str(path.absolute())}


def grid(base: Experiment) -> list[dict[str, Any]]:
    """Every candidate, without norms."""
    fields = {name: given for name, given in default_space(base).fields.items() if name != "model.norm"}
    values = [list(given) for given in fields.values() if not hasattr(given, "low")]
    return [dict(zip(fields, chosen, strict=True)) for chosen in itertools.product(*values)]


def scores(run: Run) -> tuple[float, float]:
    """(test accuracy, validation accuracy); 0 if it did not converge."""
    records = list(run.records)
    found = [overall_values(records, name) for name in ("test_accuracy", "validation_accuracy")]
    if run.status.status != "finished":
        return 0.0, 0.0
    test, validation = (list(values.values())[-1] for values in found)
    return float(test), float(validation)


def rounds_in(folder: Path) -> int:
    """Rounds that all runs in a folder have done."""
    return sum(run.saved_rounds for run in runs_in(folder))


def measure(federation: tuple[str, float, float, Any], out: Path) -> dict[str, Any]:
    """The regrets of one federation."""
    data, alpha, share, stream = federation
    folder = out / title(federation).replace(" ", "").replace(",", "-").replace("%", "")
    folder.mkdir(parents=True, exist_ok=True)
    changes = {"data": source(data, out), "partition.alpha": alpha, "participation": share, "stream": stream}
    base = load_experiment(BASE, changes)
    candidates = grid(base)
    space = default_space(base)
    fields = {name: given for name, given in space.fields.items() if name != "model.norm"}
    first = tuple({name: value for name, value in one.items() if name in fields} for one in space.first)
    goal = SearchGoal(base, replace(space, fields=fields, first=first), (1, 2, 3))
    advice = advise(goal, folder / "advice", 1e9, lambda sentence: print(" ", sentence, flush=True))
    used = rounds_in(folder / "advice")
    table = np.zeros((len(candidates), len(TESTED), 2))
    for index, chosen in enumerate(candidates):
        for place, seed in enumerate(TESTED):
            run = perform(base.override({**chosen, "seed": seed}), folder / "grid", Silent())
            table[index, place] = scores(run)
    test, seen = table[:, :, 0].mean(axis=1), table[:, 0, 1]
    best = float(test.max())

    def regret(chosen: dict[str, Any]) -> float:
        return 100 * (best - float(test[candidates.index(chosen)]))

    trials = max(1, min(len(candidates), used // base.rounds))
    rng = np.random.default_rng(0)
    drawn = [rng.choice(len(candidates), trials, replace=False) for _ in range(DRAWS)]
    random = [100 * (best - test[mine[np.argmax(seen[mine])]]) for mine in drawn]
    assert advice.winner is not None
    own = dict(first[0])
    return {
        "federation": title(federation),
        "best": 100 * best,
        "best_choice": candidates[int(test.argmax())],
        "median": 100 * float(np.median(test)),
        "choice": advice.winner.changes,
        "advise": regret(advice.winner.changes),
        "fedavg": regret(own),
        "fedavg_wsm": regret({**own, "method.loss": "wsm"}),
        "random": float(np.mean(random)),
        "rounds": used,
        "random_trials": int(trials),
        "told_apart": sum(one.verdict == "worse" for one in advice.ranked),
        "seconds": round(advice.used),
    }


def print_tables(path: Path) -> None:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    names = ("advise", "fedavg", "fedavg_wsm", "random")
    print("| federation | best of the grid | advise | always FedAvg | always FedAvg + WSM | random search |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        cells = " | ".join(f"{row[name]:.1f}" for name in names)
        print(f"| {row['federation']} | {row['best']:.1f} % | {cells} |")
    means = " | ".join(f"**{np.mean([row[name] for row in rows]):.1f}**" for name in names)
    worst = " | ".join(f"{max(row[name] for row in rows):.1f}" for name in names)
    print(f"| **mean regret** of {len(rows)} | | {means} |\n| worst | | {worst} |")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("runs/advise-test"))
    parser.add_argument("--only", type=int, nargs="*", help="indices of federations")
    parser.add_argument("--tables", action="store_true")
    arguments = parser.parse_args()
    path = arguments.out / "results.jsonl"
    if not arguments.tables:
        torch.set_num_threads(1)
        arguments.out.mkdir(parents=True, exist_ok=True)
        done = (
            {json.loads(line)["federation"] for line in path.read_text().splitlines()}
            if path.exists()
            else set()
        )
        for index in range(len(FEDERATIONS)) if arguments.only is None else arguments.only:
            if title(FEDERATIONS[index]) not in done:
                print(title(FEDERATIONS[index]), flush=True)
                row = measure(FEDERATIONS[index], arguments.out)
                with path.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    print_tables(path)


if __name__ == "__main__":
    main()
