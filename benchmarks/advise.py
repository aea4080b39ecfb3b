"""How good the advice of `mnemos advise` is: its regret, beside that of rules without a search.

    python benchmarks/advise.py --out runs/advise-test --set held-out [--only 0 1 2]
    python benchmarks/advise.py --out runs/advise-test --set held-out --tables

The search was designed on the set `development`. The set `held-out` was written down before any federation of
it was run, and the search wasn't changed afterwards.

For each federation: the test accuracy of every candidate of a full grid (methods × losses × rates of the
default space, without norms), as the mean over `TESTED` seeds and over the last sixth of the rounds; the
advice, from validation data and other seeds; and the regret of a choice, which is the grid's best minus the
choice's, in points. Beside the advisor: always FedAvg, always FedAvg with WSM (both with the experiment's own
rate), and random search that trains as many rounds as the advisor, in whole runs, and takes the best by the
same kind of validation score, as the mean over `DRAWS` draws. It searches with one tested seed and is judged
by the other, both ways round, so that its score, like the advisor's, is of other runs than those it is judged
by. `random_same` is what it would be if it saw the validation score of the very runs that it is judged by.

The advisor has no limit of time here, so the result doesn't depend on the machine's load. Each run is an
ordinary one and isn't run again: the script can be ended and started at any time. A federation's result is a
line of a file of results.
"""

from __future__ import annotations

import argparse
import itertools
import json
from dataclasses import dataclass, replace
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
from mnemos.studies.advise.pilots import LAST, judged
from mnemos.studies.advise.search import SearchGoal
from mnemos.studies.advise.space import default_space
from mnemos.studies.perform import perform

TESTED = (101, 102)
"""Seeds of the grid; the search has seed 0, and its finalists 1, 2 and 3."""
DRAWS = 200
BASE: dict[str, Any] = {
    "model": {"name": "mlp", "hidden": [32]},
    "local": {"epochs": 2, "batch": 16},
    "engine": "serial",
}


@dataclass(frozen=True)
class Setting:
    """A federation."""

    data: str
    alpha: float
    share: float
    """Participation."""
    tasks: int = 1
    clients: int = 20
    rounds: int = 18

    @property
    def title(self) -> str:
        text = f"{self.data}, α = {self.alpha:g}, {100 * self.share:.0f} %"
        text += f" of {self.clients}" if self.clients != 20 else ""
        text += f", {self.rounds} rounds" if self.rounds != 18 else ""
        return text + (f", {self.tasks} tasks" if self.tasks > 1 else "")

    def experiment(self, folder: Path) -> Experiment:
        """It with FedAvg, as a user would write it down; tested in the last sixth of the rounds."""
        return load_experiment(
            BASE,
            {
                "data": source(self.data, folder),
                "partition": {
                    "name": "dirichlet",
                    "clients": self.clients,
                    "validation": 0.2,
                    "alpha": self.alpha,
                },
                "participation": self.share,
                "stream": "static" if self.tasks == 1 else {"name": "tasks", "tasks": self.tasks},
                "rounds": self.rounds,
                "evaluate": {"every": max(1, self.rounds // 18), "test_last": self.rounds // LAST},
            },
        )


SETS: dict[str, tuple[Setting, ...]] = {
    "development": (
        Setting("digits", 0.05, 0.1),
        Setting("digits", 0.3, 0.2),
        Setting("digits", 1.0, 0.5),
        Setting("digits", 0.3, 0.2, tasks=2),
        Setting("cancer", 0.1, 0.1),
        Setting("cancer", 0.5, 0.2),
        Setting("cancer", 0.1, 0.5),
        Setting("wine", 0.5, 0.2),
        Setting("wine", 0.1, 0.5),
        Setting("clusters", 0.05, 0.2),
        Setting("clusters", 0.3, 0.1),
        Setting("clusters", 1.0, 0.5),
        Setting("clusters", 0.3, 0.2, tasks=2),
    ),
    "held-out": (
        Setting("4 clusters", 0.1, 0.2),
        Setting("12 clusters", 0.1, 0.1),
        Setting("shells", 0.2, 0.15),
        Setting("digits", 0.1, 0.05, clients=40, rounds=24),
        Setting("cancer", 0.05, 0.2, clients=15),
        Setting("4 clusters", 0.3, 0.3, tasks=2, clients=10),
        Setting("femnist digits", 0.1, 0.1),
        Setting("wine", 0.2, 0.3, clients=10),
        Setting("shells", 0.5, 0.1, clients=30, rounds=30),
        Setting("digits", 0.15, 0.1, tasks=3, clients=30),
        Setting("12 clusters", 0.5, 0.4, clients=10),
        Setting("cancer", 0.3, 1.0, clients=6, rounds=12),
        Setting("femnist digits", 0.5, 0.3, tasks=2, clients=10),
    ),
}


def source(name: str, folder: Path) -> Any:
    """A data source: the digits, or a table, scaled, as a file."""
    if name == "digits":
        return "digits"
    path = folder / f"{name.replace(' ', '-')}.npz"
    if not path.exists():
        x, y = table(name)
        spread = x.std(axis=0)
        x = (x - x.mean(axis=0)) / np.where(spread > 0, spread, 1)
        mnemos.write_npz(path, (x.astype(np.float32), y))
    return {"name": "npz", "path": str(path.absolute())}


def table(name: str) -> Any:
    """Features and labels of scikit-learn's tables and generators, and of FEMNIST in $MNEMOS_DATA."""
    match name:
        case "cancer" | "wine":
            bunch = datasets.load_breast_cancer() if name == "cancer" else datasets.load_wine()
            return bunch.data, bunch.target
        case "clusters":
            return datasets.make_classification(
                2000, 20, n_informative=10, n_classes=8, n_clusters_per_class=2, random_state=0
            )
        case "4 clusters":
            return datasets.make_classification(
                1200, 12, n_informative=6, n_classes=4, n_clusters_per_class=3, random_state=7
            )
        case "12 clusters":
            return datasets.make_classification(
                1800, 24, n_informative=14, n_classes=12, n_clusters_per_class=1, random_state=11
            )
        case "shells":
            return datasets.make_gaussian_quantiles(n_samples=1500, n_features=5, n_classes=5, random_state=3)
    # The first 1,500 images of digits, in the order of LEAF's writers, as means of 2 × 2 pixels.
    data = load_experiment({"data": "femnist", "partition": "natural"}).data.load().train
    chosen = np.flatnonzero(np.asarray(data.labels) < 10)[:1500]
    images = np.asarray(data.samples)[chosen].reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4))
    return images.reshape(-1, 196), np.asarray(data.labels)[chosen]


def grid(base: Experiment) -> list[dict[str, Any]]:
    """Every candidate, without norms."""
    fields = {name: given for name, given in default_space(base).fields.items() if name != "model.norm"}
    values = [list(given) for given in fields.values() if not hasattr(given, "low")]
    return [dict(zip(fields, chosen, strict=True)) for chosen in itertools.product(*values)]


def scores(run: Run) -> tuple[float, float]:
    """(test accuracy, validation accuracy) of the last sixth of the rounds; 0 if it did not converge."""
    records = list(run.records)
    if run.status.status != "finished":
        return 0.0, 0.0
    test, validation = (
        judged(overall_values(records, name), run.experiment.rounds)
        for name in ("test_accuracy", "validation_accuracy")
    )
    return test or 0.0, validation or 0.0


def rounds_in(folder: Path) -> int:
    """Rounds that all runs in a folder have done."""
    return sum(run.saved_rounds for run in runs_in(folder))


def random_search(table: Any, trials: int) -> tuple[float, float]:
    """The mean accuracy of the choice of random search: judged by other runs than it saw, or by the same.

    `table` has (test, validation) accuracies by candidate and seed.
    """
    rng, seeds = np.random.default_rng(0), len(TESTED)
    test, seen = table[:, :, 0], table[:, :, 1]
    other, same = [], []
    for _ in range(DRAWS):
        mine = rng.choice(len(table), trials, replace=False)
        for place in range(seeds):
            choice = mine[np.argmax(seen[mine, place])]
            other.append(np.delete(test[choice], place).mean())
            same.append(test[choice].mean())
    return float(np.mean(other)), float(np.mean(same))


def measure(setting: Setting, out: Path) -> dict[str, Any]:
    """The regrets of one federation."""
    folder = out / setting.title.replace(" ", "").replace(",", "-").replace("%", "")
    folder.mkdir(parents=True, exist_ok=True)
    base = setting.experiment(out)
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
    test = table[:, :, 0].mean(axis=1)
    best = float(test.max())

    def regret(chosen: dict[str, Any]) -> float:
        return 100 * (best - float(test[candidates.index(chosen)]))

    trials = max(1, min(len(candidates), used // base.rounds))
    other, same = random_search(table, trials)
    assert advice.winner is not None
    own = dict(first[0])
    return {
        "federation": setting.title,
        "best": 100 * best,
        "best_choice": candidates[int(test.argmax())],
        "median": 100 * float(np.median(test)),
        "choice": advice.winner.changes,
        "advise": regret(advice.winner.changes),
        "fedavg": regret(own),
        "fedavg_wsm": regret({**own, "method.loss": "wsm"}),
        "random": 100 * (best - other),
        "random_same": 100 * (best - same),
        "rounds": used,
        "random_trials": int(trials),
        "told_apart": sum(one.verdict == "worse" for one in advice.ranked),
        "finalists": len(advice.ranked),
        "seconds": round(advice.used),
    }


def print_tables(path: Path) -> None:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    names = {
        "advise": "advise",
        "fedavg": "always FedAvg",
        "fedavg_wsm": "always FedAvg + WSM",
        "random": "random search",
        "random_same": "random search that sees the judged runs",
    }
    print(f"| federation | best of the grid | {' | '.join(names.values())} |\n|{'---|' * (len(names) + 2)}")
    for row in rows:
        cells = " | ".join(f"{row[name]:.1f}" for name in names)
        print(f"| {row['federation']} | {row['best']:.1f} % | {cells} |")
    for title, summary in (("mean regret", np.mean), ("median", np.median), ("worst", np.max)):
        cells = " | ".join(f"**{summary([row[name] for row in rows]):.1f}**" for name in names)
        print(f"| **{title}** of {len(rows)} | | {cells} |")
    for name in list(names)[1:]:
        better = sum(row["advise"] < row[name] for row in rows)
        print(f"advise has less regret than {names[name]} in {better} of {len(rows)}")
    print("told apart from the winner:", sum(row["told_apart"] for row in rows), end=" ")
    print("of", sum(row["finalists"] - 1 for row in rows), "other finalists")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("runs/advise-test"))
    parser.add_argument("--set", choices=list(SETS), required=True)
    parser.add_argument("--only", type=int, nargs="*", help="indices of federations")
    parser.add_argument("--tables", action="store_true")
    arguments = parser.parse_args()
    path = arguments.out / f"{arguments.set}.jsonl"
    if not arguments.tables:
        torch.set_num_threads(1)
        arguments.out.mkdir(parents=True, exist_ok=True)
        lines = path.read_text().splitlines() if path.exists() else []
        done = {json.loads(line)["federation"] for line in lines}
        settings = SETS[arguments.set]
        for index in range(len(settings)) if arguments.only is None else arguments.only:
            if settings[index].title not in done:
                print(settings[index].title, flush=True)
                row = measure(settings[index], arguments.out)
                with path.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    print_tables(path)


if __name__ == "__main__":
    main()
